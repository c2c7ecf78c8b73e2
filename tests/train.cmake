# The train room: whole steps in both modes, the optimizer, runs and their folders. The public interface: train_api.cmake.
tg_test(test_step SOURCES test_step.c tiny_lm.c ROOMS train)
target_link_libraries(test_step PRIVATE OpenMP::OpenMP_C)
tg_test(test_step_text SOURCES test_step_text.c tiny_lm.c poison_run.c ROOMS train)
tg_test(test_optim SOURCES test_optim.c tiny_lm.c ROOMS train)
# Waiting threads give their core away: these tests share two cores with others.
set_tests_properties(test_step test_step_text test_optim PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
