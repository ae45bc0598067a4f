"""The data recipe of the bundled model: the same text every time, nothing of the held-out set in training, and
text in exactly the form that the chat template gives when the model is served."""

import json
import pathlib
import sys

import jinja2
import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "tools" / "demo"
sys.path.insert(0, str(DEMO))

import check  # noqa: E402
import mixture  # noqa: E402
import render  # noqa: E402
import words  # noqa: E402


def tasks(count, held=False):
    for i in range(count):
        d = words.Draw(f"test-{i}", held=held)
        yield d, mixture.one(d)


def text_of(task, thinking):
    return "".join(text for text, _ in render.pieces(task, thinking))


def test_the_same_seed_gives_the_same_text():
    first = [text_of(task, i % 2 == 0) for i, (_, task) in enumerate(tasks(150))]
    second = [text_of(task, i % 2 == 0) for i, (_, task) in enumerate(tasks(150))]
    assert first == second
    assert len(set(first)) > 145


def test_training_and_held_out_words_are_disjoint():
    for section in words.lexicon():
        if section in words.CLOSED:
            continue
        train, held = set(words.side_of(section, False)), set(words.side_of(section, True))
        assert train and held, section
        assert not {w.lower() for w in train} & {w.lower() for w in held}, section
        assert all(words.held_word(w) for w in held)
    d, e = words.Draw("a"), words.Draw("a", held=True)
    assert not any(words.held_word(d.made_up()) or words.held_word(d.blend()) for _ in range(500))
    assert all(words.held_word(e.made_up()) and words.held_word(e.blend()) for _ in range(500))


def test_training_never_draws_a_held_out_number():
    d, e = words.Draw("n"), words.Draw("n", held=True)
    assert not any(words.held_number(d.number(0, 99999)) for _ in range(3000))
    assert all(words.held_number(e.number(100, 99999)) for _ in range(300))


def test_training_never_uses_a_held_out_phrasing():
    import task_text

    held = [t for i, t in enumerate(task_text.COPY) if words.held_phrasing(i, t)]
    assert held
    assert not set(words.phrasings(tuple(task_text.COPY), False)) & set(held)
    assert set(words.phrasings(tuple(task_text.COPY), True)) == set(held)


def test_things_frames_and_joints_of_new_tools_belong_to_one_side():
    import toolbox

    assert toolbox.HELD_THINGS and not set(toolbox.HELD_THINGS) & set(toolbox.KNOWN_THINGS)
    for known, held in toolbox.SIDES.values():
        assert known and held and not set(known) & set(held)


def test_held_out_tools_are_in_no_training_example():
    import task_tools

    held = {task_tools.TOOLS[i][1] for i in task_tools.HELD_TOOLS}
    assert len(held) == len(task_tools.HELD_TOOLS)
    assert not held & {t[1] for t in task_tools.entries(words.Draw("t"))}


def test_every_answer_of_the_recipe_passes_its_own_check():
    for held in (False, True):
        for _, task in tasks(500, held):
            if task.check:
                assert check.right(task.check, task.answer if not task.calls else "", task.calls), (task.user, task.answer, task.calls, task.check)


def test_a_wrong_answer_fails_its_check():
    wrong = 0
    for _, task in tasks(200):
        if task.check and task.check["type"] not in ("nonempty",):
            wrong += check.right(task.check, "something else entirely", [])
    assert wrong == 0


def test_calls_come_back_out_of_their_text_with_their_types():
    seen = 0
    for _, task in tasks(600):
        if task.calls:
            seen += 1
            names = {t["function"]["name"] for t in task.tools}
            assert all(call["name"] in names for call in task.calls)
            assert check.same(check.parse_calls(render.call_text(task.calls), task.tools), task.calls), task.calls
    assert seen > 30


KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def fits(value, schema):
    if isinstance(value, bool) and schema["type"] != "boolean":
        return False
    inside = [(v, schema["items"]) for v in value] if schema["type"] == "array" else [(v, schema["properties"][k]) for k, v in value.items()] if schema["type"] == "object" else []
    return isinstance(value, KINDS[schema["type"]]) and value in schema.get("enum", [value]) and all(fits(*part) for part in inside)


