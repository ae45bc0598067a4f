"""pergola inspect: numbers that match the tensors, and refusals that say what is wrong."""

import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
GOLDEN = ROOT / "tests/goldens/tiny-a"


def inspect(*arguments):
    return subprocess.run([PERGOLA, "inspect", *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "tiny"
    shutil.copytree(GOLDEN, folder, copy_function=shutil.copyfile)
    return folder


def edit_config(folder, edit):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def test_json_adds_up_to_the_files():
    result = inspect("--model", GOLDEN, "--json")
    assert result.returncode == 0 and result.stderr == ""
    report = json.loads(result.stdout)
    total = 0
    for file in GOLDEN.glob("*.safetensors"):
        data = file.read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if not name.endswith("escha_config"):
                begin, end = entry["data_offsets"]
                total += end - begin
    assert sum(row["bytes"] for row in report["weights"].values()) == total
    assert report["file_bytes"] == sum(f.stat().st_size for f in GOLDEN.glob("*.safetensors"))
    assert report["kind"] == "moe" and report["layers"] == 8 and report["experts_per_token"] == 4
    assert report["usable"] is True and report["verdict"] == "usable" and report["draft_borrows_experts"] is True
    assert report["notes"] == ["config.json: vision_config: this program reads and writes text only; skipped"]


def test_text_names_what_matters():
    result = inspect("--model", GOLDEN, "--strict")
    assert result.returncode == 0, result.stderr
    for part in ("mixture of 16 experts (4 a token), 8 layers", "coded K=2", "coded K=3", "int8", "draft head",
                 "4.0 KiB a token", "verdict          usable"):
        assert part in result.stdout


def test_a_refusal_names_tensor_file_expected_and_found(copy):
    edit_config(copy, lambda c: c["text_config"].update(moe_intermediate_size=256))
    result = inspect("--model", copy)
    assert result.returncode == 1 and result.stdout == ""
    for part in ("model.language_model.layers.0.mlp.experts.gate_up_proj.escha_code", "safetensors", "expected I16",
                 "found I16 [16, 16, 16, 32]"):
        assert part in result.stderr
    result = inspect("--model", copy, "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["usable"] is False and report["verdict"] == "refused" and "found I16" in report["error"]


def test_a_contradiction_is_a_note_and_under_strict_an_error(copy):
    key = "model.language_model.layers.0.mlp.experts.gate_up_proj"
    edit_config(copy, lambda c: c["quantization_config"]["layer_meta"][key].update(K=3))
    result = inspect("--model", copy)
    assert result.returncode == 0 and f"{key}: K: expected 2" in result.stdout
    result = inspect("--model", copy, "--strict")
    assert result.returncode == 1 and f"{key}: K: expected 2" in result.stderr


def test_a_number_that_is_not_finite_is_found(copy):
    path = copy / "model-00001-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    begin, _ = json.loads(data[8:start])["model.language_model.norm.weight"]["data_offsets"]
    data[start + begin + 6:start + begin + 8] = b"\x00\x7c"
    path.write_bytes(data)
    result = inspect("--model", copy)
    assert result.returncode == 1
    assert "model.language_model.norm.weight: expected finite numbers, found inf at element 3 of 256" in result.stderr


def test_without_a_tokenizer_it_says_so(copy):
    (copy / "tokenizer.json").unlink()
    result = inspect("--model", copy)
    assert result.returncode == 0 and "weights only: there is no tokenizer.json" in result.stdout


@pytest.mark.parametrize("arguments, part", [
    (("--model", "/nowhere"), "/nowhere"),
    (("--model", "/dev/null"), "/dev/null"),
    (("--modle", "x"), "model"),
    (("--model", str(GOLDEN), "surplus"), "surplus"),
])
def test_wrong_arguments_are_named(arguments, part):
    result = inspect(*arguments)
    assert result.returncode in (1, 2) and part in result.stderr and result.stdout == ""
