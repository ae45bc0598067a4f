"""pergola parse: one message from raw text, however it is cut, streamed or not; replayed, the same tokens again."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
TINY = ROOT / "tests/goldens/tiny-a"
TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}, "n": {"type": "integer"}, "rows": {"type": "array"},
        "note": {"type": ["string", "null"]}}, "required": ["path", "content"]}}},
    {"type": "function", "function": {"name": "now"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    path = tmp_path_factory.mktemp("parse") / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def parse(raw, *arguments):
    result = subprocess.run([PERGOLA, "parse", *map(str, arguments)], input=raw.encode(), capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def joined(deltas):
    """The message that a client builds of the deltas."""
    message = {"role": "assistant", "content": ""}
    for delta in deltas:
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = message.get(key, "") + delta[key]
        for part in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": part["type"], "function": part["function"]})
            else:
                assert set(part) == {"index", "function"} and part["index"] == len(calls) - 1
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
        if "finish_reason" in delta:
            message["finish_reason"] = delta["finish_reason"]
    if "tool_calls" in message and message["content"] == "":
        message["content"] = None
    return message


CALL = "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\n\u00e9 \"x\"\n\n</parameter>\n</function>\n</tool_call>"
NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
RAWS = {
    "thought and calls": ("on", "hm\n</think>\n\nI will look.\n\n" + CALL + "\n" + NOW + "\n<|im_end|>"),
    "call in the thought": ("on", "Need the file.\n" + NOW + "</think>"),
    "quoted tags": ("on", "use `</think>`\U0001f642</think>Use the `</think>` tag."),
    "markdown": ("off", "# A\n\n- b\n- c\n"),
    "tags without thinking": ("off", "a</think>b<think>c"),
    "malformed": ("off", "<tool_call>\n<function=write>\n<parameter=\npwd\n</parameter>\n<parameter=path>\nx\n<parameter=n>\n4\n</parameter>\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=>"),
}  # fmt: skip


@pytest.mark.parametrize("name", RAWS)
def test_the_message_depends_on_the_cuts(name, tools):
    thinking, raw = RAWS[name]
    flags = ["--tools", tools, "--thinking", thinking]
    [whole] = parse(raw, *flags)
    for n in (1, 2, 3, 5, 8, 13):
        assert parse(raw, *flags, "--cut", n) == [whole]
        assert joined(parse(raw, *flags, "--stream", "--cut", n)) == whole
    for call in whole.get("tool_calls", []):
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_values(tools):
    [message] = parse(RAWS["thought and calls"][1], "--tools", tools, "--thinking", "on")
    assert message["reasoning_content"] == "hm" and message["content"] == "I will look."
    assert message["finish_reason"] == "tool_calls"
    first, second = message["tool_calls"]
    assert json.loads(first["function"]["arguments"]) == {"path": "a.txt", "content": "\u00e9 \"x\"\n"}
    assert second["function"] == {"name": "now", "arguments": "{}"}
    assert first["id"] != second["id"]


def test_without_tools_a_call_is_text():
    assert parse(NOW, "--thinking", "off") == [{"role": "assistant", "content": NOW, "finish_reason": "stop"}]


@pytest.mark.parametrize("cut", [0, 1, 4])
def test_stop_strings(cut, tools):
    flags = ["--tools", tools, "--thinking", "on", "--cut", cut]
    assert parse("END in it\n</think>\n\none two END three", *flags, "--stop", "END") == [
        {"role": "assistant", "content": "one two ", "reasoning_content": "END in it", "finish_reason": "stop"}
    ]
    assert parse("a\n</think>\n\none EN", *flags, "--stop", "END")[0]["content"] == "one EN"
    assert "tool_calls" not in parse("a</think>stop " + NOW, *flags, "--stop", "stop")[0]


def test_a_limit_that_cuts(tools):
    [message] = parse("thinking about", "--thinking", "on", "--finish", "length")
    assert message == {"role": "assistant", "content": "", "reasoning_content": "thinking about", "finish_reason": "length"}
    [message] = parse("thinking about", "--thinking", "on")
    assert message["content"] == message["reasoning_content"] == "thinking about"
    [message] = parse(CALL[:80], "--tools", tools, "--thinking", "off", "--finish", "length")
    assert message["finish_reason"] == "length" and message["tool_calls"][0]["function"]["arguments"].startswith('{"path"')


def test_an_end_at_once():
    assert parse("<|im_end|>", "--thinking", "off") == [{"role": "assistant", "content": "", "finish_reason": "stop"}]


@pytest.mark.parametrize("name", ["thought and calls", "quoted tags", "malformed"])
def test_replayed_as_history_the_tokens_are_others(name, tools):
    """What the model wrote (in the format's own layout) is what the template makes of the delivered message."""
    thinking, raw = RAWS[name]
    [message] = parse(raw, "--tools", tools, "--thinking", thinking)
    message.pop("finish_reason")
    body = {"messages": [{"role": "user", "content": "q"}, message, {"role": "user", "content": "go on"}], "tools": TOOLS,
            "chat_template_kwargs": {"preserve_thinking": True}}  # fmt: skip
    out = subprocess.run(
        [PERGOLA, "tokenize", "--model", TINY, "--chat", "-", "--text"], input=json.dumps(body).encode(), capture_output=True, timeout=60
    )
    assert out.returncode == 0, out.stderr.decode()
    if name == "thought and calls":
        assert "<|im_start|>assistant\n<think>\n" + raw.replace("\n<|im_end|>", "<|im_end|>") in out.stdout.decode()
    else:
        assert "<|im_start|>assistant\n<think>\n" in out.stdout.decode()


@pytest.mark.parametrize("arguments, word", [(["--stop", ""], "stop"), (["--tools", "/nowhere"], "/nowhere"), (["--thinking", "maybe"], "maybe")])
def test_bad_arguments(arguments, word):
    result = subprocess.run([PERGOLA, "parse", *arguments], input=b"", capture_output=True, timeout=60)
    assert result.returncode in (1, 2) and word in result.stderr.decode()
