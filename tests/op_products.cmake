# What the products, attention and the fused loss refuse, and their special values.
tg_test(test_op_products SOURCES test_op_products.c op_calls.c ROOMS op)
