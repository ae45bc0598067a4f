"""What the tests that run the program share: the binary, servers on free ports, and clients for them."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TINY = ROOT / "tests/goldens/tiny-a"
SLOWDOWN = int(os.environ.get("PGL_TEST_SLOWDOWN", "1"))  # sanitizer builds


def binary():
    return os.environ.get("PERGOLA", str(ROOT / "build/pergola"))


@pytest.fixture(scope="session")
def pergola():
    """The program under test: from PERGOLA in the environment, else build/pergola."""
    path = binary()
    if not os.path.exists(path):
        pytest.fail(f"{path} does not exist: build first, or name another in PERGOLA")
    return path


class Server:
    """A running `pergola serve`."""

    def __init__(self, *arguments, model=TINY, env=None, timeout=60):
        command = [binary(), "serve", "--model", str(model), "--port", "0", *map(str, arguments)]
        self.key = None
        self.client = None
        self.log = open(os.memfd_create("server-log"), "w+b", buffering=0)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, env={**clean, **(env or {})})
        self.block = ""
        end = time.monotonic() + timeout * SLOWDOWN
        while not self.block.endswith("ends it\n"):
            line = self.process.stdout.readline().decode()
            self.block += line
            if not line or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the server did not start: {self.block}{self.stderr()}")
        match = re.search(r"http://(\S+):(\d+)/v1", self.block)
        self.port = int(match.group(2))
        self.url = f"http://127.0.0.1:{self.port}"

    def stderr(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def openai(self, **options):
        import openai

        options.setdefault("max_retries", 0)
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key or "none", timeout=60 * SLOWDOWN, **options)

    @property
    def http(self):
        """One client for all tests and threads: making one costs more than most requests."""
        if self.client is None:
            import httpx

            headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
            self.client = httpx.Client(base_url=self.url, headers=headers, timeout=120 * SLOWDOWN, limits=limits)
        return self.client

    def post(self, path, body=None, **options):
        if body is not None:
            options["json"] = body
        return self.http.post(path, **options)

    def get(self, path, **options):
        return self.http.get(path, **options)

    def connect(self, timeout=30, receive_bytes=None):
        plain = socket.socket()
        plain.settimeout(timeout * SLOWDOWN)
        if receive_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            plain.connect(("127.0.0.1", self.port))
        except OSError:
            plain.close()
            raise
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Wire(plain)

    def slots(self):
        return self.get("/slots").json()

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels."""
        total = 0.0
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(name) and line[len(name)] in "{ " and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def idle(self, timeout=10):
        """Waits until no slot works."""
        end = time.monotonic() + timeout * SLOWDOWN
        while any(slot["is_processing"] for slot in self.slots()):
            assert time.monotonic() < end, f"slots still work: {self.slots()}"
            time.sleep(0.01)

    def healthy(self):
        """Invariant I4: health is 200 and the next small request answers normally."""
        assert self.get("/health").status_code == 200
        answer = self.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] >= 1

    def stop(self, number=signal.SIGTERM, timeout=40):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout * SLOWDOWN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the server did not end: {self.stderr()[-4000:]}")
        self.process.stdout.close()
        if self.client is not None:
            self.client.close()
        return code


class Wire:
    """A plain socket, with just enough HTTP to look at what comes."""

    def __init__(self, plain):
        self.socket = plain
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        """The bytes up to the mark, which is taken too."""
        while mark not in self.buffer:
            if not self.more():
                raise EOFError(f"closed before {mark!r}: {self.buffer!r}")
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def exactly(self, size):
        while len(self.buffer) < size:
            if not self.more():
                raise EOFError(f"closed {size - len(self.buffer)} bytes early: {self.buffer!r}")
        part, self.buffer = self.buffer[:size], self.buffer[size:]
        return part

    def rest(self):
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        part, self.buffer = self.buffer, b""
        return part

    def head(self, interim=False):
        """Status and headers of the next answer; interim ones are passed over."""
        while True:
            lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
            if status >= 200 or interim:
                return status, {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}

    def answer(self, head_only=False):
        """Status, headers and body of the next answer."""
        status, headers = self.head()
        if head_only or status == 204:
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.exactly(2) == b"\r\n"
            return status, headers, body
        if "content-length" in headers:
            return status, headers, self.exactly(int(headers["content-length"]))
        return status, headers, self.rest()


