"""The shapes of answers: logprobs, legacy completions, usage, and the OpenAI client reading all of it."""

import json
import math

import pytest

from conftest import events, joined, whole

USER = [{"role": "user", "content": "Reply with one emoji"}]


# ---- T48 ----

@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("top", [0, 5, 20])
def test_chat_logprobs(server, temperature, top):
    body = {"messages": USER, "logprobs": True, "top_logprobs": top, "temperature": temperature, "seed": 3, "max_tokens": 60,
            "top_k": 0, "top_p": 1, "ignore_eos": True}
    answer = server.post("/v1/chat/completions", body).json()
    entries = answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"] == 60
    for entry in entries:
        assert math.isfinite(entry["logprob"]) and entry["logprob"] <= 0 and entry["bytes"]
        assert entry["token"] == bytes(entry["bytes"]).decode("utf-8", "replace")
        tops = entry["top_logprobs"]
        assert len(tops) == top
        values = [t["logprob"] for t in tops]
        assert values == sorted(values, reverse=True) and all(math.isfinite(v) for v in values)
        assert len({tuple(t["bytes"]) for t in tops}) >= top - 1
        if top:
            assert entry["bytes"] in [t["bytes"] for t in tops]
    streamed = server.post("/v1/chat/completions", {**body, "stream": True})
    choices, _ = joined(events(streamed.text)[0])
    assert choices[0]["logprobs"] == entries


def test_joined_bytes_are_the_text(server):
    body = {"messages": USER, "logprobs": True, "temperature": 1, "seed": 5, "max_tokens": 80, "enable_thinking": False, "top_k": 0,
            "top_p": 1, "logit_bias": {str(i): -100 for i in [*range(8), *range(1018, 1024)]}}
    choice = server.post("/v1/chat/completions", body).json()["choices"][0]
    data = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"])
    assert data.decode("utf-8", "replace") == choice["message"]["content"]


def test_no_logprobs_unless_asked(server):
    answer = server.post("/v1/chat/completions", {"messages": USER, "max_tokens": 3}).json()
    assert answer["choices"][0]["logprobs"] is None
    answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 3}).json()
    assert answer["choices"][0]["logprobs"] is None


# ---- T49 ----

