"""Calling tools: tools put together anew each time (toolbox.py) or listed (task_tools.py); one call, several, results, none."""

import json
import re

import task_tools as listed
import toolbox
from task import Task, anything, contains, exact
from toolbox import ACTIONS, ALL, FIELD_DRAWS, FIELD_NAMES, HELD_THINGS, KNOWN_THINGS, ROLES, SAME, SIDES
from words import Draw

LISTED_SHARE = 0.42
LISTING = next(i for i, action in enumerate(ACTIONS) if action[0].startswith("list "))
RESULTS = {
    "status": lambda d: d.pick(["ok", "done", "accepted", "open", "closed", "waiting", "ready", "in progress", "failed", "active", d.any_word()]), "id": lambda d: d.number(1, 99999), "total": lambda d: d.number(1, 99999), "count": lambda d: d.number(0, 999), "date": lambda d: d.iso_date(), "code": lambda d: d.code(),
    "name": lambda d: d.name(), "city": lambda d: d.city(), "price": toolbox.money, "title": lambda d: d.title(), "message": lambda d: d.sentence(), "url": lambda d: d.url(), "owner": lambda d: d.full_name(), "result": lambda d: d.pick([d.number(1, 9999), d.any_word()]), "level": lambda d: d.number(1, 99), "time": lambda d: d.time(),
    "ok": lambda d: True, "success": lambda d: True, "items": lambda d: [d.any_word() for _ in range(d.range(1, 4))], "people": lambda d: d.names(d.range(1, 3)), "reference": lambda d: d.code(), "duration": lambda d: d.number(1, 300), "temperature": lambda d: d.number(-20, 40), "answer": lambda d: d.any_word(),
}


class Plain(str):
    """Text that stands in the question as it is, never in quotes: a list of values of one parameter."""


def half(d: Draw, name: str):
    return SIDES[name][d.held]


# --- a tool that exists nowhere -------------------------------------------------------------------------------------


def thing_of(d: Draw) -> str:
    kind = d.rng.random()
    if kind < 0.5:
        return d.pick(HELD_THINGS if d.held else KNOWN_THINGS)
    return d.word("object") if kind < 0.65 else d.word("noun") if kind < 0.8 else d.made_up(2) if kind < 0.9 else d.blend()


def spec_of(d: Draw, role) -> dict:
    """What role stands for in this tool: a value's draw, and its part of the schema."""
    spec = {"kind": role.kind, "text": role.text, "draw": role.draw, "role": role, **role.more}
    if "enum" in role.more:
        values = role.more["enum"] or d.pick([lambda: d.words("adjective", d.range(2, 5)), lambda: d.words("noun", d.range(2, 4)), lambda: d.words("material", d.range(2, 4)), lambda: [d.made_up() for _ in range(d.range(2, 4))]])()
        spec["enum"] = values = list(dict.fromkeys(values))
        spec["draw"] = lambda d: d.pick(values)
    if role.more.get("fields"):
        names = d.rng.sample(FIELD_NAMES, d.range(2, 3))
        spec["fields"] = {n: FIELD_DRAWS[n][0] for n in names}
        spec["draw"] = lambda d: {n: FIELD_DRAWS[n][1](d) for n in names}
    return spec


def snake(text: str) -> str:
    return text.replace(" ", "_").replace("-", "_")


def tool_name(d: Draw, verb: str, thing: str) -> str:
    thing, style = snake(thing), d.rng.random()
    if style < 0.5:
        return f"{verb}_{thing}" + d.pick(["", "", "", "s"])
    if style < 0.64:
        return verb + "".join(p.capitalize() for p in thing.split("_"))
    if style < 0.72:
        return f"{thing}_{verb}"
    if style < 0.78:
        return f"{verb}-{thing.replace('_', '-')}"
    if style < 0.85:
        return f"{d.made_up()}_{verb}_{thing}"
    if style < 0.93:
        return f"{verb}_{snake(d.word('adjective'))}_{thing}"
    return snake(d.made_up(2)) if style < 0.97 else verb.capitalize() + "".join(p.capitalize() for p in thing.split("_"))


