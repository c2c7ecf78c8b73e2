# The mesh and communication; the same test alone and on several ranks of this machine.
tg_test(test_mesh ROOMS mesh tensor LABELS fast)
tg_test(test_comm ROOMS comm tensor LABELS fast thread)
tg_test(test_collective SOURCES test_collective.c ranks_world.c ROOMS op LABELS fast)
tg_test(test_exec_ranks SOURCES test_exec_ranks.c ranks_world.c ROOMS exec LABELS fast thread)
tg_program_test(test_cli_ranks LABELS fast ARGS ${CMAKE_SOURCE_DIR})
# tg_mpi_test(NAME ranks COMMAND …): under mpirun, as root and on fewer cores too; skipped where there is none.
function(tg_mpi_test name ranks)
  cmake_parse_arguments(T "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi_run.sh ${ranks} ${T_COMMAND})
  set_property(TEST ${name} PROPERTY ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${T_TIMEOUT}
    PROCESSORS 2)
endfunction()
if(TENG_MPI_LIBRARY)
  tg_mpi_test(test_comm_2 2 COMMAND $<TARGET_FILE:test_comm> LABELS fast)
  tg_mpi_test(test_comm_4 4 COMMAND $<TARGET_FILE:test_comm> LABELS fast)
  tg_mpi_test(test_comm_mpi_4 4 COMMAND $<TARGET_FILE:test_comm> LABELS fast)
  set_property(TEST test_comm_mpi_4 APPEND PROPERTY ENVIRONMENT TENG_SHARED_MEMORY=off) # as between hosts
  tg_mpi_test(test_comm_check_4 4 COMMAND $<TARGET_FILE:test_comm> check LABELS fast)
  tg_mpi_test(test_exec_ranks_2 2 COMMAND $<TARGET_FILE:test_exec_ranks> LABELS fast)
  tg_mpi_test(test_exec_ranks_4 4 COMMAND $<TARGET_FILE:test_exec_ranks> LABELS fast)
  tg_mpi_test(test_collective_4 4 COMMAND $<TARGET_FILE:test_collective> LABELS fast)
  tg_mpi_test(test_ring_2 2 COMMAND $<TARGET_FILE:test_ring> LABELS fast)
  tg_mpi_test(test_ring_4 4 COMMAND $<TARGET_FILE:test_ring> LABELS fast)
  tg_mpi_test(test_experts_2 2 COMMAND $<TARGET_FILE:test_experts> LABELS fast)
  tg_mpi_test(test_experts_4 4 COMMAND $<TARGET_FILE:test_experts> LABELS fast)
  add_test(NAME test_ranks_bytes COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_ranks_bytes.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
  set_tests_properties(test_ranks_bytes PROPERTIES LABELS fast SKIP_RETURN_CODE 77 TIMEOUT 120 PROCESSORS 2
    ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
  add_test(NAME test_ranks_memory COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_ranks_memory.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
  set_tests_properties(test_ranks_memory PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
  # What happens when ranks die, hang or differ: a program that fails as asked, and what the others say.
  add_executable(comm_fault comm_fault.c)
  target_compile_options(comm_fault PRIVATE ${TG_C_FLAGS})
  target_link_libraries(comm_fault PRIVATE tg_comm)
  add_test(NAME test_comm_fault COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test_comm_fault.sh $<TARGET_FILE:comm_fault>)
  set_tests_properties(test_comm_fault PROPERTIES LABELS fast SKIP_RETURN_CODE 77 TIMEOUT 120 PROCESSORS 2
    ENVIRONMENT TENG_MPIRUN=${TENG_MPIRUN})
endif()
if(NOT TENG_SANITIZE)
  add_test(NAME test_mpi_builds COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test_mpi_builds.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/mpi_builds)
  set_tests_properties(test_mpi_builds PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 1200 PROCESSORS 2)
endif()
