pgl_find_library(PGL_JANSSON jansson)
pgl_layer(base LINK ${PGL_JANSSON} Threads::Threads m)
