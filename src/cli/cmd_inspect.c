/* pergola inspect: what a checkpoint is, and whether this program can run it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "checkpoint/inspect.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"

typedef struct inspection {
    char path[4096];
    bool strict;
    pgl_checkpoint *checkpoint; /* NULL when it was refused */
    pgl_inspect_report report;
    pgl_status status; /* of opening and of looking at every number */
    pgl_error err;
} inspection;

/* The classes that have anything in them, as rows of the table. */
typedef struct row {
    char name[32];
    pgl_inspect_count count;
} row;
#define MOST_ROWS (PGL_INSPECT_MOST_K + 6)

static size_t collect_rows(const pgl_inspect_report *r, row rows[MOST_ROWS]) {
    size_t n = 0;
    for (uint32_t k = 1; k <= PGL_INSPECT_MOST_K; k++) {
        rows[n].count = r->coded[k];
        (void)snprintf(rows[n].name, sizeof rows[n].name, "coded K=%u", k);
        n += r->coded[k].bytes != 0;
    }
    const struct {
        const char *name;
        const pgl_inspect_count *count;
    } others[] = {{"int8", &r->int8},
                  {"plain", &r->plain},
                  {"embedding", &r->embedding},
                  {"head", &r->head},
                  {"draft head", &r->draft_head}};
    for (size_t i = 0; i < PGL_COUNT(others); i++) {
        if (others[i].count->bytes == 0)
            continue;
        rows[n].count = *others[i].count;
        (void)snprintf(rows[n++].name, sizeof rows[0].name, "%s", others[i].name);
    }
    return n;
}

/* The last word: what the checkpoint can be used for. */
static const char *verdict(const inspection *in) {
    if (in->status != PGL_OK)
        return "refused";
    if (!in->report.has_tokenizer)
        return "weights only: there is no tokenizer.json";
    if (!in->report.has_chat_template)
        return "usable, but not for chat: there is no chat template";
    return "usable";
}

static void print_count(const char *name, const pgl_inspect_count *c) {
    (void)printf("  %-12s %12.3f M %12.3f MB %8.2f\n", name, (double)c->parameters / 1e6,
                 (double)c->bytes / 1e6,
                 c->parameters == 0 ? 0 : 8.0 * (double)c->bytes / (double)c->parameters);
}

