"""What the cache gives of a prompt, and what is said where it gives less: in the answer, in /slots and in the log."""

import concurrent.futures
import json
import re

import pytest

from conftest import serving

SYSTEM = {"role": "system", "content": "You count trees. " * 12}


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
                             "from_host", "n_generated", "miss", "miss_at"}
        server.idle()
    with serving("--slots", 1, "--context", 2048, "--threads", 2, "--no-prefix-cache") as server:
        assert [details(ask(server, messages))["cache_miss"] for _ in range(2)] == ["off", "off"]


# ---- conversations ----

TOOLS = [{"type": "function", "function": {"name": name, "description": f"Says how {name} it is. ", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "maxLength": 8}, "hours": {"type": "integer"}}, "required": ["place"]}}}
    for name in ("warm", "windy", "dry")]


class Conversation:
    """A client that calls tools, replays what it got, and sees how much of each prompt was read anew."""

    def __init__(self, server, name, system=SYSTEM, **kwargs):
        self.server, self.name, self.messages, self.turns = server, name, [system], []
        self.more = {"tools": TOOLS, "enable_thinking": True, "chat_template_kwargs": kwargs}

    def turn(self, message, tool_choice):
        self.messages.append(message)
        prompt = self.server.post("/tokenize", {"messages": self.messages, **self.more}).json()["tokens"]
        answer = ask(self.server, self.messages, **self.more, tool_choice=tool_choice, max_tokens=48, thinking_budget=8,
                     seed=len(self.messages), temperature=0.7, ignore_eos=False)
        self.messages.append(answer["choices"][0]["message"])
        assert answer["usage"]["prompt_tokens"] == len(prompt)
        self.turns.append((prompt, details(answer)["cached_tokens"]))

    def run(self, turns):
        for turn in range(turns):
            if self.messages[-1].get("tool_calls"):
                call = self.messages[-1]["tool_calls"][0]
                self.turn({"role": "tool", "tool_call_id": call["id"], "content": f"{turn} degrees, says {self.name}"}, "auto")
            else:
                self.turn({"role": "user", "content": f"{self.name}: how warm is it in place {turn}?"}, "required")
        return self

    def check(self, rewritten):
        """From the second turn on 90 % of the prompt before come from the cache, or of what the template left of it."""
        n_rewritten = 0
        for (before, _), (prompt, cached) in zip(self.turns, self.turns[1:]):
            same = common([before + [-2], prompt + [-1] * len(before)])
            n_rewritten += same < len(before) - 8
            assert cached >= 0.9 * (same if rewritten else len(before)), (self.name, len(before), same, cached)
        assert (n_rewritten > 0) == rewritten
        read = sum(len(prompt) - cached for prompt, cached in self.turns[1:])
        assert read < 0.2 * sum(len(prompt) for prompt, _ in self.turns[1:]), (read, self.turns)


@pytest.mark.parametrize("keeps_thoughts", [True, False])
def test_a_conversation_with_tools_reads_only_what_is_new(pergola, keeps_thoughts):
    """The template leaves thoughts out once the user has spoken again, unless it is told to keep them."""
    with serving("--slots", 2, "--context", 8192, "--threads", 2) as server:
        one = Conversation(server, "one", preserve_thinking=keeps_thoughts).run(8 if keeps_thoughts else 5)
        one.check(not keeps_thoughts)
        assert sum(1 for m in one.messages if m.get("tool_calls")) >= 2
        for i in range(20 if keeps_thoughts else 2):  # within the cache's size
            other = [{"role": "system", "content": f"{i} " + SYSTEM["content"]}, {"role": "user", "content": "Hello"}]
            assert details(ask(server, other, max_tokens=2))["cached_tokens"] < 8
        one.run(1).check(not keeps_thoughts)


def test_a_history_that_is_read_cold_can_be_changed_behind_the_last_user(pergola):
    """Thoughts of a chain of tool calls are left out once the user speaks again: what stands before them is not read anew, also
    when the whole chain came in one prompt."""
    call = {"type": "function", "function": {"name": "warm", "arguments": {"place": "here"}}}
    chain = [SYSTEM, {"role": "user", "content": "How warm is it? " * 40}]
    for i in range(7):
        chain += [{"role": "assistant", "content": None, "reasoning_content": f"Thought {i}", "tool_calls": [{"id": f"c{i}", **call}]},
                  {"role": "tool", "tool_call_id": f"c{i}", "content": f"{i} degrees"}]
        if i % 3 == 0:  # two results in one turn
            chain[-2]["tool_calls"].append({"id": f"d{i}", **call})
            chain.append({"role": "tool", "tool_call_id": f"d{i}", "content": "windy"})
    again = chain + [{"role": "assistant", "content": "Warm."}, {"role": "user", "content": "And tomorrow?"}]
    more = {"tools": TOOLS, "enable_thinking": True, "max_tokens": 2}
    with serving("--slots", 1, "--context", 4096, "--threads", 2) as server:
        assert details(ask(server, chain, **more))["cached_tokens"] == 0
        second = ask(server, again, **more)
        same = common([server.post("/tokenize", {"messages": m, **more}).json()["tokens"] + [-1] for m in (chain, again)])
        assert same - 8 <= details(second)["cached_tokens"] <= same, (same, details(second))


def test_a_short_prompt_hits_too(server):
    messages = [{"role": "user", "content": "short 17"}]
    first, again = ask(server, messages), ask(server, messages)
    n = again["usage"]["prompt_tokens"]
    assert n < 24 and details(again)["cached_tokens"] >= n - 10, again["usage"]
    assert again["choices"] == first["choices"]


def test_what_requests_that_come_together_share_is_read_once(pergola):
    with serving("--slots", 4, "--context", 4096, "--threads", 2) as server:
        system = {"role": "system", "content": "You count trees. " * 120}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda i: ask(server, [system, {"role": "user", "content": f"{i} oaks"}], tools=TOOLS), range(4)))
        usage = [(a["usage"]["prompt_tokens"], details(a)["cached_tokens"]) for a in answers]
        shared = common([tokens(server, [system, {"role": "user", "content": f"{i} oaks"}], tools=TOOLS) for i in range(4)])
        cold = [n for n, cached in usage if cached == 0]
        assert len(cold) == 1 and shared > 400, usage
        assert all(cached == 0 or cached >= shared - 8 for _, cached in usage), (usage, shared)


def common(lists):
    return next(i for i, ids in enumerate(zip(*lists)) if len(set(ids)) > 1)


def test_what_went_to_host_memory_comes_back(pergola):
    """A cache of a few snapshots, and host memory for the rest: the answers are the first ones, and nothing is read anew."""
    with serving("--slots", 1, "--context", 1024, "--threads", 2, "--cache", "10M", "--cache-host", "64M") as server:
        assert "host cache" in server.block, server.block
        prompts = [[SYSTEM, {"role": "user", "content": f"Tree {i}"}] for i in range(12)]
        first = [ask(server, p) for p in prompts]
        used = server.metric("pergola:host_cache_used_bytes")
        assert 0 < used <= server.metric("pergola:host_cache_bytes") <= 64 << 20
        again = [ask(server, p) for p in prompts]
        assert [a["choices"] for a in again] == [a["choices"] for a in first]
        assert all(details(a)["cached_tokens"] >= a["usage"]["prompt_tokens"] - 12 for a in again), [details(a) for a in again]
        assert server.metric("pergola:host_cache_hits_total") >= 6
        assert server.metric("pergola:host_cache_imported_bytes_total") > 0
