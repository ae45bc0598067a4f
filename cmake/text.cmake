pgl_layer(text LINK pgl_base)
