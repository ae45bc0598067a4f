"""Memory that runs out while an answer is written (T60): the request ends with an error and the server goes on. The allocator
is made to fail from outside, by a library loaded before the program's; the sanitizers have an allocator of their own."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from conftest import SLOWDOWN, binary, events, request, serving

TEXT = "word " * 1200
SAID = 2048  # bytes of a block that cannot be had: more than a token takes, less than the answer
SENT = 100000  # the same for bodies: the socket's own buffers are smaller


@pytest.fixture(scope="module")
def library(pergola, tmp_path_factory):
    linked = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=True).stdout
    if SLOWDOWN > 1 or any(name in linked for name in ("libasan", "libtsan", "libubsan")):
        pytest.skip("a sanitizer's own allocator cannot be made to fail like this")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("memory") / "failing_memory.so"
    source = pathlib.Path(__file__).with_name("failing_memory.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


def starved(library, size):
    return serving("--backend", "echo", "--slots", 2, "--context", 16384, "--echo-step-ms", 5,
                   env={"LD_PRELOAD": str(library), "PGL_FAIL_FROM": str(size)})


@pytest.fixture(scope="module")
def server(library):
    with starved(library, SAID) as running:
        yield running


class Failing:
    """While the block runs memory is out."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        os.kill(self.server.process.pid, signal.SIGUSR1)
        time.sleep(0.05)

    def __exit__(self, *_):
        os.kill(self.server.process.pid, signal.SIGUSR1)
        time.sleep(0.05)


def until_it_speaks(server, n=5):
    end = time.monotonic() + 20 * SLOWDOWN
    while not any(slot["n_generated"] >= n for slot in server.slots()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_stream_ends_with_one_error_event(server):
    with server.connect() as wire:
        body = {"messages": [{"role": "user", "content": TEXT}], "enable_thinking": True, "stream": True}
        wire.send(request("/v1/chat/completions", body))
        assert wire.head()[0] == 200
        until_it_speaks(server)
        with Failing(server):
            body = wire.until(b"data: [DONE]\n\n") + b"data: [DONE]\n\n"
        lines = b"\n\n".join(part[part.index(b"data: "):] for part in body.split(b"\n\n") if b"data: " in part) + b"\n\n"
        chunks, done = events(lines)
    assert done and chunks[-1]["error"]["code"] == "out_of_memory" and "memory" in chunks[-1]["error"]["message"]
    assert len(chunks) > 5 and all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    server.idle()
    server.healthy()


def test_a_whole_answer_becomes_a_500(server):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = pool.submit(server.post, "/v1/completions", {"prompt": TEXT, "max_tokens": 8000})
        until_it_speaks(server)
        with Failing(server):
            answer = asked.result()
    assert answer.status_code == 500 and answer.json()["error"]["code"] == "out_of_memory", answer.text
    server.idle()
    server.healthy()


def test_requests_that_cannot_be_held_are_refused_and_small_ones_served(library):
    with starved(library, SENT) as server:
        with Failing(server):
            for _ in range(3):
                answer = server.post("/v1/completions", {"prompt": "x" * 4 * SENT, "max_tokens": 1})
                assert answer.status_code == 500 and answer.json()["error"]["code"] == "out_of_memory", answer.text
                assert answer.headers["connection"] == "close"
            server.healthy()
        assert server.post("/v1/completions", {"prompt": "x" * 4 * SENT, "max_tokens": 1}).json()["error"]["code"] == "context_length_exceeded"
        server.healthy()
