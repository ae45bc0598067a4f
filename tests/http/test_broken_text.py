"""What is no JSON, no UTF-8 or no sensible depth gets a 400, and the server goes on."""

import json
import time

import pytest

from conftest import SLOWDOWN, request

USER = [{"role": "user", "content": "hi"}]


def post(server, data, path="/v1/chat/completions", headers=()):
    with server.connect() as wire:
        wire.send(request(path, data, headers=headers))
        status, head, body = wire.answer()
        assert head["content-type"] == "application/json"
        return status, json.loads(body)


@pytest.mark.parametrize("data", [
    b'{"a":,}', b"", b"[]", b"null", b"7", b'"x"', b"{", b'{"messages":[}', b"\xef\xbb\xbf{}", b"{} {}", b"{}x",
    '{"messages":[{"role":"user","content":"你好"}]}'.encode("gbk"),
    b'{"messages":[{"role":"user","content":"\xc0\xaf"}]}', b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}',
    b'{"messages":[{"role":"user","content":"a\\u0000b"}]}', b'{"messages":[{"role":"user","content":"a\0b"}]}',
    b'{"messages":[{"role":"user","content":"a\nb"}]}', b'{"n":1,"n":1,"messages":[]}', b"{'a':1}", b'{"a":01}',
    b'{"a":1.}', b'{"a":tru}', b'{"a":"\\x"}', b"\xff\xfe{\0}\0",
])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
def test_broken_json_is_400_in_the_right_shape(echo, path, data):
    status, body = post(echo, data, path)
    assert status == 400 and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "invalid_request_error" and body["error"]["message"]


@pytest.mark.parametrize("text, field", [
    ('{"messages":[],"temperature":NaN}', "temperature"), ('{"top_p":-Infinity,"messages":[]}', "top_p"),
    ('{"messages":[],"logit_bias":{"5":Infinity}}', "5"),
])
def test_nan_names_its_field(echo, text, field):
    status, body = post(echo, text.encode())
    assert status == 400 and body["error"]["param"] == field


@pytest.mark.parametrize("content_type, status", [
    ("application/json", 200), ("application/json; charset=utf-8", 200), ("application/x-www-form-urlencoded", 200),
    ("text/plain", 400), ("multipart/form-data; boundary=x", 400),
])
def test_content_types(echo, content_type, status):
    body = json.dumps({"messages": USER, "max_tokens": 1}).encode()
    with echo.connect() as wire:
        wire.send(request("/v1/chat/completions", body).replace(b"application/json", content_type.encode()))
        assert wire.answer()[0] == status


def test_lone_surrogates_become_the_replacement_character(echo):
    for text, expected in (("\\ud83d", "\ufffd"), ("\\ude00x", "\ufffdx"), ("\\ud83d\\ude00", "\U0001f600")):
        data = '{"messages":[{"role":"user","content":"a%s"}],"enable_thinking":false}' % text
        status, body = post(echo, data.encode())
        assert status == 200
        assert body["choices"][0]["message"]["content"] == "a" + expected
    for place in ('"stop":"\\ud83d"', '"stop":["\\ude00x"]', '"user":"\\ud83d"', '"zz":"\\ud83d"'):
        status, _ = post(echo, ('{"messages":[{"role":"user","content":"x"}],%s}' % place).encode())
        assert status == 200
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"\ud83d"}'}}
    history = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": "c", "content": "r"}]
    assert post(echo, json.dumps({"messages": history}).encode())[0] == 200
    echo.healthy()


def test_errors_that_quote_the_input_stay_json(echo):
    for role in ('"', "\\", "\x01", "\ud83d", "é" * 3000, "</script>", "%s%n"):
        status, body = post(echo, json.dumps({"messages": [{"role": role, "content": "x"}]}).encode())
        assert status == 400 and body["error"]["param"].startswith("messages[0]")
    for model in ('"', "\x7f", "é" * 3000, "%s%n"):
        status, body = post(echo, json.dumps({"messages": USER, "model": model}).encode())
        assert status == 404


def deep(n):
    return "[" * n + "]" * n


@pytest.mark.parametrize("template", [
    '{"zz":%s}', '{"messages":[{"role":"user","content":"x"}],"tools":%s}',
    '{"messages":[{"role":"user","content":%s}]}', '{"messages":%s}', '{"logit_bias":%s}', "%s",
])
@pytest.mark.parametrize("n", [2000, 100_000])
def test_deep_nesting_is_400_in_milliseconds(echo, template, n):
    start = time.monotonic()
    status, _ = post(echo, (template % deep(n)).encode())
    assert status == 400 and time.monotonic() - start < 1 * SLOWDOWN
    echo.healthy()


def test_deep_nesting_inside_a_string_of_arguments(echo):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":%s}' % deep(100_000)}}
    history = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "r"}]
    status, _ = post(echo, json.dumps({"messages": history}).encode())
    assert status in (200, 400)
    echo.healthy()


@pytest.mark.parametrize("template", ['{"zz":[%s]}', '{"messages":[%s]}', '{"stop":[%s]}', '{"prompt":[%s]}', '{"tools":[%s]}',
                                      '{"tokens":[%s]}', '{"logit_bias":{"1":[%s]}}'])
def test_many_small_values_do_not_take_many_times_their_size(echo, template):
    def peak():
        with open(f"/proc/{echo.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

    body = (template % ",".join(["[]"] * 5_000_000)).encode()
    before = peak()
    for path in ("/v1/chat/completions", "/v1/completions", "/detokenize"):
        status, _ = post(echo, body, path)
        assert status == 400
    assert peak() - before < 256 << 20
    echo.healthy()


def test_flat_20_mb_body_is_read(echo):
    body = json.dumps({"messages": USER, "max_tokens": 2, "zz": ["x" * 1000] * 20_000}).encode()
    assert len(body) > 20_000_000
    assert post(echo, body)[0] == 200
