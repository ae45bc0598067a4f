#!/usr/bin/env python3
"""What the server adds to the engine at many streams: bench/server_share.py --out FILE [--streams 64] [--step-ms 10]

Nothing is computed: the backend is echo, a step takes as long as it is told, and both the engine alone (`pergola bench
engine`) and the server (`pergola serve` under `pergola bench serve`) get the same load. See docs/benchmarks.md for what the
figures mean. Rounds of engine and server alternate, and medians over rounds count. Python's own library is enough."""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TICK = os.sysconf("SC_CLK_TCK")


def percentile(values, p):
    values = sorted(values)
    return values[max(0, -(-len(values) * p // 100) - 1)]


def spread(values):
    return {"n": len(values), "mean": round(statistics.fmean(values), 4), "p50": round(percentile(values, 50), 4),
            "p90": round(percentile(values, 90), 4), "p99": round(percentile(values, 99), 4)}


def priority(options, level):
    """The generator above the server: its clock must not wait for what it measures."""
    return ["chrt", "-f", str(level)] if options.real_time else []


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr}")
    return json.loads(result.stdout)["cells"][0]


class Server:
    def __init__(self, options, folder):
        self.log = pathlib.Path(folder, "requests.jsonl")
        self.process = subprocess.Popen(
            [*priority(options, 1), options.pergola, "serve", "--model", options.model, "--backend", "echo", "--echo-step-ms", str(options.step_ms), "--slots",
             str(2 * options.streams), "--context", str(options.input + options.output + 16), "--max-queue", "4096", "--port", "0",
             "--request-log", self.log, "--log-level", "warn", "--no-prefix-cache"], stdout=subprocess.PIPE, text=True)
        block = ""
        while not block.endswith("ends it\n"):
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"the server did not start: {block}")
            block += line
        self.url = re.search(r"http://\S+/v1", block).group()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def lines(self, n):
        """The last n requests in the log; it is written behind the answers."""
        end = time.monotonic() + 10
        while True:
            rows = [json.loads(row) for row in self.log.read_text().splitlines()]
            rows = [row for row in rows if row["route"] == "/v1/chat/completions"]
            if len(rows) >= n or time.monotonic() > end:
                return rows[-n:]
            time.sleep(0.1)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def serve_load(options, server, seed, *load):
    # the warm-up is in the log too, in front
    command = [*priority(options, 2), options.pergola, "bench", "serve", "--url", server.url, "--input", str(options.input), "--output", str(options.output),
               "--requests", str(options.requests), "--warmup", str(options.streams), "--seed", str(seed), "-o", "json", *load]
    cell = run(command)
    if cell["failed"] or cell["inexact_prompts"]:
        sys.exit(f"not every request was answered as asked: {cell['errors']}")
    rows = server.lines(options.requests + options.streams)[options.streams:]
    return cell, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pergola", default=os.environ.get("PERGOLA", ROOT / "build/pergola"))
    parser.add_argument("--model", default=ROOT / "tests/goldens/tiny-a")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--real-time", action="store_true", help="as real-time processes (root): for a machine that others use too")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    closed = ["--concurrency", str(options.streams)]
    # as many in flight on average: each takes about a step for each of its tokens
    rate = options.streams / ((options.output + 1) * options.step_ms / 1e3)
    rounds = []
    for number in range(options.rounds):
        load_before = os.getloadavg()[0]
        alone = run([*priority(options, 1), options.pergola, "bench", "engine", "--model", options.model, "--backend", "echo", "--echo-step-ms",
                     str(options.step_ms), "--slots", str(2 * options.streams), "--input", str(options.input), "--output",
                     str(options.output), "--requests", str(options.requests), "--warmup", str(options.streams), "-o", "json", *closed])
        with tempfile.TemporaryDirectory() as folder:
            server = Server(options, folder)
            both, _ = serve_load(options, server, 100 + number, *closed)
            poisson, rows = serve_load(options, server, 200 + number, "--rate", f"{rate:.3f}")
            server.stop()
        engine = [row["queue_ms"] + row["prefill_ms"] for row in rows]
        inside = [row["ttft_ms"] - row["queue_ms"] - row["prefill_ms"] for row in rows]
        rounds.append({
            "load_average": load_before,
            "engine_tokens_per_s": alone["output_tokens_per_s"],
            "server_tokens_per_s": both["output_tokens_per_s"],
            "throughput_share": 1 - both["output_tokens_per_s"] / alone["output_tokens_per_s"],
            "rate_per_s": round(rate, 3),
            "in_flight": poisson["requests_per_s"] * poisson["e2e_ms"]["mean"] / 1e3,
            "ttft_client_ms": poisson["ttft_ms"],
            "ttft_engine_ms": spread(engine),
            "server_before_engine_and_after_ms": spread(inside),
            "added_ttft_mean_ms": poisson["ttft_ms"]["mean"] - statistics.fmean(engine),
            "added_ttft_p50_ms": poisson["ttft_ms"]["p50"] - percentile(engine, 50),
            "generator_lag_ms": poisson["send_lag_ms"],
        })
        print(f"round {number + 1}: throughput {rounds[-1]['throughput_share']:+.2%}, TTFT {rounds[-1]['added_ttft_mean_ms']:+.2f} ms mean, "
              f"{rounds[-1]['added_ttft_p50_ms']:+.2f} ms median; load {load_before:.1f}", file=sys.stderr)
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    median = lambda name: round(statistics.median(row[name] for row in rounds), 5)
    report = {
        "schema": 1,
        "command": f"bench/server_share.py --streams {options.streams} --step-ms {options.step_ms:g} --input {options.input} "
                   f"--output {options.output} --requests {options.requests} --rounds {options.rounds}"
                   + (" --real-time" if options.real_time else ""),
        "revision": revision,
        "machine": {"cpu": cpu.group(1) if cpu else "unknown", "cpus": os.cpu_count()},
        "throughput_share": median("throughput_share"),
        "added_ttft_mean_ms": median("added_ttft_mean_ms"),
        "added_ttft_p50_ms": median("added_ttft_p50_ms"),
        "rounds": rounds,
    }
    pathlib.Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
