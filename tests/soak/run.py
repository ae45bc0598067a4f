"""Many clients at once, each doing something that was drawn, against one server; a second server answers the same requests
alone and cold, and both must say the same. See README.md beside this file."""

import collections
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import subprocess
import threading
import time
import traceback

from conftest import SLOWDOWN, Server, binary, request

from soak import check, client, mix, model

CONTEXT = 1024
MAX_BODY = 128 << 10
MAIN = ("--context", CONTEXT, "--max-queue", 400, "--max-body", "128K", "--trace-max", "8M")
ALONE = ("--slots", 1, "--context", CONTEXT, "--no-prefix-cache", "--threads", 1, "--max-body", "128K", "--max-queue", 400)
ECHO = ("--backend", "echo", "--slots", 4, "--context", CONTEXT, "--max-queue", 400, "--max-body", "128K")
KINDS = {"chat": 34, "completion": 16, "conversation": 9, "leave": 14, "wrong": 12, "soup": 6, "info": 4}


def drawn_options(seed):
    """What the answers must not depend on."""
    rng = random.Random(f"options {seed}")
    slots, threads, cache = rng.choice([1, 3, 8, 16]), rng.choice([1, 2, 2, 3]), rng.choice(["3M", "12M", "12M", "48M"])
    return "--slots", slots, "--threads", threads, "--cache", cache, "--cache-host", rng.choice(["0", "6M", "24M"])


