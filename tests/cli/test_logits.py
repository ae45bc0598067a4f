"""pergola logits: the golden logits come out, and bad ids are named."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

import numpy
import pytest
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
MODEL = ROOT / "tests/goldens/tiny-a"
EXPECTED = ROOT / "tests/goldens/tiny-a.expected/golden.safetensors"


@pytest.fixture(scope="module")
def golden():
    return load_file(EXPECTED)


def logits(ids, out, *arguments):
    if not isinstance(ids, pathlib.Path):
        path = out.parent / "ids.json"
        path.write_text(ids if isinstance(ids, str) else json.dumps(ids))
        ids = path
    return subprocess.run([PERGOLA, "logits", "--model", MODEL, "--ids", ids, "--out", out, *arguments],
                          capture_output=True, text=True, timeout=300)


def relative(got, want):
    return numpy.linalg.norm(got - want, axis=1) / numpy.linalg.norm(want, axis=1)


def test_exact_logits_are_the_golden_ones(golden, tmp_path):
    lists = [golden["p0.ids"].tolist(), golden["p1.ids"].tolist()]
    result = logits(lists, tmp_path / "out.safetensors", "--exact")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    tensors = load_file(tmp_path / "out.safetensors")
    assert sorted(tensors) == ["logits.0", "logits.1"]
    for i in range(2):
        got, want = tensors[f"logits.{i}"], golden[f"p{i}.logits"]
        assert got.dtype == numpy.float32 and got.shape == want.shape
        assert relative(got, want).max() < 1e-3


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_contract_logits_are_within_their_bounds(backend, golden, tmp_path):
    lists = [golden[f"p{i}.ids"].tolist() for i in range(3)]
    result = logits(lists, tmp_path / "out.safetensors", "--backend", backend)
    assert result.returncode == 0, result.stderr
    tensors = load_file(tmp_path / "out.safetensors")
    errors = numpy.concatenate([relative(tensors[f"logits.{i}"], golden[f"p{i}.logits"]) for i in range(3)])
    assert 1e-3 < numpy.median(errors) < 2e-2
    assert numpy.quantile(errors, 0.9) < 1e-1


def test_cpu_and_reference_give_the_same_bits(golden, tmp_path):
    lists = [golden["p0.ids"].tolist(), golden["p1.ids"].tolist()]
    for backend in ("cpu", "reference"):
        result = logits(lists, tmp_path / f"{backend}.safetensors", "--backend", backend, "--threads", "2")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "cpu.safetensors").read_bytes() == (tmp_path / "reference.safetensors").read_bytes()


def test_one_list_gives_one_tensor(golden, tmp_path):
    ids = golden["p0.ids"].tolist()
    assert logits(ids, tmp_path / "one.safetensors").returncode == 0
    assert logits([ids], tmp_path / "nested.safetensors").returncode == 0
    one, nested = load_file(tmp_path / "one.safetensors"), load_file(tmp_path / "nested.safetensors")
    assert list(one) == list(nested) == ["logits.0"]
    assert (one["logits.0"] == nested["logits.0"]).all()


@pytest.mark.parametrize("text, says", [
    ("[]", "found an empty list"),
    ("[[]]", "list 0: expected token ids, found none"),
    ("[1, 1024]", "list 0, element 1: expected a token id from 0 to 1023, found 1024"),
    ("[1, -1]", "found -1"),
    ("[[1], [2, 5000]]", "list 1, element 1"),
    ("[1, [2]]", "found a list"),
    ("[[1], 2]", "list 1: expected a list of token ids"),
    ('{"ids": [1]}', "found an object"),
    ("[1.5]", "found 1.5"),
    ("[true]", "found true"),
    ('["a"]', 'the string "a"'),
    ("[1e99]", "found 1e+99"),
    ("[99999999999999999999]", "found 1e+20"),
    ("[1,", "the text ends"),
    ("", "ids.json"),
    ("[" * 2000, "ids.json"),
    ("\xff", "ids.json"),
])
def test_bad_ids_are_named(text, says, tmp_path):
    (tmp_path / "ids.json").write_bytes(text.encode("latin-1"))
    result = logits(tmp_path / "ids.json", tmp_path / "out.safetensors")
    assert result.returncode == 1
    assert says in result.stderr and "ids.json" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.json"]


def test_missing_files_and_options_are_named(tmp_path):
    result = logits(tmp_path / "none.json", tmp_path / "out.safetensors")
    assert result.returncode == 1 and "none.json" in result.stderr
    ids = tmp_path / "ids.json"
    ids.write_text("[1]")
    result = logits(ids, tmp_path / "no/such/folder/out.safetensors")
    assert result.returncode == 1 and "no/such/folder" in result.stderr
    result = subprocess.run([PERGOLA, "logits", "--model", MODEL], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "--ids" in result.stderr
    result = logits([1], tmp_path / "out.safetensors", "--backend", "gpu")
    assert result.returncode == 2 and "gpu" in result.stderr
    result = logits([1], tmp_path / "out.safetensors", "--backend", "cpu", "--exact")
    assert result.returncode == 2


def test_interrupt_leaves_no_file(tmp_path):
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([list(range(1000)) * 20]))
    process = subprocess.Popen([PERGOLA, "logits", "--model", MODEL, "--backend", "reference", "--ids", ids, "--out",
                                tmp_path / "out.safetensors"], stderr=subprocess.PIPE, text=True)
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "computing" in stderr and "tokens" in stderr  # longer than a second: progress was shown
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.json"]


def test_outputs_replace_files_only_and_no_input(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    ids = tmp_path / "ids.json"
    ids.write_text("[1]")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    shard = next(model.glob("*.safetensors"))
    before = shard.read_bytes()
    for out in fifo, tmp_path, ids, shard:
        result = subprocess.run([PERGOLA, "logits", "--model", model, "--ids", ids, "--out", out],
                                capture_output=True, text=True, timeout=60)
        assert result.returncode == 1 and str(out) in result.stderr, out
        result = subprocess.run([PERGOLA, "eval", "--model", model, "--ids", ids, "--save", out],
                                capture_output=True, text=True, timeout=60)
        assert result.returncode == 1, out
    assert stat.S_ISFIFO(fifo.stat().st_mode) and ids.read_text() == "[1]" and shard.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "ids.json", "model"]
