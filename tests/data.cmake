add_executable(tokenizer_tool EXCLUDE_FROM_ALL tokenizer_tool.c)
target_compile_options(tokenizer_tool PRIVATE ${TG_C_FLAGS})
target_link_libraries(tokenizer_tool PRIVATE tg_data)
