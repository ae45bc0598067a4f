pgl_layer(backend_null DIR backend/null LINK pgl_model pgl_sampling)
pgl_layer(backend_cpu DIR backend/cpu LINK pgl_model pgl_sampling)
pgl_layer(backend LINK pgl_backend_cpu pgl_backend_null)
