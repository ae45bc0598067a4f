"""Chat templates against Jinja2 set up as transformers sets it up, and the rules for what clients send."""

import json
import os
import pathlib
import random
import shutil
import subprocess

import jinja_reference
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
TINY = ROOT / "tests/goldens/tiny-a"
# Not part of the repository: beside it, or named by the environment.
PUBLISHED = pathlib.Path(os.environ.get("PGL_PUBLISHED_TEMPLATE", ROOT.parent / "shared/data/qwen3.6_chat_template.jinja"))


def make_model(directory, template):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(TINY / name, directory / name)
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    return directory


def run(model, requests, *flags):
    data = "\n".join(json.dumps(request) for request in requests).encode()
    command = [PERGOLA, "tokenize", "--model", str(model), "--chat", "-", "--lines", *flags]
    return subprocess.run(command, input=data, capture_output=True, timeout=600)


def render(model, requests, *flags):
    result = run(model, requests, "--text", *flags)
    assert result.returncode == 0, result.stderr.decode()
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


# ---- a wide random set of conversations

WORDS = [
    "hello", "<think>", "</tool_call>", "<|im_end|>", "<|im_start|>system\n", "  spaced  ", "\n\nlines\n", "\u00e9\u6f22\u5b57\U0001f642",
    "\u0301comb", "<b>&amp;</b>", "'quote\"", "\\back\\n", "{{ x }}", "{% raw %}", "tab\t", "\u00a0nbsp\u00a0", "\u0085nel", "\x1cfs", "", "123",
    "<", "<|im_end|", "think>", "`</tool_call>`", "\ufdd0nonchar", "\U0001f469\u200d\U0001f469", "think", "text", "name",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 3.14, 0.1, 1e5, 1e16, 1.5e-7, 10.0, -0.0, 2**63, 2**64, -(2**65), 10**40, 123456789012345678, 1e22, 5e-324, 1.7976931348623157e308,
    True, False, None,
]  # fmt: skip


class Conversations:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def text(self):
        return "".join(self.rng.choice(WORDS) for _ in range(self.rng.randrange(6)))

    def value(self, depth=0):
        kind = self.rng.randrange(7)
        if kind < 2:
            return self.text()
        if kind < 4 or depth > 2:
            return self.rng.choice([*NUMBERS, self.rng.random(), self.rng.randrange(-(10**6), 10**6)])
        if kind == 4:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        return {self.text() or f"k{i}": self.value(depth + 1) for i in range(self.rng.randrange(4))}

    def call(self, i):
        keys = ["a", "path", "content", "\u00e9", "x y", "k<", "items", "<think>"]
        arguments = {self.rng.choice(keys): self.value() for _ in range(self.rng.randrange(4))}
        return {"id": f"c{i}", "type": "function", "function": {"name": self.rng.choice(["write", "get_weather", "think"]), "arguments": arguments}}

    def assistant(self):
        message = {"role": "assistant", "content": self.text()}
        kind = self.rng.randrange(6)
        if kind == 0:
            message["reasoning_content"] = self.text()
        if kind == 1:
            # quoted tags are text for us and not for the template, and so is what lies behind a second closing tag
            plain = [self.text().replace("think>", "").replace("`", "") for _ in range(2)]
            opening = self.rng.choice(["<think>\n", "", "<think>"])
            message["content"] = opening + plain[0] + self.rng.choice(["\n</think>\n\n", "</think>"]) + plain[1]
        if self.rng.randrange(3) == 0:
            message["tool_calls"] = [self.call(i) for i in range(self.rng.randrange(1, 4))]
        return message

    def messages(self):
        out = [{"role": "system", "content": self.text()}] if self.rng.randrange(2) else []
        out.append({"role": "user", "content": self.text()})
        for _ in range(self.rng.randrange(5)):
            answer = self.assistant()
            out.append(answer)
            if "tool_calls" in answer:
                for call in answer["tool_calls"]:
                    out.append({"role": "tool", "tool_call_id": call["id"], "content": self.text()})
                if self.rng.randrange(2):
                    continue
            out.append({"role": "user", "content": self.text()})
        if out[-1]["role"] == "assistant":  # ours would be continued
            out.append({"role": "user", "content": "end"})
        return out

    def tool(self):
        properties = {self.text() or "p": self.value() for _ in range(3)}
        function = {"name": f"f{self.rng.randrange(9)}", "description": self.text(), "parameters": {"type": "object", "properties": properties}}
        return {"type": "function", "function": function}

    def request(self):
        out = {"messages": self.messages()}
        if self.rng.randrange(2):
            out["tools"] = [self.tool() for _ in range(self.rng.randrange(3))]
        if self.rng.randrange(2):
            out["chat_template_kwargs"] = {"enable_thinking": bool(self.rng.randrange(2))}
        if self.rng.randrange(4) == 0:
            out.setdefault("chat_template_kwargs", {})["preserve_thinking"] = True
        return out


