pgl_layer(engine LINK pgl_backend pgl_text pgl_constraint)
