# What the products, attention and the fused loss refuse, and their special values.
tg_test(test_op_products ROOMS op)
