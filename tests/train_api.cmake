# The public training interface and models for use.
tg_test(test_model_api ROOMS train)
tg_test(test_lm_use ROOMS train)
