#include "checkpoint/inspect.h"

#include <stdlib.h>

#include "base/fs.h"
#include "base/json.h"

static void add(pgl_inspect_count *to, uint64_t parameters, uint64_t bytes) {
    to->parameters += parameters;
    to->bytes += bytes;
}

/* Of all experts; one expert is the n_experts-th part of each number. */
static pgl_inspect_count coded_count(const pgl_coded *c) {
    uint64_t n = c->n_experts;
    pgl_inspect_count r = {.parameters = n * c->in * c->out};
    r.bytes = r.parameters * c->k / 8 + n * 2 * ((uint64_t)c->in + c->out);
    if (c->s_in != NULL)
        r.bytes += n * 4 * c->in;
    if (c->s_out != NULL)
        r.bytes += n * 4 * c->out;
    if (c->bias != NULL)
        r.bytes += n * 2 * c->out;
    return r;
}

static pgl_inspect_count vec_count(const pgl_vec *v) {
    return (pgl_inspect_count){v->n, (uint64_t)v->n * pgl_dtype_size(v->dtype)};
}

static pgl_inspect_count linear_count(const pgl_linear *l) {
    if (l->kind == PGL_LINEAR_NONE)
        return (pgl_inspect_count){0, 0};
    if (l->kind == PGL_LINEAR_CODED)
        return coded_count(&l->coded);
    pgl_inspect_count r = {.parameters = (uint64_t)l->in * l->out};
    r.bytes = r.parameters * pgl_dtype_size(l->dtype);
    if (l->kind == PGL_LINEAR_INT8)
        r.bytes += (uint64_t)l->out * pgl_dtype_size(l->scale_dtype);
    pgl_inspect_count bias = vec_count(&l->bias);
    add(&r, bias.parameters, bias.bytes);
    return r;
}

/* Where the walk over the weights puts what it finds. */
typedef struct tally {
    pgl_inspect_report *r;
    bool draft;          /* everything goes to the draft head */
    uint32_t n_used;     /* of the routed experts */
    uint64_t parameters; /* that one token meets */
    uint64_t read_bytes; /* that one token reads */
} tally;

static void put(tally *t, pgl_inspect_count *class, pgl_inspect_count n, pgl_inspect_count met) {
    pgl_inspect_count *to = t->draft ? &t->r->draft_head : class;
    add(to, n.parameters, n.bytes);
    t->parameters += met.parameters;
    t->read_bytes += met.bytes;
}

static void put_vec(tally *t, const pgl_vec *v) {
    pgl_inspect_count n = vec_count(v);
    put(t, &t->r->plain, n, n);
}

static void put_linear(tally *t, const pgl_linear *l) {
    pgl_inspect_count n = linear_count(l);
    pgl_inspect_count *class = l->kind == PGL_LINEAR_CODED  ? &t->r->coded[l->coded.k]
                               : l->kind == PGL_LINEAR_INT8 ? &t->r->int8
                                                            : &t->r->plain;
    put(t, class, n, n);
}

static void put_experts(tally *t, const pgl_coded *c) {
    if (c->code == NULL)
        return;
    pgl_inspect_count n = coded_count(c);
    pgl_inspect_count met = {n.parameters / c->n_experts * t->n_used, n.bytes / c->n_experts * t->n_used};
    put(t, &t->r->coded[c->k], n, met);
}

static void put_layer(tally *t, const pgl_layer_weights *l, bool with_experts) {
    put_vec(t, &l->input_norm);
    put_vec(t, &l->post_attention_norm);
    if (l->full_attention) {
        const pgl_attention_weights *a = &l->attention;
        put_linear(t, &a->q_proj);
        put_linear(t, &a->k_proj);
        put_linear(t, &a->v_proj);
        put_linear(t, &a->o_proj);
        put_vec(t, &a->q_norm);
        put_vec(t, &a->k_norm);
    } else {
        const pgl_delta_weights *d = &l->delta;
        put_linear(t, &d->in_proj_qkv);
        put_linear(t, &d->in_proj_z);
        put_linear(t, &d->in_proj_a);
        put_linear(t, &d->in_proj_b);
        put_linear(t, &d->out_proj);
        put_vec(t, &d->conv1d);
        put_vec(t, &d->a_log);
        put_vec(t, &d->dt_bias);
        put_vec(t, &d->norm);
    }
    const pgl_moe_weights *m = &l->moe;
    const pgl_linear *linears[] = {&m->router,      &m->shared_gate,        &m->shared_up,
                                   &m->shared_down, &m->shared_expert_gate, &m->gate,
                                   &m->up,          &m->down_dense};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        put_linear(t, linears[i]);
    if (with_experts) {
        put_experts(t, &m->gate_up);
        put_experts(t, &m->down);
    }
}

