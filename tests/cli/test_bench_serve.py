"""pergola bench serve: right figures from a server whose delays are known, right counts of what fails, and no server that
can break it. No speed of this machine is asserted."""

import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time

import pytest

from conftest import SLOWDOWN, TINY, binary, serving


def run(url, *arguments, env=None, timeout=60):
    command = [binary(), "bench", "serve", "--url", url, *map(str, arguments)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout * SLOWDOWN, env={**clean, **(env or {})})


def report(url, *arguments, code=0, **options):
    result = run(url, "-o", "json", *arguments, **options)
    assert result.returncode == code, (result.returncode, result.stderr, result.stdout)
    return json.loads(result.stdout)


# ---- a server that does what the model's name says ----


def chunk(text=None, finish=None, **more):
    return {"choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}], **more}


def event(value, end=b"\n\n"):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + end


def usage(n, prompt=10):
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": n}})


def whole(n, prompt=10):
    """An answer of n tokens as events."""
    return b"".join(event(chunk("x ")) for _ in range(n)) + event(chunk(finish="length")) + usage(n, prompt) + event(b"[DONE]")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TO_THE_END = HEAD + b"Connection: close\r\n\r\n"


def sized(body, head=HEAD):
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def cut(body):
    return b"%x\r\n%s\r\n" % (len(body), body)


def error(status, message):
    body = json.dumps({"error": {"message": message}}).encode()
    return b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Fake(socketserver.StreamRequestHandler):
    """Keeps a connection as long as the behaviour returns True."""

    def handle(self):
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (line := self.rfile.readline(8192)) and self.one(line):
                pass
        except OSError:
            pass

    def send(self, data):
        self.wfile.write(data)

    def one(self, line):
        method, path, _ = line.decode().split()
        self.headers = {}
        while (header := self.rfile.readline(8192).decode().strip()):
            name, value = header.split(":", 1)
            self.headers[name.lower()] = value.strip()
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.body = json.loads(body) if body else {}
        self.server.seen.append((path, self.headers, self.body))
        if method == "GET":
            known = {"/v1/models": {"data": [{"id": "good"}]}, "/version": {"version": "fake-1"}}.get(path)
            self.send(sized(json.dumps(known).encode(), b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                      if known else error(404, "no"))
            return True
        if path == "/tokenize":
            self.send(error(404, "no such route"))
            return True
        return getattr(self, "do_" + self.body["model"])()

    @property
    def n(self):
        return self.body["max_tokens"]

    def do_good(self):
        self.send(CHUNKED + cut(whole(self.n)) + b"0\r\n\r\n")
        return True

    def do_timed(self):
        """First text after 150 ms, then one every 30 ms, the end 60 ms behind the last."""
        self.send(CHUNKED + cut(event(chunk(""))))
        time.sleep(0.15)
        for i in range(self.n):
            if i:
                time.sleep(0.03)
            self.send(cut(event(chunk("x "))))
        time.sleep(0.06)
        self.send(cut(event(chunk(finish="length")) + usage(self.n) + event(b"[DONE]")) + b"0\r\n\r\n")
        return True

    # what is not pretty, but an answer

    def do_close_each(self):
        self.send(TO_THE_END + whole(self.n))

    def do_close_without_a_word(self):
        """The second request on a connection is never answered: it was closed in the same moment."""
        if getattr(self, "used", False):
            return False
        self.used = True
        self.send(sized(whole(self.n)))
        return True

    def do_no_done(self):
        self.send(sized(event(chunk("x")) * self.n + event(chunk(finish="stop"))))
        return True

    def do_no_end(self):
        """[DONE], and the connection stays open without an end of the body."""
        self.send(CHUNKED + cut(whole(self.n)))
        self.rfile.read(1)

    def do_crumbs(self):
        data = b": hello\r\nretry: 5\r\n" + whole(self.n).replace(b"\n", b"\r\n")
        self.send(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED)
        for i in range(0, len(data), 7):
            self.send(cut(data[i:i + 7]))
        self.send(b"0\r\n\r\n")
        return True

    def do_reasoning(self):
        thought = event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
        call = event({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]})
        self.send(sized(thought + call + event(chunk(finish="tool_calls")) + usage(2) + event(b"[DONE]")))
        return True

    def do_unseen(self):
        """Tokens that the usage counts and no event shows."""
        self.send(sized(event(chunk(finish="length")) + usage(self.n) + event(b"[DONE]")))
        return True

    def do_huge_usage(self):
        self.send(sized(event(chunk("x")) * self.n + event(chunk(finish="stop", usage={
            "prompt_tokens": 10**30, "completion_tokens": 2**62, "prompt_tokens_details": {"cached_tokens": -5}})) + event(b"[DONE]")))
        return True

    # what is none

    def do_busy(self):
        self.send(error(503, "come\nagain"))
        return True

    def do_html(self):
        body = b"<html>" + b"\xff\x00" * 5000
        self.send(b"HTTP/1.1 500 Oh\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return True

    def do_elsewhere(self):
        self.send(b"HTTP/1.1 307 Moved\r\nLocation: http://example.org/\r\nContent-Length: 0\r\n\r\n")
        return True

    def do_json(self):
        self.send(sized(b'{"choices":[{"message":{"content":"hi"}}]}', b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"))
        return True

    def do_zipped(self):
        self.send(sized(b"\x1f\x8b" + b"0" * 50, HEAD + b"Content-Encoding: gzip\r\n"))
        return True

    def do_cut(self):
        self.send(CHUNKED + cut(event(chunk("x")) * 2))

    def do_short(self):
        self.send(HEAD + b"Content-Length: 5000\r\n\r\n" + event(chunk("x")))

    def do_reset(self):
        self.send(CHUNKED + cut(event(chunk("x"))))
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def do_nothing(self):
        pass

    def do_silence(self):
        self.rfile.read(1)

    def do_stall(self):
        self.send(CHUNKED + cut(event(chunk("x"))))
        self.rfile.read(1)

    def do_unfinished(self):
        self.send(sized(event(chunk("x")) * 2))
        return True

    def do_empty(self):
        self.send(sized(event(chunk()) + event(chunk(finish="stop")) + event(b"[DONE]")))
        return True

    def do_error_event(self):
        self.send(sized(event(chunk("x")) + event({"error": {"message": "the card\x1b[31m fell off"}}) + event(b"[DONE]")))
        return True

    def do_bad_event(self):
        self.send(sized(event(b'{"choices": [')))
        return True

    def do_not_utf8(self):
        self.send(sized(event(b'{"choices": [{"delta": {"content": "\xff\x00"}}]}')))
        return True

    def do_deep(self):
        self.send(sized(event(b'{"choices":' + b"[" * 100000)))
        return True

    def do_list(self):
        self.send(sized(event(b"[1]")))
        return True

    def do_endless(self):
        self.send(CHUNKED)
        while True:
            self.send(cut(event(chunk("x")) * 100))

    def do_long_line(self):
        self.send(CHUNKED)
        while True:
            self.send(cut(b"data: " + b"x" * 100000))

    def do_garbage(self):
        self.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.rfile.read(1)

    def do_long_head(self):
        self.send(HEAD)
        while True:
            self.send(b"X-Pad: " + b"x" * 10000 + b"\r\n")

    def do_many_headers(self):
        self.send(HEAD + b"a: b\r\n" * 1000 + b"\r\n" + whole(self.n))

    def do_interim(self):
        while True:
            self.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 10)

    def do_switch(self):
        self.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + whole(self.n))

    def do_bad_length(self):
        self.send(HEAD + b"Content-Length: -7\r\n\r\n" + whole(self.n))

    def do_bad_chunk(self):
        self.send(CHUNKED + b"zz\r\n" + whole(self.n))


@pytest.fixture(scope="module")
def fake():
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64
        block_on_close = False

    with Server(("127.0.0.1", 0), Fake) as server:
        server.seen = []
        server.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()
        yield server
        server.shutdown()


# ---- right figures ----


def test_times_are_those_of_the_server(fake):
    cell = report(fake.url, "--model", "timed", "--input", 20, "--output", 10, "-c", 4, "-n", 8, "--warmup", 0,
                  "--slo", "ttft=10000,tpot=1")["cells"][0]
    assert cell["ok"] == 8 and cell["failed"] == 0 and cell["errors"] == []
    assert cell["ttft_ms"]["n"] == cell["e2e_ms"]["n"] == cell["tpot_ms"]["n"] == 8
    # delays can only grow on a busy machine
    assert 149 < cell["ttft_ms"]["p50"] < 149 + 150 * SLOWDOWN
    # nine gaps of 30 ms, and finish_reason 60 ms behind the last token
    assert 330 / 9 - 1 < cell["tpot_ms"]["p50"] < 330 / 9 + 30 * SLOWDOWN
    assert cell["itl_ms"]["n"] == 8 * 9 and cell["itl_ms"]["measured"] == 1
    assert 29 < cell["itl_ms"]["p50"] < 30 + 30 * SLOWDOWN
    assert 479 < cell["e2e_ms"]["p50"] < 480 + 400 * SLOWDOWN
    assert cell["output_tokens"] == {"n": 8, "total": 80, "min": 10, "max": 10} and cell["counted_by_server"] == 8
    assert cell["prompt_tokens"]["total"] == 80
    assert cell["output_tokens_per_s"] == pytest.approx(80 / cell["duration_s"], rel=1e-3)
    assert cell["total_tokens_per_s"] == pytest.approx(160 / cell["duration_s"], rel=1e-3)
    assert cell["requests_per_s"] == pytest.approx(8 / cell["duration_s"], rel=1e-3)
    assert cell["good"] == 0 and cell["goodput_requests_per_s"] == 0, "tpot is over its limit"
    assert 2 * 0.48 < cell["duration_s"] < 2 * 0.48 + 2 * SLOWDOWN, "two rounds of four"


def test_arrivals_do_not_wait_for_answers(fake):
    """At 100 requests a second answers of half a second overlap; with one stream 20 of them would take ten seconds."""
    one, again = (report(fake.url, "--model", "timed", "--input", 20, "--output", 10, "--rate", 100, "-n", 20, "--warmup", 0,
                         "--slo", "ttft=10000,e2e=10000")["cells"][0] for _ in range(2))
    for cell in one, again:
        assert cell["ok"] == 20 and cell["rate_per_s"] == 100 and "concurrency" not in cell
        assert cell["duration_s"] < 1.5 * SLOWDOWN
        assert cell["good"] == 20 and cell["good_share"] == 1
        assert cell["goodput_requests_per_s"] == cell["requests_per_s"]


def test_the_same_seed_sends_the_same_and_no_prompt_twice(fake):
    def bodies(*arguments):
        fake.seen.clear()
        report(fake.url, "--input", "20,30", "--output", 3, "-n", 8, "-c", 2, *arguments)
        return sorted(json.dumps(body) for path, _, body in fake.seen if "completions" in path)

    first, again, other = bodies("--seed", 4), bodies("--seed", 4), bodies("--seed", 5)
    assert first == again and len(set(first)) == 2 * (8 + 2)
    assert not set(first) & set(other)
    starts = {json.loads(body)["messages"][0]["content"][:30] for body in first}
    assert len(starts) == len(first), "distinct from the first words on"


def test_a_shared_prefix_is_shared_and_the_rest_is_not(fake):
    fake.seen.clear()
    report(fake.url, "--input", 40, "--output", 3, "-n", 6, "--shared-prefix", 25, "--endpoint", "completions")
    prompts = [body["prompt"].split() for path, _, body in fake.seen if path == "/v1/completions"]
    assert len(prompts) == 7 and all(len(prompt) == 40 for prompt in prompts)
    assert len({tuple(prompt[:25]) for prompt in prompts}) == 1
    assert len({tuple(prompt[25:]) for prompt in prompts}) == 7


def test_requests_say_what_was_asked_for(fake):
    fake.seen.clear()
    result = report(fake.url, "--input", 20, "--output", 3, "-n", 1, "--warmup", 0, "--extra", '{"temperature": 0.10, "top_k": 5}',
                    env={"PERGOLA_API_KEY": "sk-environment"})
    path, headers, body = fake.seen[-1]
    assert path == "/v1/chat/completions" and headers["authorization"] == "Bearer sk-environment"
    assert headers["host"] == fake.url.split("/")[2]
    assert body.pop("messages")[0]["role"] == "user"
    assert body == {"model": "good", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True},
                    "ignore_eos": True, "temperature": 0.1, "top_k": 5}
    assert result["server"] == {"url": fake.url, "version": "fake-1", "model": "good"}
    assert "approximate" in result["counting"]
    report(fake.url, "-n", 1, "--no-ignore-eos", "--endpoint", "completions")
    assert fake.seen[-1][0] == "/v1/completions" and "ignore_eos" not in fake.seen[-1][2]


def test_the_key_is_in_no_report(fake):
    for option in (["--api-key", "sk-secret"], ["--api-key=sk-secret"]):
        for form in "json", "md":
            result = run(fake.url, "-n", 1, *option, "-o", form)
            assert result.returncode == 0 and "sk-secret" not in result.stdout + result.stderr


def test_the_report_names_command_revision_and_machine(fake):
    result = report(fake.url, "-n", 2, "--input", 11)
    assert result["schema"] == 1 and "--input 11" in result["command"] and result["command"].startswith("pergola bench serve --url")
    assert result["revision"] and result["version"] and result["machine"]["cpu"] and result["machine"]["cpus"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", result["date"])


# ---- what is not pretty, but an answer ----


@pytest.mark.parametrize("model", ["good", "close_each", "close_without_a_word", "no_end", "crumbs"])
def test_answers_come_in_many_forms(fake, model):
    cell = report(fake.url, "--model", model, "--output", 5, "-c", 2, "-n", 6, "--warmup", 2)["cells"][0]
    assert cell["ok"] == 6 and cell["warmup_failed"] == 0
    assert cell["output_tokens"] == {"n": 6, "total": 30, "min": 5, "max": 5}
    assert cell["ttft_ms"]["n"] == 6


def test_without_usage_events_are_counted_and_it_is_said(fake):
    result = run(fake.url, "--model", "no_done", "--output", 5, "-n", 4, "--warmup", 0)
    assert result.returncode == 0 and "4 answers the server did not say the tokens" in result.stdout
    cell = report(fake.url, "--model", "no_done", "--output", 5, "-n", 4)["cells"][0]
    assert cell["counted_by_server"] == 0 and cell["output_tokens"]["total"] == 20 and cell["prompt_tokens"]["n"] == 0


def test_thoughts_and_calls_are_tokens_too(fake):
    cell = report(fake.url, "--model", "reasoning", "--output", 2, "-n", 2)["cells"][0]
    assert cell["itl_ms"]["n"] == 2 and cell["ttft_ms"]["n"] == 2


def test_what_could_not_be_measured_is_said(fake):
    cell = report(fake.url, "--model", "unseen", "--output", 5, "-n", 4, "--slo", "ttft=100000")["cells"][0]
    assert cell["ok"] == 4 and cell["good"] == 0, "a time that nobody saw is in no limit"
    assert cell["ttft_ms"] == {"n": 0, "measured": 0} and cell["itl_ms"] == {"n": 0, "measured": 0}
    result = run(fake.url, "--model", "unseen", "--output", 5, "-n", 4)
    assert "TTFT was measured on 0 %" in result.stdout


def test_impossible_counts_are_not_believed(fake):
    cell = report(fake.url, "--model", "huge_usage", "--output", 5, "-n", 2)["cells"][0]
    assert cell["output_tokens"]["total"] == 10 and cell["prompt_tokens"]["n"] == 0 and cell["cached_tokens"]["n"] == 0


# ---- what is none ----


@pytest.mark.parametrize("model, kind, status, message", [
    ("busy", "http", 503, "come again"),
    ("html", "http", 500, "<html>"),
    ("elsewhere", "http", 307, ""),
    ("json", "not_a_stream", 0, "hi"),
    ("zipped", "not_a_stream", 0, ""),
    ("cut", "cut", 0, ""),
    ("short", "cut", 0, ""),
    ("reset", "cut", 0, ""),
    ("nothing", "cut", 0, ""),
    ("silence", "timeout", 0, ""),
    ("stall", "timeout", 0, ""),
    ("unfinished", "unfinished", 0, ""),
    ("empty", "empty", 0, ""),
    ("error_event", "error_event", 0, "the card [31m fell off"),
    ("bad_event", "bad_event", 0, ""),
    ("not_utf8", "bad_event", 0, ""),
    ("deep", "bad_event", 0, ""),
    ("list", "bad_event", 0, ""),
    ("endless", "too_large", 0, ""),
    ("long_line", "too_large", 0, ""),
    ("garbage", "malformed_http", 0, ""),
    ("long_head", "malformed_http", 0, ""),
    ("many_headers", "too_large", 0, ""),
    ("interim", "malformed_http", 0, ""),
    ("switch", "http", 101, ""),
    ("bad_length", "malformed_http", 0, ""),
    ("bad_chunk", "malformed_http", 0, ""),
])
def test_failures_are_counted_by_kind(fake, model, kind, status, message):
    limit = 0.3 * SLOWDOWN if kind == "timeout" else 30 * SLOWDOWN
    result = run(fake.url, "-o", "json", "--model", model, "--output", 5, "-c", 2, "-n", 4, "--warmup", 1, "--timeout", limit)
    assert result.returncode == 1 and "no request was answered" in result.stderr, result.stderr
    cell = json.loads(result.stdout)["cells"][0]
    assert cell["ok"] == 0 and cell["failed"] == cell["requests"] == 4 and cell["warmup_failed"] == 1
    assert len(cell["errors"]) == 1, cell["errors"]
    found = cell["errors"][0]
    assert (found["kind"], found["status"], found["count"]) == (kind, status, 4)
    assert message in found["first"] and len(found["first"]) < 200 and found["first"].isprintable()
    assert cell["output_tokens_per_s"] == 0 and cell["ttft_ms"]["n"] == 0


def test_the_table_lists_failures(fake):
    result = run(fake.url, "--model", "busy", "-n", 3)
    assert "| 0 / 3 |" in result.stdout and "3 failed with http 503: come again" in result.stdout


# ---- the command line ----


def test_nothing_there_is_said_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = run(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert result.returncode == 1 and "cannot connect" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("arguments, word", [
    (["--url", "https://127.0.0.1/v1"], "TLS"),
    (["--url", "ftp://127.0.0.1/v1"], "http://HOST"),
    (["--url", "http://user@127.0.0.1/v1"], "without user"),
    (["--url", "http://127.0.0.1:99999/v1"], "http://HOST"),
    (["--url", "http://[::1/v1"], "http://HOST"),
    (["--url", "http://127.0.0.1/v1?x=1"], "query"),
    (["--url", "http://127.0.0.1/a b"], "http://HOST"),
    (["--input", "0"], "--input"),
    (["--input", "1,,2"], "--input"),
    (["--output", "1.5"], "--output"),
    (["--concurrency", "5000"], "--concurrency"),
    (["--rate", "-1"], "--rate"),
    (["--rate", "nan"], "--rate"),
    (["--rate", "1", "--concurrency", "1"], "two ways"),
    (["--slo", "ttft"], "--slo"),
    (["--slo", "ttft=,tpot=3"], "--slo"),
    (["--slo", "speed=3"], "--slo"),
    (["--shared-prefix", "128"], "--shared-prefix"),
    (["--requests", "100000", "--input", "100000"], "100000 tokens"),
    (["--extra", "[1]"], "--extra"),
    (["--extra", '{"stream": false}'], "stream"),
    (["--api-key", "a\r\nX-Evil: 1"], "--api-key"),
])
def test_wrong_options_are_refused_before_work(arguments, word):
    result = run("http://127.0.0.1:9/v1", *arguments)
    assert result.returncode == 2 and word in result.stderr and result.stdout == ""


def test_progress_in_lines_ends_with_all_of_it(pergola):
    """Where standard error is no terminal; the first line comes after a second."""
    with serving("--backend", "echo", "--echo-step-ms", 40) as server:
        result = run(f"{server.url}/v1", "--input", "20", "--output", "8", "--requests", "6", "--warmup", "0")
    lines = [line for line in result.stderr.splitlines() if line.startswith("measuring")]
    assert result.returncode == 0 and len(lines) == 2 and "100%" in lines[-1] and "6 of 6" in lines[-1], result.stderr


def test_an_interrupt_reports_what_there_is(fake):
    command = [binary(), "bench", "serve", "--url", fake.url, "--model", "timed", "--input", "9", "--output", "5", "-c", "2",
               "-n", "100000", "--warmup", "0", "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    fake.seen.clear()
    end = time.monotonic() + 60 * SLOWDOWN
    while len(fake.seen) < 10 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30 * SLOWDOWN)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert result["interrupted"] and result["cells"][0]["interrupted"]
    assert 0 < result["cells"][0]["ok"] < 100000 and result["cells"][0]["failed"] == 0


# ---- against the program itself ----


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_prompts_are_exactly_as_long_as_asked(echo, endpoint):
    result = report(f"{echo.url}/v1", "--endpoint", endpoint, "--input", "33,100,257", "--output", 16, "-n", 6, "-c", 3)
    assert "counted by the server" in result["counting"] and "without" not in result["counting"]
    assert [cell["input"] for cell in result["cells"]] == [33, 100, 257]
    for cell in result["cells"]:
        assert cell["ok"] == 6 and cell["inexact_prompts"] == 0
        assert cell["prompt_tokens"]["min"] == cell["prompt_tokens"]["max"] == cell["input"]
        assert cell["output_tokens"] == {"n": 6, "total": 96, "min": 16, "max": 16}
    echo.idle()


def test_a_prompt_shorter_than_the_template_is_refused(echo):
    result = run(f"{echo.url}/v1", "--input", 2)
    assert result.returncode == 1 and "begins with is" in result.stderr


def test_the_cache_is_seen(server):
    """A prefix that all prompts share is read once."""
    arguments = ["--input", 300, "--output", 2, "-n", 4, "--warmup", 1]
    cold = report(f"{server.url}/v1", *arguments, "--seed", 11)["cells"][0]
    warm = report(f"{server.url}/v1", *arguments, "--seed", 12, "--shared-prefix", 250)["cells"][0]
    assert cold["cached_tokens"]["max"] < 64
    assert warm["ok"] == cold["ok"] == 4
    assert warm["cached_tokens"]["min"] >= 128
    server.idle()


def test_a_full_server_is_counted_and_not_feared(pergola):
    with serving("--backend", "echo", "--slots", 1, "--max-queue", 1, "--context", 1024, "--echo-step-ms", 2, model=TINY) as one:
        cell = report(f"{one.url}/v1", "--input", 30, "--output", 8, "-c", 6, "-n", 12, "--warmup", 0)["cells"][0]
        assert cell["ok"] >= 2 and cell["failed"] > 0 and cell["ok"] + cell["failed"] == 12
        assert [kind["kind"] for kind in cell["errors"]] == ["http"] and cell["errors"][0]["status"] == 503


def test_a_wrong_key_is_the_servers_message(keyed):
    result = run(f"{keyed.url}/v1", "--api-key", "sk-wrong", "-n", 1)
    assert result.returncode == 1 and "401" in result.stderr and "--model" in result.stderr
    cell = report(f"{keyed.url}/v1", "-n", 1, "--api-key", keyed.key)["cells"][0]
    assert cell["ok"] == 1


# ---- the engine alone ----


def engine(*arguments):
    command = [binary(), "bench", "engine", "--model", TINY, "-o", "json", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60 * SLOWDOWN)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_engine_alone_reports_the_same_figures():
    one = engine("--backend", "echo", "--echo-step-ms", 3, "--input", 40, "--output", 10, "--concurrency", 4, "-n", 12, "--warmup", 4)
    cell = one["cells"][0]
    assert "no model" in one["engine"]["backend"] and "server" not in one and one["revision"]
    assert cell["ok"] == 12 and cell["failed"] == 0 and cell["concurrency"] == 4
    assert cell["prompt_tokens"]["total"] == 480 and cell["output_tokens"] == {"n": 12, "total": 120, "min": 10, "max": 10}
    assert cell["itl_ms"]["n"] <= 12 * 9 and cell["tpot_ms"]["n"] == 12
    # a step cannot be shorter than it was set; a prompt takes one, each further token another
    assert cell["ttft_ms"]["p50"] >= 2.9 and cell["tpot_ms"]["p50"] >= 2.7 and cell["e2e_ms"]["p50"] >= 10 * 2.9
    assert cell["duration_s"] >= 3 * 10 * 0.0029


def test_the_engine_alone_takes_arrivals_and_the_model():
    cell = engine("--slots", 2, "--input", 20, "--output", 4, "--rate", 200, "-n", 10, "--threads", 1)["cells"][0]
    assert cell["ok"] == 10 and cell["rate_per_s"] == 200 and cell["output_tokens"]["total"] == 40
