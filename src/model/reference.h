/* The scalar reference forward pass: what every backend's answer means.
 *
 * A pgl_reference is one sequence: delta-net state S, convolution taps, keys and values grown per token, the
 * last trunk hidden state, and the draft layer's own keys and values. It borrows a pgl_model, which must
 * outlive it. One thread at a time per sequence; any number of sequences share a model. It is slow on
 * purpose: no SIMD, no threads.
 *
 * Every token goes through the recurrence on its own, prompts included, and the order of every sum depends on
 * the model's shapes (and, in attention, on the position) only: prompts given in pieces of any size give
 * equal bits.
 *
 * The forward pass, with the functions that fix each operation's order (model/ops.h, model/linear.h):
 *   x = pgl_linear_row(embed, token)
 *   for each layer:
 *     h = pgl_norm(x; input_norm);   x_i = x_i + mixer(h)_i
 *     h = pgl_norm(x; post_attention_norm);   x_i = x_i + mlp(h)_i
 *   logits = head(pgl_norm(x; norm))                                     pgl_linear_forward, as every linear
 * below delta net:  u = pgl_conv_step(in_proj_qkv(h));  q, k, v = split(u) per key head pgl_l2_norm(q, scale
 * 1 / sqrtf(dk)), pgl_l2_norm(k, scale 1) per value head: beta = pgl_sigmoid(b), decay = pgl_delta_decay,
 * pgl_delta_step, pgl_gated_norm(o, in_proj_z(h));  then out_proj on the heads in order attention:  per head
 * pgl_norm(q; q_norm), pgl_norm(k; k_norm), pgl_rope; keys and values rounded to fp16 where they are stored;
 * pgl_attention_step;  y_i = o_i * pgl_sigmoid(gate_i);  o_proj experts:    logit_e = f16(router(h)_e);
 * pgl_route;  weights rounded to fp16 expert: y = gate_up(h); pgl_swiglu_coded(y[0..], y[m..]); down r_i =
 * sum over slots, fmaf(weight_s, expert_s(h)_i, r_i), from +0;  r_i = f16(r_i) shared: g =
 * pgl_sigmoid(shared_expert_gate(h)), t = shared_down(pgl_swiglu(shared_gate, shared_up)) y_i = fmaf(g, t_i,
 * r_i);   without a shared expert y_i = r_i dense mlp:  down(pgl_swiglu(gate(h), up(h))), or pgl_swiglu_coded
 * where gate and up are both coded draft head: e = pgl_norm(embedding of the next token;
 * pre_fc_norm_embedding), r = pgl_norm(hidden; pre_fc_norm_hidden), z = fc(e | r), one attention layer as
 * above, logits = head(pgl_norm(z; norm))
 *
 * Modes. Contract: every rounding point of docs/format.md. Exact (test-only): drops the roundings of
 * activations (xh, y, s, h, routing weight, routed sum, router logits, inputs of linears, stored keys and
 * values); what defines a weight stays. */
#ifndef PGL_MODEL_REFERENCE_H
#define PGL_MODEL_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

typedef struct pgl_reference pgl_reference;

/* PGL_E_MEMORY when there is no memory for the state. */
pgl_status pgl_reference_open(const pgl_model *model, bool exact, pgl_reference **out, pgl_error *err);
void pgl_reference_close(pgl_reference *seq); /* NULL is allowed */

/* Another sequence with the same history. */
pgl_status pgl_reference_fork(const pgl_reference *seq, pgl_reference **out, pgl_error *err);

uint64_t pgl_reference_n_tokens(const pgl_reference *seq);

/* What a call is to fill: NULL leaves a thing out. Arrays are the caller's. */
typedef struct pgl_reference_outputs {
    float *logits;      /* [n, vocab] */
    float *last_logits; /* [vocab], after the last token */
    float *hidden; /* [layers + 1, n, hidden]: the embedding, the residual after each layer but the last, the
                      output of the final norm */
    float *residual; /* [n, hidden]: the residual after the last layer, before the final norm */
    int32_t
        *experts; /* [layers, n, experts used]: slots in falling order; nothing is written in dense models */
    bool non_finite; /* set: some final residual or logit that was computed is not finite */
} pgl_reference_outputs;

/* Moves the sequence past n tokens. outputs may be NULL. PGL_E_INVALID names a token outside the vocabulary,
 * PGL_E_CONTEXT a length past max_position_embeddings, PGL_E_MEMORY; the sequence is then as before. */
pgl_status pgl_reference_forward(pgl_reference *seq, const int32_t *tokens, size_t n,
                                 pgl_reference_outputs *outputs, pgl_error *err);

/* Rows of the draft head, in order. Row t of a sequence takes the trunk's hidden state after token t and
 * token t + 1, stands at position t and predicts token t + 2. hidden is the trunk's post_norm
 * (outputs->hidden, last entry) or pre_norm (outputs->residual) state: the caller's choice of variant. A
 * further draft takes out_hidden or out_residual of the row before it, by the same choice. */
typedef struct pgl_reference_draft_rows {
    const float *hidden;   /* [n, hidden] */
    const int32_t *tokens; /* [n] */
    size_t n;
    float *logits;       /* [n, vocab] or NULL */
    float *out_hidden;   /* [n, hidden] after mtp.norm, or NULL */
    float *out_residual; /* [n, hidden] before it, or NULL */
} pgl_reference_draft_rows;

/* PGL_E_UNSUPPORTED without a draft head; otherwise as pgl_reference_forward. */
pgl_status pgl_reference_draft(pgl_reference *seq, const pgl_reference_draft_rows *rows, pgl_error *err);

/* Rows of the draft head so far; rewind drops those from n_rows on (rejected drafts). n_rows <= so far. */
uint64_t pgl_reference_n_draft_rows(const pgl_reference *seq);
void pgl_reference_rewind_draft(pgl_reference *seq, uint64_t n_rows);

/* The recurrent part, for comparison with a backend's snapshot: what a snapshot holds, in this order. */
typedef struct pgl_reference_state {
    const float *state;  /* [delta layers, value heads, dk, dv] */
    const float *taps;   /* [delta layers, kernel - 1, conv width], oldest first */
    const float *hidden; /* [hidden]: output of the final norm after the last token; zeros before the first */
} pgl_reference_state;
pgl_reference_state pgl_reference_get_state(const pgl_reference *seq); /* valid until the next call on seq */

#endif
