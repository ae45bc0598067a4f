pgl_layer(constraint LINK pgl_base)
