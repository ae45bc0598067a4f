pgl_layer(constraint LINK pgl_base pgl_bridge)
