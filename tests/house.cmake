# The house rules hold, and the checker of the house rules finds what it should.
add_test(NAME house_rules COMMAND sh ${CMAKE_SOURCE_DIR}/scripts/check_rooms.sh ${CMAKE_SOURCE_DIR})
add_test(NAME house_selftest COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/house_selftest.sh
                                     ${CMAKE_SOURCE_DIR}/scripts/check_rooms.sh)
set_tests_properties(house_rules house_selftest PROPERTIES LABELS fast TIMEOUT 120)
add_test(NAME test_promises COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_promises.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CMAKE_CTEST_COMMAND})
set_tests_properties(test_promises PROPERTIES LABELS fast)
