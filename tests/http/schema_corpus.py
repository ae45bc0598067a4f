"""Schemas for structured output: those that people write, by hand, and combinations of small ones, drawn with a fixed seed.

Each is a pair of its name and the schema. All are valid schemas of their draft; whether the server takes or refuses one is
for the test to see: what it takes must be kept.
"""

import random

OBJECT = {"type": "object", "additionalProperties": False}


def closed(required=None, **properties):
    """An object of these properties and no others."""
    names = list(properties) if required is None else required
    return {**OBJECT, "properties": properties, "required": names}


STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))
SHORT = {"type": "string", "maxLength": 8}
TREE = {"$defs": {"N": closed(v={"$ref": "#/$defs/C"}, kids={"type": "array", "items": {"$ref": "#/$defs/N"}, "maxItems": 2}),
                  "C": {"enum": ["red", "blue", 3, None]}}, "$ref": "#/$defs/N"}

SCALARS = [
    {}, True, STRING, INTEGER, NUMBER, BOOLEAN, NULL, {"type": ["string", "null"]}, {"type": ["integer", "boolean", "null"]},
    {"type": "object"}, {"type": "array"}, {"type": ["array", "object"], "maxItems": 2}, {"title": "anything", "description": "at all"},
    {"const": "x"}, {"const": 17}, {"const": -1.5}, {"const": None}, {"const": True}, {"const": {"a": [1, {"b": None}]}}, {"const": []},
    {"const": "quote \" slash \\ \n line \u00e9 \U0001f600 \u007f"}, {"const": 1e22}, {"const": 0.1}, {"const": 1e-7}, {"const": -0.0},
    {"const": 9007199254740993}, {"const": 12345678901234567890}, {"const": 2.0}, {"const": ""}, {"const": {}},
    {"enum": ["a", "b"]}, {"enum": [1, 2.5, "three", None, True, [4], {"five": 5}]}, {"enum": ["", " ", "\t"]}, {"enum": [0]},
    {"enum": ["a", "ab", "abc"]}, {"enum": [1, 10, 100]}, {"type": "string", "enum": ["a", 1]}, {"type": "integer", "enum": [1, 2]},
    {"enum": ["a", "b", "c"], "not": {"const": "b"}},
]

STRINGS = [
    {"minLength": n, "maxLength": m} for n, m in ((0, 0), (0, 1), (1, 1), (2, 5), (7, 7), (0, 40), (30, 33))
] + [
    {"pattern": p} for p in (
        "^[a-z]{2,4}$", "^a*$", "^(foo|bar)-[0-9]+$", "^\\d{3}-\\d{4}$", "^\\w+$", "^[^\"\\\\]{1,6}$", "^\\S{1,5}$", "^.{3}$", "^[A-Z][a-z]*( [A-Z][a-z]*)?$",
        "^\\+?[1-9]\\d{1,14}$", "^#[0-9a-fA-F]{6}$", "^(?:[a-z0-9]+\\.)+[a-z]{2,}$", "^\\$\\{[a-z]+\\}$", "^[\\u00e0-\\u00ff]{1,4}$", "^v\\d+\\.\\d+\\.\\d+(-rc\\d)?$",
        "^\\/[a-z\\/]*$", "^[\\s]{1,3}$", "^$", "^(a|b|c){2}$", "^\\x41\\x42$", "^[+-]?\\d+$", "x", "^ab", "yz$", "[0-9]", "a|b", "^a|b$", "(^x|y$)", "",
        "^(?!a)", "(?<=a)b", "^(a)\\1$", "\\bword\\b", "^[a-z", "^a{5000}$")
] + [
    {"pattern": "^[a-z]+$", "minLength": 3, "maxLength": 5}, {"pattern": "^.*a.*$", "maxLength": 6}, {"pattern": "^a", "minLength": 4, "maxLength": 6},
    {"pattern": "^[ab]*$", "minLength": 4}, {"pattern": "^a$", "minLength": 2}, {"pattern": "^[\u00e9\U0001f600]+$", "minLength": 2, "maxLength": 2},
    {"minLength": 3}, {"minLength": 5, "maxLength": 4},
] + [
    {"format": f} for f in ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference", "iri", "idn-email",
                            "idn-hostname", "regex", "json-pointer", "relative-json-pointer", "uri-template", "color", "phone", "binary", "unknown")
] + [
    {"format": "date", "pattern": "^20"}, {"format": "date", "maxLength": 10}, {"format": "email", "maxLength": 12}, {"format": "ipv4", "pattern": "^10\\."},
    {"format": "uuid", "pattern": "^[0-9a-f-]*$"}, {"format": "date", "maxLength": 5}, {"format": "date-time", "pattern": "Z$"},
]

