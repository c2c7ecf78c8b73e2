# Memory: recompute in whole steps and in random graphs, the minimum cut, memory by kind, states on disk.
tg_test(test_recompute SOURCES test_recompute.c tiny_lm.c ROOMS train)
tg_test(test_offload SOURCES test_offload.c tiny_lm.c ROOMS train)
tg_test(test_plan_kinds SOURCES test_plan_kinds.c tiny_lm.c ROOMS train)
tg_test(test_recompute_random ROOMS exec autograd pass)
set_tests_properties(test_recompute test_offload test_plan_kinds test_recompute_random PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
