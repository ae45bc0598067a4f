"""serve --trace and replay: what was recorded while many ran beside each other comes again, alone and cold."""

import concurrent.futures
import json
import os
import shutil
import stat
import subprocess
import time

import pytest
import safetensors.numpy as safetensors

from conftest import SLOWDOWN, TINY, binary, request, serving

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"],
          "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {
    "at": {"type": "string", "maxLength": 5}}, "required": ["at"]}}}]
SYSTEM = {"role": "system", "content": "You count trees. " * 20}


def chat(text, **more):
    return "/v1/chat/completions", {"messages": [SYSTEM, {"role": "user", "content": text}], "max_tokens": 24, **more}


def plain(prompt, **more):
    return "/v1/completions", {"prompt": prompt, "max_tokens": 24, **more}


REQUESTS = {
    "greedy": chat("one", temperature=0),
    "seeded": chat("two", temperature=1.2, seed=77, top_k=40, top_p=0.95, min_p=0.01),
    "unseeded": chat("two", temperature=1.0),
    "penalties": chat("three", temperature=0.8, presence_penalty=1.5, frequency_penalty=0.7, repetition_penalty=1.3, ignore_eos=True),
    "bias": chat("four", temperature=0.5, logit_bias={"300": 4.5, "301": -100}, logprobs=True, top_logprobs=3),
    "schema": chat("five", enable_thinking=False, max_tokens=80, response_format={"type": "json_schema", "json_schema": {
        "name": "s", "strict": True, "schema": SCHEMA}}),
    "tools": chat("six", tools=TOOLS, tool_choice="required", enable_thinking=True, thinking_budget=6, max_tokens=60),
    "budget": chat("seven", enable_thinking=True, thinking_budget=9, ignore_eos=True),
    "several": chat("eight", n=2, temperature=1.0, stream=True),
    "stops": plain("the quick brown", temperature=1.0, seed=5, stop=["e", "zq"], max_tokens=200),
    "ids": plain([[5, 6, 7, 8], [9, 10, 11]], temperature=0.9, seed=3),
    "scored": plain("count the trees", max_tokens=0, echo=True, logprobs=1),
}


def replay(path, *more, model=TINY):
    run = subprocess.run([binary(), "replay", "--model", str(model), "--threads", "1", *more, str(path)], capture_output=True, text=True,
                         timeout=60 * SLOWDOWN)
    return run.returncode, run.stdout, run.stderr


def traces(folder):
    return {t["request_id"]: (path, t) for path in sorted(folder.glob("*.json")) for t in [json.loads(path.read_text())]}


def settled(server, n):
    """The writer is a thread of its own."""
    end = time.monotonic() + 10 * SLOWDOWN
    while server.metric("pergola:traces_written_total") < n:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def recorded(pergola, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "dir"
    answers = {}
    with serving("--slots", 4, "--context", 2048, "--threads", 2, "--trace", folder) as server:
        def send(name):
            path, body = REQUESTS[name]
            answer = server.post(path, body, headers={"X-Request-Id": name})
            assert answer.status_code == 200, (name, answer.text)
            answers[name] = answer

        with server.connect() as wire:
            wire.send(request("/v1/completions", {"prompt": "gone", "max_tokens": 700, "ignore_eos": True, "stream": True},
                              headers=["X-Request-Id: gone"]))
            wire.until(b"data: ")
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                list(pool.map(send, REQUESTS))
        server.idle()
        assert server.post("/v1/chat/completions", {"messages": "wrong"}).status_code == 400
        settled(server, len(REQUESTS) + 1)
        assert server.metric("pergola:traces_lost_total") == 0
    return folder, traces(folder), answers


def test_files_are_their_owners_and_complete(recorded):
    folder, found, _ = recorded
    assert set(found) == {*REQUESTS, "gone"}  # and nothing of the refused one
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(os.stat(folder / name).st_mode) == 0o600 and name.endswith(".json") for name in os.listdir(folder))


