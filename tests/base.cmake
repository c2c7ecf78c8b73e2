# The base room. "thread" marks the tests that the thread sanitizer runs.
tg_test(test_base_fail ROOMS base)
tg_test(test_base_mem ROOMS base)
tg_test(test_base_text ROOMS base)
tg_test(test_base_json ROOMS base)
tg_test(test_base_file ROOMS base)
tg_test(test_base_rng ROOMS base)
tg_test(test_base_thread ROOMS base LABELS fast thread)
