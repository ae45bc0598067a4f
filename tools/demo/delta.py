"""The gated delta rule in chunks of 64, for training and for prompts.

Plain products are left to PyTorch; two steps are Triton kernels on a GPU: the inverse of the
unit-triangular matrix of a chunk, and the walk of the state from chunk to chunk (forward and
backward). Both avoid transposing a product in registers, which Triton 3.4 to 3.7.0 miscompiles
on Hopper (flash-linear-attention, issue 640). A document's first token has g = RESET, which
wipes the state: documents that share a row do not see each other.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU only: the loops below are used
    triton = None

CHUNK = 64
RESET = -60.0

if triton is not None:

    @triton.jit
    def invert_kernel(a_ptr, t_ptr, C: tl.constexpr):
        """t = (I + a)^-1, a strictly lower triangular, one [C, C] matrix a program: forward substitution."""
        at = tl.program_id(0).to(tl.int64) * C * C
        row = tl.arange(0, C)
        t = tl.where(row[:, None] == row[None, :], 1.0, 0.0)
        for i in range(1, C):
            a = tl.load(a_ptr + at + i * C + row)
            new = tl.sum(a[:, None] * t, 0)
            t = tl.where(row[:, None] == i, t - new[None, :], t)
        tl.store(t_ptr + at + row[:, None] * C + row[None, :], t)

    @triton.jit
    def walk_kernel(w_ptr, u_ptr, k_ptr, decay_ptr, s_ptr, v_ptr, chunks, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BE: tl.constexpr):
        """s_m = state before chunk m; v_m = u_m - w_m s_m; s_{m+1} = decay_m s_m + k_m^T v_m."""
        p = tl.program_id(0).to(tl.int64)
        rc, rd = tl.arange(0, C), tl.arange(0, D)
        re = tl.program_id(1) * BE + tl.arange(0, BE)
        state = tl.zeros([D, BE], dtype=tl.float32)
        for m in range(chunks):
            c = p * chunks + m
            tl.store(s_ptr + c * D * E + rd[:, None] * E + re[None, :], state.to(s_ptr.dtype.element_ty))
            w = tl.load(w_ptr + c * C * D + rc[:, None] * D + rd[None, :])
            u = tl.load(u_ptr + c * C * E + rc[:, None] * E + re[None, :])
            v = u.to(tl.float32) - tl.dot(w, state.to(s_ptr.dtype.element_ty))
            v = v.to(s_ptr.dtype.element_ty)
            tl.store(v_ptr + c * C * E + rc[:, None] * E + re[None, :], v)
            kt = tl.load(k_ptr + c * C * D + rc[None, :] * D + rd[:, None])
            state = state * tl.load(decay_ptr + c) + tl.dot(kt, v)

    @triton.jit
    def walk_back_kernel(w_ptr, k_ptr, decay_ptr, ds_ptr, dv_ptr, after_ptr, du_ptr, chunks, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BE: tl.constexpr):
        """g = gradient of the state after chunk m (kept in `after`); du = dv + k g; g <- decay g + ds - w^T du."""
        p = tl.program_id(0).to(tl.int64)
        rc, rd = tl.arange(0, C), tl.arange(0, D)
        re = tl.program_id(1) * BE + tl.arange(0, BE)
        grad = tl.zeros([D, BE], dtype=tl.float32)
        for i in range(chunks):
            c = p * chunks + chunks - 1 - i
            tl.store(after_ptr + c * D * E + rd[:, None] * E + re[None, :], grad.to(ds_ptr.dtype.element_ty))
            k = tl.load(k_ptr + c * C * D + rc[:, None] * D + rd[None, :])
            dv = tl.load(dv_ptr + c * C * E + rc[:, None] * E + re[None, :])
            du = (dv.to(tl.float32) + tl.dot(k, grad.to(ds_ptr.dtype.element_ty))).to(ds_ptr.dtype.element_ty)
            tl.store(du_ptr + c * C * E + rc[:, None] * E + re[None, :], du)
            wt = tl.load(w_ptr + c * C * D + rc[None, :] * D + rd[:, None])
            ds = tl.load(ds_ptr + c * D * E + rd[:, None] * E + re[None, :])
            grad = grad * tl.load(decay_ptr + c) + ds.to(tl.float32) - tl.dot(wt, du)


class Invert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        a = a.contiguous()
        if a.is_cuda or INTERPRET:
            t = torch.empty_like(a)
            invert_kernel[(a.numel() // CHUNK**2,)](a, t, C=CHUNK, num_warps=4)
        else:
            eye = torch.eye(CHUNK, dtype=a.dtype, device=a.device).expand_as(a)
            t = torch.linalg.solve_triangular(a + eye, eye, upper=False, unitriangular=True)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx, grad):
        (t,) = ctx.saved_tensors
        tt = t.transpose(-1, -2)
        return -(tt @ grad.float() @ tt)


class Walk(torch.autograd.Function):
    """(w, u, k [P, M, C, *] bf16, decay [P, M] f32) -> states before each chunk [P, M, D, E], v [P, M, C, E]."""

    @staticmethod
    def forward(ctx, w, u, k, decay):
        (p, m, c, d), e = w.shape, u.shape[-1]
        states, v = u.new_empty(p, m, d, e), torch.empty_like(u)
        if u.is_cuda or INTERPRET:
            walk_kernel[(p, e // 32)](w, u, k, decay, states, v, m, C=c, D=d, E=e, BE=32, num_warps=4, num_stages=2)
        else:
            state = torch.zeros(p, d, e, dtype=torch.float32, device=u.device)
            for i in range(m):
                states[:, i] = state.to(u.dtype)
                v[:, i] = (u[:, i].float() - w[:, i].float() @ state).to(u.dtype)
                state = state * decay[:, i, None, None] + k[:, i].float().transpose(1, 2) @ v[:, i].float()
        ctx.save_for_backward(w, k, decay, states, v)
        return states, v

    @staticmethod
    def backward(ctx, ds, dv):
        w, k, decay, states, v = ctx.saved_tensors
        (p, m, c, d), e = w.shape, v.shape[-1]
        ds, dv = ds.contiguous(), dv.contiguous()
        after, du = torch.empty_like(ds), torch.empty_like(dv)
        if v.is_cuda or INTERPRET:
            walk_back_kernel[(p, e // 32)](w, k, decay, ds, dv, after, du, m, C=c, D=d, E=e, BE=32, num_warps=4, num_stages=2)
        else:
            grad = torch.zeros(p, d, e, dtype=torch.float32, device=v.device)
            for i in reversed(range(m)):
                after[:, i] = grad.to(ds.dtype)
                du[:, i] = (dv[:, i].float() + k[:, i].float() @ grad).to(dv.dtype)
                grad = grad * decay[:, i, None, None] + ds[:, i].float() - w[:, i].float().transpose(1, 2) @ du[:, i].float()
        dw = -(du @ states.transpose(-1, -2))
        dk = v @ after.transpose(-1, -2)
        ddecay = (states.float() * after.float()).sum((-1, -2))
        return dw, du, dk, ddecay


INTERPRET = False  # tests set this to run the kernels in Triton's interpreter


def decays(g):
    """Summed log-decays of each chunk, and exp(G_i - G_j) on and below the diagonal. g [T, C] f32, T chunks."""
    total = g.cumsum(-1)
    gap = total[..., :, None] - total[..., None, :]
    low = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=g.device).tril()
    return total, torch.where(low, gap, -1e30).exp()


def prepare(k, g, beta):
    """a [T, C, C]: what the later keys of a chunk take back from the earlier ones. k [T, C, D]."""
    _, gaps = decays(g)
    kk = k.float() @ k.float().transpose(-1, -2)
    return (kk * gaps * beta[..., None]).tril(-1)


def widen(t, k, v, g, beta):
    """w, u, the keys weighted to the chunk's end, and the chunk's whole decay."""
    total, _ = decays(g)
    t = t.to(k.dtype)
    w = t @ (k * (beta * total.exp())[..., None].to(k.dtype))
    u = t @ (v * beta[..., None].to(v.dtype))
    last = total[..., -1:]
    return w, u, k * (last - total).exp()[..., None].to(k.dtype), last[..., 0].exp()


def read(q, k, v, states, g):
    total, gaps = decays(g)
    inside = ((q @ k.transpose(-1, -2)).float() * gaps).to(q.dtype)
    return (q * total.exp()[..., None].to(q.dtype)) @ states + inside @ v


def gated_delta(q, k, v, g, beta, rows: int, steps=(prepare, widen, read), final: bool = False):
    """q, k [N, nk, D] (unit length, q scaled), v [N, nv, E], g, beta [N, nv] f32; N tokens in `rows` equal rows.

    Returns o [N, nv, E], and the final states [rows, nv, D, E] when `final`. `steps` are compiled versions.
    """
    n, nk, d = k.shape
    nv, e = v.shape[1:]
    chunks = n // rows // CHUNK
    split = lambda x, heads: x.reshape(rows, chunks, CHUNK, heads, *x.shape[2:]).movedim(3, 0).reshape(heads * rows, chunks, CHUNK, *x.shape[2:])
    share = (lambda x: x) if nk == nv else (lambda x: x.reshape(nk, 1, rows, *x.shape[1:]).expand(nk, nv // nk, rows, *x.shape[1:]).reshape(nv * rows, *x.shape[1:]))
    q, k, v, g, beta = (x.flatten(0, 1).contiguous() for x in (share(split(q, nk)), share(split(k, nk)), split(v, nv), split(g, nv), split(beta, nv)))
    t = Invert.apply(steps[0](k, g, beta))
    w, u, kt, decay = steps[1](t, k, v, g, beta)
    walks = lambda x: x.unflatten(0, (nv * rows, chunks)).contiguous()
    states, v_new = Walk.apply(walks(w), walks(u), walks(kt), walks(decay))
    o = steps[2](q, k, v_new.flatten(0, 1), states.flatten(0, 1), g)
    o = o.reshape(nv, rows, chunks, CHUNK, e).movedim(0, 3).reshape(n, nv, e)
    if not final:
        return o
    last = states[:, -1].float() * walks(decay)[:, -1, None, None] + walks(kt)[:, -1].float().transpose(1, 2) @ v_new[:, -1].float()
    return o, last.reshape(nv, rows, d, e).transpose(0, 1)


def step(q, k, v, g, beta, state):
    """One token a sequence: q, k [B, nk, D], v [B, nv, E], g, beta [B, nv], state [B, nv, D, E] f32 (changed in place)."""
    ratio = v.shape[1] // k.shape[1]
    q, k = (x.float().repeat_interleave(ratio, 1) for x in (q, k))
    state *= g.exp()[..., None, None]
    change = (v.float() - torch.einsum("bhde,bhd->bhe", state, k)) * beta[..., None]
    state += k[..., None] * change[:, :, None, :]
    return torch.einsum("bhde,bhd->bhe", state, q)
