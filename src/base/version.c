/* The version from CMakeLists.txt and the revision that cmake/revision.cmake found. */
#include "base/version.h"

#include "pgl_revision.h"

const char *pgl_version(void) {
    return PGL_VERSION;
}

const char *pgl_revision(void) {
    return PGL_REVISION;
}
