pgl_layer(server LINK pgl_api pgl_quantize)
