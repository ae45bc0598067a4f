pgl_layer(api LINK pgl_engine)

# libpergola: the C API of include/pergola.h as a shared library that exports nothing else.
set(PGL_EXPORTS ${CMAKE_SOURCE_DIR}/src/api/libpergola.map)
file(GLOB PGL_API_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/api/*.c)
add_library(libpergola SHARED ${PGL_API_SOURCES})
set_target_properties(libpergola PROPERTIES OUTPUT_NAME pergola VERSION ${PROJECT_VERSION}
                                            SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${PGL_EXPORTS})
target_include_directories(libpergola INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(libpergola PRIVATE pgl_engine)
target_link_options(libpergola PRIVATE -Wl,--version-script=${PGL_EXPORTS})

include(GNUInstallDirs)
configure_file(${CMAKE_SOURCE_DIR}/src/api/pergola.pc.in ${CMAKE_BINARY_DIR}/pergola.pc @ONLY)
install(TARGETS libpergola LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/pergola.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/pergola.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
