# Operators: the table test over every case list, its own test, and tests of single operators.
add_library(tg_op_harness STATIC EXCLUDE_FROM_ALL op_harness.c op_harness_kernel.c op_harness_grad.c op_harness_place.c)
target_compile_options(tg_op_harness PRIVATE ${TG_C_FLAGS})
target_link_libraries(tg_op_harness PUBLIC tg_op_cases tg_autograd OpenMP::OpenMP_C m)
tg_test(test_ops ROOMS op_harness)
tg_test(test_op_harness ROOMS op_harness)
tg_test(test_op_values ROOMS op)
# Waiting threads sleep: the table test runs teams larger than the machine, which would spin against each other.
set_tests_properties(test_ops test_op_harness PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
tg_test(test_op_shards ROOMS op_cases)
tg_test(test_ring SOURCES test_ring.c ranks_world.c ROOMS op)
tg_test(test_experts SOURCES test_experts.c ranks_world.c ROOMS op)
