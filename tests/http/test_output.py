"""What the model says and what the client gets: thinking, tool calls, stop strings. The echo backend says what the last
user message spells."""

import json

import pytest

from conftest import TINY, events, joined, whole

WRITE = {"type": "function", "function": {"name": "write", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}}}
NOW = {"type": "function", "function": {"name": "now"}}
MOVE = {"type": "function", "function": {"name": "move", "parameters": {"type": "object", "properties": {
    "from": {"type": "string"}, "to": {"type": "string"}, "rows": {"type": "array"}, "memo": {"type": "string"}, "n": {"type": "integer"}}}}}
TOOLS = [WRITE, NOW, MOVE]
GOOD = "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\nhi\n</parameter>\n</function>\n</tool_call>"
GOOD_ARGUMENTS = {"path": "a.txt", "content": "hi"}


def say(echo, raw, thinking=False, **more):
    """The choice for raw output, from the stream and from the body, which must be equal (I1), arguments JSON (I2)."""
    request = {"messages": [{"role": "user", "content": raw}], "enable_thinking": thinking, **more}
    plain = echo.post("/v1/chat/completions", request)
    assert plain.status_code == 200, plain.text
    streamed = echo.post("/v1/chat/completions", {**request, "stream": True, "stream_options": {"include_usage": True}})
    chunks, done = events(streamed.content)
    assert done
    choices, usage = joined(chunks)
    expected, expected_usage = whole(plain.json())
    for choice in (choices[0], expected[0]):
        choice["ids"] = [call.pop("id") for call in choice["calls"]]
        assert len(set(choice["ids"])) == len(choice["ids"])
        for call in choice["calls"]:
            if choice["finish"] != "length":
                assert isinstance(json.loads(call["arguments"]), dict)
    ids, other = choices[0].pop("ids"), expected[0].pop("ids")
    assert choices == expected and not set(ids) & set(other)
    assert usage["completion_tokens"] == expected_usage["completion_tokens"]
    message = plain.json()["choices"][0]["message"]
    return {**expected[0], "message": message, "usage": expected_usage, "chunks": chunks}


def replay(echo, raw, answer):
    """What was returned, sent back as history, is taken."""
    messages = [{"role": "user", "content": raw}, answer["message"]]
    messages += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in answer["message"].get("tool_calls", [])]
    messages.append({"role": "user", "content": "next"})
    assert echo.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("raw, check", [
    ("<tool_call>\n<function=move>\n<parameter=\npwd\n</parameter>\n</function>\n</tool_call>", None),
    ("<tool_call>\n<function=move>\n<parameter=rows: [4]\n</parameter>\n</function>\n</tool_call>", None),
    ("<tool_call>\n<function=move>\n<parameter=memo=></parameter>\n</function>\n</tool_call>", None),
    ("<tool_call>\n<function=move>\n<parameter=from>\nOslo\n<parameter=to>\nBergen\n</parameter>\n</function>\n</tool_call>",
     {"from": "Oslo", "to": "Bergen"}),
    ("<tool_call>\n<function=move>\n<parameter=from>\nOslo\n</parameter>\n</parameter>\n</function>\n</tool_call>", {"from": "Oslo"}),
    ("<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\nhi\n</parameter>\n</function>\n</tool_call>", GOOD_ARGUMENTS),
])
def test_malformed_calls_poison_nothing(echo, raw, check):
    answer = say(echo, raw, tools=TOOLS)
    if check is not None:
        assert [json.loads(c["arguments"]) for c in answer["calls"]] == [check]
        assert answer["finish"] == "tool_calls"
    replay(echo, raw, answer)


def test_a_good_call_survives_a_broken_neighbour(echo):
    for raw in (GOOD + "\n<tool_call>\n<function=move>\n<parameter=from\n", GOOD + "\n<tool_call>\n<function=\n</tool_call>"):
        answer = say(echo, raw, tools=TOOLS)
        assert answer["calls"][0]["name"] == "write" and json.loads(answer["calls"][0]["arguments"]) == GOOD_ARGUMENTS
        assert answer["finish"] in ("tool_calls", "stop", "length")
        replay(echo, raw, answer)


