# pergola: main.c and one cmd_NAME.c for each subcommand; what these share is the library pgl_cli, which has tests.
file(GLOB PGL_CLI_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)
set(PGL_CLI_COMMANDS ${PGL_CLI_SOURCES})
list(FILTER PGL_CLI_COMMANDS INCLUDE REGEX "/(main|cmd_[^/]*)\\.c$")
list(REMOVE_ITEM PGL_CLI_SOURCES ${PGL_CLI_COMMANDS})
add_library(pgl_cli STATIC ${PGL_CLI_SOURCES})
target_link_libraries(pgl_cli PUBLIC pgl_server)
add_executable(pergola ${PGL_CLI_COMMANDS})
target_link_libraries(pergola PRIVATE pgl_cli)
