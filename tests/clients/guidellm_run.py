"""guidellm, a load generator of others, against the echo backend: every request must succeed, with the right tokens."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from checks import ECHO, check, main

MODEL = os.environ["PERGOLA_CHECKPOINT"]
GUIDELLM = pathlib.Path(sys.executable).with_name("guidellm")


def run(profile, override, request_format, n=40):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "report.json")
        command = [GUIDELLM, "run", "--backend", f"kind=openai_http,target={ECHO.removesuffix('/v1')},model={pathlib.Path(MODEL).name},"
                   f"request_format={request_format}", "--profile", f"kind={profile}", "--override", *override,
                   "--constraint", f"kind=max_requests,count={n}", "--tokenizer", f"kind=huggingface_auto,model={MODEL}",
                   "--data", "kind=synthetic_text,prompt_tokens=60,output_tokens=20", "--output", f"kind=json,path={out}",
                   "--disable-console"]
        subprocess.run(command, check=True, timeout=850, env={**os.environ, "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "2"})
        report = json.loads(out.read_text())["benchmarks"][0]
    totals = report["metrics"]["request_totals"]
    # its Poisson profile stops a few short of the count
    assert n - 5 <= totals["successful"] == totals["total"] and totals["errored"] == totals["incomplete"] == 0, totals
    for request in report["requests"]["successful"]:
        assert request["output_tokens"] == 20 and request["prompt_tokens"] >= 60, request
        assert request["time_to_first_token_ms"] > 0


@check
def chat_with_streams():
    run("concurrent", ["profile.streams", "8"], "/v1/chat/completions")


@check
def completions_at_a_rate():
    run("poisson", ["profile.rate", "50"], "/v1/completions")


if __name__ == "__main__":
    main("guidellm")