def build(d: Draw, action: int = -1, thing: str = "") -> dict:
    """A new tool, with its schema and what is needed to ask for it."""
    action = d.range(0, len(ACTIONS) - 1) if action < 0 else action
    thing = thing or thing_of(d)
    verbs, described, _, _ = ACTIONS[action]
    name = tool_name(d, d.pick(verbs.split()), thing)
    params, taken, made = {}, set(), set()
    for i, role in enumerate(d.rng.sample(ROLES, d.pick([0, 1, 1, 1, 2, 2, 2, 3, 3, 4]))):
        style, option = d.rng.random(), d.pick(role.names)
        if style < 0.1:
            option = d.made_up(2)
            made.add(f"p{i}")
        elif style < 0.2:
            option = f"{snake(thing)}_{option}"
        elif style < 0.25:
            option = f"{option}_{d.pick(['name', 'value', 'code', 'info', 'of'])}"
        elif style < 0.29 and "_" in option:
            head, *rest = option.split("_")
            option = head + "".join(p.capitalize() for p in rest)
        if option in taken:
            continue
        taken.add(option)
        params[f"p{i}"] = (option, spec_of(d, role))
    must = [k for k in params if d.chance(0.8)]
    with_texts = d.chance(0.6)
    properties = {n: listed.schema_of(d, s, with_texts) for n, s in params.values()}
    if d.chance(0.18):
        extra, schema = d.pick(listed.OPTIONAL)
        properties.setdefault(extra, dict(schema))
    schema = {"type": "object", "properties": properties}
    if must or d.chance(0.5):
        schema["required"] = [params[k][0] for k in must]
    if d.chance(0.12):
        schema["additionalProperties"] = False
    function = {"name": name}
    word, article = SAME.get(thing, thing) if d.chance(0.15) else thing, d.pick(["a", "the", "the", "one", "any"])
    text = f"{d.pick(described.split('|'))} {article} {word}" + d.pick(["", "", "", ".", ".", f" of a {d.pick(['customer', 'user', 'company'])}", f" in the {d.pick(['system', 'house', 'office'])}"])
    if d.chance(0.9) or thing not in name:
        function["description"] = text
    if params or d.chance(0.7):
        function["parameters"] = schema
    if d.chance(0.06):
        function = {k: function[k] for k in d.rng.sample(list(function), len(function))}
    return {"name": name, "params": params, "must": must, "made": made, "action": action, "thing": thing, "entry": (name, text), "schema": {"type": "function", "function": function}}


def values_of(d: Draw, tool: dict) -> dict:
    return {k: spec["draw"](d) for k, (_, spec) in tool["params"].items() if "must" not in tool or k in tool["must"] or d.chance(0.5)}


# --- how a user asks for it -----------------------------------------------------------------------------------------


def spoken(d: Draw, value, quote: bool) -> str:
    if isinstance(value, bool):
        return d.pick(["true", "yes", "on"] if value else ["false", "no", "off"])
    if isinstance(value, list):
        items = [str(v) for v in value]
        return json.dumps(value, ensure_ascii=False) if d.chance(0.15) else ", ".join(items[:-1]) + d.pick([" and ", " and ", ", "]) + items[-1] if len(items) > 1 else items[0]
    if isinstance(value, dict):
        return d.pick([", ", " and "]).join(f"{k} {v}" for k, v in value.items())
    if quote and isinstance(value, str) and not isinstance(value, Plain):
        return f'"{value}"' if '"' not in value else f"'{value}'"
    return str(value)


def way_of(d: Draw, name: str, spec: dict, value) -> str:
    """A value as part of the sentence, without its name where the role allows it; "" where only the name helps."""
    role, shown = spec["role"], name.replace("_", " ")
    if not role.ways:
        return ""
    if role.kind == "boolean":
        return d.pick([f"and make it {shown}", f"with {shown} on", f"as {shown}"] if value else [f"but not {shown}", f"with {shown} off", f"and do not make it {shown}"])
    way = d.pick(role.ways)
    text = spoken(d, value, False)
    if '"#"' in way and '"' in text:
        way = way.replace('"#"', "'#'")
    return way.replace("@", shown).replace("#", text)


def named(d: Draw, tool: dict, values: dict, closed: bool) -> list:
    """The arguments by their names, all in one form."""
    form = d.pick(["@ #", "@ #", "@: #", "@ = #", "@=#", "the @ is #", "@ is #", "# as @", "@ set to #", "the @ #"])
    quote, under = d.chance(0.2), d.chance(0.6)
    out = []
    for key, value in values.items():
        name, spec = tool["params"][key]
        text = spoken(d, value, quote or (spec.get("quoted", False) and (closed or len(values) > 1 or d.chance(0.8))))
        out.append(form.replace("@", name if under else name.replace("_", " ")).replace("#", text))
    return out


