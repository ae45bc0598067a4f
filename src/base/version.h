/* Which program this is. */
#ifndef PGL_BASE_VERSION_H
#define PGL_BASE_VERSION_H

/* "0.1.0" */
const char *pgl_version(void);

/* The git revision that was built, "-dirty" behind it when files were changed; "" where it is not known. */
const char *pgl_revision(void);

#endif
