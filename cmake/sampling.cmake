pgl_layer(sampling LINK pgl_base)
