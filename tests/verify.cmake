# Models against reference values, and model folders as others write them.
tg_test(test_verify SOURCES test_verify.c golden_edit.c ROOMS train)
tg_test(test_weight_folders SOURCES test_weight_folders.c golden_edit.c ROOMS train)
tg_test(test_nn_moe ROOMS nn)
tg_test(test_moe_ops ROOMS op)
add_test(NAME test_cli_verify COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_cli_verify.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
set_tests_properties(test_cli_verify PROPERTIES LABELS fast TIMEOUT 600)
add_test(NAME test_cli_model COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_cli_model.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
set_tests_properties(test_cli_model PROPERTIES LABELS fast TIMEOUT 600)
# Against transformers itself, every family and option: registered where TENG_TORCH_PYTHON names a Python that has it.
set(TENG_TORCH_PYTHON "" CACHE FILEPATH "Python that has torch and transformers, for the tests labelled interop")
if(TENG_TORCH_PYTHON)
  add_test(NAME families_interop
           COMMAND ${TENG_TORCH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/interop_torch/families_interop.py $<TARGET_FILE:teng>)
  add_test(NAME use_interop
           COMMAND ${TENG_TORCH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/interop_torch/use_interop.py $<TARGET_FILE:teng>)
  set_tests_properties(families_interop use_interop PROPERTIES LABELS interop SKIP_RETURN_CODE 77 TIMEOUT 1200)
endif()
add_test(NAME test_finetune COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/test_finetune.sh $<TARGET_FILE:teng> ${CMAKE_SOURCE_DIR})
set_tests_properties(test_finetune PROPERTIES LABELS fast TIMEOUT 600 ENVIRONMENT OMP_WAIT_POLICY=passive)
