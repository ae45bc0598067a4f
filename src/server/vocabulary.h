/* The tokens of a runtime as structured output needs them. */
#ifndef PGL_SERVER_VOCABULARY_H
#define PGL_SERVER_VOCABULARY_H

#include "api/runtime.h"
#include "constraint/constraint.h"

/* *out is NULL, with PGL_OK, when the model has no end token: then no form can be enforced. The runtime must outlive it. */
pgl_status pgl_vocabulary_open(const pgl_runtime *runtime, pgl_constraint_vocabulary **out, pgl_error *err);

#endif