def request(d: Draw, tool: dict, values: dict, closed: bool = False) -> str:
    """The user's words for one call. `closed`: more words follow, so it has to be plain where the last value ends."""
    if "must" not in tool:
        return listed.asked(d, tool, values, closed)
    d.fresh |= d.held
    _, _, verbs, wishes = ACTIONS[tool["action"]]
    word = SAME[tool["thing"]] if tool["thing"] in SAME and d.chance(0.25) else tool["thing"]
    thing = d.pick(["the", "the", "a", "my", "this", "our", "that", "one"]) + " " + word
    if tool["action"] == LISTING:
        thing = d.pick(["all ", "the ", "all my ", "", "our ", "all the "]) + word + "s"
    parts = []
    if values and not set(values) & tool["made"] and d.chance(0.62):
        parts = [way_of(d, *tool["params"][k], v) for k, v in values.items()]
        parts = parts if all(parts) else []
    natural = bool(parts)
    if not natural:
        parts = named(d, tool, values, closed)
    d.rng.shuffle(parts)
    style = d.rng.random()
    bare = style < 0.14 or tool["thing"] not in json.dumps(tool["schema"])
    front = tail = ""
    if natural and style > 0.85 and parts[0].split(" ")[0] in ("for", "in", "at", "on", "from", "to", "with", "near"):
        front = parts[0][0].upper() + parts[0][1:] + ", "
        parts = parts[1:]
    if natural:
        tail = "".join(" " + p if not p.startswith(",") else p for p in parts)
    elif parts and not closed and d.chance(0.15):
        tail = d.pick(["\n", ":\n", "\n- "]) + d.pick(["\n", "\n"]).join(parts) if d.chance(0.5) else ": " + json.dumps({tool["params"][k][0]: v for k, v in values.items()}, ensure_ascii=False)
    elif parts:
        tail = d.pick([" with ", " with ", ": ", ", ", " using ", " where ", " ("]) + d.pick([", ", " and ", ", ", "; "]).join(parts)
        tail += ")" if " (" in tail[:2] else ""
    if bare:
        text = d.pick(half(d, "bare")).replace("{n}", tool["name"]) + tail
        return text if d.chance(0.5) or "\n" in tail else text + "."
    if not front and style < 0.24 and (natural or not parts):
        wish = d.pick(wishes.split("|"))
        end = wish[-1] if wish[-1] in "?!." else "."
        text = wish.rstrip("?!.").replace("{o}", thing + tail) + end
        return text[0].upper() + text[1:]
    frame = d.pick(half(d, "frames")).replace("{n}", tool["name"])
    apart = d.chance(0.2) and parts and not natural and not closed
    if apart or "\n" in tail:
        names = ("the ", *(tool["params"][k][0].replace("_", " ") for k in values), *(tool["params"][k][0] for k in values))
        tail = tail.replace(":\n", "\n") if "\n" in tail else d.pick([" ", "\n"]) + ". ".join(p[0].upper() + p[1:] if p.startswith(names) and d.chance(0.7) else p for p in parts) + "."
        text = frame.replace("{v}", f"{d.pick(verbs.split('|'))} {thing}") + tail
    else:
        text = frame.replace("{v}", f"{d.pick(verbs.split('|'))} {thing}{tail}")
    if front:
        return front + (text if text[:2] in ("I ", "I'") else text[0].lower() + text[1:])
    return text if text.startswith(tool["name"]) else text[0].upper() + text[1:]


SMALL = {frame.split(" ")[0].rstrip(",:!") for frame in toolbox.FRAMES if frame[0] != "{"} - {"I", "I'd", "My", "OK"} | {v.split(" ")[0].capitalize() for a in ACTIONS for v in a[2].split("|")} | {"What", "Tell", "How", "Is", "Do", "Which", "Where", "Add", "Put", "Wake", "Remind", "Translate", "Play", "Turn", "Switch"}


