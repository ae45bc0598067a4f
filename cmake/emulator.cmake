# The kernels of the CUDA backend for the host, as C, with the words of tests/emulator. Fibres are nothing that the
# sanitizers follow, so those builds go without.
file(GLOB PGL_KERNEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/kernels/*.cu)
add_library(pgl_emulator STATIC ${CMAKE_SOURCE_DIR}/tests/emulator/emulate.c ${PGL_KERNEL_SOURCES})
set_source_files_properties(${PGL_KERNEL_SOURCES} PROPERTIES LANGUAGE C COMPILE_OPTIONS "-x;c")
target_include_directories(pgl_emulator PUBLIC ${CMAKE_SOURCE_DIR}/tests/emulator)
target_link_libraries(pgl_emulator PUBLIC pgl_base)
