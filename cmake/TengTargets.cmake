# The program, libteng (shared and static, from the objects of all rooms), and what `cmake --install` puts where.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# ---- libteng: everything but the rooms of the program, cli and bench ----
set(objects "")
set(whole WHOLE_ARCHIVE)
foreach(room IN LISTS TG_ALL_ROOMS)
  get_target_property(type ${room} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY" OR room STREQUAL "tg_cli" OR room STREQUAL "tg_bench")
    continue()
  endif()
  list(APPEND objects $<TARGET_OBJECTS:${room}>)
  string(APPEND whole ",${room}")
  foreach(isa IN LISTS TG_ISA_LIST)
    if(TARGET ${room}_${isa})
      list(APPEND objects $<TARGET_OBJECTS:${room}_${isa}>)
    endif()
  endforeach()
endforeach()
set(TG_PRIVATE_LINK TgDep::jansson TgDep::xxhash TgDep::yaml TgDep::pcre2 TgDep::utf8proc TgDep::dnnl OpenMP::OpenMP_C
    ${TENG_MPI_LIBRARY} Threads::Threads m ${CMAKE_DL_LIBS})

add_library(teng_shared SHARED ${objects})
target_link_libraries(teng_shared PRIVATE ${TG_PRIVATE_LINK})
if(NOT TENG_SANITIZE)
  target_link_options(teng_shared PRIVATE LINKER:--no-undefined)
endif()
set_target_properties(teng_shared PROPERTIES OUTPUT_NAME teng EXPORT_NAME teng LINKER_LANGUAGE C
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
# The static one is for pkg-config --static; users of CMake get the shared one.
add_library(teng_static STATIC ${objects})
set_target_properties(teng_static PROPERTIES OUTPUT_NAME teng LINKER_LANGUAGE C)
foreach(library teng_shared teng_static)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
add_library(teng::teng ALIAS teng_shared)

# ---- the program ----
# All objects of the library are in it, used by it or not: plugins resolve the public names against the program.
add_executable(teng ${CMAKE_SOURCE_DIR}/src/main/teng_main.c)
target_compile_options(teng PRIVATE ${TG_C_FLAGS})
target_link_libraries(teng PRIVATE tg_cli)
set_target_properties(teng PROPERTIES ENABLE_EXPORTS ON LINK_LIBRARY_OVERRIDE "${whole}")

# ---- manual pages and completion, written by the program itself ----
set(manuals ${CMAKE_BINARY_DIR}/man)
set(completion ${CMAKE_BINARY_DIR}/completion/teng)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "Cross-compiling without an emulator: no manual pages, no completion")
else()
  add_custom_command(OUTPUT ${manuals}/teng.1 ${completion}
    COMMAND teng help --man --out ${manuals}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completion
    COMMAND teng completion bash > ${completion}
    DEPENDS teng VERBATIM COMMENT "Manual pages and completion")
  add_custom_target(teng_pages ALL DEPENDS ${manuals}/teng.1 ${completion})
  install(DIRECTORY ${manuals}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
  install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()

# ---- install ----
install(TARGETS teng RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS teng_shared EXPORT tengTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS teng_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/teng DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# Both packages find the prefix from where they lie, so that the installed tree may be moved and --prefix may differ
# from what was configured.
file(RELATIVE_PATH TG_UP_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TG_UP_FROM_PC "${TG_UP_FROM_PC}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/teng.pc.in ${CMAKE_BINARY_DIR}/teng.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/teng.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/teng)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tengConfig.cmake.in ${CMAKE_BINARY_DIR}/tengConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tengConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tengConfig.cmake ${CMAKE_BINARY_DIR}/tengConfigVersion.cmake DESTINATION ${package})
install(EXPORT tengTargets NAMESPACE teng:: DESTINATION ${package})