def completion(server, **body):
    answer = server.post("/v1/completions", {"max_tokens": 4, "temperature": 0, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_prompts_of_every_form(server):
    ids = server.post("/tokenize", {"content": "hello world"}).json()["tokens"]
    single = completion(server, prompt="hello world")
    assert single["object"] == "text_completion" and single["id"].startswith("cmpl-")
    assert completion(server, prompt=ids)["choices"] == single["choices"]
    assert completion(server, prompt=[ids])["choices"] == single["choices"]
    two = completion(server, prompt=["hello world", "other"], n=2)
    assert [c["index"] for c in two["choices"]] == [0, 1, 2, 3]
    assert two["choices"][0]["text"] == single["choices"][0]["text"]
    assert two["choices"][2]["text"] == completion(server, prompt="other")["choices"][0]["text"]
    assert two["usage"]["prompt_tokens"] == len(ids) + completion(server, prompt="other")["usage"]["prompt_tokens"]
    assert two["usage"]["completion_tokens"] == 16
    lists = completion(server, prompt=[ids, ids[:1]])
    assert lists["usage"]["prompt_tokens"] == len(ids) + 1


@pytest.mark.parametrize("prompt", ["hello world", "é漢字🦓 <|im_start|>x"])
@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_echo_with_logprobs(server, prompt, max_tokens):
    ids = server.post("/tokenize", {"prompt": prompt}).json()["tokens"]
    answer = completion(server, prompt=prompt, echo=True, logprobs=5, max_tokens=max_tokens)
    choice, logprobs = answer["choices"][0], answer["choices"][0]["logprobs"]
    assert choice["text"].startswith(prompt) and choice["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == len(ids) and answer["usage"]["completion_tokens"] == max_tokens
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(v) for v in logprobs.values()} == {len(ids) + max_tokens}
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(math.isfinite(v) for v in logprobs["token_logprobs"][1:])
    for name, value, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
        assert 5 <= len(top) <= 6 and top[name] == value
    assert logprobs["text_offset"][0] == 0 and logprobs["text_offset"] == sorted(logprobs["text_offset"])
    streamed, done = events(server.post("/v1/completions", {
        "prompt": prompt, "echo": True, "logprobs": 5, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}).text)
    assert done and "".join(c["choices"][0]["text"] for c in streamed) == choice["text"]
    for key in logprobs:
        assert sum((c["choices"][0]["logprobs"][key] for c in streamed), []) == logprobs[key]


def test_echo_agrees_with_generation(server):
    """The log-probabilities of an answer are those that echo gives for the same tokens as a prompt."""
    first = completion(server, prompt="hello world", logprobs=3, max_tokens=6)
    ids = server.post("/tokenize", {"prompt": "hello world"}).json()["tokens"]
    chat = server.post("/v1/completions", {"prompt": ids, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 3}).json()
    assert chat["choices"] == first["choices"]
    text = "hello world" + first["choices"][0]["text"]
    again = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    whole_echo = completion(server, prompt=text, echo=True, logprobs=3, max_tokens=0)["choices"][0]["logprobs"]
    if again[len(ids):] and whole_echo["tokens"][len(ids):] == first["choices"][0]["logprobs"]["tokens"]:
        assert whole_echo["token_logprobs"][len(ids):] == pytest.approx(first["choices"][0]["logprobs"]["token_logprobs"], abs=1e-5)


def test_echo_without_logprobs(server):
    assert completion(server, prompt="hello world", echo=True, max_tokens=0)["choices"][0]["text"] == "hello world"
    plain = completion(server, prompt="hello world")["choices"][0]["text"]
    assert completion(server, prompt="hello world", echo=True)["choices"][0]["text"] == "hello world" + plain


def test_offsets_count_characters_of_the_text(server):
    choice = completion(server, prompt="the", logprobs=0, max_tokens=30, temperature=1, seed=4)["choices"][0]
    offsets, names = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
    assert offsets[0] == 0
    for at, name, following in zip(offsets, names, [*offsets[1:], None]):
        if following is not None and not name.startswith("bytes:"):
            assert following - at == len(name)


# ---- T50 ----

def stream_chunks(server, **body):
    answer = server.post("/v1/chat/completions", {"messages": USER, "max_tokens": 5, "ignore_eos": True, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks, done = events(answer.text)
    assert done
    return chunks


def test_usage_chunk_comes_only_when_asked(server):
    for options in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}, {"stream_options": None}):
        chunks = stream_chunks(server, **options)
        assert all(c["choices"] for c in chunks) and all(c.get("usage") is None for c in chunks)
    chunks = stream_chunks(server, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and all(c["choices"] and c["usage"] is None for c in chunks[:-1])
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == 5 and usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert {c["id"] for c in chunks} == {chunks[0]["id"]} and {c["created"] for c in chunks} == {chunks[0]["created"]}


@pytest.mark.parametrize("thinking", [True, False])
def test_usage_is_complete_and_independent_of_the_cache(server, thinking):
    body = {"messages": [{"role": "user", "content": "count " * 60}], "max_tokens": 6, "temperature": 0, "ignore_eos": True,
            "enable_thinking": thinking}
    runs = [server.post("/v1/chat/completions", body).json() for _ in range(3)]
    for run in runs:
        usage = run["usage"]
        assert usage["prompt_tokens"] == runs[0]["usage"]["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["reasoning_tokens"] <= usage["completion_tokens"]
        assert (usage["reasoning_tokens"] > 0) == thinking
        assert run["choices"] == runs[0]["choices"]  # invariant I3: warm equals cold
    assert runs[2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


# ---- the OpenAI client ----

def test_openai_client_reads_answers_and_streams(server):
    client = server.openai()
    answer = client.chat.completions.create(model="tiny-a", messages=USER, max_tokens=5, seed=1, logprobs=True, top_logprobs=2,
                                            extra_body={"ignore_eos": True})
    assert answer.object == "chat.completion" and answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0 and len(answer.choices[0].logprobs.content) == 5
    chunks = list(client.chat.completions.create(model="tiny-a", messages=USER, max_tokens=5, seed=1, stream=True,
                                                 stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens <= 5 and chunks[0].choices[0].delta.role == "assistant"
    text = client.completions.create(model="tiny-a", prompt=["a", "b"], max_tokens=3, logprobs=2, echo=True)
    assert len(text.choices) == 2 and text.choices[0].logprobs.token_logprobs[0] is None
    with pytest.raises(Exception) as caught:
        client.chat.completions.create(model="nope", messages=USER)
    assert caught.value.status_code == 404 and caught.value.code == "model_not_found"
    with pytest.raises(Exception) as caught:
        client.chat.completions.create(model="tiny-a", messages=USER, temperature=9)
    assert caught.value.status_code == 400 and caught.value.param == "temperature"


# ---- I1 ----

@pytest.mark.parametrize("body", [
    {}, {"enable_thinking": False}, {"n": 2, "temperature": 1}, {"stop": ["e", "th"], "enable_thinking": False, "temperature": 1},
    {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}, {"thinking_budget": 7}, {"max_tokens": 1}, {"logprobs": True, "top_logprobs": 3},
])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stream_equals_body(server, body, seed):
    request = {"messages": USER, "max_tokens": 48, "seed": seed, **body}
    plain = server.post("/v1/chat/completions", request)
    assert plain.status_code == 200
    streamed = server.post("/v1/chat/completions", {**request, "stream": True, "stream_options": {"include_usage": True}})
    chunks, done = events(streamed.content)
    assert done
    choices, usage = joined(chunks)
    expected, expected_usage = whole(plain.json())
    assert choices == expected
    for some in (usage, expected_usage):
        some["prompt_tokens_details"] = None  # the second run is warm
    assert usage == expected_usage


def test_completions_stream_equals_body(server):
    for seed in range(6):
        request = {"prompt": ["the", "a"], "max_tokens": 40, "seed": seed, "temperature": 1, "top_k": 0, "top_p": 1, "n": 2, "logprobs": 2}
        plain = server.post("/v1/completions", request).json()
        chunks, done = events(server.post("/v1/completions", {**request, "stream": True}).content)
        assert done
        for choice in plain["choices"]:
            mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
            assert "".join(c["text"] for c in mine) == choice["text"] and mine[-1]["finish_reason"] == choice["finish_reason"]
            assert sum((c["logprobs"]["tokens"] for c in mine), []) == choice["logprobs"]["tokens"]


def test_no_chunk_cuts_a_character(server):
    body = {"prompt": "the", "max_tokens": 400, "temperature": 2, "seed": 9, "top_k": 0, "top_p": 1, "ignore_eos": True}
    plain = server.post("/v1/completions", body).json()["choices"][0]["text"]
    chunks, _ = events(server.post("/v1/completions", {**body, "stream": True}).content)
    pieces = [c["choices"][0]["text"] for c in chunks]
    assert "".join(pieces) == plain
    json.dumps(pieces).encode("utf-8")  # no half of a surrogate pair either
