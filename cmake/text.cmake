include(cmake/bridge.cmake)
pgl_find_library(PGL_PCRE2 pcre2-8)
pgl_find_library(PGL_UTF8PROC utf8proc)
pgl_layer(text LINK pgl_base pgl_bridge ${PGL_PCRE2} ${PGL_UTF8PROC})
