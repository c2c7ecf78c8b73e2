# The bench room's figures; the commands that print them; compare.py is in bench/.
tg_test(test_bench SOURCES test_bench.c scratch.c ROOMS bench)
tg_program_test(test_cli_bench LABELS fast ARGS ${CMAKE_SOURCE_DIR})
tg_program_test(test_bench_memory LABELS slow ARGS ${CMAKE_SOURCE_DIR})
set_tests_properties(test_bench_memory PROPERTIES PROCESSORS 2 TIMEOUT 600)
set_tests_properties(test_bench test_cli_bench PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
