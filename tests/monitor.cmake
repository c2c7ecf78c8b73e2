# The monitor room: metrics, console, plots.
tg_test(test_metrics ROOMS monitor LABELS fast)
tg_test(test_progress ROOMS monitor LABELS fast)
tg_test(test_plot ROOMS monitor LABELS fast)
tg_test(test_profile SOURCES test_profile.c trace_check.c ROOMS monitor LABELS fast)
