"""Answers that keep a form, from a model that babbles: whatever it would say, what comes out is valid (T16, T20, T22, T24)."""

import json
import re
import threading
import time

import pytest

from conftest import SLOWDOWN, events, serving

M = "/v1/chat/completions"
COLOURS = {
    "$defs": {"C": {"enum": ["red", "blue", 3, None]}},
    "type": "object",
    "properties": {"colour": {"$ref": "#/$defs/C"}, "n": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "move", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "to": {"enum": ["a", "b"], "type": "string"}},
        "required": ["n", "to"]}}},
    {"type": "function", "function": {"name": "now"}},
]


def ask(server, thinking=False, **more):
    body = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 200, "temperature": 1, "seed": 5,
            "enable_thinking": thinking, **more}
    answer = server.post(M, body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_kept(server, seed):
    choice = ask(server, seed=seed, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": COLOURS}})
    assert choice["finish_reason"] == "stop"
    value = json.loads(choice["message"]["content"])
    assert value["colour"] in ["red", "blue", 3, None] and value["n"] in range(1, 6) and len(value) == 2


def test_expressions_choices_and_both_spellings(server):
    assert re.fullmatch("[a-c]{3}-[0-9]", ask(server, guided_regex="[a-c]{3}-[0-9]")["message"]["content"])
    assert ask(server, guided_choice=["yes", "no"])["message"]["content"] in ("yes", "no")
    assert ask(server, structured_outputs={"choice": ["left"]})["message"]["content"] == "left"
    assert ask(server, guided_json={"enum": [17]})["message"]["content"].strip() == "17"
    assert ask(server, guided_grammar="start: \"ab\" \"c\"\n")["message"]["content"] == "abc"


def test_the_form_holds_from_the_end_of_the_thought(server):
    choice = ask(server, thinking=True, thinking_budget=6, guided_choice=["yes"], max_tokens=60)
    assert choice["message"]["content"] == "yes" and choice["finish_reason"] == "stop"


def test_choices_have_their_own_form(server):
    body = {"messages": [{"role": "user", "content": "go"}], "n": 3, "temperature": 1, "seed": 1, "max_tokens": 60,
            "enable_thinking": False, "guided_regex": "[a-z]{6}"}
    texts = [c["message"]["content"] for c in server.post(M, body).json()["choices"]]
    assert all(re.fullmatch("[a-z]{6}", t) for t in texts) and len(set(texts)) > 1


def test_a_call_is_made_when_it_is_demanded(server):
    choice = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    call = choice["message"]["tool_calls"][0]["function"]
    assert choice["finish_reason"] == "tool_calls" and call["name"] in ("move", "now")
    choice = ask(server, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "move"}}, parallel_tool_calls=False)
    arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
    assert arguments["n"] in range(10) and arguments["to"] in ("a", "b") and choice["message"]["content"] is None


@pytest.mark.parametrize("fields, param", [
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://example.org/a"}}}}, "response_format"),
    ({"guided_regex": "a(b"}, "guided_regex"), ({"guided_grammar": "start: nowhere"}, "guided_grammar"),
    ({"guided_choice": []}, "guided_choice"), ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"), ({"guided_regex": "a", "guided_choice": ["a"]}, None),
])
def test_what_cannot_be_enforced_is_refused_before_the_answer(server, fields, param):
    answer = server.post(M, {"messages": [{"role": "user", "content": "go"}], "max_tokens": 5, **fields})
    assert answer.status_code == 400, answer.text
    assert param is None or answer.json()["error"]["param"] == param
    server.healthy()


