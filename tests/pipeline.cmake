# Pipelines: schedules, cutting a graph into stages, steps over several stages.
tg_test(test_pipe_schedule ROOMS parallel LABELS fast)
