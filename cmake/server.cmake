pgl_layer(server LINK pgl_api)
