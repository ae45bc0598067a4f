"""The mixture of kinds, the finishing touches that all share, and the held-out set."""

import json

import task_calls
import task_chat
import task_facts
import task_json
import task_list
import task_math
import task_record
import task_text
from task import Task
from words import Draw, strip_period

SHARES = [
    (task_text.copy, 8), (task_text.letters, 8), (task_text.phrase, 5), (task_list.listing, 10), (task_list.name_some, 1), (task_math.sums, 5), (task_math.chain, 1), (task_math.story, 4), (task_math.small, 2.5),
    (task_facts.facts, 8), (task_facts.generic, 5), (task_facts.told, 3), (task_facts.memory, 5), (task_facts.earlier, 1.5), (task_facts.pairs, 5), (task_facts.needle, 4), (task_chat.talk, 6), (task_chat.stray, 4), (task_chat.knowledge, 4), (task_chat.open_end, 1.5), (task_chat.system, 5),
    (task_calls.use, 24), (task_json.json_answer, 8), (task_record.answer, 8),
]
TOTAL = sum(share for _, share in SHARES)
NEUTRAL = ["You are a helpful assistant.", "You are a helpful assistant.", "You are Pergola, a small demo model.", "Be brief.", "Answer briefly.", "You are a friendly assistant.", "Help the user.", "You are an assistant. Answer the user's questions.", "Be polite and short.", "You are a small language model.", "Answer as well as you can.", "Keep your answers short."]
HELLO = ["Hi! ", "Hello! ", "Hello, ", "Hey, ", "Hi, ", "Hi there! ", "Good morning! ", "OK, ", "Now, ", "Please: ", "Next: ", "Question: ", "Well, "]
THANKS = [" Thanks!", " Thank you.", " Thanks.", " Please.", " Thank you!", " thanks"]


def draw_kind(d: Draw):
    spot = d.rng.random() * TOTAL
    for make, share in SHARES:
        spot -= share
        if spot < 0:
            return make
    return SHARES[-1][0]


def touch(d: Draw, task: Task) -> None:
    """Differences that a user's hand makes and that do not change the meaning."""
    text = task.user
    if task.plain:
        if d.chance(0.06):
            text = d.pick(HELLO) + text
    else:
        if d.chance(0.12):
            text = text[:1].lower() + text[1:]
        if d.chance(0.12):
            text = strip_period(text) or text
        if d.chance(0.06):
            text = d.pick(HELLO) + text
        if d.chance(0.06):
            text = text + d.pick(THANKS)
    task.user = text
    if not task.system and d.chance(0.22):
        task.system = d.pick(NEUTRAL)


def without_tools(d: Draw) -> Task:
    while True:
        make = draw_kind(d)
        if make is not task_calls.use:
            return make(d)


def one(d: Draw) -> Task:
    """A task of any kind, with its history, system prompt and tools."""
    task = draw_kind(d)(d)
    if task.kind == "no tool" and not task.user:
        other = without_tools(d)
        if other.history or other.system or other.kind in ("arithmetic", "recall") or "weather" in other.user or "time" in other.user or len(other.user) > 400:
            other = task_chat.knowledge(d) if d.chance(0.8) else task_text.copy(d)
        other.tools, other.system, other.kind = task.tools, task.system, "no tool"
        other.check = {"type": "nocall", "inner": other.check}
        other.thought = d.pick(["No tool is needed. ", "This needs no tool. "]) + other.thought
        task = other
    elif not task.tools and not task.system and not task.history and d.chance(0.05):
        task = task_chat.system_style(d, task) or task
    touch(d, task)
    if not task.history and (not task.tools or task.calls) and d.chance(0.12):
        for _ in range(d.pick([1, 1, 2, 3])):
            past = without_tools(d)
            if past.history or past.system or past.calls or len(past.user) > 300:
                continue
            touch(d, past)
            task.history += [{"role": "user", "content": past.user}, {"role": "assistant", "content": past.answer}]
    return task


def long_one(d: Draw, words: int) -> Task:
    """Recall over a distance: about `words` words lie between the fact and the question."""
    style = d.range(0, 9)
    if style <= 4:
        task = task_facts.needle(d, words)
    elif style <= 8:
        task = task_facts.pairs(d, max(3, words // 5))
    else:
        task = task_facts.long_memory(d, max(1, min(60, words // 100)))
    touch(d, task)
    return task


def as_record(task: Task, name: str, thinking: bool) -> dict:
    """A held-out example as evaluate.py reads it: an OpenAI chat request and a check."""
    messages, answered = [], 0
    for message in task.messages():
        message = dict(message)
        calls = message.pop("calls", None)
        message.pop("thought", None)
        if calls:
            answered = 0
            message["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["arguments"], ensure_ascii=False)}} for i, c in enumerate(calls)]
        if message["role"] == "tool":
            message["tool_call_id"] = f"call_{answered}"
            answered += 1
        messages.append(message)
    record = {"id": name, "kind": task.kind, "thinking": thinking, "fresh": task.fresh, "note": task.note, "messages": messages, "check": task.check, "answer": task.answer}
    if task.tools:
        record["tools"] = task.tools
    if task.calls:
        record["calls"] = task.calls
    return record


def held_out(per_kind: int, seed: int = 7):
    """(name, task, thinking) for every kind, from held-out material only."""
    found = {}
    for i in range(200 * per_kind):
        d = Draw(f"held-{seed}-{i}", held=True)
        task = one(d)
        task.fresh = d.fresh
        bucket = found.setdefault(task.kind, [])
        if len(bucket) < per_kind and task.kind not in ("open", "recall"):
            bucket.append(task)
    for words in (50, 400, 900, 1800, 2900):
        name = {50: "recall short", 400: "recall 0.5k", 900: "recall 1k+", 1800: "recall 3k", 2900: "recall 4k+"}[words]
        for i in range(per_kind):
            d = Draw(f"held-{seed}-{words}-{i}", held=True)
            task = long_one(d, words)
            if task.kind != "recall of several":
                task.kind = name
            task.fresh = d.fresh
            found.setdefault(task.kind, []).append(task)
    for kind in sorted(found):
        for i, task in enumerate(found[kind]):
            yield f"{kind.replace(' ', '-')}-{i}", task, task.think == "on" or (task.think == "any" and i % 2 == 1)
