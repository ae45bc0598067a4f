"""The demo model for training: qwen3_5_moe with its draft head, written as a few functions over flat tokens.

Tensor names, shapes and arithmetic are those of transformers' Qwen3_5Moe classes (the draft head,
which they lack, follows the published layout), so the parameters are saved as they are. All
documents of a batch lie one after another in one run of tokens; `pos` is a token's place in its
document and keeps convolution, state and attention inside it.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F

import delta


@dataclass
class Config:
    vocab: int = 2048
    hidden: int = 256
    layers: int = 8
    interval: int = 4
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    key_heads: int = 1
    value_heads: int = 2
    delta_dim: int = 128
    conv: int = 4
    experts: int = 16
    chosen: int = 4
    expert_width: int = 128
    shared_width: int = 128
    theta: float = 1e7
    rotary: int = 64
    eps: float = 1e-6

    def full(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    def shapes(self) -> dict:
        """Every tensor by name; `mtp.` is the draft head, which borrows the experts of layer layers / 2."""
        h, d, kd, vd = self.hidden, self.head_dim, self.key_heads * self.delta_dim, self.value_heads * self.delta_dim
        out = {"embed_tokens.weight": (self.vocab, h), "norm.weight": (h,)}

        def attention(at):
            out.update({at + "self_attn.q_proj.weight": (2 * self.heads * d, h), at + "self_attn.k_proj.weight": (self.kv_heads * d, h), at + "self_attn.v_proj.weight": (self.kv_heads * d, h),
                        at + "self_attn.o_proj.weight": (h, self.heads * d), at + "self_attn.q_norm.weight": (d,), at + "self_attn.k_norm.weight": (d,)})

        def moe(at, own_experts=True):
            out.update({at + "input_layernorm.weight": (h,), at + "post_attention_layernorm.weight": (h,), at + "mlp.gate.weight": (self.experts, h), at + "mlp.shared_expert_gate.weight": (1, h),
                        at + "mlp.shared_expert.gate_proj.weight": (self.shared_width, h), at + "mlp.shared_expert.up_proj.weight": (self.shared_width, h), at + "mlp.shared_expert.down_proj.weight": (h, self.shared_width)})
            if own_experts:
                out.update({at + "mlp.experts.gate_up_proj": (self.experts, 2 * self.expert_width, h), at + "mlp.experts.down_proj": (self.experts, h, self.expert_width)})

        for layer in range(self.layers):
            at = f"layers.{layer}."
            if self.full(layer):
                attention(at)
            else:
                out.update({at + "linear_attn.in_proj_qkv.weight": (2 * kd + vd, h), at + "linear_attn.in_proj_z.weight": (vd, h), at + "linear_attn.in_proj_a.weight": (self.value_heads, h),
                            at + "linear_attn.in_proj_b.weight": (self.value_heads, h), at + "linear_attn.conv1d.weight": (2 * kd + vd, 1, self.conv), at + "linear_attn.A_log": (self.value_heads,),
                            at + "linear_attn.dt_bias": (self.value_heads,), at + "linear_attn.norm.weight": (self.delta_dim,), at + "linear_attn.out_proj.weight": (h, vd)})
            moe(at)
        out.update({"mtp.fc.weight": (h, 2 * h), "mtp.pre_fc_norm_embedding.weight": (h,), "mtp.pre_fc_norm_hidden.weight": (h,), "mtp.norm.weight": (h,)})
        attention("mtp.layers.0.")
        moe("mtp.layers.0.", own_experts=False)
        return out

    def as_dict(self) -> dict:
        return asdict(self)


def initial(config: Config, seed: int = 0, device: str = "cpu") -> dict:
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in config.shapes().items():
        if name.endswith("linear_attn.norm.weight"):
            value = torch.ones(shape)
        elif "norm" in name:
            value = torch.zeros(shape)
        elif name.endswith("A_log"):
            value = torch.empty(shape).uniform_(1, 16, generator=generator).log()
        elif name.endswith("dt_bias"):
            step = torch.exp(torch.rand(shape, generator=generator) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
            value = step + torch.log(-torch.expm1(-step))
        elif "conv1d" in name:
            value = torch.empty(shape).uniform_(-0.5, 0.5, generator=generator)
        else:
            spread = 0.02 if name.startswith("embed") else 0.6 / math.sqrt(shape[-1])
            if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight", "experts.down_proj")):
                spread /= math.sqrt(2 * config.layers)
            if name.endswith("mlp.gate.weight"):
                spread = 0.02
            value = torch.randn(shape, generator=generator) * spread
        out[name] = value.to(device).requires_grad_(True)
    return out


def norm(x, weight, eps: float = 1e-6):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + weight)


def linear(x, weight):
    return x @ weight.to(x.dtype).t()


def short_conv(u, weight, pos):
    """Causal depthwise convolution inside each document, then silu. u [N, C]."""
    taps = weight[:, 0].float()
    out = u.float() * taps[:, 3]
    for back in range(1, 4):
        moved = F.pad(u, (0, 0, back, 0))[: u.shape[0]].float()
        out = out + torch.where((pos >= back)[:, None], moved * taps[:, 3 - back], 0.0)
    return F.silu(out)


def delta_in(x, pos, ln, w_qkv, w_z, w_a, w_b, conv, a_log, dt_bias, shape, dtype):
    """What the recurrence needs, from the residual stream. shape = (key heads, value heads, head size)."""
    nk, nv, d = shape
    h = norm(x, ln)
    low = h.to(dtype)
    u = linear(low, w_qkv)
    mixed = short_conv(u, conv, pos)
    q, k, v = mixed.split([nk * d, nk * d, nv * d], dim=-1)
    unit = lambda t: t.unflatten(-1, (nk, d)) * torch.rsqrt(t.unflatten(-1, (nk, d)).pow(2).sum(-1, keepdim=True) + 1e-6)
    g = -a_log.float().exp() * F.softplus(linear(low, w_a).float() + dt_bias)
    beta = linear(low, w_b).float().sigmoid()
    return (unit(q) * d**-0.5).to(dtype), unit(k).to(dtype), v.unflatten(-1, (nv, d)).to(dtype), g, beta, linear(low, w_z), u


def wipe(g, pos):
    """The first token of a document forgets what came before."""
    return torch.where((pos == 0)[:, None], delta.RESET, g)


def delta_out(x, o, z, weight, w_out, eps: float = 1e-6):
    o = o.float()
    o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + eps) * weight
    o = o * F.silu(z.float().unflatten(-1, o.shape[1:]))
    return x + linear(o.flatten(1).to(z.dtype), w_out).float()


def rotate(x, cos, sin):
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def angles(pos, rotary: int, theta: float):
    frequency = theta ** (-torch.arange(0, rotary, 2, device=pos.device, dtype=torch.float32) / rotary)
    angle = pos.float()[:, None] * frequency
    return angle.cos(), angle.sin()


def attention_in(h, cos, sin, w_q, w_k, w_v, q_norm, k_norm, shape):
    """h [N, H] normed, low precision -> q, k, v [N, heads, D] (keys and values repeated for the query heads), gate."""
    heads, kv, d = shape
    q, gate = linear(h, w_q).unflatten(-1, (heads, 2 * d)).chunk(2, dim=-1)
    k, v = linear(h, w_k).unflatten(-1, (kv, d)), linear(h, w_v).unflatten(-1, (kv, d))
    q, k = rotate(norm(q, q_norm), cos, sin).to(h.dtype), rotate(norm(k, k_norm), cos, sin).to(h.dtype)
    return q, k.repeat_interleave(heads // kv, 1), v.repeat_interleave(heads // kv, 1), gate.flatten(1)


def attention_out(x, o, gate, w_o):
    return x + linear(o.flatten(1) * gate.float().sigmoid().to(o.dtype), w_o).float()


def route(h, w_gate, chosen: int):
    """Weights [N, E] (0 where not chosen), the even-spread penalty, and each expert's share."""
    logits = h.float() @ w_gate.float().t()
    top, index = logits.topk(chosen, dim=-1)
    weights = torch.zeros_like(logits).scatter(1, index, top.softmax(-1))
    share = (weights > 0).float().mean(0) / chosen
    penalty = logits.shape[1] * (share.detach() * logits.softmax(-1).mean(0)).sum() + 1e-3 * logits.logsumexp(-1).pow(2).mean()
    return weights, penalty, share