@pytest.mark.parametrize("broken", [
    "<tool_call>\n<function=>\n<parameter=from>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n{\"name\": \"move\", \"arguments\": {\"from\": \"Oslo}}\n</tool_call>",
    "<tool_call>\n{\"name\": 7}\n</tool_call>", "<tool_call>\n</tool_call>", "<tool_call>"])
def test_what_looks_like_a_call_and_is_none_is_text(echo, broken):
    raw = f"Look: {broken} and on."
    answer = say(echo, raw, tools=TOOLS)
    assert answer["content"] == raw and answer["calls"] == [] and answer["finish"] == "stop"
    replay(echo, raw, answer)
    answer = say(echo, f"{broken}\n{GOOD}", tools=TOOLS)
    assert answer["content"] == broken and [json.loads(c["arguments"]) for c in answer["calls"]] == [GOOD_ARGUMENTS]
    replay(echo, raw, answer)


def test_calls_in_json(echo):
    for arguments in ('{"from": "a\\ud83d", "n": 0.10}', '"{\\"from\\": \\"a\\\\ud83d\\", \\"n\\": 0.10}"'):
        answer = say(echo, f'<tool_call>\n{{"name": "move", "arguments": {arguments}}}\n</tool_call>', tools=TOOLS)
        assert answer["calls"] == [{"name": "move", "arguments": '{"from": "a\\ufffd", "n": 0.10}'}]
        replay(echo, "go", answer)


def test_values_are_typed_by_the_schema_and_strings_stay_verbatim(echo):
    value = 'line "1"\n\n  <b>&amp;</b> {"a": [1]}\n\\n 漢字 </parameter in text'
    raw = GOOD.replace("\nhi\n", f"\n{value}\n")
    answer = say(echo, raw, tools=TOOLS)
    assert json.loads(answer["calls"][0]["arguments"]) == {"path": "a.txt", "content": value}
    raw = "<tool_call>\n<function=move>\n<parameter=n>\n42\n</parameter>\n<parameter=rows>\n[1, {\"a\": null}]\n</parameter>\n</function>\n</tool_call>"
    assert json.loads(say(echo, raw, tools=TOOLS)["calls"][0]["arguments"]) == {"n": 42, "rows": [1, {"a": None}]}


def test_long_values_stream(echo):
    numbers = "\n".join(str(i) for i in range(1, 301))
    answer = say(echo, GOOD.replace("\nhi\n", f"\n{numbers}\n"), tools=TOOLS)
    assert json.loads(answer["calls"][0]["arguments"])["content"] == numbers
    pieces = [c for c in answer["chunks"] if c["choices"] and "arguments" in str(c["choices"][0]["delta"])]
    assert len(pieces) > 200


def test_parallel_calls(echo):
    second = GOOD.replace("a.txt", "b.txt")
    answer = say(echo, f"I will write.\n\n{GOOD}\n{second}", tools=TOOLS)
    assert [json.loads(c["arguments"])["path"] for c in answer["calls"]] == ["a.txt", "b.txt"]
    assert answer["content"] == "I will write." and answer["finish"] == "tool_calls"
    one = say(echo, f"{GOOD}\n{second}", tools=TOOLS, parallel_tool_calls=False)
    assert [json.loads(c["arguments"])["path"] for c in one["calls"]] == ["a.txt"] and one["finish"] == "tool_calls"


def test_call_without_arguments(echo):
    answer = say(echo, "<tool_call>\n<function=now>\n</function>\n</tool_call>", tools=TOOLS)
    assert answer["calls"] == [{"name": "now", "arguments": "{}"}] and answer["finish"] == "tool_calls"
    assert answer["message"]["content"] is None


@pytest.mark.parametrize("options", [{}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}])
def test_without_tools_a_call_is_text(echo, options):
    answer = say(echo, GOOD, **options)
    assert answer["content"] == GOOD and answer["calls"] == [] and answer["finish"] == "stop"
    assert "tool_calls" not in answer["message"]