static void count_trunk(tally *t, const pgl_config *c, const pgl_weights *w) {
    pgl_inspect_report *r = t->r;
    r->tied_head = w->head.data == w->embed.data && w->head.kind != PGL_LINEAR_CODED;
    pgl_inspect_count embed = linear_count(&w->embed);
    pgl_inspect_count head = linear_count(&w->head);
    pgl_inspect_count row = {embed.parameters / c->vocab_size, embed.bytes / c->vocab_size};
    put(t, &r->embedding, embed, row);
    put(t, &r->head, r->tied_head ? (pgl_inspect_count){0, 0} : head, head);
    put_vec(t, &w->norm);
    for (uint32_t i = 0; i < c->n_layers; i++)
        put_layer(t, &w->layers[i], true);
    r->active_parameters = t->parameters;
    r->token_read_bytes = t->read_bytes;
    pgl_inspect_count coded = {0, 0};
    for (uint32_t k = 1; k <= PGL_INSPECT_MOST_K; k++)
        add(&coded, r->coded[k].parameters, r->coded[k].bytes);
    const pgl_inspect_count *classes[] = {&coded, &r->int8, &r->plain, &r->embedding, &r->head};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        add(&r->trunk, classes[i]->parameters, classes[i]->bytes);
    r->bits_per_weight = 8.0 * (double)r->trunk.bytes / (double)r->trunk.parameters;
    if (coded.parameters != 0)
        r->coded_bits_per_weight = 8.0 * (double)coded.bytes / (double)coded.parameters;
}

static void count_draft(tally *t, const pgl_draft_weights *d) {
    t->r->draft = d->present;
    if (!d->present)
        return;
    t->r->draft_borrows = d->borrows_experts;
    t->draft = true;
    put_linear(t, &d->fc);
    put_vec(t, &d->pre_fc_norm_embedding);
    put_vec(t, &d->pre_fc_norm_hidden);
    put_vec(t, &d->norm);
    put_layer(t, &d->layer, !d->borrows_experts);
}

static void count_state(const pgl_config *c, pgl_inspect_report *r) {
    for (uint32_t i = 0; i < c->n_layers; i++)
        r->n_attention_layers += c->full_attention[i];
    r->n_layers = c->n_layers;
    r->n_delta_layers = c->n_layers - r->n_attention_layers;
    uint64_t layer_kv = 2 * 2 * (uint64_t)c->n_kv_heads * c->head_dim;
    r->kv_token_bytes = r->n_attention_layers * layer_kv;
    r->draft_kv_token_bytes = r->draft ? layer_kv : 0;
    uint64_t channels = 2 * (uint64_t)c->n_key_heads * c->key_dim + (uint64_t)c->n_value_heads * c->value_dim;
    uint64_t s = (uint64_t)c->n_value_heads * c->key_dim * c->value_dim;
    r->state_bytes = r->n_delta_layers * 4 * (s + channels * (c->conv_kernel - 1));
}

static pgl_status has_file(const pgl_checkpoint *checkpoint, const char *name, bool *has, pgl_error *err) {
    char *path = pgl_fs_join(pgl_checkpoint_directory(checkpoint), name);
    if (path == NULL)
        return pgl_fail(err, PGL_E_MEMORY, "out of memory while inspecting a checkpoint");
    *has = pgl_fs_is_file(path);
    free(path);
    return PGL_OK;
}

/* A template inside tokenizer_config.json: a string, or a list of named ones. */
static pgl_status has_inner_template(const pgl_checkpoint *checkpoint, bool *has, pgl_error *err) {
    pgl_buf text = PGL_BUF_INIT;
    bool found = false;
    pgl_status status = pgl_checkpoint_read_file(checkpoint, "tokenizer_config.json", &text, &found, err);
    if (found) {
        pgl_json_span value =
            pgl_json_raw_member((pgl_json_span){pgl_buf_text(&text), text.size}, "chat_template");
        *has = value.text != NULL && (*value.text == '"' || *value.text == '[');
    }
    pgl_buf_fini(&text);
    return status;
}

static pgl_status look_at_files(const pgl_checkpoint *checkpoint, pgl_inspect_report *r, pgl_error *err) {
    pgl_status status = has_file(checkpoint, "tokenizer.json", &r->has_tokenizer, err);
    if (status == PGL_OK)
        status = has_file(checkpoint, "chat_template.jinja", &r->has_chat_template, err);
    if (status == PGL_OK && !r->has_chat_template)
        status = has_inner_template(checkpoint, &r->has_chat_template, err);
    return status;
}

pgl_status pgl_inspect(const pgl_checkpoint *checkpoint, pgl_inspect_report *report, pgl_error *err) {
    const pgl_config *c = pgl_checkpoint_config(checkpoint);
    const pgl_weights *w = pgl_checkpoint_weights(checkpoint);
    *report = (pgl_inspect_report){.dense = c->n_experts == 0};
    tally t = {.r = report, .n_used = c->n_experts_used};
    count_trunk(&t, c, w);
    count_draft(&t, &w->draft);
    count_state(c, report);
    report->file_bytes = pgl_checkpoint_file_bytes(checkpoint);
    for (size_t i = 0; i < pgl_checkpoint_n_tensors(checkpoint); i++) {
        pgl_tensor_info info = pgl_checkpoint_tensor(checkpoint, i);
        if (!info.used)
            report->skipped_bytes += info.bytes;
    }
    return look_at_files(checkpoint, report, err);
}
