"""What is asked: everything is drawn from a generator with a seed, so that number 4711 of seed 1 is always the same.

A script is what one client does: one request, a conversation, a client that leaves, or a request that is wrong."""

import json
import random

U = "user"
WORDS = ("the river stone cloud over under seven apple glass window quiet morning letters of a tall tree é漢字 🦓 naïve "
         "count 1 2 3 4 5 <think> </think> <|im_end|> <tool_call> `code` **bold** \\n \"quoted\" {json} e\u0301 zz").split(" ")
TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "move", "description": "漢 <|im_end|>", "parameters": {"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99}, "to": {"enum": ["a", "b"], "type": "string"},
        "deep": {"type": "object", "properties": {"x": {"type": ["number", "null"]}}}}, "required": ["n", "to"]}}},
    {"type": "function", "function": {"name": "flag", "strict": True, "parameters": {"type": "object", "properties": {
        "on": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}, "required": ["on"]}}},
]
SCHEMAS = [
    {"type": "object", "properties": {"colour": {"enum": ["red", "blue", 3, None]}, "n": {"type": "integer", "minimum": 1, "maximum": 5}},
     "required": ["colour", "n"], "additionalProperties": False},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 4},
    {"$defs": {"N": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9}, "kids": {
        "type": "array", "items": {"$ref": "#/$defs/N"}, "maxItems": 2}}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/N"},
    {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}, {"const": {"a": 1}}]},
    {"type": "string", "pattern": "^[a-f]{2,4}$"},
    {"type": "number", "minimum": -2, "maximum": 2.5},
]
GRAMMARS = ["start: \"ab\" \"c\"\n", "start: word (\" \" word)* \".\"\nword: /[a-z]{1,4}/\n", "start: \"(\" start \")\" | \"x\"\n"]
EXPRESSIONS = ["[a-c]{3}-[0-9]", "(yes|no)!?", "\\d{1,4}", "[^a]{5}"]
SNIPPETS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<function=write>", "<function=now>", "</function>", "<parameter=path>",
            "<parameter=content>", "</parameter>", "\n", "\n\n", " ", "text", "a.txt", "é", "漢字", "🦓", "{\"a\":1}", "`", "```", "<", ">",
            "</", "<parameter", "=", "<tool_call>\n<function=write>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>",
            "Use the `</think>` tag.", "<|im_end|>", "<|im_start|>", "I will look.\n\n"]


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def system_prompts(seed):
    """Few and long ones, so that requests begin alike."""
    rng = random.Random(f"system {seed}")
    return [words(rng, 2, 24) for _ in range(4)]


def maybe(rng, share, body, field, values):
    if rng.random() < share:
        body[field] = rng.choice(values) if isinstance(values, list) else values(rng)


def sampling(rng, body):
    """Parameters that both routes have."""
    body["max_tokens"] = rng.choice([1, 2, 4, 8, 8, 12, 16, 32])
    body["seed"] = rng.choice([rng.randint(-(2**63), 2**63 - 1), rng.randint(0, 50)])
    if body["seed"] == -1:
        body["seed"] = 1
    maybe(rng, 0.7, body, "temperature", [0, 0, 0.2, 0.7, 1, 1.0, 1.6, 2])
    maybe(rng, 0.3, body, "top_p", [0, 0.1, 0.5, 0.9, 1])
    maybe(rng, 0.3, body, "top_k", [-1, 0, 1, 5, 40, 2147483647])
    maybe(rng, 0.2, body, "min_p", [0, 0.05, 0.5, 1])
    maybe(rng, 0.2, body, "presence_penalty", lambda r: round(r.uniform(-2, 2), 2))
    maybe(rng, 0.2, body, "frequency_penalty", lambda r: round(r.uniform(-2, 2), 2))
    maybe(rng, 0.2, body, "repetition_penalty", lambda r: round(r.uniform(0.5, 2), 2))
    maybe(rng, 0.25, body, "stop", ["e", ["th", "a"], [" "], ["\n", "é"], "zzz", ["</think>", "<tool"], ["ab", "abc", "b"]])
    maybe(rng, 0.1, body, "stop_token_ids", lambda r: r.sample(range(1024), r.randint(0, 5)))
    maybe(rng, 0.15, body, "logit_bias", lambda r: {str(i): r.choice([-100, -1.5, 3, 100]) for i in r.sample(range(1024), r.randint(0, 6))})
    maybe(rng, 0.4, body, "ignore_eos", [True, True, False])
    maybe(rng, 0.15, body, "n", [1, 2, 3])
    maybe(rng, 0.1, body, "priority", [-2, 0, 1, 2])
    maybe(rng, 0.05, body, "user", ["somebody"])
    maybe(rng, 0.05, body, "metadata", [{"a": "b"}])
    maybe(rng, 0.05, body, "zz_unknown", [[1, {"x": None}]])
    if rng.random() < 0.5:
        body["stream"] = True
        maybe(rng, 0.7, body, "stream_options", [{"include_usage": True}, {"include_usage": True}, {}, {"include_usage": False}])