def test_a_trace_says_what_happened(recorded):
    _, found, answers = recorded
    greedy = found["greedy"][1]
    (sequence,) = greedy["sequences"]
    usage = answers["greedy"].json()["usage"]
    assert len(greedy["prompts"][0]["ids"]) == usage["prompt_tokens"] and len(sequence["tokens"]) == usage["completion_tokens"]
    assert len(sequence["logprobs"]) == len(sequence["tokens"]) and all(x <= 0 for x in sequence["logprobs"])
    assert sequence["cache"]["cached"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert sequence["finish"] in ("length", "stop") and sequence["params"]["temperature"] == 0
    # The steps read what the cache did not give, and every token but the last.
    steps = sequence["steps"]
    first, read = steps[0][0], sum(step[1] for step in steps)
    assert first == sequence["cache"]["cached"] and len(steps) == sequence["n_steps"]
    assert first + read in (usage["prompt_tokens"] + len(sequence["tokens"]) + k for k in (-1, 0, 1))
    assert all(step[2] >= 1 and step[3] >= step[1] for step in steps)
    assert any(step[2] > 1 for _, t in found.values() for s in t["sequences"] for step in s["steps"]), "they ran beside each other"
    seeds = [s["params"]["seed"] for s in found["several"][1]["sequences"]] + [found["unseeded"][1]["sequences"][0]["params"]["seed"]]
    assert len(set(seeds)) == 3
    assert found["schema"][1]["form"]["kind"] == "json_schema" and json.loads(found["schema"][1]["form"]["text"])
    assert found["tools"][1]["form"]["kind"] == "tools" and found["tools"][1]["thinking_budget"] == 6
    assert found["stops"][1]["stop"] == ["e", "zq"]
    assert found["gone"][1]["outcome"] == "gone" and found["gone"][1]["sequences"][0]["finish"] in ("cut", "cancelled")
    assert found["greedy"][1]["outcome"] == "done"


@pytest.mark.parametrize("name", [*REQUESTS, "gone"])
def test_replay_gives_the_same_tokens(recorded, name):
    path, trace = recorded[1][name]
    code, out, err = replay(path)
    assert code == 0, (out, err)
    assert out.count("the same") == sum(bool(s["tokens"] or s["finish"] == "stop") for s in trace["sequences"])
    assert "log-probabilities differ" not in out


def change(recorded, tmp_path, name, edit):
    trace = json.loads(recorded[1][name][0].read_text())
    edit(trace)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(trace))
    return path


def test_replay_says_where_it_differs(recorded, tmp_path):
    def edit(trace):
        edit.was = trace["sequences"][1]["tokens"][7]
        trace["sequences"][1]["tokens"][7] = edit.now = (edit.was + 1) % 200 + 20

    path = change(recorded, tmp_path, "several", edit)
    n = len(json.loads(path.read_text())["prompts"][0]["ids"])
    code, out, err = replay(path)
    assert code == 1 and err == ""
    assert "sequence 0: the same" in out and f"sequence 1: differs at token 7 of" in out and f"(position {n + 7})" in out
    assert f"recorded {edit.now}, log-probability -" in out and f"here {edit.was}, log-probability -" in out
    code, out, _ = replay(path, "--json")
    first, second = json.loads(out)["sequences"]
    assert code == 1 and first["same"] and not second["same"]
    assert (second["token"], second["recorded"], second["here"]) == (7, edit.now, edit.was)
    assert second["recorded_logprob"] == pytest.approx(second["here_logprob"], abs=1e-5)  # of the record: its token's was there


@pytest.mark.parametrize("name,edit", [
    ("seeded", lambda t: t["sequences"][0]["params"].update(seed="78")),
    ("penalties", lambda t: t["sequences"][0]["params"].update(repetition_penalty=0.02)),
    ("bias", lambda t: t["sequences"][0]["params"].update(bias=[[300, 80.0]])),
    ("greedy", lambda t: t["prompts"][0]["ids"].__setitem__(slice(-3, None), [77, 78, 79])),
    ("budget", lambda t: t.update(thinking_budget=3)),
    ("greedy", lambda t: (t["sequences"][0].update(finish="stop", stop_id=1))),
    ("greedy", lambda t: (t["sequences"][0]["tokens"].append(5), t["sequences"][0]["logprobs"].append(-1))),
])
def test_replay_notices_every_change(recorded, tmp_path, name, edit):
    code, out, err = replay(change(recorded, tmp_path, name, edit))
    assert code == 1 and "differs at token" in out, (out, err)


