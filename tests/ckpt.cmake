# The checkpoint room: tensor files, checkpoints, model folders. "thread" marks what the thread sanitizer runs.
tg_test(test_box_copy ROOMS mesh)
tg_test(test_safetensors SOURCES test_safetensors.c scratch.c ROOMS ckpt)
tg_test(test_checkpoint SOURCES test_checkpoint.c scratch.c ROOMS ckpt)
tg_test(test_ckpt_writer SOURCES test_ckpt_writer.c scratch.c ROOMS ckpt LABELS fast thread)
tg_test(test_ckpt_parts SOURCES test_ckpt_parts.c scratch.c ROOMS ckpt)
tg_test(test_ckpt_crash ROOMS ckpt)
tg_test(test_hf_folder SOURCES test_hf_folder.c scratch.c ROOMS ckpt)

# Against the reference library; skipped where Python lacks it.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  add_executable(st_tool interop/st_tool.c)
  target_compile_options(st_tool PRIVATE ${TG_C_FLAGS})
  target_link_libraries(st_tool PRIVATE tg_ckpt)
  add_test(NAME safetensors_interop COMMAND ${Python3_EXECUTABLE}
           ${CMAKE_CURRENT_SOURCE_DIR}/interop/safetensors_interop.py $<TARGET_FILE:st_tool>)
  set_tests_properties(safetensors_interop PROPERTIES LABELS fast SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()
