tg_test(test_tensor ROOMS tensor)