def test_white_space(echo):
    assert say(echo, f"I will look.\n\n{GOOD}\n", tools=TOOLS)["content"] == "I will look."
    answer = say(echo, f"{GOOD}\n{GOOD}", tools=TOOLS)
    assert answer["message"]["content"] is None and len(answer["calls"]) == 2
    for text in ("# A\n\n- b\n- c\n", "a\n\n\n\nb", "  indented\n\ttab", "x\n"):
        for tools in (None, TOOLS):
            assert say(echo, text, tools=tools)["content"] == text


def test_call_inside_an_open_thought(echo):
    for end in ("", "\n</think>"):
        answer = say(echo, f"Need the file.\n{GOOD}{end}", thinking=True, tools=TOOLS)
        assert [json.loads(c["arguments"]) for c in answer["calls"]] == [GOOD_ARGUMENTS]
        assert answer["finish"] == "tool_calls" and answer["reasoning"].strip() == "Need the file."
    quoted = say(echo, f"I could write\n{GOOD}\nbut no.\n</think>\n\nThe answer is 4.", thinking=True, tools=TOOLS)
    assert quoted["calls"] == [] and quoted["content"] == "The answer is 4." and quoted["finish"] == "stop"


def test_thinking_is_told_from_the_answer(echo):
    answer = say(echo, "Let me see.\n</think>\n\nIt is 4.", thinking=True)
    assert answer["reasoning"].strip() == "Let me see." and answer["content"] == "It is 4." and answer["finish"] == "stop"
    assert 0 < answer["usage"]["reasoning_tokens"] < answer["usage"]["completion_tokens"]
    assert "<think>" not in say(echo, "<think>\na</think>b", thinking=True)["reasoning"]
    tagged = say(echo, "a</think>Use the `</think>` tag.", thinking=True)
    assert tagged["content"] == "Use the `</think>` tag." and tagged["reasoning"] == "a"
    off = say(echo, "Close with </think> please.", thinking=False)
    assert off["content"] == "Close with </think> please." and off["reasoning"] == ""


def test_one_rule_for_thinking_again(echo):
    answer = say(echo, "a</think>b<think>c</think>d", thinking=True)
    assert answer["reasoning"] == "a" and answer["content"] == "b<think>c</think>d"
    mentioned = say(echo, "I could use <tool_call> here.</think>\n\nok", thinking=True, tools=TOOLS)
    assert mentioned["reasoning"] == "I could use <tool_call> here." and mentioned["content"] == "ok"


