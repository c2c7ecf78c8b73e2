# Pipelines: schedules, cutting a graph into stages, steps over several stages.
tg_test(test_pipe_schedule ROOMS parallel LABELS fast)
tg_test(test_pipe_cut SOURCES test_pipe_cut.c tiny_lm.c ROOMS train LABELS fast)
if(TENG_MPI_LIBRARY)
  add_executable(test_pipeline test_pipeline.c tiny_lm.c)
  target_compile_options(test_pipeline PRIVATE ${TG_C_FLAGS})
  target_link_libraries(test_pipeline PRIVATE tg_train TgDep::cmocka m)
  foreach(ranks 2 4)
    add_test(NAME test_pipeline_${ranks}
             COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi_run.sh ${ranks} $<TARGET_FILE:test_pipeline>)
    set_tests_properties(test_pipeline_${ranks} PROPERTIES LABELS fast SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2)
  endforeach()
  add_test(NAME test_pipeline_all
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mpi_run.sh 4 $<TARGET_FILE:test_pipeline> all)
  set_tests_properties(test_pipeline_all PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 600 PROCESSORS 2)
endif()