@pytest.mark.parametrize("edit,message", [
    (lambda t: t["model"].update(fingerprint="0" * 32), "recorded with another model"),
    (lambda t: t["model"].update(backend="null"), "computes nothing"),
    (lambda t: t.update(pergola_trace=2), "version 2"),
    (lambda t: t.pop("pergola_trace"), "no trace"),
    (lambda t: t["sequences"][0].update(prompt=1), "sequences[0].prompt: expected an integer from 0 to 0"),
    (lambda t: t["sequences"][0].update(tokens=[-1]), "sequences[0].tokens: expected token ids"),
    (lambda t: t["sequences"][0]["logprobs"].pop(), "sequences[0].logprobs: expected as many as tokens"),
    (lambda t: t["sequences"][0]["params"].update(seed=5), "sequences[0].seed: expected a string"),
    (lambda t: t["sequences"][0]["params"].update(temperature="hot"), "sequences[0].temperature: expected a number"),
    (lambda t: t["sequences"][0]["params"].update(top_p=7), "top_p"),
    (lambda t: t["prompts"][0].update(ids=[]), "prompts[0].ids: expected at least one token id"),
    (lambda t: t["prompts"][0].update(ids=[10**6]), "token id must be"),
    (lambda t: t.update(prompts=5), "prompts: expected a list"),
    (lambda t: t.update(form={"kind": "poem", "text": "", "parallel_tools": True}), "form.kind: expected json_schema"),
    (lambda t: t.update(form={"kind": "regex", "text": "(", "parallel_tools": True}), "pergola replay:"),
    (lambda t: t["sequences"][0].update(finish="done"), "sequences[0].finish"),
])
def test_what_is_no_trace_of_this_model_is_refused(recorded, tmp_path, edit, message):
    code, out, err = replay(change(recorded, tmp_path, "greedy", edit))
    assert code == 2 and out == "" and message in err and "Traceback" not in err, (out, err)


def test_another_model_is_told_by_its_numbers(recorded, tmp_path):
    """The same configuration and shapes, and one number of one tensor."""
    folder = tmp_path / "other"
    shutil.copytree(TINY, folder)
    shard = folder / "model-00002-of-00002.safetensors"
    tensors = safetensors.load_file(shard)
    tensors["model.language_model.embed_tokens.weight_scale"][3] *= 2
    safetensors.save_file(tensors, shard)
    code, out, err = replay(recorded[1]["greedy"][0], model=folder)
    assert code == 2 and out == "" and "recorded with another model" in err


def test_broken_files_are_refused(recorded, tmp_path):
    text = recorded[1]["greedy"][0].read_text()
    path = tmp_path / "broken.json"
    for broken in ("", "[]", "null", text[: len(text) // 2], text.replace('"ids":[', '"ids":[[', 1), "\x00" * 100):
        path.write_text(broken)
        code, out, err = replay(path)
        assert code == 2 and out == "" and err.startswith("pergola replay:"), broken[:50]
    assert replay(tmp_path / "absent.json")[0] == 2
    assert replay("--nothing")[0] == 2


# ---- the directory ----

def test_a_directory_that_others_may_read_is_refused(pergola, tmp_path):
    tmp_path.chmod(0o755)
    run = subprocess.run([binary(), "serve", "--model", str(TINY), "--backend", "echo", "--port", "0", "--trace", str(tmp_path)],
                         capture_output=True, text=True, timeout=60 * SLOWDOWN)
    assert run.returncode == 1 and "chmod 700" in run.stderr


def test_a_failing_disk_and_a_full_budget_stop_nothing(pergola, tmp_path):
    folder = tmp_path / "traces"
    with serving("--backend", "echo", "--trace", folder, "--trace-max", "3K") as server:
        for _ in range(6):
            server.healthy()
        settled(server, 1)
        end = time.monotonic() + 10 * SLOWDOWN
        while server.metric("pergola:traces_written_total") + server.metric("pergola:traces_lost_total") < 6:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert server.metric("pergola:traces_lost_total") > 0 and "--trace-max" in server.stderr()
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 3072
    folder = tmp_path / "gone"
    with serving("--backend", "echo", "--trace", folder) as server:
        folder.rmdir()  # writing fails from here on
        for _ in range(3):
            server.healthy()
        server.idle()
        assert server.metric("pergola:traces_written_total") == 0
    assert "a trace cannot be made" in server.stderr()
