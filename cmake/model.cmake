pgl_layer(model LINK pgl_codec pgl_checkpoint)
pgl_embed(pgl_model synth_chat_template src/model/synth_chat_template.jinja)