@pytest.mark.parametrize("schema, says", [
    ({"type": "array", "uniqueItems": True}, 'schema: "uniqueItems": not supported'),
    ({"properties": {"q": {"items": {"if": {}, "then": {}}}}}, 'schema: properties.q.items: "if", "then": not supported'),
    ({"anyOf": [{"type": "null"}, {"not": {}}]}, 'schema: anyOf[1]: "not": not supported'),
    ({"properties": {"oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}, 'schema: properties.oneOf: "oneOf": not supported'),
    ({"$defs": {"a": {"type": "string", "format": "no-such"}}, "$ref": "#/$defs/a"}, 'schema: $defs.a: "format": "no-such" is not supported'),
    ({"type": "string", "pattern": "(?=a)b"}, "schema: pattern: look-around"),
])
def test_keywords_that_are_not_supported_are_named_with_their_place(server, schema, says):
    answer = server.post(M, {"messages": [{"role": "user", "content": "go"}], "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "unsupported" and error["param"] == "response_format", answer.text
    assert error["message"].startswith(says), error


def test_deep_schemas_are_refused_in_no_time(server):
    deep = {}
    for _ in range(90):
        deep = {"type": "array", "items": deep}
    answer = server.post(M, {"messages": [{"role": "user", "content": "go"}],
                             "response_format": {"type": "json_schema", "json_schema": {"schema": deep}}})
    assert answer.status_code == 400
    server.healthy()


def test_excessive_expressions_and_schemas_are_refused_in_no_time(server):
    """T24: patterns and schemas whose depth would take a stack, in every place that takes one."""
    deep = "[" * 20000 + "]" * 20000
    body = '{"messages":[{"role":"user","content":"go"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"enum":%s}}}}' % deep
    many = "(" * 60000
    bodies = [body.encode()] + [json.dumps({"messages": [{"role": "user", "content": "go"}], **fields}).encode() for fields in (
        {"guided_regex": many}, {"guided_regex": many + "a" + ")" * 60000}, {"guided_grammar": "start: " + many},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": many}}}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string", "pattern": "^" + many + "$"}}}}}],
         "tool_choice": "required"})]
    for data in bodies:
        start = time.monotonic()
        answer = server.post(M, content=data, headers={"Content-Type": "application/json"})
        taken = time.monotonic() - start
        assert answer.status_code == 400 and answer.json()["error"]["message"], (data[:200], answer.text[:300])
        assert taken < 3 * SLOWDOWN, (data[:200], taken)
    server.healthy()


def test_the_first_structured_answer_finds_the_vocabulary_made():
    """It takes seconds for a large one: it is made behind the start, unasked."""
    with serving("--log-level", "debug") as server:
        until = time.monotonic() + 10 * SLOWDOWN
        while "ready for structured output" not in server.stderr():
            assert time.monotonic() < until, server.stderr()
            time.sleep(0.02)


def ambiguous(alternative, n):
    """A small grammar whose steps take seconds: every way to read what is there is followed, and nothing but z ends it."""
    rules = "".join(f" | {alternative} a{i}" for i in range(n))
    return f'start: s "z"\ns: "x"{rules}\n' + "".join(f'a{i}: "x"? "y"?\n' for i in range(n))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hostile_grammar_ends_in_an_error_and_delays_nobody(server, stream):
    """Its steps are cut off; meanwhile and behind it others are served."""
    never = server.post("/tokenize", {"prompt": "z"}).json()["tokens"]
    results = []

    def hostile(grammar):
        results.append(server.post(M, {"messages": [{"role": "user", "content": "go"}], "guided_grammar": grammar, "max_tokens": 1000, "temperature": 1,
                                       "enable_thinking": False, "stream": stream, "logit_bias": {str(never[0]): -100}}))

    threads = [threading.Thread(target=hostile, args=[ambiguous(*case)]) for case in (("s s", 60), ("s", 800), ("s", 900))]
    for thread in threads:
        thread.start()
    slowest = 0
    while any(thread.is_alive() for thread in threads):
        begin = time.monotonic()
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 3}).status_code == 200
        slowest = max(slowest, time.monotonic() - begin)
    for thread in threads:
        thread.join()
    assert slowest < 15 * SLOWDOWN, f"a small request took {slowest:.1f} s"
    assert len(results) == 3
    for answer in results:
        if stream and answer.status_code == 200:
            chunks, done = events(answer.content)
            assert done and "form" in chunks[-1]["error"]["message"]
            assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])
        else:
            assert answer.status_code in (400, 500), answer.text
            assert answer.status_code == 400 or "form" in answer.json()["error"]["message"]
    assert any(answer.status_code != 400 for answer in results)
    server.healthy()


def test_a_grammar_cannot_name_tokens(server):
    for grammar in ("start: <tool_call>", 'start: "a" <think>', "start: <[3]>"):
        answer = server.post(M, {"messages": [{"role": "user", "content": "go"}], "max_tokens": 5, "guided_grammar": grammar})
        assert answer.status_code == 400 and "token" in answer.json()["error"]["message"], answer.text
