pgl_layer(checkpoint LINK pgl_base)