def joined(d: Draw, texts: list) -> str:
    """Several requests as one message."""
    style = d.rng.random()
    if style < 0.12:
        return d.pick(["", "Please do this:\n", "Some things to do:\n", "I need these:\n", "To do:\n"]) + "\n".join(d.pick(["- "]) + t for t in texts)
    if style < 0.24:
        return d.pick(["", "Please do this:\n", "Two things or more:\n", "My list:\n"]) + "\n".join(f"{i + 1}. {t}" for i, t in enumerate(texts))
    out = texts[0]
    for text in texts[1:]:
        joint = d.pick(half(d, "joints"))
        starts_new = joint in (". ", "\n", ". Second: ", ". Once more: ")
        if not starts_new:
            if text.split(" ")[0].rstrip(",") in SMALL:
                text = text[0].lower() + text[1:]
            elif text[:2] != "I " and text[:2] != "I'":
                joint = d.pick([". ", "\n"])
        if out[-1] in ".?!":
            joint = joint[1:] if joint.startswith(".") else joint if joint == "\n" else joint if out[-1] == "." else " "
            if out[-1] == "." and joint[:1] in ",;" or joint.startswith(" and") and out[-1] == ".":
                out = out[:-1]
        out += joint + text
    return out


# --- the answer -----------------------------------------------------------------------------------------------------


def think(tools: list, calls: list) -> str:
    """Each tool with yes or no, then each call with its arguments."""
    wanted = {call["name"] for call in calls}
    out = [f"{t['name']}: {'yes' if t['name'] in wanted else 'no'}." for t in tools]
    said = lambda c: ", ".join(f"{k} is {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}" for k, v in c["arguments"].items()) or "no arguments"
    if len(calls) == 1:
        out.append(said(calls[0]) + ".")
    elif calls:
        out.append(f"{len(calls)} calls.")
        out += [f"{i + 1} {c['name']}: {said(c)}." for i, c in enumerate(calls)]
    return " ".join(out)


def plainly(result: dict) -> str:
    """All of a result in words, whatever it is."""
    parts = []
    for key, value in result.items():
        shown = key.replace("_", " ")
        if isinstance(value, list):
            parts.append(f"the {shown}: {', '.join(map(str, value))}")
        elif not isinstance(value, bool):
            parts.append(f"the {shown} is {value}")
    text = ", ".join(parts) if parts else "Done."
    text += "" if text[-1] in ".?!" else "."
    return text[0].upper() + text[1:]


def result_of(d: Draw, tool: dict, values: dict) -> dict:
    if "must" not in tool:
        return {k: (values[v] if isinstance(v, str) else v(d)) for k, v in tool["entry"][4].items()}
    names = d.rng.sample(list(RESULTS), d.pick([1, 1, 2, 2, 3, 4]))
    return {(n if d.chance(0.85) else d.made_up(2) if d.chance(0.5) else f"{snake(tool['thing'])}_{n}"): RESULTS[n](d) for n in names}


def result_text(d: Draw, result: dict) -> str:
    form = d.range(0, 4)
    if form == 0 and len(result) == 1:
        only = next(iter(result.values()))
        return ", ".join(map(str, only)) if isinstance(only, list) else "ok" if isinstance(only, bool) else str(only)
    if form == 1:
        return "\n".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in result.items())
    return json.dumps(result, ensure_ascii=False, indent=2 if d.chance(0.1) else None)


def told(d: Draw, tool: dict, values: dict, result: dict):
    """(answer, check) after a result."""
    if "must" in tool or d.chance(0.35):
        answer = plainly(result)
    else:
        answer = listed.answer_of(d, tool, values, result)
    said = [v for v in result.values() if not isinstance(v, (bool, list)) and str(v) in answer]
    said += [i for v in result.values() if isinstance(v, list) for i in v if str(i) in answer]
    if said:
        return answer, contains(*said)
    shown = [str(v) for v in list(values.values()) + list(result.values()) if not isinstance(v, (bool, list, dict))]
    return answer, anything("Done", "done", *shown)


def call_of(tool: dict, values: dict) -> dict:
    """Arguments in the order of the schema."""
    return {"name": tool["name"], "arguments": listed.arguments(tool, {k: values[k] for k in tool["params"] if k in values})}


# --- the tools of a conversation ------------------------------------------------------------------------------------


def some_tool(d: Draw, more: bool = False) -> dict:
    if d.chance(LISTED_SHARE):
        tool = listed.make(d, d.pick([e for e in listed.entries(d) if len(e) > 6] if more else listed.entries(d)))
        d.fresh |= d.held
        return tool
    return build(d)


def words_of(tool: dict) -> str:
    return (tool["name"] + " " + tool["entry"][1]).lower()


