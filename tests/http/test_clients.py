"""The programs and settings of docs/clients, run as they stand there against a server without a model."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, SLOWDOWN, events, serving

CLIENTS = ROOT / "docs/clients"
MODULES = ROOT / ".clients/node/node_modules"  # from scripts/clients


def blocks(page, language):
    found = re.findall(rf"^```{language}\n(.*?)^```", (CLIENTS / page).read_text(), re.M | re.S)
    assert found, f"{page} has no {language}"
    return found


def run(server, command, text, cwd=None):
    """A program from the documentation, with the server's address and key."""
    text = text.replace("http://127.0.0.1:8000", server.url)
    result = subprocess.run([*command, text], capture_output=True, text=True, timeout=120 * SLOWDOWN, cwd=cwd,
                            env={**os.environ, "PERGOLA_API_KEY": server.key})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_curl(keyed):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    stream, text, schema, state = [run(keyed, ["bash", "-euc"], block) for block in blocks("curl.md", "sh")]
    chunks, done = events(stream)
    assert done and chunks[-1]["usage"]["completion_tokens"] > 0
    assert text == "Name three trees.\n"
    assert json.loads(json.loads(schema)["choices"][0]["message"]["content"]) == {"tree": "oak"}
    assert '"max_model_len":2048' in state and '"status":"ok"' in state


def test_openai_python(keyed):
    out = run(keyed, [sys.executable, "-c"], blocks("openai-python.md", "python")[0])
    lines = out.splitlines()
    assert lines[0] == "Name three trees." and lines[-1] == "temperature" and "What is the weather in Oslo?" in out
    assert re.search(r"^\d+ tokens$", out, re.M)


@pytest.mark.skipif(not MODULES.is_dir(), reason="scripts/clients has not installed the packages for Node here")
@pytest.mark.parametrize("page", ["openai-node.md", "vercel-ai-sdk.md"])
def test_node(keyed, tmp_path, page):
    (tmp_path / "node_modules").symlink_to(MODULES)
    out = run(keyed, ["node", "--input-type=module", "-e"], blocks(page, "js")[0], cwd=tmp_path)
    lines = out.splitlines()
    assert lines[0] == "Name three trees." and re.search(r"^\d+ tokens$", out, re.M)
    if page == "openai-node.md":
        assert lines[-1] == "400 temperature"


def test_settings_of_opencode_are_json_for_a_served_model(keyed):
    settings = json.loads(blocks("opencode.md", "json")[0])
    provider = settings["provider"]["pergola"]
    name, model = next(iter(provider["models"].items()))
    assert settings["model"] == f"pergola/{name}" and provider["options"]["baseURL"].endswith("/v1")
    assert model["limit"]["output"] < model["limit"]["context"]
    assert f"--served-model-name {name} " in (CLIENTS / "opencode.md").read_text()


def test_what_open_webui_sends_is_answered(keyed):
    """The form of its requests, as they were seen: with and without a stream, for a title, and what it adds."""
    assert keyed.get("/v1/models").json()["data"][0]["id"] == "tiny-a"
    messages = [{"role": "user", "content": "hello"}]
    answer = keyed.post("/v1/chat/completions", {"model": "tiny-a", "messages": messages, "stream": True,
                                                 "stream_options": {"include_usage": True}})
    chunks, done = events(answer.text)
    assert answer.status_code == 200 and done and chunks[-1]["usage"]
    title = keyed.post("/v1/chat/completions", {"model": "tiny-a", "messages": messages, "stream": False, "max_tokens": 1000})
    assert title.status_code == 200 and title.json()["choices"][0]["message"]["role"] == "assistant"


def test_in_the_place_of_lm_studio(pergola):
    import openai

    with serving("--backend", "echo", "--served-model-name", "qwen/qwen3.6-35b-a3b,local-model") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="lm-studio", timeout=60 * SLOWDOWN)
        for model in ("qwen/qwen3.6-35b-a3b", "local-model"):
            answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}],
                                                    extra_body={"enable_thinking": False})
            assert answer.choices[0].message.content == "hello"


def test_every_page_is_in_the_index():
    index = (CLIENTS / "README.md").read_text()
    pages = sorted(path.name for path in CLIENTS.glob("*.md") if path.name != "README.md")
    assert len(pages) == 7 and all(f"[{page}]({page})" in index for page in pages)