def form(rng, body):
    """The answer's form, in one of its spellings."""
    which = rng.randrange(8)
    schema = rng.choice(SCHEMAS)
    if which == 0:
        body["response_format"] = {"type": "json_object"}
    elif which == 1:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    elif which == 2:
        body["guided_json"] = rng.choice([schema, json.dumps(schema)])
    elif which == 3:
        body["guided_regex"] = rng.choice(EXPRESSIONS)
    elif which == 4:
        body["guided_choice"] = rng.choice([["yes", "no"], ["left", "right", "é漢"]])
    elif which == 5:
        body["guided_grammar"] = rng.choice(GRAMMARS)
    elif which == 6:
        body["structured_outputs"] = rng.choice([{"json": schema}, {"regex": "[0-9]+x"}, {"choice": ["a b", "c"]}, {"json_object": True}])
    else:
        body["response_format"] = {"type": "text"}


def tools(rng, body):
    body["tools"] = rng.sample(TOOLS, rng.choice([1, 1, 1, 1, 2, 4]))
    name = rng.choice(body["tools"])["function"]["name"]
    maybe(rng, 0.7, body, "tool_choice", ["auto", "none", "required", "required", {"type": "function", "function": {"name": name}}])
    maybe(rng, 0.4, body, "parallel_tool_calls", [True, False])


def thinking(rng, body):
    maybe(rng, 0.7, body, "enable_thinking", [True, False])
    maybe(rng, 0.1, body, "chat_template_kwargs", [{"enable_thinking": False}, {"enable_thinking": True, "thinking_budget": 3}])
    maybe(rng, 0.1, body, "reasoning_effort", ["none", "low", "high"])
    maybe(rng, 0.3, body, "thinking_budget", [-1, 0, 1, 4, 64])


def message(rng, role=U):
    if rng.random() < 0.15:
        return {"role": role, "content": [{"type": "text", "text": words(rng, 1, 3)} for _ in range(rng.randint(1, 3))]}
    return {"role": role, "content": words(rng, 0, 8)}


def chat(rng, systems):
    """A chat request with all of its parameters drawn."""
    body = {"messages": []}
    if rng.random() < 0.7:
        body["messages"].append({"role": rng.choice(["system", "system", "developer"]), "content": rng.choice(systems)})
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        body["messages"] += [message(rng), {"role": "assistant", "content": words(rng, 1, 6)}]
    body["messages"].append(message(rng))
    if rng.random() < 0.05:
        body["messages"].append({"role": "assistant", "content": rng.choice(["", "That makes"])})
    chat_parameters(rng, body)
    return body


def chat_parameters(rng, body):
    sampling(rng, body)
    if rng.random() < 0.15:
        tools(rng, body)
    if rng.random() < 0.25:
        form(rng, body)
    thinking(rng, body)
    if rng.random() < 0.2:
        body["logprobs"] = True
        maybe(rng, 0.7, body, "top_logprobs", [0, 1, 5, 20])
    if rng.random() < 0.3:
        body["max_completion_tokens"] = body["max_tokens"] if rng.random() < 0.5 else body.pop("max_tokens")


def completion(rng, systems):
    body = {}
    which = rng.randrange(5)
    if which == 0:
        body["prompt"] = [rng.randrange(1024) for _ in range(rng.randint(1, 80))]
    elif which == 1:
        body["prompt"] = [rng.choice(systems) + words(rng, 0, 5), words(rng, 1, 9)]
    else:
        body["prompt"] = rng.choice(systems) + words(rng, 1, 8)
    sampling(rng, body)
    if rng.random() < 0.15:
        form(rng, body)
    maybe(rng, 0.25, body, "logprobs", [0, 1, 5])
    maybe(rng, 0.15, body, "echo", [True])
    if body.get("echo"):
        maybe(rng, 0.3, body, "max_tokens", [0])
    return body


def soup(rng):
    """A message for the server without a model: the answer is this text, as if a model had said it."""
    body = {"messages": [{"role": U, "content": "".join(rng.choice(SNIPPETS) for _ in range(rng.randint(0, 25)))}]}
    body["max_tokens"] = rng.choice([3, 10, 40, 400])
    maybe(rng, 0.7, body, "enable_thinking", [True, False])
    maybe(rng, 0.6, body, "tools", [TOOLS, TOOLS[:1], []])
    maybe(rng, 0.2, body, "tool_choice", ["auto", "none"])
    maybe(rng, 0.2, body, "parallel_tool_calls", [False])
    maybe(rng, 0.3, body, "stop", ["e", ["text", "\n\n"], ["</parameter>"], ["🦓"], ["I will look.\n\n<"]])
    maybe(rng, 0.2, body, "logprobs", [True])
    return body