def clash(a: dict, b: dict) -> bool:
    """Whether one question could mean both tools."""
    if a["name"] == b["name"] or a["entry"][1] == b["entry"][1]:
        return True
    if "thing" in a and "thing" in b:
        same = SAME.get(a["thing"], a["thing"]) == SAME.get(b["thing"], b["thing"])
        near = {frozenset(p) for p in ((0, 8), (0, 14), (0, 9), (8, 9), (9, 14), (1, 4), (1, 10), (3, 10), (1, 13), (7, 13), (4, 15), (10, 12), (3, 12), (2, 6), (8, 15), (7, 1), (11, 0), (8, 14))}
        return same and (a["action"] == b["action"] or frozenset((a["action"], b["action"])) in near)
    if "thing" in a or "thing" in b:
        new, old = (a, b) if "thing" in a else (b, a)
        return new["thing"] in words_of(old) or SAME.get(new["thing"], new["thing"]) in words_of(old)
    return listed.overlapping(a, [b])


def look(value) -> str:
    """What kind of thing a value looks like to one who does not know its name."""
    if isinstance(value, bool) or isinstance(value, (list, dict)):
        return type(value).__name__
    if isinstance(value, (int, float)):
        return "number"
    for kind, form in LOOKS:
        if form.search(value):
            return kind
    return "text"


LOOKS = [(kind, re.compile(form)) for kind, form in (("mail", r"^\S+@\S+$"), ("url", r"^https?:"), ("date", r"^\d{4}-\d\d-\d\d$"), ("time", r"^\d\d?:\d\d"), ("path", r"^\S*[/.]\S+$"), ("code", r"^\S*\d\S*$"), ("name", r"^[A-Z]\S*( [A-Z]\S*)?$"), ("word", r"^\S+$"))]


def could_take(d: Draw, tool: dict, values: dict) -> bool:
    """Whether values of such a look are all that the tool has to be given: then a request may well mean it."""
    need = {look(spec["draw"](d)) for k, (_, spec) in tool["params"].items() if "must" not in tool or k in tool["must"]}
    return bool(need) and need <= {look(v) for v in values.values()}


VAGUE = ["{t}.", "{t}", "{t}, please.", "I need it {t}.", "Something {t}, please.", "Can you do that {t}?", "One {t}.", "Do it {t}.", "What about {t}?", "Take care of it {t}.", "Once {t}.", "I would like that {t}.", "Would you do it {t}?", "Now {t}.", "Please do it {t}.", "How about {t}?", "The usual {t}.", "Get it done {t}."]


def vague(d: Draw, tool: dict, values: dict) -> str:
    """A request that does not say what to do: only the arguments tell which tool is meant."""
    parts = [way_of(d, *tool["params"][k], v) for k, v in values.items()] if d.chance(0.7) and not set(values) & tool["made"] else []
    natural = parts and all(parts)
    if not natural:
        parts = named(d, tool, values, False)
    d.rng.shuffle(parts)
    text = (" " if natural else d.pick([", ", " and ", "; "])).join(parts).lstrip(", ")
    text = d.pick(VAGUE).replace("{t}", text if natural or d.chance(0.5) else "with " + text)
    return text


def others(d: Draw, wanted: list, size: int) -> list:
    """The wanted tools among others that cannot be meant, shuffled."""
    tools = list(wanted)
    for _ in range(12 * size):
        if len(tools) >= size:
            break
        base = d.pick(wanted)
        if "thing" in base and d.chance(0.4):
            other = build(d, thing=base["thing"]) if d.chance(0.5) else build(d, action=base["action"])
        else:
            other = some_tool(d)
        if not any(clash(other, t) for t in tools):
            tools.append(other)
    d.rng.shuffle(tools)
    return tools


def size_of(d: Draw) -> int:
    if d.early:
        return d.pick([1, 1, 2])
    return d.pick([1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8])


def turn(d: Draw, tool: dict) -> list:
    """An earlier question that a tool has answered."""
    values = values_of(d, tool)
    result = result_of(d, tool, values)
    user = request(d, tool, values)
    return [{"role": "user", "content": user}, {"role": "assistant", "content": "", "calls": [call_of(tool, values)]}, {"role": "tool", "content": result_text(d, result)}, {"role": "assistant", "content": told(d, tool, values, result)[0]}]


def note_of(wanted: list) -> str:
    made = sum("must" in t for t in wanted)
    return "invented tools" if made == len(wanted) else "listed tools" if not made else "both"


