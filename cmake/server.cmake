pgl_find_library(PGL_EVENT event_core)
pgl_find_library(PGL_HTTP_PARSER http_parser)
pgl_layer(server LINK pgl_api pgl_quantize ${PGL_EVENT} ${PGL_HTTP_PARSER})
pgl_embed(pgl_server openapi src/server/openapi.json)
