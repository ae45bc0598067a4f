pgl_layer(codec LINK pgl_base)
