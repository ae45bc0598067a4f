"""Clients that mean no good, or are broken: slow, huge, half there, thousands. The server stays answerable."""

import json
import resource
import socket
import subprocess
import time

import pytest

from conftest import SLOWDOWN, TINY, binary, request, serving

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "enable_thinking": False}


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def quick(server):
    """Answered while something else goes on."""
    start = time.monotonic()
    assert server.get("/health").status_code == 200
    assert server.post("/v1/chat/completions", CHAT).status_code == 200
    assert time.monotonic() - start < 1.0 * SLOWDOWN


@pytest.fixture(scope="module")
def hasty(pergola):
    """Short time limits."""
    with serving("--backend", "echo", "--head-timeout", "0.5", "--body-timeout", "0.5", "--idle-timeout", "0.7",
                 "--write-timeout", "1") as server:
        yield server


def test_slow_heads_get_408_however_steadily_they_come(hasty):
    wires = [hasty.connect() for _ in range(30)]
    start = time.monotonic()
    data = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1000
    sent = 0
    while time.monotonic() - start < 0.4:
        for wire in wires:
            wire.send(data[sent:sent + 1])
        sent += 1
        quick(hasty)
    for wire in wires:
        status, head, body = wire.answer()
        assert status == 408 and json.loads(body)["error"]["code"] == "timeout" and head["connection"] == "close"
        assert wire.rest() == b""
        wire.socket.close()
    assert time.monotonic() - start < 3 * SLOWDOWN
    hasty.healthy()


