pgl_layer(model LINK pgl_codec pgl_checkpoint)
