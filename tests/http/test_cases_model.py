"""Faults that users of comparable servers met with checkpoints, memory and lengths of prompts."""

import concurrent.futures
import json
import os
import re
import struct
import subprocess

import pytest

from conftest import SLOWDOWN, TINY, serving
from soak import model


# ---- what a checkpoint says of itself ----

def with_config(directory, edit):
    for file in TINY.iterdir():
        if file.name != "config.json":
            os.symlink(file, directory / file.name)
    config = json.loads((TINY / "config.json").read_text())
    edit(config)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def text(**fields):
    return lambda config: config["text_config"].update(fields)


def coding(**fields):
    return lambda config: config["quantization_config"].update(fields)


@pytest.mark.parametrize("edit, words", [
    (coding(quant_method="gptq"), ["quant_method", "eschamoe", "gptq"]), (lambda c: c["quantization_config"].pop("quant_method"), ["quant_method"]),
    (lambda c: c.pop("quantization_config"), ["quantization_config"]), (coding(format_version="3.0"), ["format_version", "2.0", "3.0"]),
    (text(num_experts=15), ["mlp.gate.weight", "[15, 256]", "[16, 256]"]), (text(num_experts=255), ["[255, 256]"]),
    (lambda c: c["text_config"]["layer_types"].pop(), ["layer_types", "8", "7"]), (text(num_hidden_layers=9), ["layer_types", "9", "8"]),
    (text(moe_intermediate_size=100), ["moe_intermediate_size", "128"]), (text(vocab_size=1023), ["embed_tokens", "1023", "1024"]),
    (text(num_experts_per_tok=17), ["num_experts_per_tok", "16", "17"]), (lambda c: c.pop("text_config"), ["vocab_size"]),
])
def test_a_checkpoint_that_says_something_else_is_refused_by_name(pergola, tmp_path, edit, words):
    directory = with_config(tmp_path, edit)
    result = subprocess.run([pergola, "serve", "--model", directory, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and result.stdout == ""
    assert all(word in result.stderr for word in words), result.stderr


def with_scales(directory, kind):
    """The small model with the scales of its int8 weights, which are F16, written as another type."""
    model.write(directory)
    data = (directory / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, body, out, at = json.loads(data[8:8 + size]), data[8 + size:], [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        piece = body[slice(*entry["data_offsets"])]
        if name.endswith(".weight_scale"):
            wide = struct.pack(f"<{len(piece) // 2}f", *struct.unpack(f"<{len(piece) // 2}e", piece))
            piece = wide if kind == "F32" else b"".join(wide[i + 2:i + 4] for i in range(0, len(wide), 4))
            entry["dtype"] = kind
        entry["data_offsets"] = [at, at + len(piece)]
        at += len(piece)
        out.append(piece)
    packed = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + b"".join(out))
    return directory


def logits(pergola, directory, name):
    (directory / "ids.json").write_text(json.dumps(list(range(40, 80))))
    command = [pergola, "logits", "--model", directory / name, "--ids", directory / "ids.json", "--out", directory / f"{name}.out",
               "--backend", "cpu"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60 * SLOWDOWN)


def test_scales_of_another_type_give_the_same_numbers_or_are_refused_by_name(pergola, tmp_path):
    for name in ("F16", "F32", "BF16"):
        (tmp_path / name).mkdir()
    model.write(tmp_path / "F16")
    for name in ("F32", "BF16"):
        with_scales(tmp_path / name, name)
    for name in ("F16", "F32"):
        result = logits(pergola, tmp_path, name)
        assert result.returncode == 0, result.stderr
    outputs = [(tmp_path / f"{name}.out").read_bytes() for name in ("F16", "F32")]
    assert outputs[0] == outputs[1] and len(outputs[0]) > 40 * 1024 * 4
    refused = logits(pergola, tmp_path, "BF16")
    assert refused.returncode == 1 and "weight_scale: expected F16 or F32" in refused.stderr and "found BF16" in refused.stderr


# ---- memory ----

def anonymous(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


def test_too_little_memory_is_refused_at_the_start_with_what_would_fit(pergola):
    command = [pergola, "serve", "--model", TINY, "--port", "0", "--context", "4096", "--slots", "16", "--memory", "100M"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "keys and values" in result.stderr and "too much" in result.stderr
    assert "It fits with" in result.stderr and result.stdout == ""


def test_every_slot_at_the_end_of_its_context_needs_no_more_than_planned(pergola, tmp_path):
    """As many tokens as were promised, in all slots at once, again and again: no answer fails, none is empty, and memory
    stays below the plan."""
    with serving("--slots", 4, "--context", 256, "--threads", 2, "--memory", "150M", model=model.write(tmp_path)) as server:
        planned = float(re.search(r"total +([0-9.]+) MiB", server.block + server.stderr()).group(1)) * (1 << 20)

        def ask(i):
            answer = server.post("/v1/completions", {"prompt": [20 + i] * 200, "ignore_eos": True, "seed": i, "logprobs": 5})
            assert answer.status_code == 200, answer.text
            return answer.json()

        for round_ in range(2):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for answer in pool.map(ask, range(8 * round_, 8 * round_ + 8)):
                    assert answer["usage"]["completion_tokens"] == 56 and answer["choices"][0]["finish_reason"] == "length"
                    assert answer["choices"][0]["text"]
            if SLOWDOWN == 1:
                assert anonymous(server) < 1.05 * planned


# ---- lengths ----

@pytest.mark.parametrize("n", [2, 6, 63, 64, 65, 127, 128, 129, 192])
def test_a_prompt_is_read_alike_at_once_and_token_by_token(server, n):
    """The numbers of the last prompt token, from a prompt that ends there and from one that goes on, cold and warm."""
    prompt = [(7 * i + n) % 900 + 20 for i in range(n)]
    body = {"prompt": prompt, "max_tokens": 1, "logprobs": 5, "temperature": 0, "ignore_eos": True}
    first = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]
    again = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]
    assert first == again
    echoed = server.post("/v1/completions", {**body, "echo": True}).json()["choices"][0]["logprobs"]
    assert {k: v[n:] for k, v in echoed.items() if k != "text_offset"} == {k: v for k, v in first.items() if k != "text_offset"}
    # The prompt's own numbers are those of the shorter prompt's answer, where that is the token which comes.
    shorter = server.post("/v1/completions", {**body, "prompt": prompt[:-1], "logit_bias": {str(prompt[-1]): 100}}).json()["choices"][0]["logprobs"]
    assert shorter["token_logprobs"][0] == echoed["token_logprobs"][n - 1]
