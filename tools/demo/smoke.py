"""Checks on a GPU before a training run: the kernels against plain references, and where a step's time goes."""

import sys
import time

import torch
import torch.nn.functional as F

import delta
import model
import stream
from encode import Encoder
from optim import Optimizer


def reference(q, k, v, g, beta, rows: int):
    """The recurrence token by token, all rows at once, in f64."""
    n, nv = g.shape
    split = lambda x: x.double().unflatten(0, (rows, n // rows))
    q, k, v, g, beta = map(split, (q, k, v, g, beta))
    q, k = (x.repeat_interleave(nv // x.shape[2], 2) for x in (q, k))
    state, out = torch.zeros(rows, nv, q.shape[-1], v.shape[-1], dtype=torch.float64, device=q.device), []
    for t in range(n // rows):
        state = state * g[:, t, :, None, None].exp()
        change = (v[:, t] - torch.einsum("bhde,bhd->bhe", state, k[:, t])) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * change[:, :, None]
        out.append(torch.einsum("bhde,bhd->bhe", state, q[:, t]))
    return torch.stack(out, 1).flatten(0, 1)


def far(a, b) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def check_delta() -> None:
    torch.manual_seed(0)
    n, rows = 1024, 4
    q = F.normalize(torch.randn(n, 1, 128, device="cuda"), dim=-1) * 128**-0.5
    k = F.normalize(torch.randn(n, 1, 128, device="cuda") + 0.5, dim=-1)
    v, g, beta = torch.randn(n, 2, 128, device="cuda"), -torch.rand(n, 2, device="cuda") * 0.2, torch.rand(n, 2, device="cuda")
    g[100], g[300] = delta.RESET, delta.RESET
    inputs = [q.bfloat16(), k.bfloat16(), v.bfloat16(), g, beta]
    mine, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    out, ref = delta.gated_delta(*mine, rows=rows), reference(*theirs, rows)
    weight = torch.randn_like(ref)
    (out.double() * weight).sum().backward()
    (ref * weight).sum().backward()
    errors = [far(out, ref)] + [far(a.grad, b.grad) for a, b in zip(mine, theirs)]
    print("delta rule, relative error of output and gradients:", " ".join(f"{e:.1e}" for e in errors), flush=True)
    if max(errors) > 2e-2:
        sys.exit("the delta rule is wrong on this machine")


def check_attention() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(512, 2, 256, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    starts = torch.tensor([0, 100, 101, 400, 512], dtype=torch.int32, device="cuda")
    mine, theirs = ([x.clone().requires_grad_() for x in (q, k, v)] for _ in range(2))
    out, parts, edges = model.attend(*mine, starts, 512), [], starts.tolist()
    for a, b in zip(edges, edges[1:]):
        parts.append(F.scaled_dot_product_attention(*(t[a:b].transpose(0, 1)[None].double() for t in theirs), is_causal=True)[0].transpose(0, 1))
    ref = torch.cat(parts)
    weight = torch.randn_like(ref)
    (out.double() * weight).sum().backward()
    (ref * weight).sum().backward()
    errors = [far(out, ref)] + [far(a.grad, b.grad) for a, b in zip(mine, theirs)]
    print("attention, relative error of output and gradients:", " ".join(f"{e:.1e}" for e in errors), flush=True)
    if max(errors) > 2e-2:
        sys.exit("the attention is wrong on this machine")


def profile(folder: str, tokens: int = 65536) -> None:
    torch.set_float32_matmul_precision("high")
    encoder = Encoder(folder)
    begin = time.time()
    plan = stream.Plan(5, tokens, 1000)
    ready = [stream.batch(plan, b, encoder) for b in (0, 1, 999)]
    print(f"a batch takes one core {(time.time() - begin) / 3:.2f} s", flush=True)
    config = model.Config()
    demo = model.Demo(config, model.initial(config, 0, "cuda"), torch.bfloat16, fast=True)
    optimizer = Optimizer(demo.p, compiled=True)

    def step(batch):
        t, g, p = (torch.from_numpy(x.astype("int64")).cuda() for x in batch[:3])
        s = torch.from_numpy(batch[3]).cuda()
        main, draft, penalty, right, *_ = demo.losses(t, g, p, s, tokens // batch[4], batch[4], 0.05)
        (main + 0.1 * draft + 0.004 * penalty).backward()
        optimizer.step(1e-3)
        return main

    begin = time.time()
    step(ready[0])
    torch.cuda.synchronize()
    print(f"first step (compiling) {time.time() - begin:.1f} s", flush=True)
    for batch in (ready[1], ready[2]):
        step(batch)
        torch.cuda.synchronize()
        begin = time.time()
        for _ in range(10):
            loss = step(batch)
        torch.cuda.synchronize()
        print(f"rows of {batch[4]}: {(time.time() - begin) * 100:.1f} ms a step, {tokens * 10 / (time.time() - begin) / 1e6:.2f} M tokens/s, loss {loss.item():.3f}, memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step(ready[1])
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=28, max_name_column_width=60), flush=True)


if __name__ == "__main__":
    check_delta()
    check_attention()
    profile(sys.argv[1])
