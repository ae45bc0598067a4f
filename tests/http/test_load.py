"""Several at once: fairness, queue, order, drain, and answers that do not depend on their neighbours."""

import concurrent.futures
import contextlib
import json
import os
import random
import signal
import threading
import time

import pytest

from conftest import SLOWDOWN, events, request, serving

PROMPTS = [f"Prompt number {i}: " + "word " * (i * 7 % 50) for i in range(24)]


def text_of(server, prompt, **more):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **more}
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


@pytest.mark.threads
@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 7, "top_k": 0}])
def test_neighbours_do_not_matter(server, options):
    serial = [text_of(server, p, **options) for p in PROMPTS]
    order = random.Random(5)
    for _ in range(2):
        shuffled = list(range(len(PROMPTS)))
        order.shuffle(shuffled)

        def abort(i):
            with server.connect() as wire:
                wire.send(request("/v1/completions", {"prompt": PROMPTS[i], "max_tokens": 300, "ignore_eos": True, "stream": True}))
                time.sleep(order.random() * 0.05)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            aborted = [pool.submit(abort, i) for i in shuffled[:4]]
            together = list(pool.map(lambda i: (i, text_of(server, PROMPTS[i], **options)), shuffled))
            for one in aborted:
                one.result()
        for i, text in together:
            assert text == serial[i], PROMPTS[i]
    server.idle()


def test_a_long_prompt_does_not_stop_a_stream(pergola):
    with serving("--slots", 4, "--context", 8192, "--threads", 2, "--no-prefix-cache") as server:
        gaps, done = [], threading.Event()

        def stream():
            with server.connect(timeout=120) as wire:
                wire.send(request("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}))
                wire.head()
                last = None
                while b"[DONE]" not in wire.buffer and wire.more():
                    now = time.monotonic()
                    if last is not None:
                        gaps.append(now - last)
                    last = now
                    wire.buffer = wire.buffer[-64:]
            done.set()

        reader = threading.Thread(target=stream)
        reader.start()
        time.sleep(0.2)
        finished = {}

        def ask(name, n):
            server.post("/v1/completions", {"prompt": [7] * n, "max_tokens": 2, "ignore_eos": True})
            finished[name] = time.monotonic()

        long = threading.Thread(target=ask, args=("long", 3000))
        long.start()
        time.sleep(0.2)
        short = threading.Thread(target=ask, args=("short", 5))
        short.start()
        for thread in (short, long, reader):
            thread.join(120 * SLOWDOWN)
        assert done.is_set() and finished["short"] < finished["long"]
        assert max(gaps) < 2.0 * SLOWDOWN, f"longest gap {max(gaps):.2f} s"


def test_prompts_that_come_at_once_run_at_once_where_there_are_slots(pergola):
    """T61: no slot stays free while a request waits, whatever came before."""
    with serving("--backend", "echo", "--slots", 4, "--echo-step-ms", 15) as server:
        for round_ in range(3):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                asked = [pool.submit(server.post, "/v1/completions", {"prompt": f"{round_}{i}" + "x" * 60, "max_tokens": 60}) for i in range(4)]
                most, end = 0, time.monotonic() + 10 * SLOWDOWN
                while not all(one.done() for one in asked) and time.monotonic() < end:
                    most = max(most, sum(slot["n_generated"] > 0 for slot in server.slots()))
                    time.sleep(0.01)
                assert most == 4 and all(one.result().status_code == 200 for one in asked)
        server.idle()


def test_a_full_queue_says_so_at_once(pergola):
    with serving("--slots", 1, "--max-queue", 2, "--context", 2048, "--threads", 2) as server:
        body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        wires = []
        for _ in range(3):
            wire = server.connect()
            wire.send(request("/v1/completions", body))
            assert wire.head()[0] == 200
            wires.append(wire)
        start = time.monotonic()
        with server.connect() as wire:
            wire.send(request("/v1/completions", body))
            status, head, answer = wire.answer()
        assert status in (429, 503) and int(head["retry-after"]) > 0 and time.monotonic() - start < 2 * SLOWDOWN
        assert json.loads(answer)["error"]["code"] == "overloaded"
        for wire in wires:
            wire.socket.close()
        server.idle()
        server.healthy()


def test_too_long_prompts_at_once_do_not_disturb_a_stream(server):
    with server.connect() as wire:
        wire.send(request("/v1/completions", {"prompt": "the", "max_tokens": 200, "ignore_eos": True, "stream": True}))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: server.post("/v1/completions", {"prompt": [5] * 9000}), range(8)))
        assert [a.status_code for a in answers] == [400] * 8
        status, _, body = wire.answer()
        chunks, done = events(body)
        assert status == 200 and done and len(chunks) >= 100


def test_request_timeout(pergola):
    with serving("--slots", 1, "--context", 4096, "--threads", 1, "--request-timeout", "0.3") as server:
        body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}
        answer = server.post("/v1/completions", body)
        assert answer.status_code == 408 and answer.json()["error"]["code"] == "timeout"
        streamed = server.post("/v1/completions", {**body, "stream": True})
        chunks, done = events(streamed.content)
        assert streamed.status_code == 200 and done and chunks[-1]["error"]["code"] == "timeout"
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])
        server.idle()
        server.healthy()


