"""HTTP as it comes: bodies in pieces, Expect, pipelining, conflicting lengths, slow and vanishing clients."""

import json
import socket
import time

import pytest

from conftest import SLOWDOWN, request

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "enable_thinking": False}


def error_of(body):
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["code"]
    return error


def test_large_body_with_expect_gets_100_at_once(echo):
    body = json.dumps({**CHAT, "zz": "x" * 2_000_000}).encode()
    with echo.connect() as wire:
        start = time.monotonic()
        wire.send(request("/v1/chat/completions", b"", headers=["Expect: 100-continue"]).replace(
            b"Content-Length: 0", b"Content-Length: %d" % len(body)))
        assert wire.head(interim=True)[0] == 100
        assert time.monotonic() - start < 0.5 * SLOWDOWN
        wire.send(body)
        status, _, answer = wire.answer()
        assert status == 200 and json.loads(answer)["choices"][0]["message"]["content"] == "hello"


def test_chunked_body_of_one_byte_chunks_with_trailers_and_expect(echo):
    body = json.dumps(CHAT).encode()
    with echo.connect() as wire:
        wire.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                  "Content-Type: application/json\r\nExpect: 100-continue\r\nTrailer: X-A\r\n\r\n")
        assert wire.head(interim=True)[0] == 100
        wire.send(b"".join(b"1;ext=\"a b\"\r\n%c\r\n" % byte for byte in body) + b"0\r\nX-A: 1\r\n\r\n")
        assert wire.answer()[0] == 200
        wire.send(request("/health"))
        assert wire.answer()[0] == 200


def test_2_mb_chunked_body(echo):
    body = json.dumps({**CHAT, "zz": "x" * 2_000_000}).encode()
    with echo.connect() as wire:
        wire.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 10_000):
            piece = body[at:at + 10_000]
            wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        wire.send(b"0\r\n\r\n")
        assert wire.answer()[0] == 200


@pytest.mark.parametrize("head, status", [
    ("POST /v1/no/such HTTP/1.1\r\nHost: localhost", 404),
    ("PUT /v1/chat/completions HTTP/1.1\r\nHost: localhost", 405),
    ("POST /v1/chat/completions HTTP/1.1\r\nHost: evil.example", 403),
])
def test_refusals_do_not_wait_for_the_body(echo, head, status):
    for extra in ("\r\nExpect: 100-continue", ""):
        with echo.connect() as wire:
            start = time.monotonic()
            wire.send(f"{head}{extra}\r\nContent-Length: 1000000\r\n\r\n")
            got, headers, body = wire.answer()
            assert got == status and time.monotonic() - start < 1 * SLOWDOWN
            error_of(body)
            assert headers["connection"] == "close"


def test_wrong_key_is_refused_before_the_body(keyed):
    with keyed.connect() as wire:
        wire.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
                  "Expect: 100-continue\r\nAuthorization: Bearer wrong\r\n\r\n")
        status, _, body = wire.answer()
        assert status == 401 and error_of(body)["code"] == "invalid_api_key"


def test_body_in_three_pieces(echo):
    body = json.dumps(CHAT).encode()
    with echo.connect() as wire:
        head = request("/v1/chat/completions", body)[:-len(body)]
        wire.send(head)
        for piece in (body[:10], body[10:20], body[20:]):
            time.sleep(0.3)
            wire.send(piece)
        assert wire.answer()[0] == 200


def test_two_requests_in_one_segment(echo):
    with echo.connect() as wire:
        wire.send(request("/v1/chat/completions", CHAT) + request("/v1/models"))
        status, _, first = wire.answer()
        assert status == 200 and json.loads(first)["object"] == "chat.completion"
        status, _, second = wire.answer()
        assert status == 200 and json.loads(second)["object"] == "list"


def test_refused_request_with_body_leaves_the_connection_in_step(echo):
    with echo.connect() as wire:
        for path, status in (("/v1/no/such", 404), ("/v1/chat/completions", 400), ("/health", 405)):
            wire.send(request(path, {"messages": 1, "pad": "x" * 50_000}))
            got, headers, body = wire.answer()
            assert got == status
            error_of(body)
            assert headers["connection"] == "keep-alive"
        wire.send(request("/health"))
        assert wire.answer()[0] == 200


@pytest.mark.parametrize("headers", [
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: +5",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
])
def test_conflicting_or_odd_lengths_are_400(echo, headers):
    with echo.connect() as wire:
        wire.send(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\nhello")
        status, head, body = wire.answer()
        assert status == 400 and head["connection"] == "close"
        error_of(body)
        assert wire.rest() == b""
    echo.healthy()


@pytest.mark.parametrize("data, status", ids=lambda v: str(v)[:40], argvalues=[
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"\x00\x00\x00", 400),
    (b"GET /health\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX\0Y: 1\r\n\r\n", 400),
    (b"GET /he\xc3\xa4lth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: coffee\r\n\r\n", 417),
])
def test_malformed_http_gets_a_json_error(echo, data, status):
    with echo.connect() as wire:
        wire.send(data)
        got, head, body = wire.answer()
        assert got == status and head["content-type"] == "application/json" and head["connection"] == "close"
        error_of(body)
    echo.healthy()


