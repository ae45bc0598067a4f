"""Writes what the 16-bit weights say about held-out conversations, for `pergola eval --reference`.

  python reference.py --model b/model --tokens 8000 --out reference.safetensors --ids ids.json
  pergola eval --model models/demo --ids ids.json --reference reference.safetensors

The weights are as saved, the arithmetic is float32 on the CPU, the log-probabilities are taken in
float64. Every conversation is a sequence of its own, with its right answer; one of each kind in turn.
"""

import argparse
import json

import numpy as np
import torch
from safetensors.numpy import save_file

import delta
import export
import mixture
import render
from encode import Encoder
from model import Config, Demo, linear, norm


def conversations(encoder: Encoder, tokens: int, longest: int) -> list:
    """Ids of held-out conversations, one of each kind in turn, until there are `tokens` of them."""
    kinds = {}
    for _, task, thinking in mixture.held_out(20):
        kinds.setdefault(task.kind, []).append((task, thinking))
    chosen, total = [], 0
    for i in range(20):
        for kind in sorted(kinds):
            if i >= len(kinds[kind]) or total >= tokens:
                continue
            ids, _ = encoder.conversation(render.pieces(*kinds[kind][i]))
            if len(ids) <= longest:
                chosen.append(ids)
                total += len(ids)
    return chosen


@torch.no_grad()
def logprobs(demo: Demo, ids: list, known: int) -> torch.Tensor:
    """[n, known] in float64: the distribution of the token after each."""
    width = -(-len(ids) // delta.CHUNK) * delta.CHUNK
    tokens = torch.tensor(ids + [0] * (width - len(ids)))
    x, _, _ = demo.trunk(tokens, torch.arange(width), torch.tensor([0, width], dtype=torch.int32), 1, width)
    logits = linear(norm(x[: len(ids)], demo.p["norm.weight"]), demo.p["embed_tokens.weight"])
    return logits[:, :known].double().log_softmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the 16-bit model with its tokenizer")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--longest", type=int, default=1500, help="leave out conversations of more tokens")
    parser.add_argument("--top", type=int, default=256, help="entries kept at each position; the rest is one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--ids", required=True)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    config, encoder = Config(), Encoder(args.model)
    demo = Demo(config, export.load(args.model, config))
    known = min(config.vocab, encoder.tokenizer.get_vocab_size())
    chosen = conversations(encoder, args.tokens, args.longest)
    tensors, nll = {}, 0.0
    for k, ids in enumerate(chosen):
        table = logprobs(demo, ids, known)
        nll -= table[:-1].gather(1, torch.tensor(ids[1:])[:, None]).sum().item()
        ordered = table.sort(stable=True, dim=-1, descending=True)
        rest = ordered.values[:, args.top :].logsumexp(-1).clamp(min=torch.finfo(torch.float32).min)
        tensors[f"ids.{k}"] = np.array(ids, np.int32)
        tensors[f"top_ids.{k}"] = ordered.indices[:, : args.top].int().contiguous().numpy()
        tensors[f"top_logprobs.{k}"] = ordered.values[:, : args.top].float().contiguous().numpy()
        tensors[f"rest_logprob.{k}"] = rest.float().numpy()
    save_file(tensors, args.out)
    with open(args.ids, "w", encoding="utf-8") as file:
        json.dump(chosen, file)
    total = sum(map(len, chosen))
    print(f"{len(chosen)} conversations, {total} tokens, nll {nll / (total - len(chosen)):.6f}")


if __name__ == "__main__":
    main()
