# The objects are made once: they go into the program and into libpergola.
file(GLOB PGL_API_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/api/*.c)
add_library(pgl_api_objects OBJECT ${PGL_API_SOURCES})
target_link_libraries(pgl_api_objects PUBLIC pgl_engine)
add_library(pgl_api STATIC $<TARGET_OBJECTS:pgl_api_objects>)
target_link_libraries(pgl_api PUBLIC pgl_engine)

# libpergola: the C API of include/pergola.h as a shared library that exports nothing else.
set(PGL_EXPORTS ${CMAKE_SOURCE_DIR}/src/api/libpergola.map)
add_library(libpergola SHARED $<TARGET_OBJECTS:pgl_api_objects>)
set_target_properties(libpergola PROPERTIES OUTPUT_NAME pergola LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
                                            SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${PGL_EXPORTS})
target_include_directories(libpergola INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(libpergola PRIVATE pgl_engine)
target_link_options(libpergola PRIVATE -Wl,--version-script=${PGL_EXPORTS})

include(GNUInstallDirs)
configure_file(${CMAKE_SOURCE_DIR}/src/api/pergola.pc.in ${CMAKE_BINARY_DIR}/pergola.pc @ONLY)
install(TARGETS libpergola LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/pergola.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/pergola.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
