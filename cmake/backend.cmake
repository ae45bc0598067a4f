# The shared part lies below the backends; pgl_backend is what the layers above link.
pgl_layer(backend_core DIR backend LINK pgl_model pgl_sampling)
pgl_layer(backend_null DIR backend/null LINK pgl_backend_core)
pgl_layer(backend_cpu DIR backend/cpu LINK pgl_backend_core)
add_library(pgl_backend INTERFACE)
target_link_libraries(pgl_backend INTERFACE pgl_backend_cpu pgl_backend_null)
