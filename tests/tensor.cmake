# The tensor room: types, shapes, conversion, comparison.
tg_test(test_tensor ROOMS tensor)
