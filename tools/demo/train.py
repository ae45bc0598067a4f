"""Trains the demo model, in pieces that can follow one another on one machine or on several.

  python train.py --tokenizer DIR --out DIR --state FILE --steps 7560 --until 3930
  python train.py --tokenizer DIR --out DIR --state FILE --steps 7560

A piece goes on from --state where that file exists (weights and optimizer), else from the weights
in --resume (a saved model; the optimizer starts anew with a short warm-up), else from nothing. It
stops at --until steps or after --minutes, saves, and can measure itself on the held-out set. A last
piece that has too little time for all steps comes down to a rate of nothing within that time.
"""

import argparse
import json
import time
from pathlib import Path

import torch

import check
import decode
import export
import mixture
import render
import stream
from encode import Encoder
from model import Config, Demo, initial
from optim import Optimizer
from words import Draw
from vocab import CONTROL, MARKS, load

HERE = Path(__file__).parent


def rate_at(step: int, total: int, peak: float, fresh: int) -> float:
    """Warm-up over 200 steps (from `fresh`), level until 40 %, then a straight line to nothing."""
    warm = min(1.0, (step - fresh + 1) / 200)
    return peak * warm * min(1.0, max(0.0, (total - step) / (0.6 * total)))


def measure(demo, encoder: Encoder, per_kind: int, log) -> dict:
    """Share of right greedy answers by kind on the held-out set, and how often the draft head agrees."""
    stops = {encoder.added["<|im_end|>"], encoder.added["<|endoftext|>"]}
    items = []
    chosen = list(mixture.held_out(per_kind))
    for i in range(10 * per_kind):  # as in training, for comparison
        task = mixture.one(Draw(f"seen-{i}"))
        task.kind = "all kinds as in training"
        if task.check:
            chosen.append((f"seen-{i}", task, task.think == "on" or (task.think == "any" and i % 2 == 1)))
    for name, task, thinking in chosen:
        parts = render.pieces(task, thinking)
        ids = sum((encoder.encode(text) for text, _ in parts[:-2]), [])
        items.append((len(ids), len(encoder.encode(parts[-2][0])), name, task, thinking, ids))
    items.sort(key=lambda item: item[:2])
    total, good, fails, sample = {}, {}, {}, []
    at = 0
    while at < len(items):
        size = max(1, min(400, 600_000 // (items[min(at + 60, len(items) - 1)][0] + 64)))
        group = items[at : at + size]
        at += size
        limit = min(600, max(g[1] for g in group) + 40)
        answers = decode.generate(demo, [g[5] for g in group], limit, stops)
        sample += [(g[5], a) for g, a in zip(group[:4], answers) if 2 <= len(a) and len(g[5]) < 3000]
        for (_, _, name, task, thinking, _), ids in zip(group, answers):
            text = encoder.tokenizer.decode(ids, skip_special_tokens=False)
            visible = text.split("</think>\n\n", 1)[-1] if thinking else text
            calls = check.parse_calls(visible, task.tools)
            content = visible.split("<tool_call>")[0] if calls else visible
            ok = (not thinking or "</think>" in text) and check.right(task.check, content, calls)
            key = task.kind + (" (thinking)" if thinking else "")
            keys = [key] if name.startswith("seen") else [key, "all, held-out wording" if task.fresh else "all, known wording, held-out words"]
            if task.note and not name.startswith("seen"):
                keys.append(f"{task.kind}, {task.note}")
            for key in keys:
                total[key], good[key] = total.get(key, 0) + 1, good.get(key, 0) + ok
            if not ok and len(fails.setdefault(task.kind, [])) < 12:
                fails[task.kind].append({"id": name, "question": task.user[-300:], "system": task.system[:200], "got": text[:400], "want": task.answer or json.dumps(task.calls), "thinking": thinking, "fresh": task.fresh})
    hits, tries = decode.draft_agreement(demo, *zip(*sample[:200]), encoder.added["<|im_end|>"]) if sample else (0, 1)
    result = {"right": {k: [good[k], total[k]] for k in sorted(total)}, "draft": hits / max(tries, 1), "fails": fails}
    for key in sorted(total):
        log(f"  {key:28s} {good[key] / total[key]:6.1%} of {total[key]}")
    log(f"  the draft head guesses {result['draft']:.1%} of greedy tokens")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--state", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--steps", type=int, default=7400)
    parser.add_argument("--start", type=int, default=0, help="step to go on from with --resume")
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--tokens", type=int, default=131072, help="tokens in a step, a multiple of 16384")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--light", type=float, default=0.05, help="weight of tokens the model does not write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--measure", type=int, default=0, help="held-out examples of a kind at the end")
    parser.add_argument("--long-from", type=float, default=0.2)
    parser.add_argument("--long-share", type=float, default=0.2)
    parser.add_argument("--train-only", default="", help="comma-separated name parts; other tensors stay (fine-tuning after coding)")
    parser.add_argument("--replace", default="", help="safetensors whose tensors replace the weights before training (decoded experts)")
    args = parser.parse_args()

    begin = time.time()
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    torch.set_float32_matmul_precision("high")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    lines = open(out / "train.log", "a", encoding="utf-8")

    def log(text: str) -> None:
        print(f"[{time.time() - begin:6.1f}] {text}", flush=True)
        lines.write(f"[{time.time() - begin:6.1f}] {text}\n")
        lines.flush()

    config = Config()
    state = torch.load(args.state, map_location="cpu", weights_only=True) if args.state and Path(args.state).exists() else None
    step = state["step"] if state else args.start
    plan = stream.Plan(args.seed, args.tokens, args.steps, first=step, long_from=args.long_from, long_share=args.long_share)
    source = stream.batches(plan, args.tokenizer, args.workers)  # before CUDA starts: the workers are forks
    first = next(source, None)

    parameters = export.load(args.resume, config, device) if args.resume and not state else initial(config, args.seed, device)
    if args.replace:
        replace(parameters, args.replace)
    for name, value in parameters.items():
        if args.train_only and not any(part in name for part in args.train_only.split(",")):
            value.requires_grad_(False)
    demo = Demo(config, parameters, torch.bfloat16 if gpu else torch.float32, fast=gpu)
    optimizer = Optimizer({n: p for n, p in parameters.items() if p.requires_grad}, compiled=gpu)
    fresh = step
    if state:
        with torch.no_grad():
            for name, value in parameters.items():
                value.copy_(state["parameters"][name])
        optimizer.load(state["optimizer"])
        fresh = -1000
    until = min(args.until or args.steps, args.steps)
    log(f"{sum(p.numel() for p in parameters.values()) / 1e6:.2f} M parameters, steps {step} to {until} of {args.steps}, {args.tokens} tokens each")

    sums, since, slow = torch.zeros(5, device=device), time.time(), 0.0
    shares, whole, last, begun = None, args.steps, until == args.steps, step
    while step < min(until, whole) and time.time() - begin < args.minutes * 60:
        tokens, grades, positions, starts, row = first
        move = lambda x, t: torch.from_numpy(x.astype(t)).to(device, non_blocking=True)
        tokens, grades, positions, starts = move(tokens, "int64"), move(grades, "int64"), move(positions, "int64"), move(starts, "int32")
        main_loss, draft_loss, penalty, right, draft_right, shares = demo.losses(tokens, grades, positions, starts, args.tokens // row, row, args.light if row == stream.SHORT else args.light / 10)
        (main_loss + 0.1 * draft_loss + 0.004 * penalty).backward()
        optimizer.step(rate_at(step, whole, args.rate, fresh))
        sums += torch.stack([main_loss.detach(), draft_loss.detach(), penalty.detach() / (config.layers + 1), right, draft_right])
        step += 1
        wait = time.time()
        first = next(source) if step < args.steps else first
        slow += time.time() - wait
        if step % 100 == 0 or step == fresh + 10:
            values = (sums / (100 if step % 100 == 0 else 10)).tolist()
            sums.zero_()
            speed = args.tokens * (100 if step % 100 == 0 else 10) / (time.time() - since)
            log(f"step {step:6d} loss {values[0]:.4f} draft {values[1]:.4f} spread {values[2]:.3f} right {values[3]:.4f} draft right {values[4]:.4f} {speed / 1e6:.3f} M tokens/s, waited {slow:.1f} s, shares {shares.min().item():.3f}..{shares.max().item():.3f}")
            if last and step >= begun + 200:  # the first hundred steps hold the compiling
                left = (args.minutes * 60 - (time.time() - begin)) * speed / args.tokens
                whole = min(args.steps, step + max(1, int(left)))
            since, slow = time.time(), 0.0

    vocab = load(args.tokenizer)
    ids = {t: vocab.token_to_id(t) for t in CONTROL + MARKS}
    files = {n: (Path(args.tokenizer) / n).read_text(encoding="utf-8") for n in ("tokenizer.json", "tokenizer_config.json")}
    files["chat_template.jinja"] = (HERE / "chat_template.jinja").read_text(encoding="utf-8")
    if args.state:
        torch.save({"step": step, "parameters": {n: p.detach() for n, p in parameters.items()}, "optimizer": optimizer.state()}, args.state)
    export.save(parameters, config, out / "model", ids, files)
    log(f"saved at step {step}")
    if args.measure:
        if gpu:
            demo = Demo(config, {n: p.detach() for n, p in parameters.items()}, torch.bfloat16)
        result = measure(demo, Encoder(args.tokenizer), args.measure, log)
        (out / "heldout.json").write_text(json.dumps({"step": step, **result}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    log("done")


def replace(parameters: dict, file: str) -> None:
    from safetensors.torch import load_file

    with torch.no_grad():
        for name, value in load_file(file).items():
            name = name.removeprefix(export.PREFIX)
            parameters[name].copy_(value.to(parameters[name].device, torch.float32))


if __name__ == "__main__":
    main()