def calls_task(d: Draw, user: str, calls: list, tools: list, **more) -> Task:
    kind = "tool call" if len(calls) == 1 else "tool calls"
    answer = d.pick(["I will look.", "One moment.", "Let me check."]) if d.chance(0.02) else ""
    names = {c["name"] for c in calls}
    return Task(kind, user, answer, think(tools, calls), listed.calls_check(calls), calls=calls, tools=[t["schema"] for t in tools], system=d.pick(listed.SYSTEMS), plain=True, note=note_of([t for t in tools if t["name"] in names]), **more)


# --- the tasks ------------------------------------------------------------------------------------------------------


def one_call(d: Draw) -> Task:
    tool = some_tool(d)
    tools = others(d, [tool], size_of(d))
    values = values_of(d, tool)
    history = []
    if d.chance(0.14):
        for _ in range(d.pick([1, 1, 2])):
            history += turn(d, tool if d.chance(0.5) else d.pick(tools))
    text = ""
    if "must" in tool and values and d.chance(0.2) and (len(tools) == 1 or not any(could_take(d, t, values) or not t["params"] for t in tools if t is not tool)):
        d.fresh |= d.held
        text = vague(d, tool, values)
    text = text or request(d, tool, values)
    if d.chance(0.07):
        text = d.pick([d.sentence(), toolbox.text_of(d), d.pick(BEFORE)]) + d.pick([" ", " ", "\n", "\n\n"]) + text
    return calls_task(d, text, [call_of(tool, values)], tools, history=history)


BEFORE = ["I need help.", "Here is what I need.", "I am in a hurry.", "My day was long.", "I hope you can do this.", "This is for work.", "I have a question.", "One more thing.", "Sorry to bother you.", "Good morning!", "It is important.", "I forgot something."]
LISTABLE = {"for #|of #|for the @ #|of the @ #", "in #|at #|near #|for #", "in #|for #|from #", "with id #|number #|no. #|with the number #|#", "with the code #|#|(#)|under #|with @ #", "on #|every #|for #", "in the @ #|with the @ #|under the @ #|for the @ #"}


def listable(spec: dict) -> bool:
    """Whether "a, b and c" can stand for the value and mean one call for each."""
    role = spec.get("role")
    return role is not None and role.kind in ("string", "integer") and ("|".join(role.ways) in LISTABLE or not role.ways) and not role.more


def same_tool(d: Draw) -> Task:
    """One tool, several calls: for each of a list of values, or request after request."""
    style, count = d.rng.random(), d.pick([2, 2, 2, 3, 3, 4])
    tool = some_tool(d, style < 0.55)
    while not tool["params"] or ("must" in tool and style < 0.55 and not any(listable(s) for _, s in tool["params"].values())):
        tool = some_tool(d, style < 0.55)
    tools = others(d, [tool], size_of(d))
    values = values_of(d, tool)
    if style < 0.55:
        keys = [k for k, (_, s) in tool["params"].items() if "must" not in tool or listable(s)][: None if "must" in tool else 1]
        key = d.pick(keys)
        draw = tool["params"][key][1]["draw"]
        values[key], many = values.get(key, draw(d)), []
        for _ in range(40):
            value = draw(d)
            if value not in many and len(many) < count:
                many.append(value)
        if len(many) < 2:
            return same_tool(d)
        calls = [call_of(tool, {**values, key: v}) for v in many]
        together = Plain(", ".join(map(str, many[:-1])) + d.pick([" and ", " and ", " and also ", ", "] if len(many) > 2 else [" and ", " and ", " and also "]) + str(many[-1]))
        return calls_task(d, request(d, tool, {**values, key: together}) + d.pick(ALL), calls, tools)
    sets = [values]
    while len(sets) < count:
        sets.append(values_of(d, tool))
    if style > 0.85 and "must" in tool and tool["params"]:
        text = request(d, tool, values, closed=True)
        keys = d.rng.sample(list(values), d.range(1, min(2, len(values)))) if values else []
        if keys:
            sets = [values] + [{**values, **{k: tool["params"][k][1]["draw"](d) for k in keys}} for _ in range(count - 1)]
            text += "" if text[-1] in ".?!" else "."
            for more in sets[1:]:
                text += d.pick([" The same with ", " Again with ", " And once with ", " Do it also with "]) + " and ".join(named(d, tool, {k: more[k] for k in keys}, True)) + "."
            return calls_task(d, text, [call_of(tool, s) for s in sets], tools)
    texts = [request(d, tool, s, closed=i + 1 < len(sets)) for i, s in enumerate(sets)]
    return calls_task(d, joined(d, texts), [call_of(tool, s) for s in sets], tools)


