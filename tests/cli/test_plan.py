"""pergola plan: the table, its sums, and the verdict."""

import json
import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
MODEL = ROOT / "tests/goldens/tiny-a"
SLOWDOWN = int(os.environ.get("PGL_TEST_SLOWDOWN", "1"))


def plan(*arguments, model=MODEL):
    return subprocess.run([PERGOLA, "plan", "--model", model, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60)


def table(*arguments):
    result = plan("--json", *arguments)
    return result.returncode, json.loads(result.stdout)


def test_lines_add_up_and_scale():
    code, one = table("--context", 4096, "--slots", 1, "--no-prefix-cache")
    assert code == 0 and one["fits"] and one["advice"] == ""
    assert sum(line["bytes"] for line in one["lines"]) == one["total_bytes"]
    bytes_of = {line["name"]: line["bytes"] for line in one["lines"]}
    # 2 attention layers, 2 heads of 256, keys and values, 2 bytes
    assert one["token_bytes"] == 2 * 2 * 256 * 2 * 2
    assert bytes_of["keys and values"] == 4096 * one["token_bytes"]
    state, taps, hidden = 6 * 4 * 128 * 128 * 4, 6 * 3 * 1024 * 4, 256 * 4
    assert state + taps + hidden < bytes_of["recurrent state"] < 1.3 * (state + taps + hidden)
    assert 11e6 < bytes_of["weights"] < 11.3e6  # without the draft head, which is not used
    code, three = table("--context", 4096, "--slots", 3, "--no-prefix-cache")
    assert code == 0 and three["pages"] == 3 * one["pages"]


def test_the_table_is_readable():
    result = plan("--context", 4096, "--slots", 2)
    assert result.returncode == 0
    for word in ("2 slots of 4096 tokens", "weights", "keys and values", "recurrent state", "total", "It fits."):
        assert word in result.stdout


def test_too_much_is_refused_with_what_would_fit():
    code, answer = table("--context", 100000, "--slots", 4, "--memory", "200M")
    assert code == 1 and not answer["fits"] and answer["memory_bytes"] == 200 << 20
    assert "It fits with a context of" in answer["advice"]
    context = int(answer["advice"].split("context of ")[1].split()[0])
    code, answer = table("--context", context, "--slots", 4, "--memory", "200M")
    assert code == 0 and answer["fits"]


def test_context_zero_takes_what_fits():
    code, answer = table("--memory", "200M")
    assert code == 0 and answer["fits"] and 1024 < answer["context"] < 262144
    assert answer["total_bytes"] <= 200 << 20
    code, answer = table("--memory", "10M")
    assert code == 1 and "weights alone" in answer["advice"]
    assert "does not fit" in plan("--memory", "10M").stderr


@pytest.mark.parametrize("options", [["--context", 4096, "--slots", 2], ["--context", 512, "--memory", "150M"],
                                     ["--context", 512, "--cache", "64M", "--cache-host", "8M"], ["--no-prefix-cache"]])
def test_the_server_takes_what_is_planned(options, tmp_path):
    planned = plan(*options).stdout.split("\n\n")[1].split("memory there is")[0].splitlines()
    assert len(planned) > 4
    told = tmp_path / "told"
    with open(told, "w+b") as out:
        server = subprocess.Popen([PERGOLA, "serve", "--model", MODEL, "--port", "0", *map(str, options)], stdout=out)
        try:
            end = time.monotonic() + 30 * SLOWDOWN
            while b"ready" not in told.read_bytes():
                assert time.monotonic() < end and server.poll() is None
                time.sleep(0.05)
        finally:
            server.terminate()
            server.wait(30)
    said = told.read_text()
    for line in planned:
        assert line in said


@pytest.mark.parametrize("arguments, code, says", [
    (["--context", 262145], 2, "262144"),
    (["--context", "x"], 2, "context"),
    (["--slots", 0], 2, "slots"),
    (["--memory", "lots"], 2, "memory"),
    (["--slots", 4096, "--context", 262144], 1, "does not fit"),
])
def test_wrong_arguments_are_named(arguments, code, says):
    result = plan(*arguments)
    assert result.returncode == code
    assert says in result.stderr + result.stdout


def test_a_folder_without_a_model_is_named(tmp_path):
    result = plan(model=tmp_path)
    assert result.returncode == 1 and str(tmp_path) in result.stderr and result.stdout == ""
