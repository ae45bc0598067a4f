"""Greedy decoding of many conversations at once, with caches; for measuring, in plain PyTorch."""

import torch
import torch.nn.functional as F

import delta
import model as m


def prefill(demo, prompts: list, room: int):
    """Runs all prompts (right-padded); returns the last hidden rows [B, H] and the caches."""
    c, p, dtype = demo.c, demo.p, demo.dtype
    device = p["norm.weight"].device
    lengths = torch.tensor([len(x) for x in prompts], device=device)
    rows, width = len(prompts), (max(map(len, prompts)) + delta.CHUNK - 1) // delta.CHUNK * delta.CHUNK
    tokens = torch.zeros(rows, width, dtype=torch.long)
    for i, prompt in enumerate(prompts):
        tokens[i, : len(prompt)] = torch.tensor(prompt)
    tokens = tokens.to(device).flatten()
    pos = torch.arange(width, device=device).repeat(rows)
    real = (pos < lengths.repeat_interleave(width)).float()[:, None]
    last = torch.arange(rows, device=device) * width + lengths - 1
    cos, sin = m.angles(pos, c.rotary, c.theta)
    x, caches = F.embedding(tokens, p["embed_tokens.weight"]).float(), []
    for layer in range(c.layers):
        at = f"layers.{layer}."
        if c.full(layer):
            a = at + "self_attn."
            h = m.norm(x, p[at + "input_layernorm.weight"]).to(dtype)
            q, k, v, gate = m.attention_in(h, cos, sin, *(p[a + n] for n in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_norm.weight", "k_norm.weight")), (c.heads, c.kv_heads, c.head_dim))
            q, k, v = (t.unflatten(0, (rows, width)).transpose(1, 2) for t in (q, k, v))
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(0, 1)
            x = m.attention_out(x, o, gate, p[a + "o_proj.weight"])
            caches.append([F.pad(t, (0, 0, 0, room)) for t in (k, v)])
        else:
            a = at + "linear_attn."
            q, k, v, g, beta, z, u = m.delta_in(x, pos, p[at + "input_layernorm.weight"], *(p[a + n] for n in ("in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight", "conv1d.weight", "A_log", "dt_bias")),
                                                (c.key_heads, c.value_heads, c.delta_dim), dtype)
            o, state = delta.gated_delta(q, k, v, g * real, beta * real, rows, final=True)
            x = m.delta_out(x, o, z, p[a + "norm.weight"], p[a + "out_proj.weight"])
            taps = torch.stack([torch.where((lengths > back)[:, None], u[(last - back).clamp(min=0)], 0) for back in (2, 1, 0)], 1)
            caches.append([taps, state.contiguous()])
        x, _, _ = demo.moe_layer(x, at)
    return x[last], caches, lengths, width


def advance(demo, tokens, pos, caches, width: int):
    """One token a conversation; tokens, pos [B]."""
    c, p, dtype = demo.c, demo.p, demo.dtype
    rows = torch.arange(len(tokens), device=tokens.device)
    cos, sin = m.angles(pos, c.rotary, c.theta)
    x = F.embedding(tokens, p["embed_tokens.weight"]).float()
    seen = torch.arange(caches[c.interval - 1][0].shape[2], device=tokens.device)[None] <= pos[:, None]
    for layer in range(c.layers):
        at = f"layers.{layer}."
        h = m.norm(x, p[at + "input_layernorm.weight"]).to(dtype)
        if c.full(layer):
            a = at + "self_attn."
            q, k, v, gate = m.attention_in(h, cos, sin, *(p[a + n] for n in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_norm.weight", "k_norm.weight")), (c.heads, c.kv_heads, c.head_dim))
            keys, values = caches[layer]
            keys[rows, :, pos], values[rows, :, pos] = k, v
            o = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen[:, None, None])[:, :, 0]
            x = m.attention_out(x, o, gate, p[a + "o_proj.weight"])
        else:
            a, (nk, nv, d) = at + "linear_attn.", (c.key_heads, c.value_heads, c.delta_dim)
            taps, state = caches[layer]
            u = m.linear(h, p[a + "in_proj_qkv.weight"])
            window = torch.cat([taps, u[:, None]], 1)
            caches[layer][0] = window[:, 1:]
            mixed = F.silu((window.float() * p[a + "conv1d.weight"][:, 0].t()).sum(1))
            q, k, v = mixed.split([nk * d, nk * d, nv * d], -1)
            unit = lambda t: F.normalize(t.unflatten(-1, (nk, d)), dim=-1, eps=1e-6)
            g = -p[a + "A_log"].exp() * F.softplus(m.linear(h, p[a + "in_proj_a.weight"]).float() + p[a + "dt_bias"])
            o = delta.step(unit(q) * d**-0.5, unit(k), v.unflatten(-1, (nv, d)), g, m.linear(h, p[a + "in_proj_b.weight"]).float().sigmoid(), state)
            x = m.delta_out(x, o, m.linear(h, p[a + "in_proj_z.weight"]), p[a + "norm.weight"], p[a + "out_proj.weight"])
        x, _, _ = demo.moe_layer(x, at)
    return x


@torch.no_grad()
def generate(demo, prompts: list, limit: int, stops: set) -> list:
    """Greedy answers (ids without the stop token) for prompts of about the same length."""
    x, caches, pos, width = prefill(demo, prompts, limit)
    head = lambda x: m.linear(m.norm(x, demo.p["norm.weight"]).to(demo.dtype), demo.p["embed_tokens.weight"]).argmax(-1)
    token, out = head(x), []
    stop = torch.tensor(sorted(stops), device=token.device)
    done = torch.isin(token, stop)
    for i in range(limit):
        out.append(token)
        if (i % 16 == 15 and bool(done.all())) or i + 1 == limit:
            break
        x = advance(demo, token, pos, caches, width)
        pos = pos + 1
        token = head(x)
        done |= torch.isin(token, stop)
    answers = []
    for row in torch.stack(out, 1).tolist():
        end = next((i for i, t in enumerate(row) if t in stops), len(row))
        answers.append(row[:end])
    return answers


@torch.no_grad()
def draft_agreement(demo, prompts: list, answers: list, stop: int):
    """(hits, tries): how often the draft head guesses the token after next that greedy decoding gave."""
    hits = tries = 0
    for prompt, answer in zip(prompts, answers):
        ids = prompt + answer + [stop]
        width = (len(ids) + delta.CHUNK - 1) // delta.CHUNK * delta.CHUNK
        tokens = torch.tensor(ids + [0] * (width - len(ids)), device=demo.p["norm.weight"].device)
        pos = torch.arange(width, device=tokens.device)
        starts = torch.tensor([0, width], dtype=torch.int32, device=tokens.device)
        x, _, _ = demo.trunk(tokens, pos, starts, 1, width)
        z, _, _ = demo.draft(x, tokens, pos, starts, width)
        guess = m.linear(m.norm(z, demo.p["mtp.norm.weight"]).to(demo.dtype), demo.p["embed_tokens.weight"]).argmax(-1)
        at = torch.arange(len(prompt) - 1, len(ids) - 2, device=tokens.device)
        hits += int((guess[at] == tokens[at + 2]).sum())
        tries += len(at)
    return hits, tries
