"""pergola run and the top of the command line, on the golden model (which babbles)."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests/goldens/tiny-a")
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_")}


@pytest.fixture
def run():
    def call(*args, stdin=b"", env=None, timeout=120, **kw):
        with subprocess.Popen([PERGOLA, *args], stdin=subprocess.PIPE, stdout=kw.pop("stdout", subprocess.PIPE),
                              stderr=subprocess.PIPE, env={**CLEAN, **(env or {})}, **kw) as p:
            out, err = p.communicate(stdin, timeout=timeout)
        return p.returncode, out or b"", err.decode()

    return call


def answer(run, *args, stdin=b"", **kw):
    code, out, err = run("run", "-m", TINY, "--json", "--no-think", *args, stdin=stdin, **kw)
    assert code == 0, err
    return json.loads(out)


def test_answer_on_stdout_statistics_on_stderr(run):
    code, out, err = run("run", "-m", TINY, "--no-think", "--temperature", "0", "-n", "12", "Name a tree.")
    assert code == 0
    assert out.endswith(b"\n") and len(out) > 5
    out.decode()
    assert "answer 12 tokens" in err and "tokens/s" in err and "prompt " in err
    code, again, err = run("run", "-m", TINY, "--no-think", "--temperature", "0", "-n", "12", "-q", "Name a tree.")
    assert (code, again, err) == (0, out, "")


def test_a_seed_repeats_and_others_differ(run):
    texts = [answer(run, "-n", "15", "--temperature", "1", "--seed", seed, "x")["text"] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    drawn = [answer(run, "-n", "1", "x")["seed"] for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_threads_do_not_change_the_answer(run):
    texts = {answer(run, "-n", "15", "--temperature", "0", "-t", n, "x")["text"] for n in ("1", "2", "3")}
    assert len(texts) == 1


def test_json_says_everything(run):
    got = answer(run, "-n", "7", "--seed", "3", "Hi")
    assert got["model"] == "tiny-a" and got["seed"] == 3
    assert got["finish"] == "length" and got["answer_tokens"] == 7
    assert got["reasoning_tokens"] == 0 and "reasoning" not in got
    code, out, err = run("run", "-m", TINY, "--json", "--think", "-n", "7", "Hi")
    got = json.loads(out)
    assert code == 0 and got["reasoning_tokens"] == 7 and got["reasoning"] and got["text"] == ""


def test_prompt_from_stdin_and_behind_the_operand(run):
    whole = answer(run, "-n", "5", "--temperature", "0", "Summarise:\n\nfirst line\nsecond line")
    piped = answer(run, "-n", "5", "--temperature", "0", "Summarise:", stdin=b"first line\nsecond line\n")
    assert piped["text"] == whole["text"] and piped["prompt_tokens"] == whole["prompt_tokens"]
    alone = answer(run, "-n", "5", "--temperature", "0", "-", stdin=b"Hello")
    none = answer(run, "-n", "5", "--temperature", "0", stdin=b"Hello\n")
    given = answer(run, "-n", "5", "--temperature", "0", "Hello")
    assert alone["text"] == none["text"] == given["text"]


def test_raw_reads_control_tokens_and_chat_does_not(run):
    code, out, _ = run("run", "-m", TINY, "--raw", "--json", "-n", "1", "<|im_end|>")
    assert code == 0 and json.loads(out)["prompt_tokens"] == 1
    plain = answer(run, "-n", "1", "x")["prompt_tokens"]
    assert answer(run, "-n", "1", "<|im_end|>")["prompt_tokens"] > plain + 2


def test_stop_and_limits(run):
    whole = answer(run, "-n", "30", "--temperature", "0", "Go")["text"]
    stop = whole[10:13]
    cut = answer(run, "-n", "30", "--temperature", "0", "--stop", stop, "Go")
    assert cut["finish"] == "stop" and cut["text"] == whole[: whole.index(stop)]
    full = answer(run, "--ignore-end", "-c", "64", "Go")
    assert full["finish"] == "length"
    assert full["prompt_tokens"] + full["answer_tokens"] == 64
    code, out, err = run("run", "-m", TINY, "-c", "64", "word " * 200)
    assert code == 1 and out == b"" and "64" in err and "context" in err


def test_system_prompt_counts(run):
    plain = answer(run, "-n", "1", "Hi")["prompt_tokens"]
    assert answer(run, "-n", "1", "-s", "Answer in one word.", "Hi")["prompt_tokens"] > plain + 3


@pytest.mark.parametrize("args,text", [
    (["-n", "x", "Hi"], "--max-tokens"),
    (["--temprature", "1", "Hi"], "--temperature?"),
    (["--temperature", "nan", "Hi"], "--temperature"),
    (["--top-p", "0", "Hi"], "--top-p"),
    (["--raw", "--system", "x", "Hi"], "--raw"),
    (["a", "b"], '"b"'),
    ([""], "PROMPT"),
    (["--stop", "", "Hi"], "--stop"),
    (["--backend", "abacus", "Hi"], "--backend"),
    (["--context", "300000", "Hi"], "--context"),
])
def test_wrong_command_lines_are_usage_errors(run, args, text):
    code, out, err = run("run", "-m", TINY, *args)
    assert (code, out) == (2, b"") and text in err and "pergola run --help" in err


def test_bytes_that_are_no_text_are_refused(run):
    for data in (b"\xff\xfe", b"a\0b", b"\xed\xa0\x80"):
        code, out, err = run("run", "-m", TINY, stdin=data)
        assert (code, out) == (2, b"") and "UTF-8" in err


def test_failures_say_what_and_why(run, tmp_path):
    code, _, err = run("run", "Hi", cwd=tmp_path)
    if code == 1:
        assert "PERGOLA_MODEL" in err and "--model" in err
    code, _, err = run("run", "-m", str(tmp_path / "none"), "Hi")
    assert code == 1 and "none" in err
    code, _, err = run("run", "-m", TINY, "--memory", "1M", "Hi")
    assert code == 1 and "weights" in err and "recurrent state" in err
    assert err.count("too much") == 1 and err.endswith("MiB\n")
    code, _, err = run("run", "-m", TINY, "--backend", "abacus", "Hi")
    assert code == 2 and "--backend" in err and "abacus" in err


def test_echo_answers_what_was_asked(run):
    for args in ([], ["--raw"], ["--no-think"]):
        code, out, err = run("run", "-m", TINY, "--backend", "echo", *args, "Hello, wörld!")
        assert code == 0 and out.decode() == "Hello, wörld!\n", err
    code, out, _ = run("run", "-m", TINY, "--backend", "echo", "--json", "--think", "plan</think>done")
    told = json.loads(out)
    assert code == 0 and (told["reasoning"], told["text"], told["finish"]) == ("plan", "done", "end")


def test_model_from_the_environment(run):
    code, out, _ = run("run", "--json", "-n", "1", "Hi", env={"PERGOLA_MODEL": TINY})
    assert code == 0 and json.loads(out)["model"] == "tiny-a"


def test_output_that_cannot_be_written_is_a_failure(run):
    with open("/dev/full", "wb") as full:
        code, _, err = run("run", "-m", TINY, "--no-think", "-n", "3", "Hi", stdout=full)
    assert code == 1 and "standard output" in err


def test_ctrl_c_keeps_what_was_said_and_exits_130():
    with subprocess.Popen([PERGOLA, "run", "-m", TINY, "--no-think", "--ignore-end", "-c", "30000", "Go on."],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN) as p:
        first = os.read(p.stdout.fileno(), 100)
        assert first
        p.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = p.communicate(timeout=60)
        assert time.monotonic() - start < 10
    assert p.returncode == 130
    assert (first + out).endswith(b"\n") and b"tokens/s" in err


def test_help_for_newcomers(run):
    code, out, _ = run("--help")
    text = out.decode()
    assert code == 0
    for word in ("pergola chat", "run ", "exit codes", "--version"):
        assert word in text
    code, out, _ = run("run", "--help")
    assert code == 0
    for option in ("--model", "--max-tokens", "--temperature", "--raw", "--seed", "--system", "--[no-]think", "--json"):
        assert option in out.decode()
    assert run("help", "run")[1] == out
    assert max(len(line) for line in out.decode().splitlines()) <= 100


def test_unknown_commands_are_met_with_a_suggestion(run):
    code, out, err = run("rnu")
    assert (code, out) == (2, b"") and '"run"' in err
    code, out, err = run("frobnicate")
    assert (code, out) == (2, b"") and "did you mean" not in err
    code, out, err = run()
    assert (code, out) == (2, b"") and "usage" in err


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0 and out.startswith(b"pergola ")
    assert run("-v")[:2] == run("-V")[:2] == (code, out)
