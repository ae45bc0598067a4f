"""What must hold for every answer, whatever was asked."""

import json
import math
import re

import jsonschema

from soak import client


def other_way(body):
    """The same request, streamed if it was not, and the other way round."""
    other = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
    if not body.get("stream"):
        other |= {"stream": True, "stream_options": {"include_usage": True}}
    return other


def uncached(usage):
    return usage and {k: v for k, v in usage.items() if k != "prompt_tokens_details"}


def refusal(status, headers, data, allowed=(400, 404, 413, 503)):
    """An error is one, in its own form, and says that it is JSON."""
    assert status in allowed, f"status {status}: {data[:300]!r}"
    error = json.loads(data)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["code"], error
    assert headers["content-type"] == "application/json", headers
    if status == 503:
        assert int(headers["retry-after"]) > 0
    return error


def numbers(logprobs):
    values = logprobs.get("token_logprobs", []) if isinstance(logprobs, dict) else [e["logprob"] for e in logprobs or []]
    assert all(v is None or (math.isfinite(v) and v <= 0) for v in values), values


def in_form(body, text):
    schema = body.get("guided_json")
    structured, given = body.get("structured_outputs") or {}, body.get("response_format") or {}
    schema = schema if schema is not None else structured.get("json")
    if given.get("type") == "json_schema":
        schema = given["json_schema"]["schema"]
    if schema is not None:
        jsonschema.validate(json.loads(text), json.loads(schema) if isinstance(schema, str) else schema)
    if given.get("type") == "json_object" or structured.get("json_object"):
        assert isinstance(json.loads(text), dict), text
    for expression in (body.get("guided_regex"), structured.get("regex")):
        assert expression is None or re.fullmatch(expression, text), (expression, text)
    for choices in (body.get("guided_choice"), structured.get("choice")):
        assert choices is None or text in choices, (choices, text)


def choice(body, one):
    """One choice of a finished answer."""
    chat = "prompt" not in body
    text = one["content"] if chat else one["text"]
    text.encode()  # no half of a surrogate pair
    assert one["finish"] in ("stop", "length", "tool_calls"), one
    numbers(one["logprobs"])
    stops = body.get("stop") or []
    said = text if chat or not body.get("echo") else ""
    for stop in [stops] if isinstance(stops, str) else stops:
        assert stop not in said, f"the stop string {stop!r} was sent: {said!r}"
    for call in one.get("calls", []):
        named = {t["function"]["name"]: t["function"] for t in body.get("tools") or []}
        assert call["name"] in named or body.get("tool_choice", "auto") == "auto", call
        if one["finish"] != "length":
            value = json.loads(call["arguments"])
            if body.get("tool_choice", "auto") not in ("auto", "none"):
                jsonschema.validate(value, named[call["name"]].get("parameters") or {})
    if one["finish"] == "stop" and not stops and not body.get("stop_token_ids") and not body.get("echo"):
        in_form(body, text)
    must_call = body.get("tool_choice", "auto") not in ("auto", "none")
    if must_call and one["finish"] != "length" and not stops and not body.get("stop_token_ids"):
        assert one["calls"] and one["finish"] == "tool_calls", one


def answer(body, choices, usage):
    """A finished answer."""
    n = body.get("n", 1) * (len(body["prompt"]) if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], str) else 1)
    assert sorted(choices) == list(range(n)), sorted(choices)
    for one in choices.values():
        choice(body, one)
    if not usage:
        return
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    assert usage["reasoning_tokens"] <= usage["completion_tokens"]
    limits = [body[k] for k in ("max_tokens", "max_completion_tokens") if k in body]
    if limits:
        assert usage["completion_tokens"] <= min(limits) * n, usage
    if body.get("thinking_budget", -1) >= 0:
        assert usage["reasoning_tokens"] <= body["thinking_budget"] * n, usage


def same(body, got, reference):
    """(choices, usage) of two runs of one request."""
    assert got[0] == reference[0], f"another answer than alone and cold:\n  got   {got[0]}\n  alone {reference[0]}"
    if got[1] and reference[1]:
        assert uncached(got[1]) == uncached(reference[1]), f"other usage: {got[1]} alone {reference[1]}"


def beginning(body, cut, choices):
    """What a client got before it left is the beginning of the answer."""
    for index, part in cut.items():
        full = choices[index]
        for field in ("content", "reasoning", "text"):
            assert full.get(field, "").startswith(part.get(field, "")), (field, part, full)
        for ours, theirs in zip(part.get("calls", []), full.get("calls", [])):
            assert ours["name"] == theirs["name"] and theirs["arguments"].startswith(ours["arguments"]), (ours, theirs)


def soup(server, body):
    """A request to the server without a model: stream and body agree, calls are JSON, and what came can be sent back."""
    status, headers, data = client.ask(server, body)
    other = other_way(body)
    other_status, other_headers, other_data = client.ask(server, other)
    assert status == other_status, (status, other_status, data[:200], other_data[:200])
    if status != 200:
        assert refusal(status, headers, data) == refusal(other_status, other_headers, other_data)
        return 2
    got = client.read(body, data)
    answer(body, *got)
    same(body, got, client.read(other, other_data))
    plain = json.loads(data if not body.get("stream") else other_data)["choices"][0]
    if plain["finish_reason"] == "length":
        return 2
    said = plain["message"]
    history = [*body["messages"], {k: v for k, v in said.items() if v is not None}]
    history += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in said.get("tool_calls", [])]
    again = {"messages": [*history, {"role": "user", "content": "x"}], "tools": body.get("tools") or [], "max_tokens": 2}
    status, _, data = client.ask(server, again)
    assert status == 200, f"the answer sent back as history: {status} {data[:300]!r}"
    return 3
