# The mesh and communication; the same test alone and on several ranks of this machine.
tg_test(test_mesh ROOMS mesh tensor LABELS fast)
tg_test(test_comm ROOMS comm tensor LABELS fast thread)
tg_test(test_collective ROOMS op LABELS fast)
tg_program_test(test_cli_ranks LABELS fast)
# tg_mpi_test(NAME ranks COMMAND …): under mpirun, as root and on fewer cores too; skipped where there is none.
function(tg_mpi_test name ranks)
  cmake_parse_arguments(T "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi_run.sh ${ranks} ${T_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${T_TIMEOUT}
    PROCESSORS 2)
endfunction()
if(TENG_MPI_LIBRARY)
  tg_mpi_test(test_comm_2 2 COMMAND $<TARGET_FILE:test_comm> LABELS fast)
  tg_mpi_test(test_comm_4 4 COMMAND $<TARGET_FILE:test_comm> LABELS fast)
  tg_mpi_test(test_comm_missing 2 COMMAND $<TARGET_FILE:test_comm> missing LABELS fast)
  set_tests_properties(test_comm_missing PROPERTIES
    PASS_REGULAR_EXPRESSION "has waited 0[.]3 s .* for rank 1, for .* s in: dreaming in test_comm[.]c")
  tg_mpi_test(test_collective_4 4 COMMAND $<TARGET_FILE:test_collective> LABELS fast)
endif()
