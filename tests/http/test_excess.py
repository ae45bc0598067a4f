"""Requests that ask for too much, or for what makes no sense: they are refused, and others do not notice."""

import concurrent.futures
import json
import time

import pytest

from conftest import SLOWDOWN, request, serving

M = "/v1/chat/completions"
USER = [{"role": "user", "content": "x"}]


def memory(server, field="RssAnon"):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024


def test_more_answers_than_there_are_places_is_no_matter_of_waiting(pergola):
    with serving("--backend", "echo", "--slots", 2, "--max-queue", 3, "--context", 2048, "--echo-step-ms", 20) as server:
        for body, param in (({"messages": USER, "n": 6}, "n"), ({"prompt": ["a"] * 6}, "prompt"), ({"prompt": ["a"] * 3, "n": 2}, "n")):
            answer = server.post(M if "messages" in body else "/v1/completions", {**body, "max_tokens": 1})
            assert answer.status_code == 400 and answer.json()["error"]["param"] == param and "5" in answer.json()["error"]["message"]
        assert len(server.post(M, {"messages": USER, "n": 5, "max_tokens": 1}).json()["choices"]) == 5
        with server.connect() as wire:
            wire.send(request("/v1/completions", {"prompt": "x" * 400, "stream": True}))
            wire.until(b"data: ")
            full = server.post("/v1/completions", {"prompt": "a", "n": 5, "max_tokens": 1})
            assert full.status_code == 503 and int(full.headers["retry-after"]) > 0
            # It took no place from others, not for a moment.
            assert server.metric("vllm:num_requests_waiting") == 0
            assert server.post("/v1/completions", {"prompt": "a", "n": 4, "max_tokens": 1}).status_code == 200
        server.idle()


def test_aborted_answers_are_counted(server):
    before = server.metric("vllm:request_success_total", finished_reason="abort")
    with server.connect() as wire:
        wire.send(request("/v1/completions", {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "n": 2, "stream": True}))
        wire.until(b"data: ")
    server.idle()
    end = time.monotonic() + 5 * SLOWDOWN
    while server.metric("vllm:request_success_total", finished_reason="abort") != before + 2:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("tools, param", [
    (5, "tools"), ({}, "tools"), ("x", "tools"), ([5], "tools[0]"), ([None], "tools[0]"), ([{}], "tools[0].name"),
    ([{"type": "function", "function": 5}], "tools[0].function"),
    ([{"type": "function", "function": {"name": "fine"}}, {"type": "function", "function": {}}], "tools[1].function.name"),
    *[([{"type": "function", "function": {"name": name}}], "tools[0].function.name")
      for name in (5, None, "", " a", "a ", "a>b", "a\nb", "a\x00b", "a" * 257)],
    *[([{"type": "function", "function": {"name": "a", "parameters": wrong}}], "tools[0].function.parameters")
      for wrong in (5, "x", [], True)],
    ([{"type": "web_search"}], "tools[0].type"), ([{"type": "custom", "custom": {"name": "a"}}], "tools[0].type"),
])
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tools_that_cannot_be_called_are_refused(echo, tools, param, choice):
    answer = echo.post(M, {"messages": USER, "tools": tools, "tool_choice": choice, "max_tokens": 1})
    # A NUL anywhere in a body is refused before anything else is looked at.
    assert answer.status_code == 400 and (answer.json()["error"]["param"] or "").startswith(param if "\\u0000" not in json.dumps(tools) else "")


@pytest.mark.parametrize("name", ["a", "é 漢", "a" * 256, "a-b_c.d", "<x"])
def test_names_of_tools_that_a_call_can_spell_are_taken(echo, name):
    for tool in ({"type": "function", "function": {"name": name}}, {"name": name}, {"function": {"name": name, "parameters": None}}):
        answer = echo.post(M, {"messages": USER, "tools": [tool], "max_tokens": 1})
        assert answer.status_code == 200, answer.text


def test_huge_bodies_wait_for_each_other_and_not_others_for_them(pergola):
    with serving("--backend", "echo", "--slots", 2, "--context", 2048) as server:
        huge = b'{"messages":[' + b",".join([b'{"role":"user","content":""}'] * 75_000) + b"]}"
        assert len(huge) > 2 << 20

        def ask_huge(_):
            answer = server.http.post(M, content=huge, headers={"Content-Type": "application/json"})
            assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
            return time.monotonic()

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask_huge, i) for i in range(3)]
            time.sleep(0.1)
            assert server.post(M, {"messages": USER, "max_tokens": 1}).status_code == 200
            small = time.monotonic()
            assert max(one.result() for one in asked) > small
        if SLOWDOWN == 1:
            # What is made of a body is many times its size; of all three at once it would be three times as much.
            assert memory(server, "VmHWM") < 100 << 20
            assert memory(server) < 48 << 20


def test_close_among_other_words_of_the_connection_header(echo):
    with echo.connect() as wire:
        wire.send(request("/health", headers=["Connection: , foo,, close"]))
        status, head, _ = wire.answer()
        assert status == 200 and head["connection"] == "close" and wire.rest() == b""
