# Models against reference values, and model folders as others write them.
tg_test(test_verify ROOMS train)
