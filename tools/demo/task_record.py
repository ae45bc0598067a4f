"""JSON answers whose keys and values are put together anew: records of any keys, schemas with choices and nesting, tables."""

import json
import re

import task_calls as calls
import task_tools as listed
import toolbox
from task import Task, as_json
from task_json import ASK_FREE, ASK_KEYS, ASK_SCHEMA, dump, key_list
from words import Draw

INTO = ["[Turn|Convert|Make] [this table|the table|these rows|the rows] into a JSON [array|list] of objects: {t}", "{t}\n\n[Give|Return|Write] [this|it|the table] as a JSON [array|list], one object [a|for each] [row|line].", "[Each|Every] [line|row] becomes [an|one] object of a JSON [array|list]:\n{t}", "Table:\n{t}\nAs JSON[, please|].", "JSON array of these rows:\n{t}", "{t}\nAs a list of JSON objects[, please|].", "[Read|Take] the rows and [answer|reply] in JSON, a list of objects.\n{t}",
        "Make JSON objects out of the lines, in one array.\n{t}", "CSV to JSON:\n{t}", "[Parse|Read] this CSV into [a list of JSON objects|JSON objects]:\n{t}", "[I need|Please give me] the rows as JSON.\n{t}", "Rows:\n{t}\n[Wanted|Output]: a JSON array of objects.", "[Can|Could] you [write|put] this table [as|in] JSON?\n{t}", "Data:\n{t}\nAnswer with a JSON array that has an object for every line."]
NULL = ["", " Use null for what is missing.", " If something is not said, use null.", " Missing values are null.", " Write null where the text says nothing."]
SAID = ["The @ is #.", "The @ is #.", "@: #.", "Its @ is #.", "As @ we have #.", "# is the @.", "The @: #.", "It has the @ #.", "We know the @: #.", "For @ they wrote #."]


MARKS = re.compile(r"[;=|\n]|: | -|\.\.|[a-z,]\. ")


def shape(d: Draw, low: int, high: int, flat: bool = False) -> dict:
    """{key: (role spec, made up or not)}"""
    keys = {}
    while len(keys) < low:
        for role in d.rng.sample(toolbox.ROLES, d.range(low, high)):
            if flat and role.kind in ("object", "array") or role.more.get("fields") and d.chance(0.5):
                continue
            style, key = d.rng.random(), d.pick(role.names)
            made = style < 0.14
            if made:
                key = d.made_up(2)
            elif style < 0.26:
                key = f"{calls.snake(calls.thing_of(d))}_{key}"
            elif style < 0.32 and "_" in key:
                first, *rest = key.split("_")
                key = first + "".join(p.capitalize() for p in rest)
            keys.setdefault(key, (calls.spec_of(d, role), made))
    return keys


def drawn(d: Draw, keys: dict) -> dict:
    """Values for the keys, without text that looks like a number (only a schema would tell the two apart) or like a border."""
    values = {}
    for key, (spec, _) in keys.items():
        value = spec["draw"](d)
        while isinstance(value, str) and (value.isdigit() or MARKS.search(value)):
            value = spec["draw"](d)
        values[key] = value
    return values


