/* pergola plan: the memory that a context and slots take, before anything is loaded. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/runtime.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "model/plan.h"

typedef struct plan_options {
    const char *model;
    uint32_t context, slots, threads;
    uint64_t memory, cache, cache_host;
    int prefix_cache; /* -1: not said */
    bool json;
} plan_options;

static bool put_json(const plan_options *o, const char *directory, const pgl_memory_plan *plan,
                     pgl_buf *out) {
    const pgl_plan_request *r = &plan->settled;
    bool ok = pgl_buf_puts(out, "{\"model\":") && pgl_json_put_string(out, directory, strlen(directory)) &&
              pgl_buf_printf(out,
                             ",\"context\":%" PRIu32 ",\"slots\":%" PRIu32 ",\"snapshots\":%" PRIu32
                             ",\"page_tokens\":%" PRIu32 ",\"pages\":%" PRIu32 ",\"step_tokens\":%" PRIu32
                             ",\"threads\":%" PRIu32 ",\"token_bytes\":%" PRIu64 ",\"lines\":[",
                             r->context_tokens, r->n_slots, r->n_snapshots, r->page_tokens, plan->n_pages,
                             r->step_tokens, r->n_threads, plan->token_bytes);
    for (uint32_t i = 0; i < plan->n_lines && ok; i++) {
        const pgl_plan_line *line = &plan->lines[i];
        ok = pgl_buf_puts(out, i == 0 ? "{\"name\":" : ",{\"name\":") &&
             pgl_json_put_string(out, line->name, strlen(line->name)) &&
             pgl_buf_printf(out, ",\"bytes\":%" PRIu64 ",\"detail\":", line->bytes) &&
             pgl_json_put_string(out, line->detail, strlen(line->detail)) && pgl_buf_putc(out, '}');
    }
    ok = ok && pgl_buf_printf(out,
                              "],\"total_bytes\":%" PRIu64 ",\"memory_bytes\":%" PRIu64
                              ",\"memory_is_given\":%s,\"fits\":%s,\"advice\":",
                              plan->total_bytes, plan->budget_bytes, o->memory > 0 ? "true" : "false",
                              plan->fits ? "true" : "false");
    return ok && pgl_json_put_string(out, plan->advice, strlen(plan->advice)) && pgl_buf_puts(out, "}\n");
}

static bool put_text(const char *directory, const pgl_memory_plan *plan, pgl_buf *out) {
    const pgl_plan_request *r = &plan->settled;
    return pgl_buf_printf(out, "%s: %" PRIu32 " slot%s of %" PRIu32 " tokens\n\n", directory, r->n_slots,
                          r->n_slots == 1 ? "" : "s", r->context_tokens) &&
           pgl_plan_text(plan, out);
}

/* The table is there; who reads nothing but the exit code and standard error is told why as well. */
static int does_not_fit(const pgl_memory_plan *plan) {
    pgl_error err;
    (void)pgl_fail(&err, PGL_E_MEMORY, "does not fit: %.1f MiB needed, %.1f MiB there%s%s",
                   (double)plan->total_bytes * 0x1p-20, (double)plan->budget_bytes * 0x1p-20,
                   plan->advice[0] ? "; " : "", plan->advice);
    return pgl_cli_fail("plan", &err);
}

static int run(const pgl_command *command, const plan_options *o) {
    char directory[4096];
    pgl_error err;
    pgl_memory_plan plan;
    pgl_buf out = PGL_BUF_INIT;
    int code = PGL_EXIT_OK;
    pgl_status status = pgl_find_model(o->model, directory, sizeof directory, &err);
    pgl_runtime_options options = {.model = directory,
                                   .context = o->context,
                                   .n_slots = o->slots,
                                   .n_threads = o->threads,
                                   .memory_bytes = o->memory,
                                   .cache_bytes = o->cache,
                                   .host_cache_bytes = o->cache_host,
                                   .no_prefix_cache = o->prefix_cache == 0};
    if (status == PGL_OK)
        status = pgl_runtime_plan_of(&options, &plan, &err);
    if (status == PGL_OK &&
        !(o->json ? put_json(o, directory, &plan, &out) : put_text(directory, &plan, &out)))
        status = pgl_fail(&err, PGL_E_MEMORY, "out of memory");
    if (status == PGL_OK) {
        (void)fputs(pgl_buf_text(&out), stdout);
        code = plan.fits ? PGL_EXIT_OK : does_not_fit(&plan);
    } else {
        code = pgl_options_fail(command, &err);
    }
    pgl_buf_fini(&out);
    return code;
}

int pgl_cmd_plan(int argc, char **argv) {
    plan_options o = {.slots = 1, .prefix_cache = -1};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&o.model),   PGL_OPTION_ROW_CONTEXT(&o.context),
        PGL_OPTION_ROW_SLOTS(&o.slots),   PGL_OPTION_ROW_PREFIX_CACHE(&o.prefix_cache),
        PGL_OPTION_ROW_CACHE(&o.cache),   PGL_OPTION_ROW_CACHE_HOST(&o.cache_host),
        PGL_OPTION_ROW_MEMORY(&o.memory), PGL_OPTION_ROW_THREADS(&o.threads),
        PGL_OPTION_ROW_JSON(&o.json),
    };
    pgl_command command = {
        .name = "plan",
        .summary = "Shows what a context and a number of slots take in memory, and whether it fits.",
        .description =
            "Nothing is loaded: only the headers of the checkpoint's files are read. Exit code 1 when it "
            "does not fit.",
        .options = options,
        .n_options = PGL_COUNT(options),
    };
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    return run(&command, &o);
}
