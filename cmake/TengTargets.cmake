# libteng (static), and the program.
file(GLOB program_main CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/main/teng_main.c)
if(program_main)
  add_executable(teng ${program_main})
  target_compile_options(teng PRIVATE ${TG_C_FLAGS})
  target_link_libraries(teng PRIVATE tg_cli)
  set_target_properties(teng PROPERTIES ENABLE_EXPORTS ON)
endif()
