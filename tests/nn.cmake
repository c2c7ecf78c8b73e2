# The room of cells and model families.
tg_test(test_nn_cell ROOMS nn)
