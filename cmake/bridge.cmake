# bridge/: the Rust library, built by cargo, once for all builds. Only its own sources and lock file make it stale.
find_program(PGL_CARGO NAMES cargo HINTS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin REQUIRED)
set(PGL_BRIDGE_TARGET ${CMAKE_SOURCE_DIR}/bridge/target CACHE PATH "cargo's target folder, shared by all builds")
# A copy of this build's own: two checkouts that share the target folder need not have the same sources.
set(PGL_BRIDGE_ARCHIVE ${CMAKE_BINARY_DIR}/libpergola_bridge.a)
file(GLOB_RECURSE PGL_BRIDGE_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bridge/src/*.rs)
add_custom_command(
  OUTPUT ${PGL_BRIDGE_ARCHIVE}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${PGL_BRIDGE_TARGET} ${PGL_CARGO} build --release --locked --quiet
          --manifest-path ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E copy ${PGL_BRIDGE_TARGET}/release/libpergola_bridge.a ${PGL_BRIDGE_ARCHIVE}
  COMMAND ${CMAKE_COMMAND} -E touch ${PGL_BRIDGE_ARCHIVE}
  DEPENDS ${PGL_BRIDGE_SOURCES} ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml ${CMAKE_SOURCE_DIR}/bridge/Cargo.lock
  COMMENT "Building bridge/ with cargo"
  VERBATIM)
add_custom_target(pgl_bridge_archive DEPENDS ${PGL_BRIDGE_ARCHIVE})
add_library(pgl_bridge INTERFACE)
add_dependencies(pgl_bridge pgl_bridge_archive)
target_include_directories(pgl_bridge INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(pgl_bridge INTERFACE ${PGL_BRIDGE_ARCHIVE} Threads::Threads m ${CMAKE_DL_LIBS})
