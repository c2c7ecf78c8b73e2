# The train room: whole steps in both modes, the optimizer, runs and their folders. The public interface: train_api.cmake.
tg_test(test_step SOURCES test_step.c tiny_lm.c ROOMS train)
target_link_libraries(test_step PRIVATE OpenMP::OpenMP_C)
