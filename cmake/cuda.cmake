# The CUDA backend, which is being built: it has not run on a card, and no command opens it. Until then it is compiled
# only where PGL_CUDA is ON; its kernels are tested on the host in every build (cmake/emulator.cmake).
#
# The host side needs no toolkit: the driver is loaded at run time. Kernels need nvcc 13.0 or later, from the PATH, from
# CUDA_HOME, or from what `scripts/setup --cuda` puts into .dev/cuda; they are compiled once for each architecture and
# embedded (src/backend/cuda/images.h).
#
#   PGL_CUDA        the backend and its tests, over a driver that computes on the host (OFF)
#   PGL_CUDA_ARCHS  architectures, and PTX for those that come later: 90a alone makes a quick build
option(PGL_CUDA "the CUDA backend" OFF)
if(PGL_TESTS AND NOT PGL_ASAN AND NOT PGL_TSAN AND NOT PGL_FUZZ AND NOT PGL_CORE)
  include(cmake/emulator.cmake)
endif()
if(NOT PGL_CUDA)
  return()
endif()

pgl_layer(backend_cuda DIR backend/cuda LINK pgl_backend_core ${CMAKE_DL_LIBS})
target_link_libraries(pgl_backend INTERFACE pgl_backend_cuda)

find_program(PGL_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin)
if(NOT PGL_NVCC)
  find_program(PGL_NVCC nvcc PATHS ${CMAKE_SOURCE_DIR}/.dev/cuda/nvidia/cu13/bin NO_DEFAULT_PATH)
endif()
if(PGL_NVCC)
  execute_process(COMMAND ${PGL_NVCC} --version OUTPUT_VARIABLE PGL_NVCC_SAYS ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${PGL_NVCC_SAYS}")
  set(PGL_NVCC_VERSION ${CMAKE_MATCH_1})
endif()
set(PGL_CUDA_ARCHS "80;86;89;90a;100;120;80-virtual" CACHE STRING "CUDA architectures; N-virtual: PTX")
if(NOT PGL_NVCC_VERSION VERSION_GREATER_EQUAL 13.0)
  message(FATAL_ERROR "PGL_CUDA needs nvcc 13.0 or later (scripts/setup --cuda); found: ${PGL_NVCC} ${PGL_NVCC_VERSION}")
endif()

# One image for each source file and architecture; what ptxas says of it stays beside it (scripts/check-kernels).
file(GLOB PGL_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/kernels/*.cu)
file(GLOB PGL_CUDA_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/kernels/*.h)
set(PGL_CUDA_TABLE "")
set(PGL_CUDA_DECLARED "")
set(PGL_CUDA_FILES "")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
set(flags -std=c++17 -O3 -fmad=false -I${CMAKE_SOURCE_DIR}/src)
foreach(source ${PGL_CUDA_SOURCES})
  get_filename_component(unit ${source} NAME_WE)
  foreach(arch ${PGL_CUDA_ARCHS})
    string(REGEX REPLACE "-virtual$" "" number ${arch})
    if(arch MATCHES "-virtual$")
      set(image ${CMAKE_BINARY_DIR}/cuda/${unit}.compute_${number}.ptx)
      set(options -ptx -arch=compute_${number})
      set(ptx true)
    else()
      set(image ${CMAKE_BINARY_DIR}/cuda/${unit}.sm_${number}.cubin)
      set(options -cubin -arch=sm_${number} -Xptxas -v)
      set(ptx false)
    endif()
    add_custom_command(OUTPUT ${image}
      COMMAND ${CMAKE_SOURCE_DIR}/scripts/compile-kernels ${image} ${PGL_NVCC} ${options} ${flags} -o ${image} ${source}
      DEPENDS ${source} ${PGL_CUDA_HEADERS} ${CMAKE_SOURCE_DIR}/scripts/compile-kernels
      COMMENT "CUDA ${unit} for ${arch}" VERBATIM)
    string(MAKE_C_IDENTIFIER "cuda_${unit}_${arch}" name)
    pgl_embed(pgl_backend_cuda ${name} ${image})
    string(REGEX MATCH "[a-z]$" suffix ${number})
    string(REGEX REPLACE "[a-z]$" "" number ${number})
    set(exact false)
    if(suffix)
      set(exact true)
    endif()
    string(APPEND PGL_CUDA_DECLARED "PGL_EMBEDDED(${name})\n")
    string(APPEND PGL_CUDA_TABLE
      "    {\"${unit}\", pgl_embedded_${name}, pgl_embedded_${name}_end, ${number}, ${exact}, ${ptx}},\n")
    list(APPEND PGL_CUDA_FILES ${image})
  endforeach()
endforeach()
add_custom_target(kernels DEPENDS ${PGL_CUDA_FILES})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embed/cuda_images.c CONTENT [[
/* Made by cmake/cuda.cmake. */
#include "backend/cuda/images.h"
#include "base/embed.h"

@PGL_CUDA_DECLARED@
const pgl_cuda_image pgl_cuda_images[] = {
@PGL_CUDA_TABLE@    {NULL, NULL, NULL, 0, false, false},
};
const size_t pgl_cuda_n_images = sizeof pgl_cuda_images / sizeof pgl_cuda_images[0] - 1;
]] @ONLY)
target_sources(pgl_backend_cuda PRIVATE ${CMAKE_BINARY_DIR}/embed/cuda_images.c)

# The driver that computes on the host, for tests.
if(TARGET pgl_emulator)
  add_library(cuda_fake MODULE ${CMAKE_SOURCE_DIR}/tests/emulator/fake_cuda.c)
  target_include_directories(cuda_fake PRIVATE ${CMAKE_SOURCE_DIR}/tests/emulator)
  target_link_libraries(cuda_fake PRIVATE pgl_emulator)
endif()
