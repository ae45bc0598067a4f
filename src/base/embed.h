/* Files of the source tree inside the program: licences, templates, the web page. cmake's pgl_embed(TARGET NAME FILE)
 * makes them; PGL_EMBEDDED(NAME) declares pgl_embedded_NAME, the bytes with a zero behind the last, and
 * pgl_embedded_NAME_end, where that zero is. */
#ifndef PGL_BASE_EMBED_H
#define PGL_BASE_EMBED_H

#define PGL_EMBEDDED(name)                                                                                   \
    extern const char pgl_embedded_##name[];                                                                 \
    extern const char pgl_embedded_##name##_end[];

#define PGL_EMBEDDED_SIZE(name) ((size_t)(pgl_embedded_##name##_end - pgl_embedded_##name))

#endif
