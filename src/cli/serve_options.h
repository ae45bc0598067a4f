/* The options of `pergola serve`: one table for the command line, the environment, a configuration file and the help. */
#ifndef PGL_CLI_SERVE_OPTIONS_H
#define PGL_CLI_SERVE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pgl_serve_options {
    const char *model, *host, *backend, *names, *thinking, *keys, *key_file, *origins, *hosts, *log_level,
        *config, *request_log, *trace;
    uint32_t port, context, slots, threads, max_queue, max_connections;
    uint64_t memory, cache, cache_host, max_body, trace_max;
    int prefix_cache;
    bool lock_memory, allow_no_key, log_prompts;
    double request_timeout_s, drain_timeout_s, head_timeout_s, body_timeout_s, idle_timeout_s,
        write_timeout_s, keepalive_s, echo_step_ms;
} pgl_serve_options;

/* The settings, which are the process's own; NULL: leave with *exit_code. One thread. */
const pgl_serve_options *pgl_serve_options_parse(int argc, char **argv, int *exit_code);

/* pgl_options_fail of them. */
int pgl_serve_options_fail(pgl_error *err);

/* When they are not used any more: wipes what a configuration file held. */
void pgl_serve_options_fini(void);

#endif
