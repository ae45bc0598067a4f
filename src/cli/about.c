/* Version and licences: the texts are files of the source tree, embedded by the build. */
#include "cli/about.h"

#include <string.h>

#include "base/embed.h"
#include "base/version.h"

PGL_EMBEDDED(license)
PGL_EMBEDDED(notice)
PGL_EMBEDDED(third_party_licenses)

void pgl_about_version(FILE *to) {
    const char *revision = pgl_revision();
    if (*revision == '\0') {
        (void)fprintf(to, "pergola %s\n", pgl_version());
    } else {
        (void)fprintf(to, "pergola %s (%s)\n", pgl_version(), revision);
    }
}

void pgl_about_licenses(FILE *to) {
    (void)fwrite(pgl_embedded_notice, 1, PGL_EMBEDDED_SIZE(notice), to);
    (void)fputs("\n", to);
    (void)fwrite(pgl_embedded_license, 1, PGL_EMBEDDED_SIZE(license), to);
    (void)fputs("\n", to);
    (void)fwrite(pgl_embedded_third_party_licenses, 1, PGL_EMBEDDED_SIZE(third_party_licenses), to);
}
