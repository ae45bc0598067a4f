pgl_find_library(PGL_JANSSON jansson)
# Debian's archive is not position-independent enough for libpergola.so, which takes the shared library.
find_library(PGL_JANSSON_SHARED NAMES jansson REQUIRED)
set(PGL_JANSSON_LINK "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,${PGL_JANSSON_SHARED},${PGL_JANSSON}>")
pgl_layer(base LINK ${PGL_JANSSON_LINK} Threads::Threads m)