def test_endless_head_and_endless_chunk_extension_end(echo):
    for start, status in (("GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", 431),
                          ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;x=", 400)):
        with echo.connect() as wire:
            wire.send(start)
            for _ in range(64):
                wire.send("a" * 16384)
            assert wire.answer()[0] == status
            assert wire.rest() == b""
    echo.healthy()


def test_body_above_the_limit_is_413_and_memory_stays(echo):
    def resident():
        with open(f"/proc/{echo.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    before = resident()
    for chunked in (False, True):
        with echo.connect() as wire:
            wire.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" +
                      ("Transfer-Encoding: chunked\r\n\r\nc000000\r\n" if chunked else "Content-Length: 200000000\r\n\r\n"))
            block = b"x" * (1 << 20)
            try:
                for _ in range(190):
                    wire.send(block)
            except (BrokenPipeError, ConnectionResetError):
                pass
            status, head, body = wire.answer()
            assert status == 413 and error_of(body)["code"] == "request_too_large"
    # AddressSanitizer keeps what was freed for a while: up to quarantine_size_mb of scripts/test.
    assert resident() - before < (48 << 20) + ((64 << 20) if SLOWDOWN > 1 else 0)
    echo.healthy()


def test_head_is_get_without_a_body(echo):
    with echo.connect() as wire:
        for path in ("/", "/health", "/v1/models", "/version"):
            wire.send(request(path) + request(path, method="HEAD"))
            status, headers, body = wire.answer()
            assert status == 200 and body
            status, again, _ = wire.answer(head_only=True)
            assert status == 200 and again["content-length"] == str(len(body))
            assert again["content-type"] == headers["content-type"]


def test_http_1_0_and_connection_close(echo):
    with echo.connect() as wire:
        wire.send("GET /health HTTP/1.0\r\n\r\n")
        status, head, _ = wire.answer()
        assert status == 200 and head["connection"] == "close" and wire.rest() == b""
    with echo.connect() as wire:
        wire.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert wire.answer()[1]["connection"] == "keep-alive"
        wire.send(request("/health", headers=["Connection: close"]))
        assert wire.answer()[1]["connection"] == "close" and wire.rest() == b""
    with echo.connect() as wire:
        wire.send(request("/v1/chat/completions", {**CHAT, "stream": True}, version="1.0"))
        status, head, body = wire.answer()
        assert status == 200 and "transfer-encoding" not in head and body.endswith(b"data: [DONE]\n\n")


def test_upgrade_is_not_taken(echo):
    with echo.connect() as wire:
        wire.send(request("/v1/chat/completions", CHAT, headers=[
            "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"]))
        assert wire.answer()[0] == 200


def test_request_ids_in_and_out(echo):
    with echo.connect() as wire:
        wire.send(request("/health", headers=["X-Request-Id: my-id.1"]))
        assert wire.answer()[1]["x-request-id"] == "my-id.1"
        seen = set()
        for bad in ("a b", "", "<script>", "x" * 200, "\xe9"):
            wire.send(request("/health", headers=[f"X-Request-Id: {bad}"]).decode("utf-8").encode("latin-1"))
            seen.add(wire.answer()[1]["x-request-id"])
        assert len(seen) == 5 and all(i.startswith("req_") for i in seen)
        wire.send(request("/nowhere", headers=["X-Request-Id: err-1"]))
        assert wire.answer()[1]["x-request-id"] == "err-1"


def test_idle_connections_up_to_the_limit_do_not_lock_anybody_out(pergola):
    from conftest import serving

    with serving("--backend", "echo", "--max-connections", 64) as server:
        idle = [server.connect() for _ in range(200)]
        for _ in range(3):
            server.healthy()
        for wire in idle:
            wire.socket.close()
        server.healthy()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_client_that_goes_frees_its_slot(server, stream, reset):
    body = {"prompt": "the", "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": stream}
    wire = server.connect()
    wire.send(request("/v1/completions", body))
    end = time.monotonic() + 5 * SLOWDOWN
    while not any(slot["n_generated"] > 3 for slot in server.slots()):
        assert time.monotonic() < end
        time.sleep(0.005)
    if reset:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wire.socket.close()
    gone = time.monotonic()
    server.idle(timeout=5)
    assert time.monotonic() - gone < 1.0 * SLOWDOWN
    server.healthy()


def waits(server, n):
    end = time.monotonic() + 3 * SLOWDOWN
    while server.metric("vllm:num_requests_waiting") != n:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_client_that_goes_while_it_waits_leaves_the_queue(pergola):
    from conftest import serving

    with serving("--slots", 1, "--context", 2048, "--threads", 2) as server:
        long = {"prompt": "the", "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": True}
        with server.connect() as first:
            first.send(request("/v1/completions", long))
            assert first.head()[0] == 200
            second = server.connect()
            second.send(request("/v1/completions", long))
            assert second.head()[0] == 200  # a stream gets its head at once, also while it waits
            waits(server, 1)
            second.socket.close()
            waits(server, 0)
        server.idle()
        server.healthy()


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed_client_is_served(server, stream):
    with server.connect() as wire:
        wire.send(request("/v1/completions", {"prompt": "the", "max_tokens": 40, "ignore_eos": True, "stream": stream}))
        wire.socket.shutdown(socket.SHUT_WR)
        status, head, body = wire.answer()
        assert status == 200 and wire.rest() == b""
        assert body.endswith(b"data: [DONE]\n\n") if stream else json.loads(body)["usage"]["completion_tokens"] == 40


def test_client_that_does_not_read_delays_nobody(server):
    with server.connect(receive_bytes=4096) as wire:
        wire.send(request("/v1/completions", {"prompt": "the", "max_tokens": 150, "ignore_eos": True, "stream": True,
                                              "logprobs": 20, "temperature": 0}))
        start = time.monotonic()
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 5})
        assert time.monotonic() - start < 5 * SLOWDOWN
        server.idle(timeout=60)
        body = wire.answer()[2]
        assert body.endswith(b"data: [DONE]\n\n")
