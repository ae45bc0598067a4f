"""Whether an answer is right, by the check that came with the question."""

import json
import re

CALL = re.compile(r"<tool_call>\s*<function=([^>\n]+)>\n?(.*?)</function>\s*</tool_call>", re.S)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>", re.S)


def typed(text: str, schema: dict):
    """A parameter's text as its schema wants it; text that does not fit stays text."""
    if schema.get("type") in (None, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_calls(text: str, tools: list) -> list:
    schemas = {t["function"]["name"]: t["function"].get("parameters", {}).get("properties", {}) for t in tools}
    calls = []
    for name, body in CALL.findall(text):
        known = schemas.get(name, {})
        calls.append({"name": name, "arguments": {key: typed(value, known.get(key, {})) for key, value in PARAMETER.findall(body)}})
    return calls


def same(a, b) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) < 1e-9
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def parsed(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return None


def right(check: dict, content: str, calls: list) -> bool:
    """`content` is the visible answer, `calls` the structured calls [{"name", "arguments"}]."""
    kind, content = check["type"], (content or "").strip()
    if kind == "calls":
        return same(calls, check["value"])
    if calls:
        return False
    if kind == "nocall":
        return right(check["inner"], content, calls) if "inner" in check else all(part in content for part in check["all"])
    if kind == "exact":
        return content == check["value"].strip()
    if kind == "contains":
        return all(part in content for part in check["all"]) and not any(part in content for part in check["none"])
    if kind == "any":
        return any(part in content for part in check["any"])
    if kind == "number":
        found = re.findall(r"-?\d+(?:\.\d+)?", content)
        return bool(found) and float(found[-1]) == float(check["value"])
    if kind == "json":
        return content.startswith(("{", "[")) and same(parsed(content), check["value"])
    if kind == "json_values":
        value = parsed(content)
        return isinstance(value, dict) and same(sorted(map(repr, value.values())), sorted(map(repr, check["value"])))
    if kind == "json_keys":
        value = parsed(content)
        return isinstance(value, dict) and list(value) == check["value"]
    if kind == "items":
        return len(set(content.split(", "))) == check["count"]
    if kind == "nonempty":
        return bool(content)
    raise ValueError(f"unknown check {kind}")