static void print_text(const inspection *in) {
    const pgl_inspect_report *r = &in->report;
    const pgl_config *c = pgl_checkpoint_config(in->checkpoint);
    (void)printf("%s\n", in->path);
    if (r->dense)
        (void)printf("dense model, %u layers", r->n_layers);
    else
        (void)printf("mixture of %u experts (%u a token), %u layers", c->n_experts, c->n_experts_used,
                     r->n_layers);
    (void)printf(": %u gated delta net, %u full attention\n", r->n_delta_layers, r->n_attention_layers);
    (void)printf("hidden size %u, vocabulary %u, context up to %u tokens\n\n", c->hidden_size, c->vocab_size,
                 c->max_position_embeddings);
    (void)printf("  %-12s %14s %15s %8s\n", "weights", "parameters", "bytes", "bits");
    row rows[MOST_ROWS];
    size_t n = collect_rows(r, rows);
    for (size_t i = 0; i < n; i++)
        print_count(rows[i].name, &rows[i].count);
    print_count(r->draft ? "without draft" : "all", &r->trunk);
    (void)printf("\none token reads  %.3f MB and meets %.3f M parameters\n",
                 (double)r->token_read_bytes / 1e6, (double)r->active_parameters / 1e6);
    (void)printf("cache            %.1f KiB a token", (double)r->kv_token_bytes / 1024);
    if (r->draft)
        (void)printf(" (and %.1f KiB for the draft head)", (double)r->draft_kv_token_bytes / 1024);
    (void)printf("\nstate            %.3f MB a conversation\n", (double)r->state_bytes / 1e6);
    (void)printf("draft head       %s\n", !r->draft          ? "none"
                                          : r->draft_borrows ? "yes, with the experts of a trunk layer"
                                                             : "yes");
    const char *notes = pgl_checkpoint_notes(in->checkpoint);
    if (notes[0] != 0)
        (void)printf("\nnotes\n");
    for (const char *line = notes; *line != 0;) {
        size_t length = strcspn(line, "\n");
        (void)printf("  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    (void)printf("\nverdict          %s\n", verdict(in));
}

static json_t *count_json(const pgl_inspect_count *c) {
    return json_pack("{s:I, s:I}", "parameters", (json_int_t)c->parameters, "bytes", (json_int_t)c->bytes);
}

static json_t *notes_json(const char *notes) {
    json_t *list = json_array();
    for (const char *line = notes; *line != 0;) {
        size_t length = strcspn(line, "\n");
        json_array_append_new(list, json_stringn(line, length));
        line += length + (line[length] == '\n');
    }
    return list;
}

static void set(json_t *object, const char *key, uint64_t value) {
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void describe(const inspection *in, json_t *out) {
    const pgl_inspect_report *r = &in->report;
    const pgl_config *c = pgl_checkpoint_config(in->checkpoint);
    json_object_set_new(out, "kind", json_string(r->dense ? "dense" : "moe"));
    set(out, "layers", r->n_layers);
    set(out, "delta_layers", r->n_delta_layers);
    set(out, "attention_layers", r->n_attention_layers);
    set(out, "hidden_size", c->hidden_size);
    set(out, "vocab_size", c->vocab_size);
    set(out, "max_position_embeddings", c->max_position_embeddings);
    set(out, "experts", c->n_experts);
    set(out, "experts_per_token", c->n_experts_used);
    json_t *weights = json_object();
    row rows[MOST_ROWS];
    size_t n = collect_rows(r, rows);
    for (size_t i = 0; i < n; i++)
        json_object_set_new(weights, rows[i].name, count_json(&rows[i].count));
    json_object_set_new(out, "weights", weights);
    json_object_set_new(out, "trunk", count_json(&r->trunk));
    json_object_set_new(out, "bits_per_weight", json_real(r->bits_per_weight));
    json_object_set_new(out, "coded_bits_per_weight", json_real(r->coded_bits_per_weight));
    set(out, "active_parameters", r->active_parameters);
    set(out, "token_read_bytes", r->token_read_bytes);
    set(out, "file_bytes", r->file_bytes);
    set(out, "skipped_bytes", r->skipped_bytes);
    set(out, "kv_token_bytes", r->kv_token_bytes);
    set(out, "draft_kv_token_bytes", r->draft_kv_token_bytes);
    set(out, "state_bytes", r->state_bytes);
    json_object_set_new(out, "tied_head", json_boolean(r->tied_head));
    json_object_set_new(out, "draft_head", json_boolean(r->draft));
    json_object_set_new(out, "draft_borrows_experts", json_boolean(r->draft_borrows));
    json_object_set_new(out, "tokenizer", json_boolean(r->has_tokenizer));
    json_object_set_new(out, "chat_template", json_boolean(r->has_chat_template));
    json_object_set_new(out, "notes", notes_json(pgl_checkpoint_notes(in->checkpoint)));
}

static bool print_json(const inspection *in) {
    json_t *out = json_object();
    json_object_set_new(out, "directory", json_string(in->path));
    if (in->status == PGL_OK)
        describe(in, out);
    json_object_set_new(out, "usable", json_boolean(in->status == PGL_OK));
    json_object_set_new(out, "verdict", json_string(verdict(in)));
    if (in->status != PGL_OK)
        json_object_set_new(out, "error", json_string(in->err.text));
    char *text = json_dumps(out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    if (text != NULL)
        (void)puts(text);
    free(text);
    json_decref(out);
    return text != NULL;
}

static bool on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    pgl_progress_bytes(context, done_bytes, total_bytes);
    return true;
}

static void check_values(inspection *in) {
    pgl_progress progress;
    pgl_progress_init(&progress, "checking");
    in->status = pgl_checkpoint_check_values(in->checkpoint, on_progress, &progress, &in->err);
    pgl_progress_fini(&progress);
}

static int inspect(inspection *in, const char *given, bool json) {
    pgl_status found = pgl_find_model(given, in->path, sizeof in->path, &in->err);
    if (found != PGL_OK)
        return pgl_cli_fail("inspect", &in->err);
    const pgl_checkpoint_options options = {.strict = in->strict, .want_draft = true};
    in->status = pgl_checkpoint_open(in->path, &options, &in->checkpoint, &in->err);
    if (in->status == PGL_OK)
        in->status = pgl_inspect(in->checkpoint, &in->report, &in->err);
    if (in->status == PGL_OK)
        check_values(in);
    if (json && !print_json(in)) {
        (void)pgl_fail(&in->err, PGL_E_MEMORY, "out of memory for the report");
        return pgl_cli_fail("inspect", &in->err);
    }
    if (in->status != PGL_OK)
        return pgl_cli_fail("inspect", &in->err);
    if (!json)
        print_text(in);
    return PGL_EXIT_OK;
}

int pgl_cmd_inspect(int argc, char **argv) {
    const char *model = NULL;
    bool json = false;
    inspection in = {.checkpoint = NULL};
    pgl_option options[] = {
        PGL_OPTION_ROW_MODEL(&model),
        {.name = "strict",
         .kind = PGL_OPTION_FLAG,
         .target = &in.strict,
         .help = "refuse what only contradicts itself: escha_config, layer_meta, total_size"},
        PGL_OPTION_ROW_JSON(&json),
    };
    pgl_command command = {
        .name = "inspect",
        .summary = "Say what a checkpoint is: its kind, weights, bits and bytes, what a token and a "
                   "conversation cost, and whether this program can run it.",
        .description = "Checks every tensor's name, shape and type and every number that is stored as "
                       "a float. The exit code is 0 when the checkpoint is usable, 1 when it is "
                       "refused; stderr then names the tensor, what was expected and what was found.",
        .options = options,
        .n_options = PGL_COUNT(options)};
    int code;
    if (!pgl_options_parse(&command, argc, argv, &code))
        return code;
    code = inspect(&in, model, json);
    pgl_checkpoint_close(in.checkpoint);
    return code;
}
