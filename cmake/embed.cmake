# pgl_embed(TARGET NAME FILE): the bytes of FILE as pgl_embedded_NAME in TARGET (src/base/embed.h).
function(pgl_embed target name file)
  get_filename_component(path ${file} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  set(source ${CMAKE_BINARY_DIR}/embed/${name}.c)
  file(CONFIGURE OUTPUT ${source} CONTENT [[
/* Made from @file@ by cmake/embed.cmake. */
__asm__(".section .rodata,\"a\"\n"
        ".balign 16\n"
        ".global pgl_embedded_@name@\n"
        "pgl_embedded_@name@:\n"
        ".incbin \"@path@\"\n"
        ".global pgl_embedded_@name@_end\n"
        "pgl_embedded_@name@_end:\n"
        ".byte 0\n"
        ".previous\n");
]] @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${path} COMPILE_OPTIONS -Wno-pedantic)
  target_sources(${target} PRIVATE ${source})
endfunction()