# ---- requests that are wrong ----

WRONG = {
    "temperature": ["1", [], {}, True, -0.1, 2.1, 1e300], "top_p": ["x", -1, 1.5], "top_k": [1.5, "3", -2, 2**40], "min_p": [-1, 2, []],
    "presence_penalty": [3, "0", -2.5], "frequency_penalty": [{}, 9], "repetition_penalty": [0, -1, 11, "1"], "seed": ["a", 1.5, 1e30, []],
    "stop": [5, [""], "", [None], ["a"] * 65, {"a": 1}], "logit_bias": [[], {"x": 1}, {"1": "a"}, {"1": 101}, {"-1": 1}, {"1024": 1}],
    "n": [0, -1, 1.5, "2", 10**6], "max_tokens": [-1, 1.5, "8", 2**40, []], "stream": [1, "true", []],
    "stream_options": [5, [], {"include_usage": 1}], "ignore_eos": [1, "x"], "priority": ["x", 0.5, 2**40], "user": [5, []],
    "metadata": ["x", []], "response_format": ["json", {"type": "xml"}, {"type": "json_schema"}, []], "guided_regex": ["(", "", 5],
    "guided_grammar": ["start: nowhere", 5, ""], "guided_choice": [[], "a", [5]], "guided_json": [5, [], "{", {"type": "strin"}],
    "structured_outputs": [5, {"json": 5}, {"regex": "["}], "best_of": [2, 0, "x"], "stop_token_ids": [[-1], [1024], "x", [1] * 100],
    "model": [5, []],
}
WRONG_CHAT = {
    "messages": [5, "x", [], {}, [5], [{}], [{"role": "critic", "content": "x"}], [{"role": U, "content": 5}],
                 [{"role": U, "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]],
    "tools": [5, "x", [5], [{"type": "function"}], [{"type": "function", "function": {"name": 5}}]],
    "tool_choice": [5, "sometimes", {"type": "function"}], "enable_thinking": [1, "x"], "thinking_budget": [-2, "x", 1.5],
    "reasoning_effort": ["extreme", 5], "chat_template_kwargs": [5, {"enable_thinking": "x"}], "logprobs": [5, "x"],
    "parallel_tool_calls": [5, "x"], "functions": [[{"name": "f"}]], "audio": [{"voice": "x"}],
}
WRONG_COMPLETION = {"prompt": [5, {}, [], [[]], [[-1]], [[1024]], ["a", 5], [1, "a"], [1.5]], "suffix": ["x"], "logprobs": [21, -1, "x", True],
                    "echo": [5, "x"]}

WIRE = [  # bytes, status
    (b"GET /health\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400), (b"\x00\x00\x00", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    (b"POST /v1/no/such HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 404),
    (b"GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
]


def encode(body):
    return json.dumps(body).encode()


def post(path, data):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


def wrong_field(rng, chat_route):
    table = {**WRONG, **(WRONG_CHAT if chat_route else WRONG_COMPLETION)}
    field = rng.choice(sorted(table))
    return field, rng.choice(table[field])


def wrong(rng, systems, max_body, context):
    """The bytes of a request that must be refused, the statuses that say so, and the field that `param` must begin with, if any."""
    chat_route = rng.random() < 0.6
    path = "/v1/chat/completions" if chat_route else "/v1/completions"
    body = {"messages": [message(rng)], "max_tokens": 2} if chat_route else {"prompt": words(rng, 1, 5), "max_tokens": 2}
    which = rng.randrange(10)
    if which <= 3:
        field, value = wrong_field(rng, chat_route)
        body[field] = value
        if field == "stream_options":
            body["stream"] = True
        return post(path, encode(body)), (404,) if False else (400,), field
    if which == 4:
        data = encode(chat(rng, systems))
        return post(path, data[:rng.randrange(len(data))]), (400,), None
    if which == 5:
        bad = rng.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe6\xbc", b"\x80", b"\\u0000", b"\x00", b"\x1f"])
        data = encode(body)
        at = data.rindex(b'"', 0, data.rindex(b'"max_tokens'))
        return post(path, data[:at] + bad + data[at:]), (400,), None
    if which == 6:
        return post(path, encode({**body, "pad": "x" * max_body})), (413,), None
    if which == 7:
        ids = [5] * rng.choice([context, context + 1, 3 * context])
        return post("/v1/completions", encode({"prompt": ids, "stream": rng.random() < 0.5})), (400,), "prompt"
    if which == 8:
        deep = rng.choice([129, 5000, 60_000])
        return post(path, encode(body)[:-1] + b',"zz":' + b"[" * deep + b"]" * deep + b"}"), (400,), None
    data, status = rng.choice(WIRE)
    return data, (status,), None
