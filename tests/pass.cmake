# Passes over graphs.
tg_test(test_pass ROOMS pass)
