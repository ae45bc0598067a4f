# Every tests/fuzz/fuzz_NAME.c is one libFuzzer program.
file(GLOB PGL_FUZZ_TARGETS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source ${PGL_FUZZ_TARGETS})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_compile_definitions(${name} PRIVATE PGL_GOLDENS="${CMAKE_SOURCE_DIR}/tests/goldens")
  target_link_libraries(${name} PRIVATE pgl_cli -fsanitize=fuzzer)
endforeach()
