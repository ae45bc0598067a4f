"""pergola synth: the checkpoint that it writes is one to the libraries that read the published ones."""

import json
import os
import pathlib
import signal
import subprocess
import time

import numpy
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
GOLDEN = ROOT / "tests/goldens/tiny-a"


def synth(*arguments, **options):
    return subprocess.run([PERGOLA, "synth", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          **options)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("synth") / "tiny"
    result = synth("--preset", "tiny", "--seed", 5, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "seed 5" in result.stderr and result.stdout == ""
    return out


def tensors(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    out = {}
    for shard in sorted(set(index.values())):
        with safe_open(folder / shard, "np") as file:
            for name in file.keys():
                assert index[name] == shard
                out[name] = file.get_tensor(name)
    assert set(out) == set(index)
    return out


def test_same_tensors_and_types_as_a_published_layout(tiny):
    ours, golden = tensors(tiny), tensors(GOLDEN)
    assert set(ours) == set(golden)
    for name, tensor in ours.items():
        ndim = golden[name].ndim
        assert tensor.ndim == ndim, name
        if "A_log" not in name:  # 16 or 32 bits
            assert tensor.dtype == golden[name].dtype, name
        if not name.endswith(("embed_tokens.weight_int8", "embed_tokens.weight_scale")) and "lm_head" not in name:
            assert tensor.shape == golden[name].shape, name
        if tensor.dtype != numpy.int16:
            assert numpy.isfinite(tensor.astype(numpy.float64)).all(), name


def test_config_has_every_key_of_a_published_one(tiny):
    ours = json.loads((tiny / "config.json").read_text())
    golden = json.loads((GOLDEN / "config.json").read_text())
    assert set(golden) <= set(ours)
    assert set(ours["text_config"]) == set(golden["text_config"])
    for key in ("hidden_size", "layer_types", "rope_parameters", "num_experts", "rms_norm_eps", "model_type"):
        assert ours["text_config"][key] == golden["text_config"][key]
    assert ours["quantization_config"] == golden["quantization_config"]


@pytest.mark.parametrize(
    "text",
    [
        "Hello, how are you today?\n\n    return 1234;\n",
        "naïve Ünïcode 日本語 ไทย 🙂\t\r\n",
        "<|im_start|>user\nhi<|im_end|>\n<think>\n</think>",
        "x" * 1000,
        "",
    ],
)
def test_tokenizer_brings_any_text_back(tiny, text):
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_control_tokens_stand_in_the_published_order_behind_the_others(tiny):
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    assert sorted(vocabulary.values()) == list(range(2033))
    assert [vocabulary[t] for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")] == [
        2000, 2001, 2002, 2024, 2025]
    generation = json.loads((tiny / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2002, 2000]


def test_a_directory_in_use_is_kept(tiny):
    before = (tiny / "config.json").stat().st_mtime_ns
    result = synth("--preset", "tiny", "--out", tiny)
    assert result.returncode == 1
    assert "--force" in result.stderr
    assert (tiny / "config.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "--preset"),
        (["--preset", "tiny"], "--out"),
        (["--preset", "huge", "--out", "x"], "35b-a3b"),
        (["--preset", "tiny", "--out", "x", "--seed", "-1"], "seed"),
        (["--preset", "tiny", "--out", "x", "--sead", "1"], "seed"),
    ],
)
def test_a_wrong_command_line_is_named(arguments, words, tmp_path):
    result = synth(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = synth("--preset", "tiny", "--out", tmp_path / "file" / "x")
    assert result.returncode == 1
    assert "file/x" in result.stderr


def free_bytes(path):
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path, number):
    if free_bytes(tmp_path) < 20e9:
        pytest.skip("needs 20 GB of free disk for the start of a full-size checkpoint")
    out = tmp_path / "big"
    process = subprocess.Popen([PERGOLA, "synth", "--preset", "35b-a3b", "--out", out], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(out.glob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cancelled" in stderr
    assert not out.exists()
