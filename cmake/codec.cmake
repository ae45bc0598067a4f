pgl_layer(codec LINK pgl_base)
# The scalar contract code is what every backend is tested against: let the compiler unroll and vectorise it, which
# changes no bit (contraction is off, sums keep their order).
target_compile_options(pgl_codec PRIVATE -O3)
