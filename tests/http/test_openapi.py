"""GET /openapi.json against the server that it describes: it is valid, complete, and every range in it holds."""

import json
import re

import jsonschema
import openapi_spec_validator
import pytest

from conftest import ROOT, request, serving

VALUES = [True, "", "no-such-word", 7, -7, 1.5, 1e30, [], ["x"], [5], [None], {}, {"x": 1}, {"type": "x"}]
# Ends of a range that another field or the model rules out.
APART = {("n", 128), ("best_of", 128), ("max_tokens", 0), ("top_logprobs", 20), ("top_logprobs", 0)}


@pytest.fixture(scope="module")
def document(echo):
    return echo.get("/openapi.json").json()


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def schema_of(document, schema):
    """The schema with what it refers to."""
    return {**schema, "components": document["components"]}


def fits(document, schema, value):
    return jsonschema.Draft202012Validator(schema_of(document, schema)).is_valid(value)


def deref(document, schema):
    while "$ref" in schema:
        _, kind, name = schema["$ref"].removeprefix("#/").split("/")
        schema = document["components"][kind][name]
    return schema


def bodies(document, operation):
    """The schemas that a request's body may have."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return [deref(document, one) for one in schema.get("anyOf", [schema])]


def with_bodies(document):
    for path, method, operation in operations(document):
        if "requestBody" in operation:
            for schema in bodies(document, operation):
                yield path, schema


def test_document_is_valid_openapi(document):
    openapi_spec_validator.validate(document)
    assert document["openapi"].startswith("3.1") and document["info"]["version"]
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", []):
            assert fits(document, {"$ref": f"#/components/schemas/{name}"}, example)
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert used == set(document["components"]["schemas"])


def test_document_and_table_have_the_same_routes(document):
    source = (ROOT / "src/server/routes.c").read_text()
    table = set(re.findall(r'\{"([A-Z]+)", "([^"]+)",', source))
    assert len(table) >= 15
    assert {(method, path.replace("{id}", "*")) for path, method, _ in operations(document)} == table


def test_every_route_answers_as_documented(echo, document):
    model = echo.get("/v1/models").json()["data"][0]["id"]
    for path, method, operation in operations(document):
        examples = [None] if method == "GET" else [s["examples"][0] for s in bodies(document, operation)]
        for example in examples:
            answer = echo.http.request(method, path.replace("{id}", model), json=example)
            assert answer.status_code == 200, (path, answer.text)
            kind = answer.headers["content-type"].split(";")[0]
            schema = operation["responses"]["200"]["content"][kind]["schema"]
            if kind == "application/json":
                jsonschema.Draft202012Validator(schema_of(document, schema)).validate(answer.json())
            if "text/event-stream" in operation["responses"]["200"]["content"]:
                streamed = echo.post(path, {**example, "stream": True})
                chunk = operation["responses"]["200"]["content"][streamed.headers["content-type"].split(";")[0]]["schema"]
                for line in streamed.text.split("\n\n")[:-2]:
                    jsonschema.Draft202012Validator(schema_of(document, chunk)).validate(json.loads(line.removeprefix("data: ")))


def test_other_methods_are_refused_and_allow_says_what_is_documented(echo, document):
    for path, item in document["paths"].items():
        known = {method.upper() for method in item} | ({"HEAD"} if "get" in item else set())
        for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"} - known:
            answer = echo.http.request(method, path.replace("{id}", "tiny-a"))
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == known | {"OPTIONS"}
            if method != "HEAD":
                assert fits(document, {"$ref": "#/components/schemas/Error"}, answer.json())


def test_keys_are_wanted_where_it_says_so(keyed, document):
    own = keyed.get("/openapi.json").json()
    assert {} in document["paths"]["/v1/models"]["get"]["security"]  # no key is set there
    for path, method, operation in operations(own):
        assert {} not in operation["security"]
        with keyed.connect() as wire:
            wire.send(request(path.replace("{id}", "tiny-a"), {} if method == "POST" else None, method=method))
            status, _, body = wire.answer()
        assert (status == 401) == bool(operation["security"]), (path, status)
        if status == 401:
            assert "401" in operation["responses"] and fits(own, {"$ref": "#/components/schemas/Error"}, json.loads(body))


def test_every_field_with_a_wrong_value_is_a_400_that_names_it(echo, document):
    tried, seen = 0, set()
    for path, schema in with_bodies(document):
        for name, field in schema["properties"].items():
            right = jsonschema.Draft202012Validator(schema_of(document, field))
            wrong = [value for value in VALUES if not right.is_valid(value)]
            # Of routes that share a body, the first gets all of it.
            for value in wrong[:2] if (name, str(schema["required"])) in seen else wrong:
                answer = echo.post(path, {**schema["examples"][0], name: value})
                assert answer.status_code == 400, (path, name, value, answer.text)
                param = answer.json()["error"]["param"]
                assert re.split(r"[.\[]", param)[0] == name, (path, name, value, param)
                tried += 1
            seen.add((name, str(schema["required"])))
    assert tried > 500


def test_every_field_may_be_null_or_is_required(echo, document):
    for path, schema in with_bodies(document):
        for name, field in schema["properties"].items():
            absent = {k: v for k, v in schema["examples"][0].items() if k != name}
            null = echo.post(path, {**absent, name: None})
            if (path, name) == ("/tokenize", "messages"):
                continue  # then it takes a text
            if name in schema["required"]:
                assert null.status_code == 400 and null.json()["error"]["param"] == name
                assert echo.post(path, absent).json()["error"]["param"] == name
            else:
                assert fits(document, field, None), name
                if name not in schema["examples"][0]:
                    assert null.status_code == 200, (path, name, null.text)


def test_ends_of_ranges_are_in_and_what_is_beyond_is_out(echo, document):
    for path, schema in with_bodies(document):
        for name, field in schema["properties"].items():
            field = deref(document, field)
            if "minimum" not in field:
                continue
            step = 1 if "integer" in field["type"] else 0.001
            for value, beyond in ((field["minimum"], -step), (field["maximum"], step)):
                answer = echo.post(path, {**schema["examples"][0], name: value})
                if (name, value) not in APART:
                    assert answer.status_code == 200, (path, name, value, answer.text)
                answer = echo.post(path, {**schema["examples"][0], name: value + beyond})
                assert answer.status_code == 400 and answer.json()["error"]["param"] == name, (path, name, value)


@pytest.mark.parametrize("name, item, path", [
    ("stop", lambda i: f"word{i}", "/v1/completions"), ("stop_token_ids", lambda i: 900 + i, "/v1/completions"),
])
def test_lists_have_the_length_that_it_says(echo, document, name, item, path):
    field = deref(document, {"$ref": "#/components/schemas/" + {"stop": "Stop", "stop_token_ids": "StopTokenIds"}[name]})
    most = field["maxItems"] if "maxItems" in field else field["anyOf"][1]["maxItems"]
    for n, status in ((most, 200), (most + 1, 400)):
        assert echo.post(path, {"prompt": "x", "max_tokens": 1, name: [item(i) for i in range(n)]}).status_code == status


def test_defaults_are_those_of_the_model(echo, document):
    settings = echo.get("/props").json()["default_generation_settings"]["params"]
    for schema in ("ChatCompletionRequest", "CompletionRequest"):
        fields = document["components"]["schemas"][schema]["properties"]
        for name, value in settings.items():
            assert fields[name]["default"] == pytest.approx(value), name
        assert fields["n"]["default"] == 1 and fields["stream"]["default"] is False
        assert all(field["description"] for field in fields.values())


def test_readiness_answers_503_in_its_own_form(document):
    with serving("--backend", "echo") as server:
        assert fits(document, {"$ref": "#/components/schemas/Health"}, server.get("/health/ready").json())
    assert "503" in document["paths"]["/health/ready"]["get"]["responses"]
