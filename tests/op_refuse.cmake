# What the operators of shapes, norms and language models refuse, and their special values.
tg_test(test_op_refuse SOURCES test_op_refuse.c op_calls.c ROOMS op)