def shown(d: Draw, value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        items = [str(v) for v in value]
        return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else items[0]
    if isinstance(value, dict):
        return " and ".join(f"{k} {v}" for k, v in value.items())
    return str(value)


def said_of(d: Draw, values: dict, keys: dict) -> str:
    """The record in words."""
    style, order = d.rng.random(), list(values)
    if d.chance(0.5):
        d.rng.shuffle(order)
    spaced = d.chance(0.5)
    name = lambda k: k.replace("_", " ") if spaced else k
    if style < 0.3:
        mark, gap = d.pick([": ", " = ", ": ", " is ", " - "]), d.pick(["\n", "\n", "; ", "\n- "])
        if any(isinstance(values[k], (list, dict)) for k in order) and gap == "; ":
            gap = "\n"
        return (gap[1:] if gap == "\n- " else "") + gap.join(name(k) + mark + shown(d, values[k]) for k in order)
    natural = style > 0.6 and not any(keys[k][1] for k in order)
    ways = [calls.way_of(d, k, keys[k][0], values[k]) for k in order] if natural else []
    if ways and all(ways):
        thing = calls.thing_of(d)
        start = d.pick([f"There is a {thing}", f"A {thing}", f"We have a {thing}", f"{d.name()} wants a {thing}", f"One {thing}", f"It is about a {thing}"])
        return start + "".join((" " if w[0] != "," else "") + w for w in ways) + "."
    form = d.pick(SAID) if d.chance(0.4) else ""
    lines = [(form or d.pick(SAID)).replace("@", name(k)).replace("#", shown(d, values[k])) for k in order]
    lines = [line[0].upper() + line[1:] if not line.startswith(shown(d, values[k])) else line for line, k in zip(lines, order)]
    lines = [line[:-1] if line[-2:] in ("..", "?.", "!.") else line for line in lines]
    if d.chance(0.25):
        lines.insert(d.range(0, len(lines)), d.sentence())
    return " ".join(lines)


def schema_of(d: Draw, keys: dict) -> str:
    style = d.range(0, 4)
    if style <= 2:
        told = d.chance(0.4)
        schema = {"type": "object", "properties": {k: listed.schema_of(d, s, told) for k, (s, _) in keys.items()}}
        if d.chance(0.8):
            schema["required"] = list(keys)
        if d.chance(0.4):
            schema["additionalProperties"] = False
        return json.dumps(schema, indent=2 if d.chance(0.12) else None)
    short = {"string": d.pick(["string", "str", "text"]), "integer": d.pick(["integer", "int"]), "number": d.pick(["number", "float"]), "boolean": d.pick(["boolean", "bool"])}
    plain = {"string": "...", "integer": 0, "number": 0.0, "boolean": True}
    one = (lambda kind: short[kind]) if style == 3 else (lambda kind: plain[kind])
    of = lambda s: [one(s["items"])] if s["kind"] == "array" else {k: one(t) for k, t in s["fields"].items()} if s["kind"] == "object" else one(s["kind"])
    return json.dumps({k: of(s) for k, (s, _) in keys.items()})


def told(values) -> str:
    """The thought: key after key."""
    return ", ".join(f"{k}: {'yes' if v is True else 'no' if v is False else v if isinstance(v, str) else dump(v)}" for k, v in values.items()) + "."


def records(d: Draw) -> Task:
    keys = shape(d, *d.pick([(2, 3), (2, 4), (3, 5), (4, 6)]))
    values = drawn(d, keys)
    text, style = said_of(d, values, keys), d.rng.random()
    order = list(values)
    if d.chance(0.3):
        d.rng.shuffle(order)
    if style < 0.3 and len(order) > 2:
        order = d.rng.sample(order, d.range(1, len(order) - 1))
    lacking = calls.snake(d.pick([d.word("noun"), d.made_up(2)])) if style > 0.92 else ""
    values = {k: values[k] for k in order}
    more = dict(plain=True)
    if lacking and lacking not in keys:
        spot = d.range(0, len(values))
        items = list(values.items())
        values = dict(items[:spot] + [(lacking, None)] + items[spot:])
        user = d.ask(ASK_KEYS, k=key_list(d, list(values)), t=text) + d.pick(NULL)
    elif style < 0.55:
        user = d.ask(ASK_KEYS, k=key_list(d, list(values)), t=text)
    else:
        schema = schema_of(d, {k: keys[k] for k in values})
        if d.chance(0.2):
            user, more["system"] = text, d.pick(["Answer with JSON of this schema: ", "Every answer is JSON that fits this schema: ", "Fill this schema from the user's text: ", "Write JSON of this form: "]) + schema
        else:
            user = d.ask(ASK_SCHEMA, k=schema, t=text)
    return Task("json", user, dump(values), told(values), as_json(values), **more)


def lines_task(d: Draw) -> Task:
    """Lines of keys and values, with no keys asked for: those of the lines."""
    keys = shape(d, 2, 6, flat=True)
    values = {k: v for k, v in drawn(d, keys).items() if not isinstance(v, bool)}
    if len(values) < 2:
        return lines_task(d)
    mark, gap = d.pick([": ", " = ", ": "]), d.pick(["\n", "\n", "\n- "])
    text = (gap[1:] if gap == "\n- " else "") + gap.join(k + mark + str(v) for k, v in values.items())
    return Task("json", d.ask(ASK_FREE, t="\n" + text), dump(values), told(values), as_json(values), plain=True)


def table(d: Draw) -> Task:
    keys = shape(d, 2, 4, flat=True)
    keys = dict(list(keys.items())[:4])
    rows = [drawn(d, keys) for _ in range(d.range(2, 4))]
    mark = d.pick([";", " | ", ", ", "; ", "\t"])
    if any(mark.strip() and mark.strip() in str(v) for r in rows for v in r.values()):
        mark = "\t"
    text = "\n".join([mark.join(keys)] + [mark.join(shown(d, v) for v in r.values()) for r in rows])
    return Task("json", d.ask(INTO, t=text), dump(rows), f"{len(rows)} rows with {', '.join(keys)}.", as_json(rows), plain=True)


def arrays(d: Draw) -> Task:
    """A record around lists, or a list of plain values under a key."""
    key, other = calls.snake(calls.thing_of(d)) + "s", calls.snake(d.pick([d.word("noun"), d.made_up(2)]))
    items = d.pick([lambda: [d.any_word() for _ in range(d.range(2, 8))], lambda: [d.number(0, 9999) for _ in range(d.range(2, 8))], lambda: d.names(d.range(2, 6)), lambda: [d.city() for _ in range(d.range(2, 5))]])()
    text = d.pick(["The {k} are {x}.", "{k}: {x}", "We have these {k}: {x}.", "{x} are the {k}."]).replace("{k}", key.replace("_", " ")).replace("{x}", shown(d, items))
    value = {key: items}
    if d.chance(0.5) and other != key:
        value[other] = d.pick([d.any_word(), d.number(0, 999), d.name()])
        text += f" The {other.replace('_', ' ')} is {value[other]}."
    kinds = {key: {"kind": "array", "items": "integer" if isinstance(items[0], int) else "string", "text": ""}}
    if other in value:
        kinds[other] = {"kind": "integer" if isinstance(value[other], int) else "string", "text": ""}
    user = d.ask(ASK_KEYS, k=key_list(d, list(value)), t=text) if d.chance(0.5) else d.ask(ASK_SCHEMA, k=schema_of(d, {k: (s, False) for k, s in kinds.items()}), t=text)
    return Task("json", user, dump(value), told(value), as_json(value), plain=True)


def answer(d: Draw) -> Task:
    return d.pick([records] * 7 + [lines_task, table, table, arrays, arrays])(d)