NUMBERS = [
    {"type": t, **bounds} for t in ("integer", "number") for bounds in (
        {"minimum": 1, "maximum": 5}, {"minimum": 0}, {"maximum": 0}, {"minimum": -3, "maximum": 3}, {"exclusiveMinimum": 0}, {"exclusiveMaximum": 0},
        {"exclusiveMinimum": 1, "exclusiveMaximum": 3}, {"minimum": 100, "maximum": 12345}, {"minimum": -1000, "maximum": -999}, {"minimum": 7, "maximum": 7},
        {"multipleOf": 1}, {"multipleOf": 3}, {"multipleOf": 7, "minimum": 10, "maximum": 30}, {"minimum": 5, "maximum": 4}, {"multipleOf": 100},
        {"exclusiveMinimum": 9, "maximum": 10}, {"minimum": 0, "exclusiveMaximum": 1e6}, {"minimum": -1e10, "maximum": 1e10}, {"maximum": 99})
] + [
    {"type": "number", **bounds} for bounds in (
        {"minimum": 0.5, "maximum": 0.75}, {"minimum": -0.25, "maximum": 0.25}, {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"multipleOf": 0.5},
        {"multipleOf": 0.01, "minimum": 0, "maximum": 1}, {"multipleOf": 0.1}, {"multipleOf": 2.5}, {"minimum": 1e-7, "maximum": 1e-6},
        {"minimum": 1.5}, {"maximum": -1.5}, {"minimum": 1e20}, {"maximum": 0.001}, {"exclusiveMinimum": 1.25, "maximum": 1.5}, {"minimum": 19.99, "maximum": 20.01},
        {"exclusiveMaximum": -0.5}, {"minimum": -2, "exclusiveMaximum": -1}, {"multipleOf": 1e-9}, {"minimum": 1e300})
] + [
    {"type": "integer", "minimum": 1.5, "maximum": 3.5}, {"type": "integer", "minimum": 0.2, "maximum": 0.8}, {"type": "integer", "multipleOf": 0.5},
    {"type": "integer", "multipleOf": 1.5, "maximum": 12}, {"minimum": 3, "maximum": 4}, {"type": ["integer", "string"], "minimum": 3, "maximum": 4, "maxLength": 2},
    {"type": "integer", "format": "int32"}, {"type": "number", "format": "double", "minimum": 0, "maximum": 1}, {"type": "integer", "multipleOf": 0},
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 5},
]

ARRAYS = [
    {"items": INTEGER}, {"items": STRING, "maxItems": 3}, {"items": BOOLEAN, "minItems": 2, "maxItems": 2}, {"items": NULL, "minItems": 1}, {"items": False},
    {"items": {}, "maxItems": 0}, {"maxItems": 1}, {"minItems": 3, "items": {"enum": [1, 2]}, "maxItems": 4}, {"items": {"type": "array", "items": INTEGER, "maxItems": 2}, "maxItems": 2},
    {"prefixItems": [INTEGER, SHORT]}, {"prefixItems": [INTEGER, SHORT], "items": False}, {"prefixItems": [BOOLEAN], "items": NULL, "minItems": 2, "maxItems": 4},
    {"prefixItems": [BOOLEAN, NULL], "items": False, "minItems": 2}, {"prefixItems": [BOOLEAN, NULL], "minItems": 3, "maxItems": 3}, {"prefixItems": [False]},
    {"prefixItems": [INTEGER, False], "items": INTEGER}, {"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 1, "maxItems": 2}, {"items": INTEGER, "uniqueItems": True},
    {"items": {"enum": [1, 2, 3]}, "uniqueItems": False, "maxItems": 3}, {"contains": INTEGER}, {"contains": {"const": 5}, "minContains": 0}, {"minItems": 4, "maxItems": 3},
    {"items": closed(x=INTEGER), "maxItems": 2}, {"unevaluatedItems": False}, {"items": {"minimum": 3, "maximum": 5}, "maxItems": 3},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [INTEGER, SHORT], "additionalItems": False},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [INTEGER], "additionalItems": BOOLEAN, "maxItems": 3},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": INTEGER, "additionalItems": False, "maxItems": 3},
]