def process_state(server):
    """Own memory in bytes, open files and threads of a server."""
    pid = server.process.pid
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    with open(f"/proc/{pid}/stat") as file:
        stat = file.read()
    return {"anonymous_bytes": int(fields["RssAnon"].split()[0]) * 1024, "files": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(fields["Threads"]), "cpu_seconds": sum(map(int, stat.rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")}


class Soak:
    def __init__(self, seed, n_requests, parallel, directory):
        self.seed, self.n_requests, self.parallel, self.directory = seed, n_requests, parallel, pathlib.Path(directory)
        self.options = drawn_options(seed)
        self.systems = mix.system_prompts(seed)
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.known = collections.Counter()  # lower bounds for the metrics
        self.failures = []
        self.sent = 0
        self.next_script = 0
        self.warm = None
        self.longest_health_s = 0.0
        self.over = threading.Event()
        self.to_compare = queue.Queue()
        self.doing = threading.local()  # .request: what a failure of this thread was about

    # ---- scripts ----

    def count(self, kind, n=1):
        with self.lock:
            self.counts[kind] += n
            self.sent += n

    def note(self, status, body, choices, usage):
        with self.lock:
            self.known[f"status {status}"] += 1
            self.known["choices"] += len(choices)
            if usage:
                self.known["completion_tokens"] += usage["completion_tokens"]
                self.known["cached_tokens"] += usage["prompt_tokens_details"]["cached_tokens"]
                self.known["prompt_tokens"] += usage["prompt_tokens"]

    def one(self, script, body, wire=None):
        """One request that is answered. Returns choices, or None where it was refused."""
        self.doing.request = body
        status, headers, data = client.ask(self.main, body, wire)
        if status != 200:
            error = check.refusal(status, headers, data)
            self.count("refused")
            if status != 503:
                self.to_compare.put((script, body, ("refused", status, error)))
            return None
        got = client.read(body, data)
        check.answer(body, *got)
        self.note(status, body, *got)
        self.to_compare.put((script, body, got))
        return got[0]

    def script_chat(self, script, rng):
        self.count("chat")
        self.one(script, mix.chat(rng, self.systems))

    def script_completion(self, script, rng):
        """Now and then several on one connection, sent at once."""
        if rng.random() < 0.8:
            self.count("completion")
            self.one(script, mix.completion(rng, self.systems))
            return
        bodies = [mix.completion(rng, self.systems) for _ in range(rng.randint(2, 4))]
        self.count("completion", len(bodies))
        self.doing.request = bodies
        with self.main.connect(timeout=300) as wire:
            if rng.random() < 0.5:
                for body in bodies:
                    self.one(script, body, wire)
                return
            wire.send(b"".join(request(client.path_of(b), b) for b in bodies))
            for body in bodies:
                status, headers, data = wire.answer()
                if status != 200:
                    check.refusal(status, headers, data)
                    continue
                got = client.read(body, data)
                check.answer(body, *got)
                self.note(status, body, *got)
                self.to_compare.put((script, body, got))

    def script_conversation(self, script, rng):
        """Turns that are built from the answers before."""
        common = {"messages": [{"role": "system", "content": rng.choice(self.systems)}]}
        if rng.random() < 0.2:
            mix.tools(rng, common)
        messages = common.pop("messages")
        for _ in range(rng.randint(2, 4)):
            messages = [*messages, mix.message(rng)]
            body = {"messages": messages, **common}
            mix.sampling(rng, body)
            mix.thinking(rng, body)
            body.pop("n", None)
            self.count("turn")
            choices = self.one(script, body)
            if not choices:
                return
            said = {"role": "assistant", "content": choices[0]["content"]}
            if choices[0]["reasoning"]:
                said["reasoning_content"] = choices[0]["reasoning"]
            if choices[0]["calls"] and choices[0]["finish"] == "tool_calls":
                said["tool_calls"] = [{"id": f"c{i}", "type": "function", "function": c} for i, c in enumerate(choices[0]["calls"])]
            messages = [*messages, said]
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": mix.words(rng, 0, 8)} for c in said.get("tool_calls", [])]

    def script_leave(self, script, rng):
        body = mix.chat(rng, self.systems) if rng.random() < 0.5 else mix.completion(rng, self.systems)
        if rng.random() < 0.4:
            body["ignore_eos"], body["max_tokens"] = True, 80
            body.pop("max_completion_tokens", None)
        self.doing.request = body
        phase, status, came = client.leave(self.main, body, rng)
        self.count(f"leave: {phase}")
        if status == 200:
            got = client.read(body, came)
            check.answer(body, *got)
            self.note(status, body, *got)
            self.to_compare.put((script, body, got))
        elif status is None and body.get("stream") and b" 200 " in came[:20]:
            cut = client.begun(body, came)
            if cut and rng.random() < 0.3:
                self.to_compare.put((script, body, ("begun", cut)))
        if rng.random() < 0.1:
            self.healthy()

    def script_wrong(self, script, rng):
        data, allowed, field = mix.wrong(rng, self.systems, MAX_BODY, CONTEXT)
        self.count("wrong")
        self.doing.request = data.decode("latin-1")[:4000]
        with self.main.connect(timeout=60) as wire:
            try:
                wire.send(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            status, headers, answer = wire.answer()
            error = check.refusal(status, headers, answer, allowed)
            if field:
                assert (error["param"] or "").startswith(field), (field, error)
            if headers["connection"] == "keep-alive":
                wire.send(request("/health"))
                assert wire.answer()[0] == 200
        if rng.random() < 0.1:
            self.healthy()

    def script_soup(self, script, rng):
        body = self.doing.request = mix.soup(rng)
        self.count("soup", check.soup(self.echo, body))

    def script_info(self, script, rng):
        path = rng.choice(["/health", "/slots", "/metrics", "/props", "/v1/models", "/version", "/health/ready"])
        self.count("info")
        method = rng.choice(["GET", "HEAD"])
        with self.main.connect() as wire:
            wire.send(request(path, method=method))
            assert wire.answer(head_only=method == "HEAD")[0] == 200

    def healthy(self):
        """Health is 200 and the next small request answers normally (or is told that the queue is full)."""
        self.count("healthy")
        assert self.main.get("/health").status_code == 200
        status, headers, data = client.ask(self.main, {"prompt": "a", "max_tokens": 1, "priority": -1000})
        if status == 503:
            check.refusal(status, headers, data)
            return
        assert status == 200, data
        self.note(status, {}, {0: None}, json.loads(data)["usage"])

    # ---- threads ----

    def fail(self, script, body):
        with self.lock:
            self.failures.append({"seed": self.seed, "script": script, "request": body, "error": traceback.format_exc(limit=-3)})
        if len(self.failures) >= 20:
            self.over.set()

    def run_script(self, script):
        rng = random.Random(f"{self.seed} {script}")
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        self.doing.request = kind
        try:
            getattr(self, f"script_{kind}")(script, rng)
        except Exception:
            self.fail(script, self.doing.request)

    def worker(self):
        while not self.over.is_set():
            with self.lock:
                if self.sent >= self.n_requests:
                    return
                script, self.next_script = self.next_script, self.next_script + 1
            self.run_script(script)
            with self.lock:
                take = self.warm is None and self.sent >= max(self.n_requests // 5, 100)
                self.warm = self.warm or (process_state(self.main) if take else None)

    def comparer(self):
        while True:
            item = self.to_compare.get()
            if item is None:
                return
            script, body, got = item
            try:
                self.compare_one(body, got)
            except Exception:
                self.fail(script, body)

    def compare_one(self, body, got):
        other = check.other_way(body)
        status, headers, data = client.ask(self.alone, other)
        if got[0] == "refused":
            assert status == got[1] and check.refusal(status, headers, data) == got[2], (status, data, got)
            return
        assert status == 200, f"alone: {status} {data[:300]!r}"
        reference = client.read(other, data)
        with self.lock:
            self.counts["compared"] += 1
        if got[0] == "begun":
            check.beginning(body, got[1], reference[0])
        else:
            check.same(body, got, reference)

    def watch_health(self):
        """The server stays answerable."""
        while not self.over.wait(0.25):
            start = time.monotonic()
            try:
                with self.main.connect(timeout=30) as wire:
                    wire.send(request("/health"))
                    assert wire.answer()[0] == 200
            except Exception:
                self.fail(None, "health")
                return
            self.longest_health_s = max(self.longest_health_s, time.monotonic() - start)

    # ---- the whole ----

    def settle(self, server):
        """Every slot idle, nothing waits, no page is held, all connections of clients gone."""
        end = time.monotonic() + 20 * SLOWDOWN
        server.idle(timeout=20)
        while time.monotonic() < end:
            figures = {name: server.metric(name) for name in (
                "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "pergola:http_connections")}
            if not any(list(figures.values())[:3]) and figures["pergola:http_connections"] <= 1:
                return
            time.sleep(0.05)
        raise AssertionError(f"something is stuck: {figures}")

    def tokens(self, server):
        names = {"prompt": "vllm:prompt_tokens_total", "cached": "vllm:prefix_cache_hits_total", "generated": "vllm:generation_tokens_total",
                 "steps": "pergola:steps_total"}
        return {short: int(server.metric(name)) for short, name in names.items()}

    def check_metrics(self):
        finished = sum(self.main.metric("vllm:request_success_total", finished_reason=r) for r in ("stop", "length"))
        generated = self.main.metric("vllm:generation_tokens_total")
        fine = sum(self.main.metric("pergola:http_requests_total", route=r, status="2xx") for r in (client.CHAT, client.COMPLETIONS))
        assert finished >= self.known["choices"], (finished, dict(self.known))
        assert generated >= self.known["completion_tokens"], (generated, dict(self.known))
        gone = sum(v for k, v in self.counts.items() if k.startswith("leave"))
        assert self.known["status 200"] <= fine <= self.known["status 200"] + gone, (fine, gone, dict(self.known))
        assert self.main.metric("pergola:http_requests_total", status="5xx") == 0
        assert self.main.metric("vllm:request_success_total", finished_reason="error") == 0
        assert self.main.metric("vllm:request_success_total", finished_reason="abort") <= 3 * gone

    def check_files(self, small):
        """The request log has a line of JSON for each answer, and recorded requests give the same tokens again."""
        lines = [json.loads(line) for line in (self.directory / "requests").read_bytes().splitlines()]
        assert len(lines) >= self.known["status 200"], (len(lines), dict(self.known))
        traces = sorted((self.directory / "trace").iterdir())
        assert traces
        for trace in random.Random(self.seed).sample(traces, min(4, len(traces))):
            result = subprocess.run([binary(), "replay", "--model", small, trace], capture_output=True, text=True, timeout=60 * SLOWDOWN)
            assert result.returncode == 0, (trace.read_bytes()[:3000], result.stdout, result.stderr)

    def run(self, only=None):
        """Runs all (or one script) and returns the report; failures are in it."""
        start = time.monotonic()
        servers = []
        try:
            small = self.directory / "model"
            small.mkdir()
            model.write(small)
            kept = ("--trace", self.directory / "trace", "--request-log", self.directory / "requests")
            for arguments in ((*MAIN, *self.options, *kept), ALONE, ECHO):
                servers.append(Server(*arguments, model=small))
            self.main, self.alone, self.echo = servers
            first = process_state(self.main)
            threads = [threading.Thread(target=self.comparer) for _ in range(2)]
            health = threading.Thread(target=self.watch_health)
            for thread in [health, *threads]:
                thread.start()
            with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
                if only is not None:
                    self.run_script(only)
                else:
                    for done in [pool.submit(self.worker) for _ in range(self.parallel)]:
                        done.result()
            mixed_s = time.monotonic() - start
            for _ in threads:
                self.to_compare.put(None)
            for thread in threads:
                thread.join()
            self.over.set()
            health.join()
            for server in servers:
                self.settle(server)
            tokens = [self.tokens(server) for server in servers]
            if only is None:
                self.check_metrics()
                self.check_files(small)
        except Exception:
            self.fail(None, "the end")
            self.over.set()
        last = process_state(self.main) if servers and servers[0].process.poll() is None else None
        used = [process_state(s)["cpu_seconds"] for s in servers if s.process.poll() is None]
        ended = [self.stop(server) for server in servers]
        return {"seed": self.seed, "requests": self.sent, "parallel": self.parallel, "options": " ".join(map(str, self.options)), "counts": dict(sorted(self.counts.items())),
                "failures": self.failures, "mixed_seconds": round(mixed_s, 1), "seconds": round(time.monotonic() - start, 1),
                "state_at_start": first, "state_warm": self.warm, "state_at_end": last, "longest_health_seconds": round(self.longest_health_s, 3),
                "cpu_seconds": [*used, round(time.process_time(), 2)], "tokens": tokens, "exit_codes": ended}

    def stop(self, server):
        code = server.stop()
        log = server.stderr()
        if code != 0 or "Sanitizer" in log or "runtime error" in log:
            with self.lock:
                self.failures.append({"seed": self.seed, "script": None, "request": "exit", "error": f"exit code {code}: {log[-6000:]}"})
        return code


def judge(report):
    """The failures of a report, as texts."""
    texts = [f"seed {f['seed']}, script {f['script']}: {json.dumps(f['request'], ensure_ascii=False)}\n{f['error']}" for f in report["failures"]]
    warm, last = report["state_warm"], report["state_at_end"]
    if warm and last:
        grown = last["anonymous_bytes"] - warm["anonymous_bytes"]
        if grown > (24 << 20) * SLOWDOWN:
            texts.append(f"memory grew by {grown} bytes after the first fifth")
        if last["files"] > report["state_at_start"]["files"] + 2:
            texts.append(f"files were left open: {report['state_at_start']} {last}")
        if last["threads"] != warm["threads"]:  # some start with the first request
            texts.append(f"other threads than before: {warm} {last}")
    if report["longest_health_seconds"] > 2 * SLOWDOWN:
        texts.append(f"health took {report['longest_health_seconds']} s")
    return texts
