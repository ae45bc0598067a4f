"""Every parameter: wrong values name their field before any work, right ones act on both routes."""

import json

import pytest

from conftest import events

USER = [{"role": "user", "content": "Say something."}]
CHAT = {"messages": USER, "max_tokens": 8}
TEXT = {"prompt": "the", "max_tokens": 8}


def refused(server, path, body, param, status=400, code=None):
    answer = server.post(path, body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["param"] == param, error
    if code:
        assert error["code"] == code


WRONG = [
    ("temperature", [-0.1, 2.1, 1e300, "1", True, [], {}]), ("top_p", [-0.1, 1.1, "1"]), ("min_p", [-0.1, 1.1, "x"]),
    ("top_k", [-2, 1.5, "5", 2**40]), ("presence_penalty", [-2.1, 2.1, "0"]), ("frequency_penalty", [-2.1, 2.1, None.__class__.__name__]),
    ("repetition_penalty", [0, -1, 11, "1"]), ("seed", [1.5, "1", 10**30]), ("n", [0, -1, 1.5, "2", 129, True]),
    ("best_of", [0, 2, "1"]), ("max_tokens", [-1, 1.5, "7", 10**12, False]), ("stop", ["", ["a", ""], [1], 1, {}, ["x"] * 65]),
    ("logit_bias", [[], {"x": 1}, {"1": 101}, {"1": "1"}, {"-1": 1}, {"1024": 1}]), ("stream", ["true", 1]),
    ("stream_options", [{"include_usage": True}]), ("priority", ["x", 1.5, 2**40]), ("ignore_eos", ["x"]),
    ("response_format", [{"type": "yaml"}, "text", {}, {"type": "json_schema"}]),
    ("guided_json", [5, []]), ("guided_regex", [5, ""]), ("guided_grammar", [5]), ("structured_outputs", ["x", []]),
    ("user", [5]), ("metadata", ["x"]),
]
WRONG_CHAT = [
    ("logprobs", [1, "true"]), ("top_logprobs", [-1, 21, "5", 5]), ("max_completion_tokens", [0, -5, "7"]), ("max_tokens", [0]),
    ("enable_thinking", ["false", 0]), ("thinking_budget", ["x", -2, 1.5]), ("reasoning_effort", ["extreme", 1]),
    ("chat_template_kwargs", [[], {"enable_thinking": "no"}]), ("tool_choice", ["required", "any", 5, {"type": "function", "function": {"name": "f"}}]),
    ("parallel_tool_calls", ["x"]), ("functions", [[{}]]), ("function_call", ["auto"]), ("audio", [{"voice": "x"}]),
    ("continue_final_message", ["x"]), ("messages", ["hi", {}, 5, [], [5], [[]]]), ("tools", ["x", {}, [5]]),
]
WRONG_TEXT = [
    ("logprobs", [True, -1, 21, "5"]), ("max_tokens", [0]), ("echo", ["x", 1]), ("suffix", ["tail"]),
    ("prompt", [5, {}, [], "", [[]], ["a", 5], [1, "a"], [1024], [-1], [1.5], [[1], "a", None]]),
]


@pytest.mark.parametrize("param, values", WRONG + WRONG_CHAT)
def test_wrong_values_name_their_field_in_chat(echo, param, values):
    for value in values:
        answer = echo.post("/v1/chat/completions", {**CHAT, param: value})
        assert answer.status_code == 400, (param, value, answer.text)
        named = answer.json()["error"]["param"]
        assert named.split("[")[0].split(".")[0] == param, (value, answer.text)


@pytest.mark.parametrize("param, values", WRONG + WRONG_TEXT)
def test_wrong_values_name_their_field_in_completions(echo, param, values):
    for value in values:
        answer = echo.post("/v1/completions", {**TEXT, param: value})
        assert answer.status_code == 400, (param, value, answer.text)
        named = answer.json()["error"]["param"]
        assert named.split("[")[0].split(".")[0] == param, (value, answer.text)


def test_null_is_absent_and_unknown_fields_are_ignored(echo):
    names = [p for p, _ in WRONG + WRONG_CHAT if p != "messages"]
    assert echo.post("/v1/chat/completions", {**CHAT, **dict.fromkeys(names)}).status_code == 200
    assert echo.post("/v1/chat/completions", {**CHAT, "no_such": {"a": [1]}, "store": True, "service_tier": "auto"}).status_code == 200
    names = [p for p, _ in WRONG + WRONG_TEXT if p != "prompt"]
    assert echo.post("/v1/completions", {**TEXT, **dict.fromkeys(names)}).status_code == 200


def test_ends_of_the_ranges_are_in(server):
    for body in ({"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_p": 1}, {"min_p": 1}, {"top_k": -1}, {"top_k": 1},
                 {"presence_penalty": 2}, {"frequency_penalty": -2}, {"repetition_penalty": 10}, {"seed": -(2**63)},
                 {"logit_bias": {"0": -100, "1023": 100}}, {"stop": ["x"] * 64}, {"priority": -5}, {"max_tokens": 7.0},
                 {"n": 1, "best_of": 1}):
        assert server.post("/v1/completions", {**TEXT, **body}).status_code == 200, body


@pytest.mark.parametrize("limits, expected", [
    ({"max_completion_tokens": 7}, 7), ({"max_tokens": 7}, 7), ({"max_completion_tokens": 7, "max_tokens": 9}, 7),
    ({"max_completion_tokens": 9, "max_tokens": 7}, 7),
])
def test_the_smaller_of_two_limits_counts(server, limits, expected):
    body = {"messages": USER, "temperature": 0, "ignore_eos": True, **limits}
    answer = server.post("/v1/chat/completions", body).json()
    assert answer["usage"]["completion_tokens"] == expected and answer["choices"][0]["finish_reason"] == "length"


def test_without_a_limit_the_context_is_it(server):
    answer = server.post("/v1/completions", {"prompt": [5] * 2000, "ignore_eos": True, "temperature": 0}).json()
    assert answer["usage"]["completion_tokens"] == 48 and answer["choices"][0]["finish_reason"] == "length"
    answer = server.post("/v1/completions", {"prompt": [5] * 2038, "ignore_eos": True, "max_tokens": 100, "temperature": 0}).json()
    assert answer["usage"]["completion_tokens"] == 10 and answer["choices"][0]["finish_reason"] == "length"


def tokens(server, **options):
    body = {"prompt": "drum drum drum drum drum", "max_tokens": 40, "temperature": 0, "logprobs": 5, "ignore_eos": True, **options}
    choice = server.post("/v1/completions", body).json()["choices"][0]
    return choice["logprobs"]["tokens"], choice["logprobs"]


MUCH = {str(i): 50 for i in range(60, 72)}  # an answer of these alone repeats itself


def test_what_penalties_count(server):
    plain, first = tokens(server, logit_bias=MUCH)
    for options in ({"presence_penalty": 2}, {"frequency_penalty": 2}):
        some, logprobs = tokens(server, **options, logit_bias=MUCH)
        assert logprobs["top_logprobs"][0] == first["top_logprobs"][0]  # raw: before penalties
        assert some[0] == plain[0]  # the prompt does not count
        assert some != plain, options
    assert len(set(tokens(server, frequency_penalty=2, logit_bias=MUCH)[0])) > len(set(plain))

def test_repetition_counts_the_prompt_and_presence_does_not(server):
    flipped = 0
    for one in range(60, 72):
        bias = {str(one): 60, "300": 60}  # one of the two comes, by their own logits
        common = {"prompt": [one] * 5, "logit_bias": bias, "max_tokens": 1}
        plain = tokens(server, **common)[0]
        assert tokens(server, presence_penalty=2, frequency_penalty=2, **common)[0] == plain
        flipped += tokens(server, repetition_penalty=10, **common)[0] != plain
    assert flipped > 0


def test_penalties_act_alike_on_chat(server):
    def chat(**options):
        body = {"messages": USER, "temperature": 0, "max_tokens": 40, "logprobs": True, "ignore_eos": True, "logit_bias": MUCH, **options}
        entries = server.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
        return [e["token"] for e in entries]

    plain = chat()
    assert len(plain) == 40
    for options in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 1.5}):
        assert chat(**options) != plain, options
        assert chat(**options, enable_thinking=False) != chat(enable_thinking=False), options


