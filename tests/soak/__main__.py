"""python -m soak, from tests/: see README.md."""

import argparse
import json
import pathlib
import platform
import random
import subprocess
import sys
import tempfile

from conftest import binary

from soak.run import Soak, judge


def main():
    parser = argparse.ArgumentParser(prog="soak", description="A random mix of requests against a server, checked one by one.")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--only", type=int, help="run this script alone, as a failure names it")
    parser.add_argument("--json", type=pathlib.Path, help="write the report into this file")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = Soak(options.seed, options.requests, options.parallel, directory).run(options.only)
    failures = judge(report)
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    build = pathlib.Path(binary()).parent.name
    report = {"command": f"make soak SOAK_REQUESTS={options.requests} SOAK_SEED={options.seed}" + (f" SOAK_BUILD={build}" if build != "build" else ""), "version": version,
              "machine": platform.machine(), "failed": len(failures), **report}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print("\n\n".join(failures))
    print(json.dumps({k: v for k, v in report.items() if k != "failures"}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
