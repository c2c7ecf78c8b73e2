# tg_fuzz(name ROOMS … [MUTATIONS n]): fuzz/fuzz_<name>.c holds LLVMFuzzerTestOneInput. Its corpus
# fuzz/corpus/<name>/ and n mutations of each file (default 2000) are replayed as the test fuzz_<name>. With
# -DTENG_FUZZ=ON and clang there is also fuzz_<name>_search, a libFuzzer program.
option(TENG_FUZZ "Build libFuzzer programs too (clang)" OFF)
function(tg_fuzz name)
  cmake_parse_arguments(F "" "MUTATIONS" "ROOMS" ${ARGN})
  if(NOT F_MUTATIONS)
    set(F_MUTATIONS 2000)
  endif()
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_${name}.c)
  list(TRANSFORM F_ROOMS PREPEND tg_)
  add_executable(fuzz_${name} ${source} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay_main.c)
  target_compile_options(fuzz_${name} PRIVATE ${TG_C_FLAGS} -Wno-missing-prototypes)
  target_link_libraries(fuzz_${name} PRIVATE ${F_ROOMS} tg_base)
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name} ${F_MUTATIONS}
           WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS "fast;fuzz" TIMEOUT 600)
  if(TENG_FUZZ)
    add_executable(fuzz_${name}_search ${source})
    target_compile_options(fuzz_${name}_search PRIVATE ${TG_C_FLAGS} -Wno-missing-prototypes -fsanitize=fuzzer)
    target_link_options(fuzz_${name}_search PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name}_search PRIVATE ${F_ROOMS} tg_base)
  endif()
endfunction()

tg_fuzz(config_yaml ROOMS config)
tg_fuzz(safetensors ROOMS ckpt)
tg_fuzz(tokenizer_json ROOMS data)
tg_fuzz(token_file ROOMS data)