@pytest.mark.parametrize("chunked", [False, True])
def test_slow_bodies_get_408_however_steadily_they_come(hasty, chunked):
    with hasty.connect() as wire:
        lengths = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100000"
        wire.send(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n")
        start = time.monotonic()
        wire.socket.settimeout(0.05)
        answered = False
        while not answered and time.monotonic() - start < 5 * SLOWDOWN:
            wire.send(b"1\r\n \r\n" if chunked else b" ")
            try:
                answered = wire.more()
            except TimeoutError:
                pass
        assert answered and time.monotonic() - start > 0.4
        wire.socket.settimeout(10)
        status, _, body = wire.answer()
        assert status == 408 and json.loads(body)["error"]["code"] == "timeout"
    hasty.healthy()


def test_silence_between_requests_ends_the_connection(hasty):
    with hasty.connect() as fresh, hasty.connect() as used:
        used.send(request("/health"))
        assert used.answer()[0] == 200
        start = time.monotonic()
        assert fresh.rest() == b"" and used.rest() == b""
        assert 0.3 < time.monotonic() - start < 3 * SLOWDOWN


def test_a_thousand_pipelined_requests_are_answered_in_order(echo):
    with echo.connect() as wire:
        data = b"".join(request("/health", headers=[f"X-Request-Id: pipe-{i}"]) if i % 7 else
                        request("/v1/chat/completions", CHAT, headers=[f"X-Request-Id: pipe-{i}"]) for i in range(1000))
        wire.send(data)
        for i in range(1000):
            status, head, _ = wire.answer()
            assert status == 200 and head["x-request-id"] == f"pipe-{i}"
    echo.healthy()


def test_pipelining_without_reading_is_held_back_and_dropped(hasty):
    before = resident(hasty)
    with hasty.connect(receive_bytes=4096) as wire:
        wire.socket.settimeout(0.2)
        block = request("/openapi.json") * 200
        sent, start = 0, time.monotonic()
        try:
            while time.monotonic() - start < 10 * SLOWDOWN:
                try:
                    sent += wire.socket.send(block)
                except TimeoutError:
                    quick(hasty)  # the server has stopped reading
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            pytest.fail(f"still there after {sent} bytes")
    assert sent < 16 << 20
    assert resident(hasty) - before < (24 << 20) * SLOWDOWN
    hasty.healthy()


def test_half_closed_sockets(echo):
    """The sending side closed before, in the middle of and behind a request."""
    def closed_behind(data):
        wire = echo.connect()
        if data:
            wire.send(data)
        wire.socket.shutdown(socket.SHUT_WR)
        return wire

    body = json.dumps(CHAT).encode()
    for _ in range(50):
        with closed_behind(b"") as nothing, closed_behind(b"GET /health HT") as head, \
                closed_behind(request("/v1/chat/completions", body)[:-5]) as cut, closed_behind(request("/v1/chat/completions", body)) as full:
            assert nothing.rest() == b"" and head.rest() == b""
            status, _, answer = cut.answer()
            assert status == 400 and "ended before" in json.loads(answer)["error"]["message"]
            status, _, answer = full.answer()
            assert status == 200 and json.loads(answer)["choices"][0]["message"]["content"] == "hello" and full.rest() == b""
    quick(echo)


def test_ten_thousand_idle_connections(pergola):
    """As many as the limits here allow, both ends counted in one process each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(10_000 if SLOWDOWN == 1 else 2000, hard - 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wires = []
    # The program gets a low soft limit and raises it by itself.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        with serving("--backend", "echo", "--max-connections", n) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            quick(server)
            before = resident(server)
            # The one that the test's own client keeps is among them.
            while len(wires) < n - 1:
                wires.append(server.connect().socket)
            end = time.monotonic() + 20 * SLOWDOWN
            while server.metric("pergola:http_connections") < n:
                assert time.monotonic() < end
            assert server.metric("pergola:http_connections_refused_total") == 0
            quick(server)
            each = (resident(server) - before) / n
            print(f"{n} connections, {each:.0f} bytes each")
            assert each < 8192 * (4 if SLOWDOWN > 1 else 1)
            # More come: those that were idle longest make room, and the newest are served.
            for _ in range(200):
                wires.append(server.connect().socket)
            with server.connect() as wire:
                wire.send(request("/v1/chat/completions", CHAT))
                assert wire.answer()[0] == 200
            assert server.metric("pergola:http_connections") <= n
            for one in wires:
                one.close()
            end = time.monotonic() + 20 * SLOWDOWN
            while server.metric("pergola:http_connections") > 5:
                assert time.monotonic() < end
            server.healthy()
    finally:
        for one in wires:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert n >= min(10_000, 1000), f"the hard limit of open files, {hard}, is too low for this test to mean anything"


def test_fewer_files_than_connections_is_said_and_survived(pergola):
    script = f'ulimit -n 200; exec "$0" serve --model {TINY} --port 0 --backend echo --max-connections 5000'
    process = subprocess.Popen(["bash", "-c", script, binary()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = 0
        for line in process.stdout:
            if "/v1" in line:
                port = int(line.rsplit(":", 1)[1].split("/")[0])
            if line.startswith("ready"):
                break
        wires = [socket.create_connection(("127.0.0.1", port), timeout=10 * SLOWDOWN) for _ in range(400)]
        with socket.create_connection(("127.0.0.1", port), timeout=10 * SLOWDOWN) as plain:
            plain.sendall(request("/health"))
            assert plain.recv(100).startswith(b"HTTP/1.1 200")
        for wire in wires:
            wire.close()
    finally:
        process.terminate()
        errors = process.communicate(timeout=40 * SLOWDOWN)[1]
    assert process.returncode == 0 and "136 connections are allowed, not 5000: the process may open 200 files" in errors


def test_paths_that_are_no_text(echo):
    for path in ("/v1/models/%ff%fe", "/v1/models/%c0%80", "/%ff", "/v1/models/%ed%a0%80"):
        with echo.connect() as wire:
            wire.send(request(path))
            status, _, body = wire.answer()
            assert status == 404 and json.loads(body.decode("utf-8"))["error"]["code"] in ("not_found", "model_not_found")


def test_a_client_that_goes_while_its_prompt_is_read_frees_the_slot(pergola):
    with serving("--slots", 1, "--context", 16384, "--threads", 1) as server:
        wire = server.connect()
        wire.send(request("/v1/completions", {"prompt": [7] * 16000, "max_tokens": 5}))
        end = time.monotonic() + 10 * SLOWDOWN
        while not any(slot["state"] == "prompt" and 0 < slot["n_read"] < 16000 for slot in server.slots()):
            assert time.monotonic() < end, server.slots()
            time.sleep(0.01)
        steps = server.metric("pergola:steps_total")
        wire.socket.close()
        server.idle(timeout=30)
        # Of some thirty steps: the one that ran, and one that had been handed to the backend behind it.
        assert server.metric("pergola:steps_total") - steps <= 3
        server.healthy()


def test_a_second_signal_cuts(pergola):
    with serving("--slots", 1, "--context", 65536, "--threads", 1, "--memory", "4G") as server, server.connect() as wire:
        wire.send(request("/v1/completions", {"prompt": "a", "max_tokens": 60000, "ignore_eos": True, "stream": True}))
        assert wire.head()[0] == 200
        start = time.monotonic()
        server.process.terminate()
        time.sleep(0.2)
        assert server.process.poll() is None  # it drains
        server.process.terminate()
        assert b"shutting down" in wire.rest()
        assert server.stop() == 0 and time.monotonic() - start < 10 * SLOWDOWN
