# Memory: recompute in whole steps, the minimum cut alone, clones in random graphs.
tg_test(test_recompute SOURCES test_recompute.c tiny_lm.c ROOMS train)
tg_test(test_plan_kinds SOURCES test_plan_kinds.c tiny_lm.c ROOMS train)
tg_test(test_recompute_random ROOMS exec autograd pass)
set_tests_properties(test_recompute test_plan_kinds test_recompute_random PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
