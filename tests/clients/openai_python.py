"""The openai package for Python, as its documentation uses it."""

import json
import math
import typing

import openai
import pydantic

from checks import ECHO, TINY, check, main

tiny = openai.OpenAI(base_url=TINY, api_key="none", max_retries=0, timeout=120)
echo = openai.OpenAI(base_url=ECHO, api_key="none", max_retries=0, timeout=120)
MODEL = tiny.models.list().data[0].id
CALL = "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
WEATHER = {"type": "function", "function": {"name": "weather", "description": "weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}}


def ask(client, text, **more):
    more.setdefault("extra_body", {"enable_thinking": False})
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)


@check
def streaming():
    chunks = list(ask(echo, "over the hills and far away", stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "over the hills and far away", text
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens > 0 and not chunks[-1].choices


@check
def streaming_with_the_helper():
    with echo.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "a b c"}],
                                      extra_body={"enable_thinking": False}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "a b c" and "content.done" in kinds


@check
def streaming_can_be_left():
    stream = ask(tiny, "a long one", stream=True, max_tokens=1500, extra_body={"ignore_eos": True, "enable_thinking": False})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    assert ask(tiny, "next", max_tokens=2).usage.prompt_tokens > 0


@check
def thinking_is_its_own_field():
    answer = ask(echo, "I wonder.\n</think>\n\nIt is so.", extra_body={"enable_thinking": True})
    message = answer.choices[0].message
    assert message.content == "It is so." and "I wonder." in message.reasoning_content, message


@check
def tools_in_one_piece():
    answer = ask(echo, CALL, tools=[WEATHER])
    call = answer.choices[0].message.tool_calls[0]
    assert answer.choices[0].finish_reason == "tool_calls" and call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo", "days": 3}


@check
def tools_streamed():
    with echo.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": CALL}], tools=[WEATHER],
                                      extra_body={"enable_thinking": False}) as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Oslo", "days": 3} and call.id


@check
def tools_sent_back_are_taken():
    message = ask(echo, CALL, tools=[WEATHER]).choices[0].message
    history = [{"role": "user", "content": CALL}, message,
               {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}, {"role": "user", "content": "thanks"}]
    answer = echo.chat.completions.create(model=MODEL, messages=history, tools=[WEATHER], extra_body={"enable_thinking": False})
    assert answer.choices[0].message.content == "thanks"


@check
def a_call_that_is_demanded_comes():
    """The model is noise, so that only what has an end by itself is asked for."""
    dice = {"type": "function", "function": {"name": "dice", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}}}
    for choice, tools in (("required", [dice]), ({"type": "function", "function": {"name": "dice"}}, [WEATHER, dice])):
        answer = ask(tiny, "hello", tools=tools, tool_choice=choice, max_tokens=400, temperature=1, seed=3, parallel_tool_calls=False)
        call, = answer.choices[0].message.tool_calls
        assert call.function.name == "dice", call
        given = json.loads(call.function.arguments)
        assert set(given) == {"city", "days"} and given["city"] in ("Oslo", "Bergen") and 0 <= given["days"] <= 9


class Colour(pydantic.BaseModel):
    name: typing.Literal["red", "green", "blue"]
    strength: int = pydantic.Field(ge=0, le=9)
    warm: bool
    also: typing.List[typing.Literal["dark", "light"]] = pydantic.Field(max_length=3)


@check
def structured_output_with_pydantic():
    for seed in range(3):
        answer = tiny.chat.completions.parse(model=MODEL, messages=[{"role": "user", "content": "a colour"}], response_format=Colour,
                                             max_tokens=300, temperature=1, seed=seed, extra_body={"enable_thinking": False})
        assert answer.choices[0].finish_reason == "stop"
        assert isinstance(answer.choices[0].message.parsed, Colour), answer


@check
def structured_output_streamed():
    with tiny.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "a colour"}], response_format=Colour,
                                      max_tokens=300, temperature=1, seed=1, extra_body={"enable_thinking": False}) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Colour)


@check
def log_probabilities():
    plain = ask(tiny, "log", max_tokens=8, logprobs=True, top_logprobs=4, temperature=0)
    streamed = list(ask(tiny, "log", max_tokens=8, logprobs=True, top_logprobs=4, temperature=0, stream=True))
    tokens = plain.choices[0].logprobs.content
    assert len(tokens) == plain.usage.completion_tokens
    for token in tokens:
        assert len(token.top_logprobs) == 4 and token.logprob <= 0
        assert token.logprob == max(t.logprob for t in token.top_logprobs), "greedy"
        assert bytes(token.bytes).decode(errors="replace") == token.token or token.token.startswith("bytes:")
    again = [t for c in streamed if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [(t.token, t.logprob) for t in again] == [(t.token, t.logprob) for t in tokens]


@check
def log_probabilities_of_a_prompt():
    answer = tiny.completions.create(model=MODEL, prompt="one two three", echo=True, logprobs=2, max_tokens=0)
    lp = answer.choices[0].logprobs
    assert lp.token_logprobs[0] is None and all(x <= 0 and math.isfinite(x) for x in lp.token_logprobs[1:])
    assert "".join(lp.tokens) == answer.choices[0].text == "one two three"


@check
def errors_have_their_classes():
    for error, call in ((openai.BadRequestError, lambda: ask(echo, "x", temperature=-1)),
                        (openai.NotFoundError, lambda: echo.models.retrieve("nobody"))):
        try:
            call()
        except error as e:
            assert e.body["message"] and e.request_id
        else:
            raise AssertionError(f"{error.__name__} did not come")


if __name__ == "__main__":
    main("openai (Python)")
