# Every tests/unit/test_NAME.c is one program and one test.
find_library(PGL_CMOCKA NAMES cmocka REQUIRED)
file(GLOB PGL_UNIT_TESTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/test_*.c)
foreach(source ${PGL_UNIT_TESTS})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
  target_compile_definitions(${name} PRIVATE PGL_GOLDENS="${CMAKE_SOURCE_DIR}/tests/goldens")
  target_link_libraries(${name} PRIVATE pgl_cli ${PGL_CMOCKA})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endforeach()

# Those with threads worth a run under ThreadSanitizer (scripts/test runs this label alone there).
foreach(name test_http_server)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS threads)
  endif()
endforeach()

# Those that take more than ten seconds of one core: run with all others by `make test`, last.
foreach(name test_quantize test_quantize_coding test_reference_synthetic)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS slow)
    set_property(TEST ${name} PROPERTY COST 0)
  endif()
endforeach()
