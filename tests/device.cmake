# The device room: instruction sets, services, products under every instruction set.
tg_test(test_cpu_isa ROOMS device LABELS fast)
tg_test(test_device ROOMS device LABELS fast)
tg_test(test_gemm ROOMS device LABELS fast)
target_link_libraries(test_gemm PRIVATE OpenMP::OpenMP_C)
tg_test(test_cpu_info ROOMS device LABELS fast)
tg_test(test_products ROOMS device LABELS fast)

# The same products under lower instruction sets; 77 says that this machine lacks one.
set_tests_properties(test_gemm PROPERTIES SKIP_RETURN_CODE 77)
foreach(isa v2 v3 v4)
  if(isa IN_LIST TG_ISA_LIST)
    add_test(NAME test_gemm_${isa} COMMAND test_gemm WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(test_gemm_${isa} PROPERTIES LABELS fast TIMEOUT 600 SKIP_RETURN_CODE 77
      ENVIRONMENT TENG_CPU_ISA=${isa})
  endif()
endforeach()
