# The graph room: building, text and its parser, checks, where errors point. fuzz.cmake stands before this file.
tg_test(test_graph ROOMS op)
tg_test(test_graph_text ROOMS op_harness)
tg_fuzz(graph_text ROOMS op)
