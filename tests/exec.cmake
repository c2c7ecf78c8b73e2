# Running plans, and PYNATIVE. Whole training steps: train.cmake.
tg_test(test_exec ROOMS exec eager)
