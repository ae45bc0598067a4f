# The revision of the source inside the program; see src/base/version.h. Looked up at every build, compiled when new.
set(PGL_REVISION "" CACHE STRING "revision to report when the source is no git checkout")
set(revision_header ${CMAKE_BINARY_DIR}/generated/pgl_revision.h)
add_custom_target(pgl_revision
                  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${revision_header}
                          "-DREVISION=${PGL_REVISION}" -P ${CMAKE_SOURCE_DIR}/cmake/revision.cmake
                  BYPRODUCTS ${revision_header} VERBATIM)
add_dependencies(pgl_base pgl_revision)
target_include_directories(pgl_base PRIVATE ${CMAKE_BINARY_DIR}/generated)
