# The data room: tokenizers, their trainer, token files, documents, the loader. "thread" marks what the thread
# sanitizer runs. The fuzz targets are in fuzz.cmake.
tg_test(test_tokenizer ROOMS data)
tg_test(test_tokenizer_file ROOMS data)
tg_test(test_bpe_train ROOMS data)
tg_test(test_token_file ROOMS data)
tg_test(test_corpus ROOMS data)
tg_test(test_loader ROOMS data LABELS fast thread)

# Against the Python packages; skipped where they are missing. By hand with more text and real vocabularies: see
# the head of the script.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  add_executable(tokenizer_tool interop/tokenizer_tool.c)
  target_compile_options(tokenizer_tool PRIVATE ${TG_C_FLAGS})
  target_link_libraries(tokenizer_tool PRIVATE tg_data)
  add_test(NAME tokenizer_interop COMMAND ${Python3_EXECUTABLE}
           ${CMAKE_CURRENT_SOURCE_DIR}/interop/tokenizer_interop.py --teng $<TARGET_FILE:tokenizer_tool> --kb 400)
  set_tests_properties(tokenizer_interop PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
