# The shared part lies below the backends; pgl_backend is what the layers above link.
pgl_layer(backend_core DIR backend LINK pgl_model pgl_sampling)
pgl_layer(backend_null DIR backend/null LINK pgl_backend_core)
pgl_layer(backend_cpu DIR backend/cpu LINK pgl_backend_core)
add_library(pgl_backend INTERFACE)
target_link_libraries(pgl_backend INTERFACE pgl_backend_cpu pgl_backend_null)

# One file for each instruction set, chosen among at run time. -O3 unrolls the register blocks.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(PGL_AVX2 -mavx2 -mfma -mf16c)
  set_source_files_properties(src/backend/cpu/kernels_avx2.c PROPERTIES COMPILE_OPTIONS "-O3;${PGL_AVX2}")
  set_source_files_properties(src/backend/cpu/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
    "-O3;${PGL_AVX2};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
endif()