def many_tools(d: Draw) -> Task:
    """Different tools in one answer."""
    count = d.pick([2, 2, 2, 2, 3, 3, 4])
    wanted = others(d, [some_tool(d)], count)
    tools = others(d, wanted, max(len(wanted), size_of(d)))
    sets = [values_of(d, t) for t in wanted]
    texts = [request(d, t, s, closed=i + 1 < len(wanted)) for i, (t, s) in enumerate(zip(wanted, sets))]
    return calls_task(d, joined(d, texts), [call_of(t, s) for t, s in zip(wanted, sets)], tools)


def result(d: Draw) -> Task:
    tool = some_tool(d)
    tools = others(d, [tool], size_of(d))
    values = values_of(d, tool)
    user, call = request(d, tool, values), call_of(tool, values)
    after = [{"role": "assistant", "content": "", "thought": think(tools, [call]), "calls": [call]}]
    more = dict(tools=[t["schema"] for t in tools], system=d.pick(listed.SYSTEMS), after=after, plain=True, note=note_of([tool]))
    if d.chance(0.12):
        fault = d.pick(listed.FAULTS + [f"the {d.any_word()} is missing", f"{d.any_word()} not known", f"code {d.number(100, 999)}"])
        after.append({"role": "tool", "content": json.dumps({"error": fault}) if d.chance(0.6) else f"error: {fault}"})
        return Task("tool result", user, f"That did not work: {fault}.", f"The tool reports an error: {fault}.", contains(fault), **more)
    found = result_of(d, tool, values)
    after.append({"role": "tool", "content": result_text(d, found)})
    answer, check = told(d, tool, values, found)
    return Task("tool result", user, answer, "The tool has answered. I tell the user.", check, **more)


def results(d: Draw) -> Task:
    """Two tools have answered."""
    wanted = others(d, [some_tool(d)], 2)
    tools = others(d, wanted, max(2, size_of(d)))
    sets = [values_of(d, t) for t in wanted]
    user = joined(d, [request(d, t, s, closed=i == 0) for i, (t, s) in enumerate(zip(wanted, sets))])
    calls = [call_of(t, s) for t, s in zip(wanted, sets)]
    after = [{"role": "assistant", "content": "", "thought": think(tools, calls), "calls": calls}]
    answers, said = [], []
    for t, s in zip(wanted, sets):
        found = result_of(d, t, s)
        after.append({"role": "tool", "content": result_text(d, found)})
        answers.append(plainly(found))
        said += [v for v in found.values() if not isinstance(v, (bool, list))]
    check = contains(*said) if said else exact(" ".join(answers))
    return Task("tool result", user, " ".join(answers), "The tools have answered. I tell the user.", check, tools=[t["schema"] for t in tools], system=d.pick(listed.SYSTEMS), after=after, plain=True)


def missing(d: Draw) -> Task:
    """A request for which none of the tools is made, and which does not give what any of them needs."""
    wanted = some_tool(d)
    while not wanted["params"] or wanted["name"] in ("calculate", "calculator", "compute", "evaluate", "math"):
        wanted = some_tool(d)
    values = values_of(d, wanted)
    tools = [t for t in others(d, [wanted], 1 + size_of(d)) if t is not wanted and not could_take(d, t, values)]
    text = request(d, wanted, values)
    if not tools or wanted["name"] in text:
        return missing(d)
    return Task("no tool", text, "I have no tool for that.", think(tools, []) + " No tool fits.", {"type": "nocall", "all": ["no tool"]}, tools=[t["schema"] for t in tools], system=d.pick(listed.SYSTEMS), plain=True)


def none(d: Draw) -> Task:
    """Tools for a question that needs none; the caller puts the question in."""
    tools = others(d, [some_tool(d)], size_of(d))
    return Task("no tool", tools=[t["schema"] for t in tools], system=d.pick(listed.SYSTEMS))


STYLES = [one_call] * 20 + [result] * 9 + [results] * 2 + [same_tool] * 7 + [many_tools] * 5 + [missing] * 3 + [none] * 6


def use(d: Draw) -> Task:
    return d.pick(STYLES)(d)