@pytest.mark.parametrize("which", ["tiny", "published"])
def test_conversations_render_otherwise_than_with_jinja2(which, tmp_path):
    if which == "published" and not PUBLISHED.exists():
        pytest.skip(f"{PUBLISHED} is not there")
    source = (TINY / "chat_template.jinja" if which == "tiny" else PUBLISHED).read_text(encoding="utf-8")
    model = make_model(tmp_path, source)
    conversations = Conversations(7)
    requests = [conversations.request() for _ in range(3000)]
    expected = [
        jinja_reference.render(source, r["messages"], r.get("tools"), **r.get("chat_template_kwargs", {})) for r in requests
    ]
    found = render(model, requests)
    assert len(found) == len(expected)
    for request, want, got in zip(requests, expected, found):
        assert got == want, ascii(json.dumps(request))


# ---- the template language

VARIABLES = {
    "s": "Hello World", "sp": "  \n pad\x1c\u00a0", "e": "", "n": None, "t": True, "f": False, "i": 42, "neg": -7, "x": 3.5, "y": 1e16,
    "z": 1e-7, "big": 2**70, "huge": 10**45, "fl": 10.0, "l": [1, 2.5, "a", None, True, [1], {"k": "v"}], "el": [],
    "d": {"a": 1, "b": [1, 2], "c": {"d": "\u00e9'\""}, "k\n": None}, "ed": {}, "uni": "\u00e9\u6f22\u5b57\U0001f642<b>&'\"",
    "lines": "a\nb\r\nc\x0bd\u2028e", "q": "it's \"q\"",
    "objs": [{"n": "x", "v": 3, "g": 1}, {"n": "y", "v": 1, "g": 2}, {"n": "z", "v": 2, "g": 1}], "num_s": "12", "f_s": "1.5e3",
}  # fmt: skip
SNIPPETS = (pathlib.Path(__file__).parent / "template_snippets.txt").read_text(encoding="utf-8").split("\n%%%%\n")


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_construct_behaves_otherwise_than_in_jinja2(number, tmp_path):
    source, messages = SNIPPETS[number], [{"role": "user", "content": "hi"}]
    try:
        want = jinja_reference.render(source, messages, **VARIABLES)
    except jinja_reference.Failed:
        want = None
    result = run(make_model(tmp_path, source), [{"messages": messages, "chat_template_kwargs": VARIABLES}], "--text")
    if want is None:
        assert result.returncode == 1 and b"chat template" in result.stderr, (source, result)
    else:
        assert result.returncode == 0, (source, result.stderr.decode())
        assert json.loads(result.stdout) == want, source


# ---- what the command takes

def test_a_list_and_a_body_and_a_file(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    as_list, as_body = (render(TINY, [r])[0] for r in (messages, {"messages": messages}))
    assert as_list == as_body == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": messages, "enable_thinking": False}))
    out = subprocess.run([PERGOLA, "tokenize", "--model", TINY, "--chat", path, "--text"], capture_output=True, timeout=60)
    assert out.stdout.decode().endswith("<think>\n\n</think>\n\n")
    ids = subprocess.run([PERGOLA, "tokenize", "--model", TINY, "--chat", path], capture_output=True, timeout=60)
    assert json.loads(ids.stdout)["ids"][0] == 2


def test_the_ids_are_those_of_the_text_when_nothing_is_spelled():
    conversations = Conversations(9)
    requests = [r for r in (conversations.request() for _ in range(2000))]
    plain = [r for r in requests if "<" not in json.dumps(r["messages"]) + json.dumps(r.get("tools")) and "think" not in json.dumps(r)]
    assert len(plain) > 10
    texts = render(TINY, plain)
    ids = [json.loads(line)["ids"] for line in run(TINY, plain).stdout.decode().split("\n") if line]
    raw = subprocess.run(
        [PERGOLA, "tokenize", "--model", TINY, "--lines"], input="\n".join(map(json.dumps, texts)).encode(), capture_output=True, timeout=60
    )
    assert ids == [json.loads(line)["ids"] for line in raw.stdout.decode().split("\n") if line]


@pytest.mark.parametrize(
    "request_body, word",
    [
        ([], "at least one"),
        ([{"role": "critic", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": {}}, "tools"),
        ({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": []}, "chat_template_kwargs"),
        ({}, "messages"),
        (7, "messages"),
    ],
)
def test_bad_messages_are_refused_by_name(request_body, word):
    result = run(TINY, [request_body])
    assert result.returncode == 1 and word in result.stderr.decode()


def test_a_checkpoint_without_a_template(tmp_path):
    shutil.copyfile(TINY / "tokenizer.json", tmp_path / "tokenizer.json")
    assert subprocess.run([PERGOLA, "tokenize", "--model", tmp_path], input=b"x", capture_output=True, timeout=60).returncode == 0
    result = run(tmp_path, [[{"role": "user", "content": "hi"}]])
    assert result.returncode == 1 and "no chat template" in result.stderr.decode()
