# Graphs of ranks, run in one process.
add_library(tg_par_case STATIC EXCLUDE_FROM_ALL par_case.c par_sim.c)
target_compile_options(tg_par_case PRIVATE ${TG_C_FLAGS})
target_link_libraries(tg_par_case PUBLIC tg_parallel tg_nn tg_autograd tg_optim TgDep::cmocka)
tg_test(test_parallel ROOMS par_case)
tg_test(test_par_fuse ROOMS par_case)
tg_test(test_par_bytes ROOMS par_case LABELS fast)
tg_test(test_par_loss ROOMS par_case LABELS fast)