@pytest.mark.parametrize("switch", [{"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}, {"reasoning_effort": "none"},
                                    {"thinking_budget": 0}])
def test_every_switch_turns_thinking_off(echo, switch):
    for raw in ("YES", "a </think> b"):
        request = {"messages": [{"role": "user", "content": raw}], **switch}
        plain = echo.post("/v1/chat/completions", request).json()
        message = plain["choices"][0]["message"]
        assert message["content"] == raw and "reasoning_content" not in message and plain["usage"]["reasoning_tokens"] == 0
        choices, _ = joined(events(echo.post("/v1/chat/completions", {**request, "stream": True}).content)[0])
        assert choices[0]["content"] == raw and choices[0]["reasoning"] == ""


def test_a_turn_that_never_closes_its_thought(echo):
    ended = say(echo, "just text", thinking=True)
    assert ended["content"] == "just text" and ended["finish"] == "stop"
    cut = say(echo, "one two three four five six seven eight", thinking=True, max_tokens=4)
    assert cut["content"] == "" and cut["reasoning"] and cut["finish"] == "length"
    assert cut["usage"]["reasoning_tokens"] == 4


@pytest.mark.parametrize("raw, stop, content, which", [
    ("one two three", ["two"], "one ", "two"), ("one two three", "wo t", "one t", "wo t"), ("abcabd", ["abd"], "abc", "abd"),
    ("one two", ["three"], "one two", None), ("ends with th", ["three"], "ends with th", None), ("aXbYc", ["Y", "X"], "a", "X"),
    ("日本語テキスト", ["語テ"], "日本", "語テ"), ("aaab", ["aab"], "a", "aab"), ("STOP", ["STOP"], "", "STOP"),
])
def test_stop_strings(echo, raw, stop, content, which):
    answer = say(echo, raw, stop=stop)
    assert answer["content"] == content and answer["finish"] == "stop"
    text = echo.post("/v1/completions", {"prompt": raw, "stop": stop, "max_tokens": 100}).json()["choices"][0]
    assert text["text"] == content and text["finish_reason"] == "stop" and text["stop_reason"] == which


def test_stop_strings_apply_to_the_visible_answer_only(echo):
    answer = say(echo, "stop here STOP and on\n</think>\n\nvisible STOP hidden", thinking=True, stop=["STOP"])
    assert "STOP and on" in answer["reasoning"] and answer["content"] == "visible "


def test_end_tokens_spelled_by_the_model(echo):
    for token in ("<|im_end|>", "<|endoftext|>"):
        answer = say(echo, f"visible{token}hidden", logprobs=True)
        assert answer["content"] == "visible" and answer["finish"] == "stop"
        assert "".join(e["token"] for e in answer["logprobs"]) == "visible"
        empty = say(echo, f"{token}hidden")
        assert empty["message"]["content"] == "" and empty["finish"] == "stop" and empty["usage"]["completion_tokens"] == 0


def test_message_without_text_gets_an_empty_answer(echo):
    assert say(echo, "")["content"] == ""


def test_every_character_comes_through(echo):
    text = "ASCII \u00e9\u0301 漢字 \U0001f993\U0001f469\u200d\U0001f52c \u202e rtl \ufeff end \x7f \x1b[0m \"quotes\" \\ back"
    assert say(echo, text)["content"] == text


def test_a_call_that_its_limit_cuts_never_looks_whole(echo):
    """At every token: the arguments are JSON exactly when the function was closed, and the finish_reason is length."""
    n = say(echo, GOOD, tools=TOOLS)["usage"]["completion_tokens"]
    seen = set()
    for limit in range(1, n + 1):
        text = echo.post("/v1/completions", {"prompt": GOOD, "max_tokens": limit}).json()["choices"][0]["text"]
        answer = say(echo, GOOD, tools=TOOLS, tool_choice="required", max_tokens=limit)
        assert answer["finish"] == "length" and len(answer["calls"]) <= 1
        for call in answer["calls"]:
            assert call["name"] == "write"
            try:
                whole_one = json.loads(call["arguments"]) == GOOD_ARGUMENTS
            except ValueError:
                whole_one = False
            assert whole_one == ("</function>" in text), (limit, text, call)
            seen.add(whole_one)
        replay(echo, GOOD, answer)
    assert seen == {True, False}


@pytest.mark.parametrize("thinking", [False, True])
def test_what_comes_out_can_be_sent_back(server, thinking):
    """A model that says nothing but U+0000, which no request may carry."""
    vocabulary = json.loads((TINY / "tokenizer.json").read_text())["model"]["vocab"]
    bias = {"temperature": 0, "max_tokens": 4, "logit_bias": {str(vocabulary["\u0100"]): 100}}  # byte 0 in the byte-level alphabet
    messages = [{"role": "user", "content": "go"}]
    answer = server.post("/v1/chat/completions", {"messages": messages, "enable_thinking": thinking, "logprobs": True, **bias}).json()
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"] if thinking else message["content"]) == "\ufffd" * 4
    assert [entry["bytes"] for entry in answer["choices"][0]["logprobs"]["content"]] == [[0]] * 4
    again = server.post("/v1/chat/completions", {"messages": [*messages, message, *messages], "max_tokens": 1})
    assert again.status_code == 200, again.text
    text = server.post("/v1/completions", {"prompt": "go", **bias}).json()["choices"][0]["text"]
    assert text == "\ufffd" * 4 and server.post("/v1/completions", {"prompt": text, "max_tokens": 1}).status_code == 200
