# Every tests/unit/test_NAME.c is one program and one test. Sanitizers make them several times slower.
set(PGL_TEST_TIMEOUT 600)
if(PGL_ASAN OR PGL_TSAN)
  set(PGL_TEST_TIMEOUT 1800)
endif()
find_library(PGL_CMOCKA NAMES cmocka REQUIRED)
file(GLOB PGL_UNIT_TESTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/test_*.c)
foreach(source ${PGL_UNIT_TESTS})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
  target_compile_definitions(${name} PRIVATE PGL_GOLDENS="${CMAKE_SOURCE_DIR}/tests/goldens")
  target_link_libraries(${name} PRIVATE pgl_cli ${PGL_CMOCKA})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${PGL_TEST_TIMEOUT})
endforeach()

# Those with threads worth a run under ThreadSanitizer (scripts/test runs this label alone there).
foreach(name test_engine test_api test_http_server test_backend_threads)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS threads)
  endif()
endforeach()

# Those that take more than ten seconds of one core: run with all others by `make test`, last.
foreach(name test_quantize test_quantize_coding test_reference_synthetic test_backend_conformance)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS slow)
    set_property(TEST ${name} PROPERTY COST 0)
  endif()
endforeach()

# The example of the C API, linked as a stranger would link it, and run.
add_executable(hello ${CMAKE_SOURCE_DIR}/examples/hello.c)
target_link_libraries(hello PRIVATE libpergola)
add_test(NAME example_hello COMMAND hello ${CMAKE_SOURCE_DIR}/tests/goldens/tiny-a "What is a trellis?")
set_tests_properties(example_hello PROPERTIES TIMEOUT 60 PASS_REGULAR_EXPRESSION "[0-9]+ tokens asked, [0-9]+ answered")