def moe(x, ln, w_gate, gate_up, down, s_gate, s_up, s_down, s_mix, chosen: int, dtype):
    """All experts are computed and weighted by the router: with 16 small experts that is faster than sorting tokens."""
    h = norm(x, ln).to(dtype)
    weights, penalty, share = route(h, w_gate, chosen)
    experts, twice, hidden = gate_up.shape
    width = twice // 2
    both = (h @ gate_up.to(dtype).reshape(experts * twice, hidden).t()).unflatten(-1, (experts, twice))
    inner = F.silu(both[..., :width].float()) * both[..., width:].float() * weights[..., None]
    routed = inner.to(dtype).flatten(1) @ down.to(dtype).permute(0, 2, 1).reshape(experts * width, hidden)
    shared = linear((F.silu(linear(h, s_gate).float()) * linear(h, s_up).float()).to(dtype), s_down)
    mix = (h.float() @ s_mix.float().t()).sigmoid()
    return x + routed.float() + mix * shared.float(), penalty, share


def graded_loss(x, ln, head, target, weight, dtype):
    """Weighted mean of the cross entropy; also the share of right guesses where weight is 1."""
    logits = linear(norm(x, ln).to(dtype), head).float()
    loss = F.cross_entropy(logits, target, reduction="none")
    right = ((logits.argmax(-1) == target) & (weight == 1)).sum() / (weight == 1).sum().clamp(min=1)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6), right


