# The plan room: layout of buffers, the planner's decisions, and plans of random graphs run in every way.
tg_test(test_layout ROOMS plan)
tg_test(test_plan ROOMS plan)
tg_test(test_plan_random SOURCES test_plan_random.c poison_run.c ROOMS exec eager pass)
