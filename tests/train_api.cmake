# The public training interface and models for use.
tg_test(test_model_api ROOMS train)
tg_test(test_lm_use ROOMS train)
tg_test(test_generate SOURCES test_generate.c scratch.c ROOMS train)
set_tests_properties(test_generate PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
