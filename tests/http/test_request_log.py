"""The request log: a line for each request, right in every outcome, rotated, and never in anybody's way."""

import json
import os
import signal
import stat
import subprocess
import time

import pytest

from conftest import SLOWDOWN, TINY, binary, request, serving

FIELDS = ["v", "time", "id", "client", "method", "route", "model", "status", "outcome", "error", "param", "stream", "finish",
          "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cache_miss", "cache_miss_at", "queue_ms",
          "prefill_ms", "decode_ms", "ttft_ms", "tpot_ms", "total_ms", "bytes_in", "bytes_out", "client_gone"]
USER = [{"role": "user", "content": "the-prompt-text"}]


class Log:
    def __init__(self, path):
        self.path = path

    def lines(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def of(self, request_id, timeout=5):
        """The line of a request; it comes when nobody holds the request any more."""
        end = time.monotonic() + timeout * SLOWDOWN
        while True:
            found = [line for line in self.lines() if line["id"] == request_id]
            if found:
                assert len(found) == 1
                return found[0]
            assert time.monotonic() < end, f"no line for {request_id}"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return Log(tmp_path_factory.mktemp("log") / "requests.jsonl")


@pytest.fixture(scope="module")
def logged(pergola, log):
    with serving("--slots", 1, "--context", 2048, "--threads", 1, "--request-log", log.path, "--max-queue", 2,
                 env={"PERGOLA_API_KEY": "sk-log-123"}) as server:
        server.key = "sk-log-123"
        yield server


def ask(server, log, path, body, **headers):
    ask.n = getattr(ask, "n", 0) + 1
    headers = {"X-Request-Id": f"ask-{ask.n}", **headers}
    answer = server.http.request("GET" if body is None else "POST", path, headers=headers, json=body)
    return answer, log.of(headers["X-Request-Id"])


def test_file_is_the_owners_and_lines_have_all_fields(logged, log):
    answer, line = ask(logged, log, "/v1/chat/completions", {"messages": USER, "max_tokens": 5, "ignore_eos": True, "temperature": 0})
    assert stat.S_IMODE(os.stat(log.path).st_mode) == 0o600
    assert list(line) == FIELDS
    usage = answer.json()["usage"]
    assert line["v"] == 1 and line["route"] == "/v1/chat/completions" and line["method"] == "POST" and line["model"] == "tiny-a"
    assert line["status"] == 200 and line["outcome"] == "ok" and line["error"] is None and line["client_gone"] is False
    assert line["stream"] is False and line["finish"] == ["length"]
    assert line["prompt_tokens"] == usage["prompt_tokens"] and line["completion_tokens"] == 5 == usage["completion_tokens"]
    assert line["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert line["reasoning_tokens"] == usage["reasoning_tokens"]
    assert line["cache_miss"] == usage["prompt_tokens_details"]["cache_miss"]
    assert line["bytes_out"] == len(answer.content) and line["bytes_in"] > 50 and line["client"].startswith("127.0.0.1:")
    assert abs(time.time() - time.mktime(time.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ")) + time.timezone) < 60


@pytest.mark.parametrize("path, prompt", [("/v1/chat/completions", {"messages": USER}), ("/v1/completions", {"prompt": "a"})])
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_that_was_asked_for_outlives_the_body(logged, log, path, prompt, stream):
    for n in range(3):
        body = {**prompt, "model": "tiny-a", "stop": [f"SECRETSTOP{n}"], "max_tokens": 2, "stream": stream}
        _, line = ask(logged, log, path, body)
        assert line["status"] == 200 and line["model"] == "tiny-a"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stop", [None, "e"])
def test_times_add_up(logged, log, stream, path, stop):
    body = {"max_tokens": 30, "ignore_eos": True, "stream": stream, "temperature": 1, "seed": 3, "enable_thinking": False, "stop": stop}
    body.update({"prompt": "the"} if path == "/v1/completions" else {"messages": USER})
    _, line = ask(logged, log, path, body)
    assert line["status"] == 200 and line["outcome"] == "ok" and line["stream"] is stream
    assert line["finish"] == (["stop"] if line["completion_tokens"] < 30 else ["length"])
    for name in ("queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "total_ms"):
        assert line[name] >= 0, name
    # Two clocks' readings of the same points lie a little apart.
    assert line["prefill_ms"] > 0 and line["queue_ms"] + line["prefill_ms"] <= line["ttft_ms"] + 50 * SLOWDOWN
    assert line["ttft_ms"] <= line["total_ms"] and line["decode_ms"] <= line["total_ms"]
    if line["completion_tokens"] > 1:
        assert line["tpot_ms"] > 0


def test_choices_are_added_up(logged, log):
    answer, line = ask(logged, log, "/v1/completions", {"prompt": ["the", "a"], "n": 1, "max_tokens": 4, "ignore_eos": True})
    assert line["finish"] == ["length", "length"] and line["completion_tokens"] == 8
    assert line["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path, body, status, code, param", [
    ("/v1/chat/completions", {"messages": USER, "temperature": 9}, 400, "invalid_request", "temperature"),
    ("/v1/chat/completions", {"messages": USER, "model": "gpt-9"}, 404, "model_not_found", "model"),
    ("/v1/completions", {"prompt": [5] * 3000}, 400, "context_length_exceeded", "prompt"),
    ("/v1/no/such", {}, 404, "not_found", None),
    ("/health", {}, 405, "method_not_allowed", None),
    ("/tokenize", {"content": 5}, 400, "invalid_request", "content"),
])
def test_refused_requests(logged, log, path, body, status, code, param):
    answer, line = ask(logged, log, path, body)
    assert answer.status_code == line["status"] == status and line["outcome"] == "refused"
    assert line["error"] == code == answer.json()["error"]["code"] and line["param"] == param
    assert line["route"] == (None if status == 404 and code == "not_found" else path)
    assert line["completion_tokens"] is None and line["ttft_ms"] is None
    if code == "model_not_found":
        assert line["model"] == "gpt-9"
    if code == "context_length_exceeded":
        assert line["prompt_tokens"] == 3000


def test_wrong_keys_and_malformed_http(logged, log):
    _, line = ask(logged, log, "/v1/models", None, Authorization="Bearer sk-wrong-key")
    assert line["status"] == 401 and line["error"] == "invalid_api_key" and line["model"] is None
    before = len(log.lines())
    with logged.connect() as wire:
        wire.send(b"\x16\x03\x01\r\n\r\n")
        assert wire.answer()[0] == 400
    end = time.monotonic() + 5 * SLOWDOWN
    while len(log.lines()) == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    line = log.lines()[-1]
    assert line["status"] == 400 and line["method"] is None and line["outcome"] == "refused"
    assert "sk-log-123" not in log.path.read_text() and "sk-wrong-key" not in log.path.read_text()
    assert "the-prompt-text" not in log.path.read_text()


@pytest.mark.threads
def test_clients_that_go(logged, log):
    body = {"prompt": "the", "max_tokens": 1900, "ignore_eos": True, "temperature": 0, "stream": True}
    first, second = logged.connect(), logged.connect()
    auth = "Authorization: Bearer sk-log-123"
    first.send(request("/v1/completions", body, headers=["X-Request-Id: gone-1", auth]))
    first.until(b"data: ")
    second.send(request("/v1/completions", {**body, "stream": False}, headers=["X-Request-Id: gone-2", auth]))
    end = time.monotonic() + 5 * SLOWDOWN
    while logged.metric("vllm:num_requests_waiting") != 1:
        assert time.monotonic() < end
        time.sleep(0.01)
    second.socket.close()
    line = log.of("gone-2")
    assert line["outcome"] == "gone" and line["client_gone"] is True and line["status"] == 0 and line["finish"] == [None]
    assert line["queue_ms"] > 0 and line["prefill_ms"] is None and line["cache_miss"] is None and line["completion_tokens"] == 0
    first.socket.close()
    line = log.of("gone-1")
    assert line["outcome"] == "gone" and line["client_gone"] is True and line["status"] == 200
    assert 0 < line["completion_tokens"] < 1900 and line["ttft_ms"] > 0 and line["decode_ms"] > 0
    logged.idle()


def test_a_full_queue(logged, log):
    body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    wires = []
    for _ in range(3):
        wires.append(logged.connect())
        wires[-1].send(request("/v1/completions", body, headers=["Authorization: Bearer sk-log-123"]))
        assert wires[-1].head()[0] == 200
    answer, line = ask(logged, log, "/v1/completions", body)
    assert answer.status_code == line["status"] == 503 and line["outcome"] == "refused" and line["error"] == "overloaded"
    for wire in wires:
        wire.socket.close()
    logged.idle()


def test_time_limits_are_failures(pergola, tmp_path):
    log = Log(tmp_path / "log")
    with serving("--slots", 1, "--context", 4096, "--threads", 1, "--request-timeout", "0.2", "--request-log", log.path) as server:
        for stream in (False, True):
            answer, line = ask(server, log, "/v1/completions", {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": stream})
            assert line["status"] == answer.status_code == (200 if stream else 408)
            assert line["outcome"] == "failed" and line["error"] == "timeout" and line["completion_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_and_answers_only_when_asked(pergola, tmp_path, stream):
    log = Log(tmp_path / "log")
    with serving("--backend", "echo", "--request-log", log.path, "--log-prompts") as server:
        raw = "fine\n<tool_call>\n<function=now>\n</function>\n</tool_call>"
        tools = [{"type": "function", "function": {"name": "now"}}]
        _, line = ask(server, log, "/v1/chat/completions", {"messages": [{"role": "user", "content": raw}], "tools": tools,
                                                            "enable_thinking": False, "stream": stream})
        assert list(line) == [*FIELDS, "prompts", "answers"]
        assert "<|im_start|>user\nfine" in line["prompts"][0]
        answer = line["answers"][0]
        assert answer["content"] == "fine" and answer["reasoning"] == "" and line["finish"] == ["tool_calls"]
        assert answer["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
        _, line = ask(server, log, "/v1/completions", {"prompt": ["one", "zwei é"], "max_tokens": 9, "stream": stream})
        assert line["prompts"] == ["one", "zwei é"] and [a["content"] for a in line["answers"]] == ["one", "zwei é"]
        _, line = ask(server, log, "/v1/models", None)
        assert list(line) == FIELDS


@pytest.mark.threads
def test_sighup_opens_the_file_again(pergola, tmp_path):
    log = Log(tmp_path / "log")
    with serving("--backend", "echo", "--request-log", log.path) as server:
        ask(server, log, "/health", None)
        moved = tmp_path / "log.1"
        log.path.rename(moved)
        ask(server, Log(moved), "/health", None)  # until it is told, it goes on in the old one
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 5 * SLOWDOWN
        while not log.path.exists():
            server.get("/health")
            assert time.monotonic() < end
        before = len(moved.read_text().splitlines())
        ask(server, log, "/health", None)
        assert len(moved.read_text().splitlines()) == before
        assert stat.S_IMODE(os.stat(log.path).st_mode) == 0o600
        # A path that cannot be opened any more: the old file goes on.
        kept = tmp_path / "kept"
        log.path.rename(kept)
        log.path.mkdir()
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        ask(server, Log(kept), "/health", None)
        assert "the old file goes on" in server.stderr()


def test_without_a_log_sighup_ends_the_program(pergola):
    from conftest import Server

    server = Server("--backend", "echo")
    assert server.stop(signal.SIGHUP) == -signal.SIGHUP


def test_a_disk_that_is_full_stops_nothing(pergola, tmp_path):
    with serving("--backend", "echo", "--request-log", "/dev/full") as server:
        for _ in range(20):
            server.healthy()
        end = time.monotonic() + 5 * SLOWDOWN
        while server.metric("pergola:request_log_lines_total", result="failed") < 40:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert server.metric("pergola:request_log_lines_total", result="written") == 0
        assert server.stderr().count("cannot be written") == 1


def test_a_reader_that_does_not_read_stops_nothing(pergola, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with serving("--backend", "echo", "--request-log", pipe) as server:
        for _ in range(400):
            assert server.get("/health").status_code == 200
        assert server.metric("pergola:request_log_lines_total", result="written") > 0
        start = time.monotonic()
    assert time.monotonic() - start < 8 * SLOWDOWN  # the end does not wait for it either
    os.close(reader)


def test_standard_output_is_the_logs_alone(pergola, tmp_path):
    process = subprocess.Popen([binary(), "serve", "--model", TINY, "--port", "0", "--backend", "echo", "--request-log", "-"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = None
    for line in process.stderr:
        if "/v1" in line:
            port = int(line.split(":")[-1].split("/")[0])
        if line.startswith("ready"):
            break
    import httpx

    assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 200
    line = json.loads(process.stdout.readline())
    assert line["v"] == 1 and line["route"] == "/v1/models"
    process.terminate()
    assert process.communicate(timeout=20 * SLOWDOWN)[0] == "" and process.returncode == 0


@pytest.mark.parametrize("path, says", [("/no/such/folder/log", "/no/such/folder/log"), ("/tmp", "/tmp")])
def test_a_log_that_cannot_be_opened_ends_the_start(pergola, path, says):
    result = subprocess.run([binary(), "serve", "--model", TINY, "--port", "0", "--backend", "echo", "--request-log", path],
                            capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and says in result.stderr and "request log" in result.stderr
