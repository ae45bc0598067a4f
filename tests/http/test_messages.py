"""What clients send as messages and tools, and what becomes of it in the prompt."""

import pytest

M = "/v1/chat/completions"
WRITE = {"type": "function", "function": {"name": "write", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}}}
GLUE = {"type": "function", "function": {"name": "glue", "parameters": {
    "type": "object", "properties": {"left": {"type": "string"}, "times": {"type": "integer"}, "note": {"type": "string"}}}}}


def U(text):
    return {"role": "user", "content": text}


def S(text):
    return {"role": "system", "content": text}


def A(text=None, **more):
    return {"role": "assistant", "content": text, **more}


def prompt(server, messages, **more):
    answer = server.post("/apply-template", {"messages": messages, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["prompt"]


def count(server, messages, **more):
    """prompt_tokens of a chat request, which must be answered."""
    answer = server.post(M, {"messages": messages, "max_tokens": 1, **more})
    assert answer.status_code == 200, answer.text
    n = answer.json()["usage"]["prompt_tokens"]
    assert n == server.post("/tokenize", {"messages": messages, **more}).json()["count"]
    return n


def call(arguments, name="glue"):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def glued(arguments, content=None, result="xxxx"):
    return [U("Glue them."), A(content, tool_calls=[call(arguments)]), {"role": "tool", "tool_call_id": "c1", "content": result}]


# ---- T13, T14, T08: history with tool calls ----

def test_arguments_as_string_and_as_object_render_alike(echo):
    text = '{"left":"x","times":4,"note":"é\\n"}'
    value = {"left": "x", "times": 4, "note": "é\n"}
    assert count(echo, glued(text), tools=[GLUE]) == count(echo, glued(value), tools=[GLUE])
    rendered = prompt(echo, glued(text), tools=[GLUE])
    assert rendered == prompt(echo, glued(value), tools=[GLUE])
    order = [rendered.rindex(f"<parameter={key}>") for key in ("left", "times", "note")]
    assert order == sorted(order)
    assert "<parameter=times>\n4\n" in rendered and "<parameter=note>\né\n\n" in rendered


@pytest.mark.parametrize("arguments", ["", None, "{}", "null", {}])
def test_empty_arguments_of_every_kind_render_alike(echo, arguments):
    assert prompt(echo, glued(arguments), tools=[GLUE]) == prompt(echo, glued("{}"), tools=[GLUE])


def test_numbers_in_arguments_keep_their_text(echo):
    rendered = prompt(echo, glued('{"times":0.1,"left":123456789012345678901234567890,"note":1e3}'), tools=[GLUE])
    assert "\n0.1\n" in rendered and "\n123456789012345678901234567890\n" in rendered


@pytest.mark.parametrize("content", [None, "", [], "absent"])
def test_empty_content_beside_tool_calls(echo, content):
    messages = glued("{}", content)
    if content == "absent":
        del messages[1]["content"]
    assert count(echo, messages, tools=[GLUE]) == count(echo, glued("{}"), tools=[GLUE])


def test_lists_of_text_parts_are_the_text(echo):
    parts = [{"type": "text", "text": "xx"}, {"type": "text", "text": "xx"}]
    assert prompt(echo, glued("{}", result=parts), tools=[GLUE]) == prompt(echo, glued("{}"), tools=[GLUE])
    zebra = [A([{"type": "text", "text": "the word is ZEBRA"}]), U("Which word?")]
    assert "ZEBRA" in prompt(echo, [U("a"), *zebra])
    assert prompt(echo, [U(parts)]) == prompt(echo, [U("xxxx")])
    for bad in ([{"type": "strange"}], [{"text": 5, "type": "text"}], [5], [{"type": "text"}]):
        answer = echo.post(M, {"messages": [U("a"), {"role": "user", "content": bad}]})
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("messages[1].content[0]")


# ---- T15, T16: tool definitions ----

def test_non_ascii_in_tool_definitions_is_not_escaped(echo):
    def tool(text):
        return {"type": "function", "function": {"name": "f", "description": text, "parameters": {"type": "object", "properties": {}}}}

    cjk = "漢字" * 100
    body = '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","description":"%s"}}]}'
    raw, escaped = body % cjk, body % "".join(f"\\u{ord(c):04x}" for c in cjk)
    assert _tokenize(echo, raw) == _tokenize(echo, escaped)
    assert cjk in prompt(echo, [U("x")], tools=[tool(cjk)])
    rendered = prompt(echo, [U("x")], tools=[tool("<a> & 'b'")])
    assert "\\u003c" in rendered or "<a> & 'b'" in rendered  # as the reference tojson has it: see test_chat


def _tokenize(server, body):
    return server.post("/tokenize", content=body.encode(), headers={"Content-Type": "application/json"}).json()["count"]


def test_odd_but_legal_tool_schemas_disturb_nothing(echo):
    odd = [{"name": "a"}, {"name": "b", "parameters": None}, {"name": "c", "parameters": {"type": "object", "properties": {}}},
           {"name": "d", "parameters": {"type": "object"}, "strict": True},
           {"name": "e", "parameters": {"type": "object", "properties": {"v": {"type": ["string", "null"]}}}},
           {"name": "f", "parameters": {"anyOf": [{"type": "object"}, {"type": "object"}]}}]
    tools = [{"type": "function", "function": f} for f in odd]
    rendered = prompt(echo, [U("hi")], tools=tools)
    assert all(f'"name": "{f["name"]}"' in rendered or f'"name":"{f["name"]}"' in rendered for f in odd)
    assert count(echo, [U("hi")], tools=tools, tool_choice="auto") > count(echo, [U("hi")])
    assert count(echo, [U("hi")], tools=[], tool_choice="auto") == count(echo, [U("hi")])
    assert count(echo, [U("hi")], tools=tools, tool_choice="required") == count(echo, [U("hi")], tools=tools)


# ---- T32, T33, T34: roles and orders ----

def test_system_messages_anywhere_are_merged_in_order(echo):
    for messages in ([S("one"), S("two"), U("hi")], [S("one"), U("u"), S("two")], [U("hi"), A("x"), S("one"), S("two"), U("go")]):
        rendered = prompt(echo, messages)
        assert rendered.index("one") < rendered.index("two") and rendered.count("<|im_start|>system") == 1
        assert count(echo, messages) > 0
    answer = echo.post(M, {"messages": [S("only")], "max_tokens": 1})
    assert answer.status_code == 200 or (answer.status_code == 400 and answer.json()["error"]["message"])


def test_developer_is_system(echo):
    def D(text):
        return {"role": "developer", "content": text}

    assert prompt(echo, [D("KELP"), U("x")]) == prompt(echo, [S("KELP"), U("x")])
    assert prompt(echo, [D("a"), S("b"), U("x")]) == prompt(echo, [S("a"), S("b"), U("x")])
    assert prompt(echo, [U("x"), A("y"), D("a"), U("z")]) == prompt(echo, [U("x"), A("y"), S("a"), U("z")])
    for role in ("function", "critic", 7, "", None):
        answer = echo.post(M, {"messages": [U("x"), {"role": role, "content": "y"}]})
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("messages[1]"), answer.text
    answer = echo.post(M, {"messages": [U("x"), {"content": "y"}]})
    assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("messages[1]")


@pytest.mark.parametrize("messages", [
    [S("s"), A("x")], [S("s"), A(tool_calls=[call("{}")]), {"role": "tool", "tool_call_id": "c1", "content": "r"}], [A("x")],
    [U("<tool_response>x</tool_response>")], [U("")], [U("   ")], [S("s"), U("")],
])
@pytest.mark.parametrize("stream", [False, True])
def test_lists_without_a_real_user_turn_are_never_a_500(echo, messages, stream):
    answer = echo.post(M, {"messages": messages, "max_tokens": 1, "stream": stream})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.headers["content-type"] == "application/json" and answer.json()["error"]["message"]


def test_tool_loop_without_a_user_turn_answers(echo):
    messages = [S("s"), A(tool_calls=[call("{}")]), {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    assert count(echo, messages, tools=[GLUE]) > 0


def test_no_messages_is_400(echo):
    for messages in ([], None, "absent"):
        body = {"max_tokens": 1} if messages == "absent" else {"messages": messages, "max_tokens": 1}
        answer = echo.post(M, body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages"


# ---- T31: the last message is the assistant's ----

@pytest.mark.parametrize("thinking", [True, False])
def test_trailing_assistant_message(echo, thinking):
    plain = prompt(echo, [U("5-2=?")], enable_thinking=thinking)
    assert prompt(echo, [U("5-2=?"), A("")], enable_thinking=thinking) == plain
    rendered = prompt(echo, [U("5-2=?"), A("That makes")], enable_thinking=thinking)
    assert rendered.endswith("That makes") and rendered.count("<think>") == rendered.count("</think>")
    same = prompt(echo, [U("5-2=?"), A("That makes")], enable_thinking=thinking, continue_final_message=True, add_generation_prompt=False)
    assert same == rendered
    answer = echo.post(M, {"messages": [U("5-2=?"), A("That makes")], "enable_thinking": thinking, "max_tokens": 3})
    assert answer.status_code == 200
    # What follows continues the message: it is content, not reasoning.
    assert "reasoning_content" not in answer.json()["choices"][0]["message"]


# ---- T36: pictures and sounds ----

@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}},
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, {"type": "file", "file": {"file_id": "x"}},
    {"type": "video_url", "video_url": {"url": "x"}}, {"type": "image"},
])
def test_parts_that_are_no_text_are_refused(echo, part):
    answer = echo.post(M, {"messages": [U([{"type": "text", "text": "Describe"}, part])]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages[0].content[1]") and "text" in answer.json()["error"]["message"]


def test_a_picture_in_a_tool_result_has_a_placeholder(echo):
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}, {"type": "text", "text": "done"}]
    rendered = prompt(echo, glued("{}", result=picture), tools=[GLUE])
    assert "omitted" in rendered and "done" in rendered and "iVBOR" not in rendered


# ---- message text is text ----

SPELLINGS = ["<|im_end|>", "<|im_start|>system", "<think>", "</think>", "<|endoftext|>", "<tool_call>", "<|im_", "end|>", "<|vision_start|>"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelled_control_tokens_in_messages_stay_text(echo, spelling):
    control = {t for t in echo.post("/tokenize", {"content": "".join(SPELLINGS)}).json()["tokens"] if t < 8 or t >= 1018}
    plain = echo.post("/tokenize", {"messages": [S("s"), U("a"), A("b"), U("c")]}).json()["tokens"]
    for messages in ([S(spelling), U("a"), A("b"), U("c")], [S("s"), U(spelling), A("b"), U("c")], [S("s"), U("a"), A("b"), U(f"x{spelling}y")]):
        ids = echo.post("/tokenize", {"messages": messages}).json()["tokens"]
        assert [t for t in ids if t in control] == [t for t in plain if t in control], messages
        assert spelling in echo.post("/detokenize", {"tokens": ids}).json()["content"]


def test_completions_take_control_tokens(echo):
    ids = echo.post("/tokenize", {"prompt": "<|im_start|>user"}).json()["tokens"]
    assert ids[0] == 2
    text = echo.post("/tokenize", {"content": "<|im_start|>user", "parse_special": False}).json()["tokens"]
    assert 2 not in text


# ---- tokenize, detokenize ----

def test_tokens_and_text_round_trip(echo):
    for text in ("hello", "", "  two  spaces\n\n", "é漢字🦓", "a\tb", "<think>x</think>"):
        tokens = echo.post("/tokenize", {"content": text, "with_pieces": True}).json()
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["pieces"])
        assert echo.post("/detokenize", {"tokens": tokens["tokens"]}).json()["content"] == text
    for body in ({}, {"content": 5}, {"tokens": [1]}):
        assert echo.post("/tokenize", body).status_code == 400
    for tokens in ([-1], [1024], ["x"], "x", None, [1.5]):
        answer = echo.post("/detokenize", {"tokens": tokens})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "tokens"
