pgl_layer(model LINK pgl_codec pgl_checkpoint)
pgl_embed(pgl_model synth_chat_template src/model/synth_chat_template.jinja)
# As in cmake/codec.cmake.
target_compile_options(pgl_model PRIVATE -O3)
