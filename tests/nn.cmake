# The room of cells and model families.
tg_test(test_nn_cell ROOMS nn)
tg_test(test_nn_families ROOMS nn)
tg_test(test_nn_models ROOMS nn)
