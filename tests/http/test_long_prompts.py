"""Prompts that take long to read, and very long ones: the client hears something all the while, and every number is right."""

import json
import time

import pytest

from conftest import SLOWDOWN, events, request, serving


@pytest.mark.parametrize("step_ms, n, least", [(200, 4000, 4), (1000, 40, 3)])
def test_a_stream_hears_something_while_its_prompt_is_read(pergola, step_ms, n, least):
    """T58, thirty seconds scaled to a tenth: over many chunks, and over one that stalls."""
    with serving("--backend", "echo", "--context", 8192, "--echo-step-ms", step_ms, "--keepalive", "0.2") as server:
        with server.connect(timeout=30) as wire, server.connect(timeout=30) as other:
            start = time.monotonic()
            wire.send(request("/v1/completions", {"prompt": [65] * n, "max_tokens": 2, "stream": True}, headers=["Connection: close"]))
            status, head = wire.head()
            assert status == 200 and head["content-type"].startswith("text/event-stream")
            assert time.monotonic() - start < 0.2 * SLOWDOWN, "the head waits for nothing"
            before, last, widest = 0, time.monotonic(), 0.0
            while b"data: " not in wire.buffer:
                assert wire.more()
                widest, last = max(widest, time.monotonic() - last), time.monotonic()
            before = wire.buffer.split(b"data: ")[0].count(b": keep-alive\n\n")
            assert before >= least and widest < 0.2 + 0.5 * SLOWDOWN, (before, widest)
            raw = wire.rest()
            # Between events, never in one: every chunk is a comment or whole events.
            text, at = b"", 0
            while (end := raw.index(b"\r\n", at)) and (size := int(raw[at:end], 16)):
                text += raw[end + 2:end + 2 + size]
                assert raw[end + 2:end + 2 + size].endswith(b"\n\n")
                at = end + 2 + size + 2
            chunks, done = events(text)
            assert done and chunks[-1]["choices"][0]["finish_reason"] == "length"
            # None in an answer that is no stream.
            other.send(request("/v1/completions", {"prompt": [65] * 40, "max_tokens": 1}))
            _, _, body = other.answer()
            assert json.loads(body)["usage"]["completion_tokens"] == 1 and b"keep-alive" not in body


@pytest.fixture(scope="module")
def wide(pergola):
    with serving("--backend", "echo", "--context", 131072, "--slots", 2) as server:
        yield server


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("n", [65535, 65536, 65537, 100000, 131071])
def test_very_long_prompts_of_ids(wide, n):
    answer = wide.post("/v1/completions", {"prompt": [65 + i % 100 for i in range(n)], "max_tokens": 3})
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] == n and usage["completion_tokens"] == min(3, 131072 - n)
    assert answer.json()["choices"][0]["finish_reason"] == "length"


def test_very_long_texts_and_what_they_leave(wide):
    text = "the quick brown fox jumps over the lazy dog and then goes home " * 2500
    count = wide.post("/tokenize", {"content": text}).json()["count"]
    assert 64000 < count < 131000
    answer = wide.post("/v1/completions", {"prompt": text, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == count
    before = resident(wide)
    for i in range(3):
        body = {"messages": [{"role": "user", "content": f"{i} {text}"}], "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
        chunks, done = events(wide.post("/v1/chat/completions", body).content)
        assert done and chunks[-1]["usage"]["prompt_tokens"] > count and chunks[-1]["usage"]["completion_tokens"] == 5
    assert resident(wide) - before < (64 << 20) * SLOWDOWN
    wide.healthy()


def test_one_token_too_many_is_said_at_once(wide):
    start = time.monotonic()
    answer = wide.post("/v1/completions", {"prompt": [65] * 131072, "max_tokens": 1})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "context_length_exceeded" and error["message"].count("131072") == 2, error
    assert time.monotonic() - start < 2 * SLOWDOWN
