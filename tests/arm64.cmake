# The NEON kernels, cross-built and emulated; ctest -L arm64 runs them alone.
if(NOT CMAKE_CROSSCOMPILING AND NOT TENG_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TENG_ARM64_ROOT ${CMAKE_SOURCE_DIR}/build/arm64-root CACHE PATH "Folder of scripts/arm64-root.sh")
  add_test(NAME test_arm64 COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_arm64.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/arm64 ${TENG_ARM64_ROOT})
  set_tests_properties(test_arm64 PROPERTIES LABELS "slow;arm64" SKIP_RETURN_CODE 77 TIMEOUT 3000 PROCESSORS 2)
endif()
