"""pergola bench: what it reports, as data and as a table. No speed is asserted: counts and relations are."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
MODEL = ROOT / "tests/goldens/tiny-a"


def bench(*arguments):
    return subprocess.run([PERGOLA, "bench", "--model", MODEL, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


def measured(*arguments):
    result = bench("-o", "json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_json_has_the_figures_and_all_runs():
    one = measured("-p", 20, "-n", 3, "-r", 2)
    assert one["schema"] == 1 and one["batch"] == 1 and one["repeats"] == 2
    assert len(one["prompt_runs_s"]) == 2 and len(one["decode_step_runs_s"]) == 2
    assert "-p 20 -n 3 -r 2" in one["command"] and one["cpu"] and "thread" in one["backend"]
    for name in ("load_s", "prompt_tokens_per_s", "decode_tokens_per_s", "decode_floor_ms", "read_bytes_per_s",
                 "fma_flops_per_s", "coded2_weights_per_s", "coded3_weights_per_s", "int8_bytes_per_s"):
        assert one[name] > 0
    assert 0 < one["decode_step_bytes"] < one["weights_bytes"]
    assert abs(one["decode_floor_fraction"] - one["decode_floor_ms"] / one["decode_step_ms"]) < 1e-3


def test_a_batch_shares_the_bytes_of_a_step():
    one = measured("-p", 4, "-n", 2, "-r", 1)
    four = measured("-p", 4, "-n", 2, "-r", 1, "-b", 4)
    assert four["batch"] == 4 and "decode_floor_ms" not in four
    assert one["decode_step_bytes"] < four["decode_step_bytes"] < 3 * one["decode_step_bytes"]


def test_parts_can_be_left_out_and_threads_chosen():
    one = measured("-p", 0, "-n", 1, "-r", 1, "--threads", 1)
    assert "prompt_tokens_per_s" not in one and "1 thread" in one["backend"]
    one = measured("-p", 3, "-n", 0, "-r", 1)
    assert "decode_tokens_per_s" not in one


def test_the_table_is_readable():
    result = bench("-p", 4, "-n", 1, "-r", 1)
    assert result.returncode == 0
    for word in ("decode_tokens_per_s", "tokens/s", "read_bytes_per_s", "| --- |"):
        assert word in result.stdout


def test_wrong_options_are_refused_before_work():
    assert bench("--isa", "sse2").returncode == 2
    assert bench("-b", "0").returncode == 2
    missing = subprocess.run([PERGOLA, "bench", "--model", "/nowhere"], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1 and "/nowhere" in missing.stderr
