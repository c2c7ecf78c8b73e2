# Tests of the program. test_cli_args --write FILE writes docs/commands.md. The shell tests are given the program.
tg_test(test_cli_args ROOMS cli)

# tg_program_test(name ARGS … LABELS …): the script tests/<name>.sh with the program's path and ARGS; 77 means skipped.
function(tg_program_test name)
  cmake_parse_arguments(T "" "" "ARGS;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/${name}.sh $<TARGET_FILE:teng> ${T_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endfunction()
tg_program_test(test_cli_usage LABELS fast ARGS ${CMAKE_SOURCE_DIR})
tg_program_test(test_cli_pages LABELS fast)
tg_program_test(test_cli_completion LABELS fast)
tg_program_test(test_cli_data LABELS fast)
if(NOT TENG_SANITIZE) # which takes memory of its own
  tg_program_test(test_cli_convert LABELS fast ARGS ${CMAKE_SOURCE_DIR})
endif()
tg_program_test(test_cli_run LABELS fast ARGS ${CMAKE_SOURCE_DIR})
tg_program_test(test_cli_signals LABELS fast ARGS ${CMAKE_SOURCE_DIR})
tg_program_test(test_exact LABELS fast ARGS ${CMAKE_SOURCE_DIR})
tg_program_test(test_products_run LABELS fast ARGS ${CMAKE_SOURCE_DIR})
if(NOT TENG_SANITIZE) # a sanitized library wants its runtime in every program that uses it
  tg_program_test(test_install LABELS fast ARGS ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER} ${CMAKE_COMMAND})
endif()
