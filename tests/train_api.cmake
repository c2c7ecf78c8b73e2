# The public training interface and models for use.
tg_test(test_model_api ROOMS train)
