# The examples run, the plugin passes the table test, bad plugins are refused.
add_test(NAME example_custom_cell COMMAND custom_cell)
add_test(NAME test_article COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_article.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR}
                                   $<TARGET_FILE:article> $<TARGET_FILE:custom_op>)
set_tests_properties(example_custom_cell test_article PROPERTIES LABELS fast TIMEOUT 600)

set(bad_plugins "")
foreach(bad RANGE 1 3)
  add_library(bad_plugin_${bad} MODULE bad_plugin.c)
  target_compile_options(bad_plugin_${bad} PRIVATE ${TG_C_FLAGS})
  target_compile_definitions(bad_plugin_${bad} PRIVATE BAD=${bad})
  target_include_directories(bad_plugin_${bad} PRIVATE ${CMAKE_SOURCE_DIR}/include)
  list(APPEND bad_plugins $<TARGET_FILE:bad_plugin_${bad}>)
endforeach()
tg_test(test_plugin ROOMS op_harness train ARGS $<TARGET_FILE:custom_op> ${bad_plugins})
# A plugin finds teng's functions in the program that loads it, as in the program teng.
set_target_properties(test_plugin PROPERTIES ENABLE_EXPORTS ON
  LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,tg_base,tg_tensor,tg_graph,tg_op")
add_dependencies(test_plugin custom_op bad_plugin_1 bad_plugin_2 bad_plugin_3)