OBJECTS = [
    closed(a=INTEGER, b=BOOLEAN), closed([], a=INTEGER, b=BOOLEAN), closed(["b"], a=INTEGER, b=BOOLEAN, c=NULL), closed(), {"properties": {"a": INTEGER}},
    {"properties": {"a": INTEGER}, "additionalProperties": BOOLEAN}, {"properties": {"a": BOOLEAN, "b": BOOLEAN}, "additionalProperties": INTEGER, "required": ["b", "z"]},
    {"additionalProperties": {"type": "array", "items": BOOLEAN, "maxItems": 2}}, {"required": ["x"]}, {"required": ["x"], "additionalProperties": False},
    {"required": ["x", "y"], "additionalProperties": INTEGER}, {"properties": {"a": False, "b": INTEGER}, "additionalProperties": False},
    {"properties": {"a": False}, "required": ["a"]}, {"properties": {"a": {}, "b": True}, "required": ["a", "b"], "additionalProperties": False},
    {"patternProperties": {"^s_": SHORT}, "additionalProperties": False}, {"patternProperties": {"^s_": SHORT, "^n_": INTEGER}, "additionalProperties": False},
    {"patternProperties": {"^s_": SHORT}, "additionalProperties": INTEGER}, {"patternProperties": {"^s_": INTEGER}}, {"patternProperties": {"a": INTEGER, "b": BOOLEAN}},
    {"properties": {"s_a": {"maximum": 5}}, "patternProperties": {"^s_": {"type": "integer", "minimum": 3}}, "required": ["s_a"], "additionalProperties": False},
    {"patternProperties": {"^[a-z]$": {"type": "integer"}}, "additionalProperties": False, "minProperties": 1, "maxProperties": 2},
    {"minProperties": 1}, {"minProperties": 2}, {"maxProperties": 2}, {"maxProperties": 0}, {"minProperties": 3, "maxProperties": 2}, {"minProperties": 1, "maxProperties": 1},
    {"properties": {"a": INTEGER, "b": INTEGER}, "minProperties": 1, "additionalProperties": False}, {"properties": {"a": INTEGER, "b": INTEGER}, "maxProperties": 1, "additionalProperties": False},
    {"properties": {"a": INTEGER, "b": INTEGER}, "minProperties": 2, "additionalProperties": False}, {"properties": {"a": INTEGER}, "required": ["a"], "minProperties": 3},
    {"properties": {"a": INTEGER}, "required": ["a"], "maxProperties": 2}, {"additionalProperties": INTEGER, "minProperties": 4}, {"propertyNames": {"pattern": "^a"}},
    {"propertyNames": {"enum": ["a", "b"]}}, {"dependentRequired": {"a": ["b"]}}, {"dependentSchemas": {"a": {"required": ["b"]}}}, {"unevaluatedProperties": False},
    {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}},
    closed(**{"a b": INTEGER, "c\"d": INTEGER, "e\\f": INTEGER, "\u00e9": INTEGER, "": INTEGER, "$ref": INTEGER, "type": STRING | {"maxLength": 3}}),
    {"properties": {"c\"d": BOOLEAN, "n\nl": BOOLEAN}, "additionalProperties": INTEGER}, closed(**{f"p{i}": BOOLEAN for i in range(30)}), closed([], **{f"p{i}": BOOLEAN for i in range(12)}),
    closed(deep=closed(deeper=closed(deepest=closed(x=BOOLEAN)))), closed(a={"type": ["object", "null"], "properties": {"b": INTEGER}, "additionalProperties": False}),
    {"properties": {"if": INTEGER, "not": BOOLEAN, "enum": NULL}, "required": ["if", "not", "enum"], "additionalProperties": False},
    {"properties": {"a": {"default": 3, "type": "integer"}, "b": {"examples": [1], "readOnly": True, "type": "boolean"}}, "additionalProperties": False, "required": ["a", "b"]},
]

