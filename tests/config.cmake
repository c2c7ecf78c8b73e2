# Tests of the config room. test_config_help --write FILE writes docs/configuration.md.
tg_test(test_config ROOMS config)
tg_test(test_config_check ROOMS config)
tg_test(test_config_help ROOMS config)
