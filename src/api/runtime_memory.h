/* Private to the runtime: how much memory goes where. */
#ifndef PGL_API_RUNTIME_MEMORY_H
#define PGL_API_RUNTIME_MEMORY_H

#include "api/runtime.h"
#include "checkpoint/checkpoint.h"
#include "model/plan.h"

/* The plan that a backend is opened with: the context asked for or the largest that fits, and as much prefix cache as is
 * useful and fits. plan->fits is false, with PGL_OK, when context and slots do not fit even without cache. */
pgl_status pgl_runtime_plan_memory(const pgl_runtime_options *options, const pgl_checkpoint *checkpoint,
                                   const pgl_model *model, pgl_memory_plan *plan, pgl_error *err);

/* PGL_E_MEMORY, with the table in the message, for a plan that does not fit. */
pgl_status pgl_runtime_check_fits(const pgl_memory_plan *plan, pgl_error *err);

#endif