def call_tasks(count, held):
    import task_calls

    for i in range(count):
        task = task_calls.use(words.Draw(f"call-{i}", held=held))
        if task.calls:
            yield task


@pytest.mark.parametrize("held", [False, True])
def test_calls_fit_the_schemas_of_their_tools(held):
    for task in call_tasks(400, held):
        names = [t["function"]["name"] for t in task.tools]
        assert len(set(names)) == len(names) <= 8
        for call in task.calls:
            parameters = next(t for t in task.tools if t["function"]["name"] == call["name"])["function"].get("parameters", {})
            assert set(parameters.get("required", [])) <= set(call["arguments"]), call
            assert all(fits(value, parameters["properties"][key]) for key, value in call["arguments"].items()), (call, parameters)


def leaves(value):
    if isinstance(value, bool):
        return []
    if isinstance(value, (list, dict)):
        return [leaf for part in (value if isinstance(value, list) else value.values()) for leaf in leaves(part)]
    return [str(value)]


@pytest.mark.parametrize("held", [False, True])
def test_every_argument_can_be_read_in_the_question(held):
    for task in call_tasks(400, held):
        for call in task.calls:
            assert all(leaf in task.user for leaf in leaves(call["arguments"])), (task.user, call)


def test_several_calls_are_of_one_tool_and_of_different_ones():
    counts, same, different = set(), 0, 0
    for task in call_tasks(600, False):
        counts.add(len(task.calls))
        if len(task.calls) > 1:
            same += len({c["name"] for c in task.calls}) == 1
            different += len({c["name"] for c in task.calls}) == len(task.calls)
    assert counts == {1, 2, 3, 4} and same > 50 and different > 30


@pytest.mark.parametrize("held", [False, True])
def test_every_value_of_a_json_record_can_be_read_in_its_text(held):
    import task_record

    for i in range(300):
        task = task_record.answer(words.Draw(f"record-{i}", held=held))
        value = json.loads(task.answer)
        assert check.right(task.check, task.answer, [])
        assert all(leaf in task.user for leaf in leaves(value) if leaf != "None"), (task.user, task.answer)


def test_json_answers_are_json():
    seen = 0
    for _, task in tasks(600):
        if task.kind == "json" and task.check["type"] in ("json", "json_values", "json_keys"):
            json.loads(task.answer)
            seen += 1
    assert seen > 20


@pytest.fixture(scope="module")
def template():
    def refuse(message):
        raise AssertionError(message)

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    return environment.from_string((DEMO / "chat_template.jinja").read_text(encoding="utf-8"))


def test_the_fast_renderer_equals_the_chat_template(template):
    for i, (_, task) in enumerate(tasks(300)):
        thinking = i % 2 == 0
        messages = []
        for message in task.messages() + [{"role": "assistant", "content": task.answer, "calls": task.calls, "thought": task.thought}]:
            message = dict(message)
            calls, thought = message.pop("calls", None), message.pop("thought", "")
            if calls:
                message["tool_calls"] = [{"function": c} for c in calls]
            if thinking and thought:
                message["reasoning_content"] = thought
            messages.append(message)
        tools = task.tools or None
        assert text_of(task, thinking) == template.render(messages=messages, tools=tools)
        prompt = template.render(messages=messages[:-1], tools=tools, add_generation_prompt=True, enable_thinking=thinking)
        assert text_of(task, thinking).startswith(prompt)


def test_the_held_out_set_is_complete_and_stable():
    first = [mixture.as_record(task, name, thinking) for name, task, thinking in mixture.held_out(2)]
    second = [mixture.as_record(task, name, thinking) for name, task, thinking in mixture.held_out(2)]
    assert first == second
    kinds = {record["kind"] for record in first}
    for kind in ("copy", "json", "tool call", "tool calls", "tool result", "no tool"):
        assert sum(record["kind"] == kind for record in first) == 2, kind
    assert {"copy", "json", "tool call", "tool calls", "tool result", "no tool", "memory", "system", "recall 4k+", "arithmetic", "sort", "reverse"} <= kinds
    assert any(r["thinking"] for r in first) and not all(r["thinking"] for r in first)
    json.dumps(first)