def test_logit_bias_bans_and_forces(server):
    plain = server.post("/v1/completions", {**TEXT, "temperature": 0, "logprobs": 1}).json()
    forced = server.post("/v1/completions", {**TEXT, "temperature": 0, "logit_bias": {"65": 100}}).json()
    piece = server.post("/detokenize", {"tokens": [65]}).json()["content"]
    assert forced["choices"][0]["text"] == piece * 8
    name = plain["choices"][0]["logprobs"]["tokens"][0]
    ids = server.post("/tokenize", {"content": name}).json()["tokens"]
    if len(ids) == 1:
        banned = server.post("/v1/completions", {**TEXT, "temperature": 0, "logprobs": 1, "logit_bias": {str(ids[0]): -100}}).json()
        assert banned["choices"][0]["logprobs"]["tokens"][0] != name


def test_seed_repeats_and_choices_differ(server):
    body = {"prompt": "the", "max_tokens": 12, "temperature": 1, "top_k": 0, "top_p": 1, "seed": 1, "n": 3, "ignore_eos": True}
    first = server.post("/v1/completions", body).json()
    again = server.post("/v1/completions", body).json()
    texts = [c["text"] for c in first["choices"]]
    assert [c["index"] for c in first["choices"]] == [0, 1, 2] and len(set(texts)) == 3
    assert texts == [c["text"] for c in again["choices"]]
    assert first["usage"]["completion_tokens"] == 36
    single = server.post("/v1/completions", {**body, "n": 1}).json()
    assert single["choices"][0]["text"] == texts[0] and single["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    other = server.post("/v1/completions", {**body, "seed": 2}).json()
    assert not set(texts) & {c["text"] for c in other["choices"]}
    unseeded = {**body, "n": 1}
    del unseeded["seed"]
    assert len({server.post("/v1/completions", unseeded).json()["choices"][0]["text"] for _ in range(4)}) > 1
    greedy = server.post("/v1/completions", {**body, "temperature": 0}).json()
    assert len({c["text"] for c in greedy["choices"]}) == 1


def test_n_in_chat_with_a_stop_string(server):
    body = {"messages": USER, "max_tokens": 12, "temperature": 1, "seed": 1, "n": 3, "stop": ["e"], "enable_thinking": False}
    answer = server.post("/v1/chat/completions", body).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    for choice in answer["choices"]:
        assert "e" not in choice["message"]["content"] and choice["finish_reason"] in ("stop", "length")
        assert choice["stop_reason"] == ("e" if choice["finish_reason"] == "stop" and choice["stop_reason"] else None)


def test_stop_token_ids_and_ignore_eos(server):
    greedy = server.post("/v1/completions", {"prompt": "the", "max_tokens": 20, "temperature": 0, "ignore_eos": True, "logprobs": 0}).json()
    names = greedy["choices"][0]["logprobs"]["tokens"]
    ids = server.post("/tokenize", {"content": names[3]}).json()["tokens"]
    if len(ids) == 1:
        cut = server.post("/v1/completions", {"prompt": "the", "max_tokens": 20, "temperature": 0, "ignore_eos": True,
                                              "stop_token_ids": ids}).json()
        assert cut["choices"][0]["finish_reason"] == "stop"
        assert cut["usage"]["completion_tokens"] == names.index(names[3])


def test_end_tokens_end_answers_and_are_not_in_them(server):
    for token in (1, 3):  # <|endoftext|> and <|im_end|>, from generation_config.json
        body = {"prompt": "the", "max_tokens": 5, "temperature": 0, "logit_bias": {str(token): 100}}
        answer = server.post("/v1/completions", {**body, "logprobs": 1}).json()
        assert answer["choices"][0]["text"] == "" and answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 0 and answer["choices"][0]["logprobs"]["tokens"] == []
        chat = server.post("/v1/chat/completions", {"messages": USER, "enable_thinking": False, "temperature": 0,
                                                    "logit_bias": {str(token): 100}}).json()
        assert chat["choices"][0]["message"]["content"] == "" and chat["choices"][0]["finish_reason"] == "stop"
        ignored = server.post("/v1/completions", {**body, "ignore_eos": True}).json()
        assert ignored["usage"]["completion_tokens"] == 5 and ignored["choices"][0]["finish_reason"] == "length"
        assert ignored["choices"][0]["text"] == ""  # special tokens are no text


@pytest.mark.parametrize("spelling", ["thinking_budget", "chat_template_kwargs"])
@pytest.mark.parametrize("budget", [1, 5, 64])
def test_thinking_budget_is_exact(server, spelling, budget):
    value = budget if spelling == "thinking_budget" else {"thinking_budget": budget}
    body = {"messages": USER, "temperature": 0, "max_tokens": 100, spelling: value, "logprobs": True,
            "logit_bias": {"1023": -100}}  # it would never close by itself
    answer = server.post("/v1/chat/completions", body).json()
    entries = answer["choices"][0]["logprobs"]["content"]
    details = answer["usage"]["completion_tokens_details"]
    assert [e["token"] for e in entries].index("</think>") == budget
    assert details["reasoning_tokens"] == budget == answer["usage"]["reasoning_tokens"]
    assert answer["usage"]["completion_tokens"] > budget + 1  # an answer follows


def test_thinking_budget_ends(server):
    off = server.post("/v1/chat/completions", {**CHAT, "temperature": 0, "thinking_budget": 0, "ignore_eos": True}).json()
    same = server.post("/v1/chat/completions", {**CHAT, "temperature": 0, "enable_thinking": False, "ignore_eos": True}).json()
    assert off["choices"][0]["message"] == same["choices"][0]["message"] and off["usage"] == same["usage"]
    assert off["usage"]["reasoning_tokens"] == 0 and "reasoning_content" not in off["choices"][0]["message"]
    free = server.post("/v1/chat/completions", {**CHAT, "temperature": 0, "thinking_budget": -1, "ignore_eos": True}).json()
    none = server.post("/v1/chat/completions", {**CHAT, "temperature": 0, "ignore_eos": True}).json()
    large = server.post("/v1/chat/completions", {**CHAT, "temperature": 0, "thinking_budget": 100000, "ignore_eos": True}).json()
    assert free["choices"][0]["message"] == none["choices"][0]["message"] == large["choices"][0]["message"]
    # Cut by its own limit, a thought is reasoning, and the content is empty.
    cut = server.post("/v1/chat/completions", {**CHAT, "thinking_budget": 64, "ignore_eos": True, "logit_bias": {"1023": -100}}).json()
    assert cut["choices"][0]["finish_reason"] == "length" and cut["choices"][0]["message"]["content"] == ""
    assert cut["usage"]["reasoning_tokens"] == 8 and cut["choices"][0]["message"]["reasoning_content"]


@pytest.mark.parametrize("switch", [
    {"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}, {"thinking_budget": 0},
])
def test_thinking_off_in_every_spelling(echo, switch):
    body = {"messages": [{"role": "user", "content": "YES</think>"}], **switch}
    for stream in (False, True):
        answer = echo.post("/v1/chat/completions", {**body, "stream": stream})
        assert "reasoning" not in answer.text.replace("reasoning_tokens", "")
    message = echo.post("/v1/chat/completions", body).json()
    assert message["choices"][0]["message"]["content"] == "YES</think>"
    assert message["usage"]["reasoning_tokens"] == 0


def test_echo_opens_a_thought_only_when_asked(pergola, echo):
    from conftest import serving

    body = {"messages": [{"role": "user", "content": "plan</think>done"}]}
    message = echo.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert message["content"] == "plan</think>done" and "reasoning_content" not in message
    asked = echo.post("/v1/chat/completions", {**body, "enable_thinking": True}).json()["choices"][0]["message"]
    with serving("--backend", "echo", "--thinking", "on") as server:
        told = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert all((m["reasoning_content"], m["content"]) == ("plan", "done") for m in (asked, told))


def test_server_default_for_thinking(pergola):
    from conftest import serving

    with serving("--backend", "echo", "--thinking", "off") as server:
        body = {"messages": [{"role": "user", "content": "hm"}]}
        assert server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] == "hm"
        on = server.post("/v1/chat/completions", {**body, "enable_thinking": True}).json()["choices"][0]["message"]
        assert json.dumps(on) != "" and "hm" in (on.get("reasoning_content") or "") + on["content"]


@pytest.mark.parametrize("path, body", [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
def test_prompts_longer_than_the_context(narrow, path, body):
    server = narrow
    for n, status in ((2047, 200), (2048, 400), (2049, 400), (6144, 400)):
        if "prompt" in body:
            request = {**body, "prompt": [5] * n, "ignore_eos": True}
        else:
            probe = server.post("/tokenize", {"messages": [{"role": "user", "content": ""}]}).json()["count"]
            piece = server.post("/detokenize", {"tokens": [65]}).json()["content"]
            request = {**body, "messages": [{"role": "user", "content": piece * (n - probe)}], "ignore_eos": True}
            count = server.post("/tokenize", {"messages": request["messages"]}).json()["count"]
            if count != n:
                pytest.skip("the tokenizer merges what the test repeats")
        for stream in (False, True):
            answer = server.post(path, {**request, "stream": stream})
            assert answer.status_code == status, (n, stream, answer.text[:300])
            if status == 400:
                error = answer.json()["error"]
                assert error["code"] == "context_length_exceeded" and str(n) in error["message"] and "2048" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_an_answer_is_cut_to_what_the_context_has_left(narrow, path):
    """T59: ten tokens of room for an answer of a hundred, always the same."""
    room, off = 10, {"enable_thinking": False}
    piece = narrow.post("/detokenize", {"tokens": [65]}).json()["content"]

    def counted(n):
        messages = [{"role": "user", "content": piece * n}]
        return messages, narrow.post("/tokenize", {"messages": messages, **off}).json()["count"]

    body = {"prompt": [5] * (2048 - room)}
    if "chat" in path:
        messages, n = counted(2048 - room - counted(0)[1])
        assert n == 2048 - room
        body = {"messages": messages, **off}
    for stream in (False, True):
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = narrow.post(path, {**body, "max_tokens": 100, **more})
        assert answer.status_code == 200, answer.text
        chunks = events(answer.content)[0] if stream else [answer.json()]
        finish = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
        assert finish == ["length"] and chunks[-1]["usage"]["completion_tokens"] == room