def request(path, body=None, method=None, headers=(), version="1.1"):
    """The bytes of a request."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/{version}", "Host: localhost"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    lines += list(headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def events(text):
    """The data payloads of a stream of events; every one is checked to be JSON (invariant I2)."""
    if isinstance(text, bytes):
        text = text.decode()
    out, done = [], False
    for block in text.split("\n\n"):
        for line in block.split("\n"):
            if line == "" or line.startswith(":"):
                continue
            assert line.startswith("data: "), line
            assert not done, "something behind [DONE]"
            if line == "data: [DONE]":
                done = True
            else:
                out.append(json.loads(line[6:]))
    return out, done


def joined(chunks):
    """What the chunks of a chat stream add up to, one dict for each choice, and the usage."""
    choices, usage = {}, None
    for chunk in chunks:
        assert "error" not in chunk, chunk
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            whole = choices.setdefault(choice["index"], {"content": "", "reasoning": "", "calls": [], "finish": None, "logprobs": []})
            assert whole["finish"] is None, "a chunk behind finish_reason"
            delta = choice["delta"]
            whole["content"] += delta.get("content") or ""
            whole["reasoning"] += delta.get("reasoning_content") or ""
            assert delta.get("reasoning_content") == delta.get("reasoning")
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(whole["calls"]), "indices without gaps"
                    assert call["type"] == "function" and call["function"]["name"]
                    whole["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                else:
                    assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
                    assert call["index"] == len(whole["calls"]) - 1
                whole["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            whole["finish"] = choice["finish_reason"]
            if choice.get("logprobs"):
                whole["logprobs"] += choice["logprobs"]["content"]
    return choices, usage


def whole(answer):
    """The same of an answer that was not streamed."""
    choices = {}
    for choice in answer["choices"]:
        message = choice["message"]
        assert message.get("reasoning_content") == message.get("reasoning")
        choices[choice["index"]] = {
            "content": message["content"] or "",
            "reasoning": message.get("reasoning_content", ""),
            "calls": [{"id": c["id"], "name": c["function"]["name"], "arguments": c["function"]["arguments"]}
                      for c in message.get("tool_calls", [])],
            "finish": choice["finish_reason"],
            "logprobs": choice["logprobs"]["content"] if choice.get("logprobs") else [],
        }
    return choices, answer["usage"]


@contextlib.contextmanager
def serving(*arguments, **options):
    """A server for the length of a block; it must end in order."""
    running = Server(*arguments, **options)
    try:
        yield running
    finally:
        code = running.stop()
        assert code == 0, f"exit code {code}: {running.stderr()[-4000:]}"


@pytest.fixture(scope="session")
def server(pergola):
    """The golden model on the CPU, four at a time, without an API key. Tests must leave it idle."""
    with serving("--slots", 4, "--context", 2048, "--threads", 2) as running:
        yield running


@pytest.fixture(scope="session")
def keyed(pergola):
    """A server that wants a key; nothing is computed."""
    with serving("--backend", "echo", "--context", 2048, env={"PERGOLA_API_KEY": "sk-test-1234567890"}) as running:
        running.key = "sk-test-1234567890"
        yield running


@pytest.fixture(scope="session")
def narrow(pergola):
    """Echo with a short context."""
    with serving("--backend", "echo", "--slots", 2, "--context", 2048) as running:
        yield running


@pytest.fixture(scope="session")
def echo(pergola):
    """No model: the answer is the text of the last user message, as if the model had said it."""
    with serving("--backend", "echo", "--slots", 4, "--context", 8192) as running:
        yield running
