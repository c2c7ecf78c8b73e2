# The train room: whole steps in both modes, the optimizer, runs and their folders. The public interface: train_api.cmake.
tg_test(test_step SOURCES test_step.c tiny_lm.c ROOMS train)
target_link_libraries(test_step PRIVATE OpenMP::OpenMP_C)
tg_test(test_step_text SOURCES test_step_text.c tiny_lm.c poison_run.c ROOMS train)
tg_test(test_optim SOURCES test_optim.c tiny_lm.c ROOMS train)
tg_test(test_run ROOMS train)
tg_test(test_run_profile SOURCES test_run_profile.c trace_check.c ROOMS train)
tg_test(test_loss_scale ROOMS train)
tg_test(test_precision SOURCES test_precision.c tiny_lm.c ROOMS train)
# The program killed at random moments: a few times, and many times.
tg_program_test(test_kill_resume LABELS fast ARGS ${CMAKE_SOURCE_DIR} 5)
add_test(NAME test_kill_resume_often
         COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_kill_resume.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR} 40)
set_tests_properties(test_kill_resume_often PROPERTIES LABELS slow TIMEOUT 600)
# Waiting threads give their core away: these tests share two cores with others.
set_tests_properties(test_step test_step_text test_optim test_run test_run_profile test_precision test_kill_resume
                     test_kill_resume_often PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