REFERENCES = [
    TREE,
    {"properties": {"a": {"anyOf": [INTEGER, SHORT]}, "b": {"$ref": "#/properties/a/anyOf/0"}}, "required": ["a", "b"], "type": "object", "additionalProperties": False},
    {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, {"$ref": "#"}, {"$ref": "#/$defs/none"}, {"$ref": "http://example.org/a"},
    {"$ref": "other.json"}, {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor", "type": "integer"}}}, {"$dynamicRef": "#x", "$defs": {"a": {"$dynamicAnchor": "x"}}},
    {"definitions": {"P": closed(x=INTEGER)}, "type": "array", "items": {"$ref": "#/definitions/P"}, "maxItems": 2},
    {"$defs": {"E": {"enum": ["x", "y"]}}, **closed(e={"$ref": "#/$defs/E"}, f={"$ref": "#/$defs/E", "description": "a sibling"})},
    {"$defs": {"E": {"type": "integer"}}, **closed(e={"$ref": "#/$defs/E", "minimum": 3, "maximum": 5})},
    {"$defs": {"L": {"anyOf": [NULL, closed(v=BOOLEAN, next={"$ref": "#/$defs/L"})]}}, "$ref": "#/$defs/L"},
    {"$defs": {"L": closed(["v"], v=BOOLEAN, next={"$ref": "#/$defs/L"})}, "$ref": "#/$defs/L"},
    {"$defs": {"L": closed(v=BOOLEAN, next={"$ref": "#/$defs/L"})}, "$ref": "#/$defs/L"},
    {"$defs": {"X": {"type": "array", "items": {"$ref": "#/$defs/Y"}, "maxItems": 2}, "Y": closed(["k"], k=INTEGER, x={"$ref": "#/$defs/X"})}, "$ref": "#/$defs/Y"},
    {"$defs": {"J": {"anyOf": [NULL, BOOLEAN, INTEGER, {"type": "array", "items": {"$ref": "#/$defs/J"}, "maxItems": 2}]}}, "$ref": "#/$defs/J"},
    {"$defs": {"a/b": {"const": 1}, "c~d": {"const": 2}, "e f": {"const": 3}, "\u00e9": {"const": 4}},
     "type": "array", "prefixItems": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c~0d"}, {"$ref": "#/$defs/e%20f"}, {"$ref": "#/$defs/%C3%A9"}], "minItems": 4, "items": False},
    {"$id": "http://example.org/root", "$defs": {"A": {"type": "boolean"}}, "$ref": "#/$defs/A"},
    {"$id": "http://example.org/root", "$defs": {"A": {"type": "boolean"}}, "$ref": "http://example.org/root#/$defs/A"},
    {"$defs": {"Inner": {"$id": "http://example.org/inner", "$defs": {"T": {"type": "integer"}}, "$ref": "#/$defs/T"}, "T": {"type": "boolean"}}, "$ref": "#/$defs/Inner"},
    {"type": "object", "properties": {"child": {"$ref": "#"}, "v": BOOLEAN}, "additionalProperties": False},
    {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(40)} | {"d40": {"type": "boolean"}}, "$ref": "#/$defs/d0"},
]

COMBINED = [
    {"anyOf": [INTEGER, SHORT]}, {"anyOf": [NULL, closed(a=INTEGER)]}, {"anyOf": [closed(a=INTEGER), closed(b=INTEGER)]}, {"anyOf": [False, INTEGER]}, {"anyOf": [False, False]},
    {"anyOf": [{"const": 1}, {"const": "1"}]}, {"type": "integer", "anyOf": [{"maximum": 3}, {"minimum": 30, "maximum": 32}], "minimum": 0},
    {"oneOf": [INTEGER, SHORT]}, {"oneOf": [INTEGER, NUMBER]}, {"oneOf": [closed(k={"const": "a"}, v=INTEGER), closed(k={"const": "b"}, v=BOOLEAN)]},
    {"oneOf": [closed(a=INTEGER), closed(b=INTEGER)]}, {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
    {"oneOf": [{"const": "a"}, {"const": "b"}, NULL]}, {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, {"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
    {"$defs": {"Cat": closed(kind={"const": "cat"}, lives=INTEGER), "Dog": closed(kind={"const": "dog"}, good=BOOLEAN)},
     "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}}},
    {"$defs": {"Cat": closed(["lives"], kind={"const": "cat"}, lives=INTEGER), "Dog": closed(["good"], kind={"const": "dog"}, good=BOOLEAN)},
     "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
    {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 5, "maxLength": 6}]}, {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"allOf": [{"minimum": 3}, {"maximum": 5}, INTEGER]}, {"allOf": [closed(a=INTEGER)]}, {"allOf": [{"properties": {"a": INTEGER}, "required": ["a"]}, {"properties": {"b": BOOLEAN}, "required": ["b"]}], "type": "object"},
    {"allOf": [{"type": "object", "properties": {"a": INTEGER}}, {"type": "object", "properties": {"a": {"minimum": 2, "maximum": 4}}, "additionalProperties": False, "required": ["a"]}]},
    {"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$", "maxLength": 4}]}, {"allOf": [STRING, INTEGER]}, {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]},
    {"allOf": [{"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 6}], "minimum": 1, "maximum": 100},
    {"allOf": [{"type": "array", "items": INTEGER}, {"items": {"minimum": 1, "maximum": 3}, "minItems": 1, "maxItems": 2}]},
    {"allOf": [{"type": "array", "prefixItems": [INTEGER]}, {"type": "array", "items": {"type": "integer", "maximum": 9}, "maxItems": 3}]},
    {"allOf": [{"anyOf": [INTEGER, NULL]}, {"anyOf": [NULL, BOOLEAN]}]}, {"not": INTEGER}, {"not": {}}, {"type": "string", "not": {"const": "a"}}, {"if": INTEGER, "then": {"minimum": 3}},
    {"type": "object", "properties": {"a": BOOLEAN}, "if": {"properties": {"a": {"const": True}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
    {"then": INTEGER}, {"type": "string", "const": "a", "enum": ["a", "b"]}, {"type": "string", "const": "abc", "maxLength": 2}, {"const": "abc", "pattern": "^a"}, {"const": 5, "minimum": 6},
    {"enum": [1, 5, 9], "minimum": 2}, {"enum": ["a", "bb", "ccc"], "minLength": 2}, {"enum": ["ax", "bx"], "pattern": "^a"}, {"enum": ["2020-01-01", "x"], "format": "date"},
    {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": INTEGER, "b": INTEGER}, "additionalProperties": False},
    {"type": "string", "contentEncoding": "base64", "maxLength": 4}, {"type": "string", "contentMediaType": "application/json", "maxLength": 4}, {"type": "string", "nullable": True, "maxLength": 4},
    {"type": "string", "x-vendor": {"anything": 1}, "maxLength": 4}, {"$comment": "c", "type": "boolean"}, {"x-guidance": {"lenient": True}, "type": "integer", "not": {"const": 1}},
    {"type": "object", "x-guidance": {"coerce_one_of": True}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"contentSchema": INTEGER, "type": "string"},
]

USUAL = [
    closed(name={"type": "string", "minLength": 1, "maxLength": 12}, age={"type": "integer", "minimum": 0, "maximum": 150}, email={"type": "string", "format": "email", "maxLength": 14}),
    closed(items={"type": "array", "minItems": 1, "maxItems": 2, "items": closed(sku={"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"}, price={"type": "number", "minimum": 0, "multipleOf": 0.01, "maximum": 100}, count={"type": "integer", "minimum": 1, "maximum": 9})}),
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Event", **closed(start={"type": "string", "format": "date"}, where={"anyOf": [SHORT, NULL], "default": None}, tags={"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2})},
    {"$defs": {"Step": {"properties": {"explanation": {**SHORT, "title": "Explanation"}, "output": {**SHORT, "title": "Output"}}, "required": ["explanation", "output"], "title": "Step", **OBJECT}},
     "properties": {"steps": {"items": {"$ref": "#/$defs/Step"}, "title": "Steps", "type": "array", "maxItems": 2}, "answer": SHORT}, "required": ["steps", "answer"], "title": "Maths", **OBJECT},
    closed(location={"type": "array", "prefixItems": [{"type": "number", "minimum": -90, "maximum": 90}, {"type": "number", "minimum": -180, "maximum": 180}], "minItems": 2, "maxItems": 2, "items": False}),
    closed(status={"type": "string", "enum": ["open", "closed"]}, at={"type": "string", "format": "date-time"}, by={"type": "string", "format": "uuid"}),
    closed(query={"type": "string", "maxLength": 10}, filters={"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": 3}, "maxProperties": 2}),
    closed(yes={"type": "boolean"}, probability={"type": "number", "minimum": 0, "maximum": 1}), {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, "minItems": 2, "maxItems": 2},
]


def drawn(count, seed=20):
    """Random schemas out of the keywords above, nested; most of them are enforced."""
    draw = random.Random(seed)
    words = ["id", "name", "kind", "v", "on", "next", "a-b", "\u00e4"]

    def scalar():
        kind = draw.randrange(8)
        low = draw.randrange(-50, 50)
        return [lambda: {"type": "integer", "minimum": low, "maximum": low + draw.randrange(1000)}, lambda: {"type": "string", "minLength": draw.randrange(3), "maxLength": 3 + draw.randrange(6)},
                lambda: dict(BOOLEAN), lambda: {"enum": draw.sample(["a", "b", 1, 2.5, None, True, "\u00fc"], 3)}, lambda: {"type": "string", "pattern": draw.choice(["^[a-f]{1,3}$", "^\\d+-[x-z]$", "^(up|down)$"])},
                lambda: {"type": "number", "minimum": low / 4, "maximum": low / 4 + draw.randrange(1, 9)}, lambda: {"type": "string", "format": draw.choice(["date", "ipv4", "uuid", "time"])},
                lambda: {"type": draw.sample(["null", "boolean", "integer"], 2)}][kind]()

    def schema(depth, names):
        kind = draw.randrange(10) if depth > 0 else 0
        if kind < 3:
            return scalar()
        if kind < 6:
            chosen = draw.sample(words, draw.randrange(1, 4))
            more = draw.choice([False, False, {"type": "boolean"}, {}])
            return {"type": "object", "properties": {w: schema(depth - 1, names) for w in chosen}, "required": [w for w in chosen if draw.random() < 0.7], "additionalProperties": more}
        if kind < 7:
            low = draw.randrange(3)
            return {"type": "array", "items": schema(depth - 1, names), "minItems": low, "maxItems": low + draw.randrange(2)}
        if kind < 8:
            first = [schema(depth - 1, names) for _ in range(draw.randrange(1, 3))]
            return {"type": "array", "prefixItems": first, "items": draw.choice([False, dict(BOOLEAN)]), "minItems": draw.randrange(len(first) + 1), "maxItems": 3}
        if kind < 9:
            return {draw.choice(["anyOf", "anyOf", "oneOf"]): [schema(depth - 1, names) for _ in range(draw.randrange(1, 4))]}
        return {"$ref": f"#/$defs/{draw.choice(names)}"} if names else scalar()

    for _ in range(count):
        names = draw.sample(["A", "B"], draw.randrange(3))
        definitions = {name: schema(2, []) for name in names}
        yield {**schema(3, names), **({"$defs": definitions} if names else {})}


def corpus():
    groups = {"scalar": SCALARS, "string": [{"type": "string", **s} for s in STRINGS], "number": NUMBERS, "array": [{"type": "array", **s} for s in ARRAYS],
              "object": [{"type": "object", **s} for s in OBJECTS], "reference": REFERENCES, "combined": COMBINED, "usual": USUAL, "drawn": list(drawn(120))}
    return [(f"{name}-{i}", schema) for name, schemas in groups.items() for i, schema in enumerate(schemas)]
