"""Clients that behave, and clients that do not."""

import json
import random
import socket
import time

from conftest import events, joined, request, whole

RESET = b"\1\0\0\0\0\0\0\0"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def path_of(body):
    return COMPLETIONS if "prompt" in body else CHAT


def joined_texts(chunks):
    """The chunks of /v1/completions, one dict for each choice, and the usage."""
    choices, usage = {}, None
    for chunk in chunks:
        assert "error" not in chunk, chunk
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            one = choices.setdefault(choice["index"], {"text": "", "finish": None, "stop": None, "logprobs": None})
            assert one["finish"] is None, "a chunk behind finish_reason"
            one["text"] += choice["text"]
            one["finish"], one["stop"] = choice["finish_reason"], choice["stop_reason"]
            for key, values in (choice["logprobs"] or {}).items():
                one["logprobs"] = one["logprobs"] or {}
                one["logprobs"][key] = one["logprobs"].get(key, []) + values
    return choices, usage


def whole_texts(answer):
    return {c["index"]: {"text": c["text"], "finish": c["finish_reason"], "stop": c["stop_reason"], "logprobs": c["logprobs"]}
            for c in answer["choices"]}, answer["usage"]


def read(body, data):
    """Choices and usage of an answer's bytes, streamed or not, without what differs from run to run: ids of calls, and
    what came from the cache."""
    chat = "prompt" not in body
    if body.get("stream"):
        chunks, done = events(data)
        assert done, f"a stream without its end: {data[-300:]!r}"
        if chunks and "error" in chunks[-1]:
            raise AssertionError(f"the stream ended with an error: {chunks[-1]}")
        choices, usage = (joined if chat else joined_texts)(chunks)
    else:
        choices, usage = (whole if chat else whole_texts)(json.loads(data))
    ids = [call.pop("id") for choice in choices.values() for call in choice.get("calls", [])]
    assert len(set(ids)) == len(ids), "ids of calls occur twice"
    return choices, usage


def ask(server, body, wire=None):
    """Status, headers and bytes of the answer."""
    if wire is None:
        with server.connect(timeout=300) as own:
            own.send(request(path_of(body), body))
            return own.answer()
    wire.send(request(path_of(body), body))
    return wire.answer()


def leave(server, body, rng: random.Random):
    """Sends a request and goes away at a moment that is drawn. Returns the name of the moment and the bytes of whole events
    that came before, or the whole answer where it was faster."""
    data = request(path_of(body), body)
    head = data.index(b"\r\n\r\n") + 4
    phase = rng.choice(["head", "body", "sent", "later", "answer", "events", "half"])
    came = b""
    with server.connect(timeout=300) as wire:
        if phase == "head":
            wire.send(data[:rng.randrange(head)])
        elif phase == "body":
            wire.send(data[:rng.randrange(head, len(data))])
        else:
            wire.send(data)
        if phase in ("head", "body"):
            time.sleep(rng.choice([0, 0, 0.01]))
        elif phase == "later":
            time.sleep(rng.random() * 0.2)
        elif phase == "answer":
            wire.more()
        elif phase == "events":
            for _ in range(rng.randint(1, 6)):
                wire.more()
        elif phase == "half":
            wire.socket.shutdown(socket.SHUT_WR)
            status, _, answer = wire.answer()
            return phase, status, answer
        came = wire.buffer
        if rng.random() < 0.5:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return phase, None, came


def begun(body, came):
    """The choices of a stream that was cut."""
    _, _, rest = came.partition(b"\r\n\r\n")
    text = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size, 16)
        text += rest[:n]
        rest = rest[n + 2:]
    text = text[:text.rfind(b"\n\n") + 2] if b"\n\n" in text else b""
    chunks, _ = events(text)
    return (joined_texts if "prompt" in body else joined)([c for c in chunks if "error" not in c])[0]
