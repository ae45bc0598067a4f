"""What the cache gives of a prompt, and what is said where it gives less: in the answer, in /slots and in the log."""

import re

from conftest import serving

SYSTEM = {"role": "system", "content": "You count trees. " * 30}


def ask(server, messages, **more):
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "enable_thinking": False, **more}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def details(answer):
    return answer["usage"]["prompt_tokens_details"]


def tokens(server, messages, **more):
    return server.post("/tokenize", {"messages": messages, "enable_thinking": False, **more}).json()["tokens"]


def test_a_miss_is_explained(pergola):
    with serving("--slots", 2, "--context", 2048, "--threads", 2, "--log-level", "debug") as server:
        one, two = [SYSTEM, {"role": "user", "content": "How many oaks?"}], [SYSTEM, {"role": "user", "content": "How many firs?"}]
        ids = tokens(server, one), tokens(server, two)
        at = next(i for i, (a, b) in enumerate(zip(*ids)) if a != b)
        first = ask(server, one)
        assert details(first) == {"cached_tokens": 0, "matched_tokens": 0, "cache_miss": "cold", "cache_miss_at": 0}
        second = details(ask(server, two))
        assert 0 < second["cached_tokens"] <= second["matched_tokens"] == at
        assert (second["cache_miss"], second["cache_miss_at"]) == ("differs", at)
        said = re.search(r"cache: request 2: (\d+) of \d+ prompt tokens taken, (\d+) known; differs at (\d+): token (\d+) there, (\d+) here",
                         server.stderr())
        assert [int(x) for x in said.groups()] == [second["cached_tokens"], at, at, ids[0][at], ids[1][at]]
        assert "oaks" not in server.stderr() and "You count" not in server.stderr()
        streamed = server.post("/v1/chat/completions", {"messages": one, "max_tokens": 1, "stream": True, "enable_thinking": False,
                                                        "stream_options": {"include_usage": True}})
        assert '"cache_miss":"' in streamed.text
        short = server.post("/v1/completions", {"prompt": [5], "max_tokens": 1}).json()
        assert details(short)["cache_miss"] == "too_short"
        echoed = server.post("/v1/completions", {"prompt": ids[0], "max_tokens": 1, "echo": True, "logprobs": 0}).json()
        assert details(echoed)["cache_miss"] == "off"


def test_slots_say_why_and_nothing_of_the_text(pergola):
    with serving("--slots", 1, "--context", 2048, "--threads", 2) as server:
        messages = [SYSTEM, {"role": "user", "content": "How many oaks?"}]
        ask(server, messages)
        with server.http.stream("POST", "/v1/chat/completions", json={"messages": [SYSTEM, {"role": "user", "content": "And firs?"}],
                                "max_tokens": 1200, "ignore_eos": True, "stream": True, "enable_thinking": False}) as answer:
            next(answer.iter_lines())
            slot = server.slots()[0]
        assert slot["is_processing"] and slot["miss"] == "differs" and 0 < slot["n_cached"] <= slot["n_matched"] == slot["miss_at"]
        assert set(slot) == {"id", "is_processing", "state", "request", "n_ctx", "n_prompt", "n_read", "n_cached", "n_matched",
                             "n_generated", "miss", "miss_at"}
        server.idle()
    with serving("--slots", 1, "--context", 2048, "--threads", 2, "--no-prefix-cache") as server:
        assert [details(ask(server, messages))["cache_miss"] for _ in range(2)] == ["off", "off"]
