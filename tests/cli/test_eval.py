"""pergola eval: a model is at no distance from itself, numbers agree with the logits, and wrong files are named."""

import json
import math
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
SLOWDOWN = int(os.environ.get("PGL_TEST_SLOWDOWN", "1"))
MODEL = ROOT / "tests/goldens/tiny-a"


def run(*arguments):
    return subprocess.run([PERGOLA, *map(str, arguments)], capture_output=True, text=True, timeout=60 * SLOWDOWN)


def evaluate(*arguments):
    result = run("eval", "--model", MODEL, "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    letter = {"F32": "f", "I32": "i"}
    read = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            read[name] = struct.unpack(f"<{(end - first) // 4}{letter[entry['dtype']]}", data[8 + size + first : 8 + size + end])
    return read


def write_ids(tmp_path, lists):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(lists))
    return path


def test_a_model_is_at_no_distance_from_itself(tmp_path):
    ids = write_ids(tmp_path, [[5, 900, 17, 44, 3, 511], [8, 8, 9]])
    reference = tmp_path / "reference.safetensors"
    saved = evaluate("--ids", ids, "--save", reference, "--top", 32)
    again = evaluate("--ids", ids, "--reference", reference)
    assert again["nll"] == saved["nll"] and saved["tokens"] == 7
    assert again["compared"] == 9 and again["kl"] == 0 and again["kl_max"] == 0 and again["top1_agreement"] == 1


def test_numbers_agree_with_the_logits(tmp_path):
    lists = [[5, 900, 17, 44, 3, 511]]
    ids = write_ids(tmp_path, lists)
    logits, reference = tmp_path / "logits.safetensors", tmp_path / "reference.safetensors"
    assert run("logits", "--model", MODEL, "--ids", ids, "--out", logits).returncode == 0
    report = evaluate("--ids", ids, "--save", reference, "--top", 4)
    values, kept = tensors(logits)["logits.0"], tensors(reference)
    vocab, nll = len(values) // 6, 0.0
    for i in range(6):
        row = values[i * vocab : (i + 1) * vocab]
        total = math.log(sum(math.exp(v) for v in row))
        order = sorted(range(vocab), key=lambda j: (-row[j], j))[:4]
        assert kept["top_ids.0"][4 * i : 4 * i + 4] == tuple(order)
        for j in range(4):
            assert abs(kept["top_logprobs.0"][4 * i + j] - (row[order[j]] - total)) < 1e-5
        rest = 1 - sum(math.exp(row[j] - total) for j in order)
        assert abs(math.exp(kept["rest_logprob.0"][i]) - rest) < 1e-5
        if i < 5:
            nll += (total - row[lists[0][i + 1]]) / 5
    assert abs(report["nll"] - nll) < 1e-5 and abs(report["perplexity"] - math.exp(nll)) < 1e-3 * math.exp(nll)


def test_a_reference_of_another_text_is_refused(tmp_path):
    ids = write_ids(tmp_path, [[5, 900, 17]])
    reference = tmp_path / "reference.safetensors"
    evaluate("--ids", ids, "--save", reference, "--top", 8)
    other = write_ids(tmp_path, [[5, 901, 17]])
    result = run("eval", "--model", MODEL, "--ids", other, "--reference", reference)
    assert result.returncode == 1 and "expected 901, found 900" in result.stderr
    result = run("eval", "--model", MODEL, "--ids", other, "--reference", MODEL / "config.json")
    assert result.returncode == 1 and "config.json" in result.stderr


def test_choices_are_scored_by_likelihood(tmp_path):
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps({"context": "Hello", "choices": [" world", " you"], "answer": a}) + "\n" for a in (0, 1)))
    report = evaluate("--choices", items)
    assert report["items"] == 2 and report["accuracy"] == 0.5 and report["accuracy_normalised"] == 0.5
    items.write_text('{"context": "Hello", "choices": [" world"], "answer": 0}\n')
    result = run("eval", "--model", MODEL, "--choices", items)
    assert result.returncode == 1 and "line 1" in result.stderr and "two texts or more" in result.stderr


def test_the_command_line_says_what_is_missing():
    assert run("eval", "--model", MODEL).returncode == 2
    assert run("eval", "--model", MODEL, "--text", "a", "--ids", "b").returncode == 2
    result = run("eval", "--model", MODEL, "--text", "/nonexistent")
    assert result.returncode == 1 and "/nonexistent" in result.stderr