def draft_in(hidden, embedding, norm_e, norm_h, fc, dtype):
    return linear(torch.cat([norm(embedding, norm_e), norm(hidden, norm_h)], -1).to(dtype), fc).float()


class Demo:
    """Parameters and the passes over them. `fast` compiles the pieces (GPU)."""

    def __init__(self, config: Config, parameters: dict, dtype=torch.float32, fast: bool = False):
        self.c, self.p, self.dtype = config, parameters, dtype
        self.expert_share = None
        names = ["delta_in", "delta_out", "attention_in", "attention_out", "moe", "graded_loss", "draft_in", "norm"]
        wrap = (lambda f: torch.compile(f, dynamic=False, fullgraph=True)) if fast else (lambda f: f)
        self.f = {n: wrap(globals()[n]) for n in names}
        self.steps = tuple(wrap(f) for f in (delta.prepare, delta.widen, delta.read))

    def delta_layer(self, x, pos, at, rows: int):
        p, c = self.p, self.c
        a = at + "linear_attn."
        q, k, v, g, beta, z, _ = self.f["delta_in"](x, pos, p[at + "input_layernorm.weight"], p[a + "in_proj_qkv.weight"], p[a + "in_proj_z.weight"], p[a + "in_proj_a.weight"], p[a + "in_proj_b.weight"],
                                                    p[a + "conv1d.weight"], p[a + "A_log"], p[a + "dt_bias"], (c.key_heads, c.value_heads, c.delta_dim), self.dtype)
        o = delta.gated_delta(q, k, v, wipe(g, pos), beta, rows, self.steps)
        return self.f["delta_out"](x, o, z, p[a + "norm.weight"], p[a + "out_proj.weight"])

    def attention_layer(self, x, cos, sin, starts, longest: int, at):
        p, c = self.p, self.c
        a = at + "self_attn."
        h = self.f["norm"](x, p[at + "input_layernorm.weight"]).to(self.dtype)
        q, k, v, gate = self.f["attention_in"](h, cos, sin, p[a + "q_proj.weight"], p[a + "k_proj.weight"], p[a + "v_proj.weight"], p[a + "q_norm.weight"], p[a + "k_norm.weight"], (c.heads, c.kv_heads, c.head_dim))
        return self.f["attention_out"](x, attend(q, k, v, starts, longest), gate, p[a + "o_proj.weight"])

    def moe_layer(self, x, at, experts_at=None):
        p, m = self.p, at + "mlp."
        e = (experts_at or at) + "mlp.experts."
        return self.f["moe"](x, p[at + "post_attention_layernorm.weight"], p[m + "gate.weight"], p[e + "gate_up_proj"], p[e + "down_proj"], p[m + "shared_expert.gate_proj.weight"],
                             p[m + "shared_expert.up_proj.weight"], p[m + "shared_expert.down_proj.weight"], p[m + "shared_expert_gate.weight"], self.c.chosen, self.dtype)

    def trunk(self, tokens, pos, starts, rows: int, longest: int):
        """The residual stream after the last layer, the summed router penalty, and the experts' shares [L, E]."""
        c = self.c
        x = F.embedding(tokens, self.p["embed_tokens.weight"]).float()
        cos, sin = angles(pos, c.rotary, c.theta)
        penalty, shares = 0.0, []
        for layer in range(c.layers):
            at = f"layers.{layer}."
            x = self.attention_layer(x, cos, sin, starts, longest, at) if c.full(layer) else self.delta_layer(x, pos, at, rows)
            x, extra, share = self.moe_layer(x, at)
            penalty = penalty + extra
            shares.append(share)
        return x, penalty, torch.stack(shares)

    def draft(self, x, tokens, pos, starts, longest: int):
        """The draft head's stream before mtp.norm: row t stands for hidden t and token t + 1."""
        p, c = self.p, self.c
        following = F.embedding(tokens.roll(-1), p["embed_tokens.weight"])
        z = self.f["draft_in"](self.f["norm"](x, p["norm.weight"]), following, p["mtp.pre_fc_norm_embedding.weight"], p["mtp.pre_fc_norm_hidden.weight"], p["mtp.fc.weight"], self.dtype)
        cos, sin = angles(pos, c.rotary, c.theta)
        z = self.attention_layer(z, cos, sin, starts, longest, "mtp.layers.0.")
        return self.moe_layer(z, "mtp.layers.0.", f"layers.{c.layers // 2}.")

    def losses(self, tokens, grades, pos, starts, rows: int, longest: int, light: float):
        """(main loss, draft loss, router penalty, right guesses of both). grades: 2 the model's own text, 1 the rest, 0 filling."""
        x, penalty, shares = self.trunk(tokens, pos, starts, rows, longest)
        weight = torch.where(grades == 2, 1.0, torch.where(grades == 1, light, 0.0))
        same = lambda k: F.pad(pos[k:], (0, k)) == pos + k  # token t + k is in the same document
        weight1 = F.pad(weight[1:], (0, 1)) * same(1)
        weight2 = F.pad(weight[2:], (0, 2)) * same(2)
        head = self.p["embed_tokens.weight"]
        main, right = self.f["graded_loss"](x, self.p["norm.weight"], head, tokens.roll(-1), weight1, self.dtype)
        z, extra, _ = self.draft(x, tokens, pos, starts, longest)
        draft, draft_right = self.f["graded_loss"](z, self.p["mtp.norm.weight"], head, tokens.roll(-2), weight2, self.dtype)
        return main, draft, penalty + extra, right, draft_right, shares


def attend(q, k, v, starts, longest: int):
    """Causal attention inside each document. q, k, v [N, heads, D]; `starts` [documents + 1] int32."""
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, k, v, starts, starts, longest, longest, window_size=(-1, 0))
    out, edges = [], starts.tolist()
    for a, b in zip(edges, edges[1:]):
        part = [t[a:b].transpose(0, 1)[None] for t in (q, k, v)]
        out.append(F.scaled_dot_product_attention(*part, is_causal=True)[0].transpose(0, 1))
    return torch.cat(out)
