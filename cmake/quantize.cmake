pgl_layer(quantize LINK pgl_model pgl_sampling)