def test_waiting_for_a_time_limit_costs_nothing(pergola):
    with serving("--backend", "echo", "--echo-step-ms", 100, "--request-timeout", 60) as server:
        def cpu_ticks():
            with open(f"/proc/{server.process.pid}/stat") as stat:
                return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))

        with server.connect() as wire:
            wire.send(request("/v1/completions", {"prompt": "x" * 300, "stream": True}))
            wire.until(b"data: ")
            before = cpu_ticks()
            time.sleep(1)
            assert cpu_ticks() - before < 0.3 * os.sysconf("SC_CLK_TCK") * SLOWDOWN


@pytest.mark.threads
def test_sigterm_drains(pergola):
    with serving("--slots", 2, "--context", 4096, "--threads", 2, "--drain-timeout", 60 * SLOWDOWN) as server:
        with server.connect() as wire, server.connect() as idle:
            wire.send(request("/v1/completions", {"prompt": "a", "max_tokens": 300 // SLOWDOWN, "ignore_eos": True, "stream": True}))
            assert wire.head()[0] == 200
            wire.until(b"data: ")
            idle.send(request("/health"))
            assert idle.answer()[0] == 200
            os.kill(server.process.pid, signal.SIGTERM)
            assert idle.rest() == b""
            body = wire.rest()
            assert b'"finish_reason":"length"' in body and b"data: [DONE]\n\n" in body
        assert server.stop() == 0


@pytest.mark.threads
def test_a_draining_server_says_so_until_the_last_stream_is_done(pergola):
    """Who looks from outside gets an answer on a new connection: alive, not ready, nothing new is taken."""
    with serving("--backend", "echo", "--slots", 2, "--echo-step-ms", 30 * SLOWDOWN, "--drain-timeout", 60 * SLOWDOWN) as server:

        def ask(*arguments, **options):
            with server.connect() as wire:
                wire.send(request(*arguments, **options))
                raw = wire.rest()
                wire.buffer = raw
                status, head, body = wire.answer()
                assert head["connection"] == "close" and raw.count(b"Retry-After:") <= 1
                return status, head, json.loads(body)

        with server.connect() as wire, server.connect() as idle:
            wire.send(request("/v1/completions", {"prompt": "abcdefghij" * 6, "stream": True}))
            assert wire.head()[0] == 200
            wire.until(b"data: ")
            os.kill(server.process.pid, signal.SIGTERM)
            assert idle.rest() == b""
            for _ in range(3):
                assert ask("/health")[::2] == (200, {"status": "ok"})
                status, head, body = ask("/health/ready")
                assert (status, head["retry-after"], body) == (503, "2", {"status": "draining"})
                status, head, body = ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
                assert (status, head["retry-after"], body["error"]["code"]) == (503, "2", "overloaded")
            # Whoever came late and says nothing keeps nobody waiting, nor does who asks over and over.
            with server.connect():
                body = wire.rest()
                assert b'"finish_reason":"stop"' in body and b"data: [DONE]\n\n" in body
                end = time.monotonic() + 5 * SLOWDOWN
                with contextlib.suppress(OSError, EOFError):
                    while time.monotonic() < end:
                        ask("/health")
                assert server.process.wait(5 * SLOWDOWN) == 0
        with pytest.raises(OSError):
            server.connect()


def test_drain_has_a_limit_and_says_that_it_cut(pergola):
    with serving("--slots", 1, "--context", 262144, "--threads", 1, "--drain-timeout", "0.2", "--memory", "4G") as server:
        with server.connect() as wire:
            wire.send(request("/v1/completions", {"prompt": "a", "max_tokens": 200000, "ignore_eos": True, "stream": True}))
            assert wire.head()[0] == 200
            start = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            body = wire.rest()
            assert b'"finish_reason":"' not in body and body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert b'data: {"error":' in body and b"shutting down" in body
            assert server.stop() == 0 and time.monotonic() - start < 10 * SLOWDOWN


def test_silence_is_filled_with_comments(pergola):
    """A stream that waits for a slot gets its head at once and a comment after ten seconds."""
    with serving("--backend", "echo", "--slots", 1, "--echo-step-ms", 30) as server:
        first = server.connect()
        first.send(request("/v1/completions", {"prompt": "x" * 450, "stream": True}))
        assert first.head()[0] == 200
        with server.connect(timeout=30) as wire, server.connect(timeout=30) as whole:
            whole.send(request("/v1/completions", {"prompt": "b", "max_tokens": 1}))
            wire.send(request("/v1/completions", {"prompt": "b", "max_tokens": 1, "stream": True}))
            start = time.monotonic()
            assert wire.head()[0] == 200 and time.monotonic() - start < 1 * SLOWDOWN
            wire.until(b": keep-alive\n\n")
            assert 9 < time.monotonic() - start < 11 * SLOWDOWN
            # Nothing of the kind in an answer that is no stream.
            whole.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                whole.more()
            whole.socket.settimeout(30)
            first.socket.close()
            status, head, body = whole.answer()
            assert status == 200 and json.loads(body)["choices"][0]["text"] == "b" and head["content-length"] == str(len(body))
        server.idle()


def test_memory_is_steady(echo):
    def resident():
        with open(f"/proc/{echo.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def round_():
        for i in range(25):
            echo.post("/v1/chat/completions", {"messages": [{"role": "user", "content": f"{i}"}], "max_tokens": 8, "logprobs": True,
                                                 "top_logprobs": 20, "n": 2})
            echo.post("/v1/completions", {"prompt": "x", "stop": ["e"], "max_tokens": 8, "stream": True})
            echo.post("/v1/chat/completions", {"messages": "wrong"})

    round_()
    round_()
    before = resident()
    for _ in range(3):
        round_()
    assert resident() - before < (8 << 20) * SLOWDOWN
