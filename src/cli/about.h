/* What the program says about itself. */
#ifndef PGL_CLI_ABOUT_H
#define PGL_CLI_ABOUT_H

#include <stdio.h>

/* "pergola 0.1.0 (4915338ab12c)", and a newline. */
void pgl_about_version(FILE *to);

/* The project's licence and notice, then those of every library and crate that is linked in. */
void pgl_about_licenses(FILE *to);

#endif
