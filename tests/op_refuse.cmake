# What the operators of shapes, norms and language models refuse, and their special values.
tg_test(test_op_refuse ROOMS op)
