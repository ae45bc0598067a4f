pgl_layer(api LINK pgl_engine)
