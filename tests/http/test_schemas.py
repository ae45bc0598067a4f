"""Every schema of the corpus is either refused with the keyword's name, or kept by all that is generated, whatever the model
would say: a random model at temperature 1 (T20, T22)."""

import concurrent.futures
import decimal
import json
import os

import jsonschema
import pytest

from conftest import TINY, serving
from schema_corpus import corpus

M = "/v1/chat/completions"
ALL = os.environ.get("PGL_SCHEMAS") == "all"
CORPUS = corpus()
ANSWERS = 3 if ALL else 2  # of each schema


@pytest.fixture(scope="module")
def babbler(pergola):
    """The golden model with more slots: a request is a few answers of one schema."""
    with serving("--slots", 8, "--context", 1024, "--threads", 2, "--max-queue", 1000) as running:
        yield running


def ends():
    """A bias towards what ends strings, lists and objects, and away from blanks: random answers would be long."""
    words = json.loads((TINY / "tokenizer.json").read_text())["model"]["vocab"]
    weights = {'"': 5, "}": 4, "]": 4, ",": 1, "\\": -1}
    return {str(i): -5 if set(word) <= set("\u0120\u010a\u0109\u010d") else weights[word]
            for word, i in words.items() if word in weights or set(word) <= set("\u0120\u010a\u0109\u010d")}


decimal.getcontext().prec = 100  # a multiple of a multiple


def exact(text):
    """JSON with numbers as they are written, so that a multiple of 0.1 is one."""
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def validator(schema):
    schema = exact(json.dumps(schema))
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


def words(schema):
    """Every keyword and name in a schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            yield from words(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from words(value)
    elif isinstance(schema, str):
        yield schema


def run(server, bias, schema, seed):
    """(what is wrong or None, answers cut by the limit, refusal or None)"""
    body = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 400, "temperature": 1, "top_p": 1, "top_k": 0, "seed": seed, "n": ANSWERS,
            "enable_thinking": False, "logit_bias": bias, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
    answer = server.post(M, body)
    if answer.status_code == 400:
        error = answer.json()["error"]
        known = {"finite", "allows no answer", "nowhere", "false", *words(schema)}
        if error["param"] != "response_format" or not any(word and word in error["message"] for word in known):
            return f"a refusal that names no keyword: {error}", 0, error["message"]
        return None, 0, error["message"]
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text}", 0, None
    cut = 0
    for choice in answer.json()["choices"]:
        text = choice["message"]["content"]
        if choice["finish_reason"] != "stop":
            cut += 1
            continue
        try:
            value = exact(text)
            validator(schema).validate(value)
        except (ValueError, jsonschema.ValidationError, decimal.InvalidOperation) as fault:
            return f"{text!r}: {str(fault).splitlines()[0]}", cut, None
    return None, cut, None


@pytest.mark.parametrize("schema", [{"type": "number"}, {"type": "integer"}, {"type": "integer", "minimum": 1, "maximum": 5}, {}, True,
                                    {"type": "array", "items": {"type": "string"}}])
def test_answers_end_by_themselves(babbler, schema):
    """Digits and blanks cannot run on (T22): greedy and random, with no help for numbers."""
    for temperature, n in ((0, 1), (1, 20)):
        body = {"messages": [{"role": "user", "content": "Say 9."}], "max_tokens": 800, "temperature": temperature, "n": n, "seed": 3, "enable_thinking": False,
                "logit_bias": {} if schema not in ({}, True) and schema["type"] in ("number", "integer") else ends(),
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
        choices = babbler.post(M, body).json()["choices"]
        stopped = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
        assert len(stopped) >= 0.9 * n, choices
        for text in stopped:
            validator(schema).validate(exact(text))


def failures(server, numbers):
    bias, cut, taken, wrong = ends(), 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda i: run(server, bias, CORPUS[i][1], i), numbers)
        for i, (fault, n_cut, refusal) in zip(numbers, results):
            cut += n_cut
            taken += refusal is None
            if fault:
                wrong.append(f"{CORPUS[i][0]} {json.dumps(CORPUS[i][1])}: {fault}")
    return wrong, cut, taken


def test_a_sample_of_the_corpus(babbler):
    wrong, cut, taken = failures(babbler, range(0, len(CORPUS), 8))
    assert not wrong, "\n".join(wrong)
    assert taken > 30 and cut <= taken * ANSWERS * 0.2, "answers that do not end"
    babbler.healthy()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not ALL, reason="PGL_SCHEMAS=all (make schemas)")
def test_the_whole_corpus(babbler):
    wrong, cut, taken = failures(babbler, range(len(CORPUS)))
    print(f"{len(CORPUS)} schemas, {taken} taken, {taken * ANSWERS} answers, {cut} of them cut by their limit")
    assert not wrong, "\n".join(wrong)
    assert len(CORPUS) >= 300 and taken > 300 and cut <= taken * ANSWERS * 0.1, "answers that do not end"
    babbler.healthy()
