"""Keys, Origin and Host, CORS, methods and paths, the models list."""

import os
import subprocess

import pytest

from conftest import TINY, request, serving

KEYED = ["/v1/models", "/v1/models/tiny-a", "/version", "/props", "/slots", "/metrics"]
POSTED = ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"]
KEY = "sk-test-1234567890"


def ask(server, path, method="GET", headers=(), body=None):
    with server.connect() as wire:
        wire.send(request(path, body, method=method, headers=headers))
        return wire.answer(head_only=method == "HEAD")


@pytest.mark.parametrize("header, right", [
    (None, False), ("Authorization: Bearer wrong", False), (f"Authorization: Bearer {KEY}", True),
    (f"Authorization: bearer {KEY}", True), (f"x-api-key: {KEY}", True), (f"X-API-Key: {KEY[:-1]}", False),
    (f"Authorization: Bearer {KEY}x", False), (f"Authorization: Bearer {KEY[:5]}", False),
    (f"Authorization: {KEY}", False), (f"Authorization: Basic {KEY}", False), ("Authorization: Bearer ", False),
    (f"Authorization: Bearer {'k' * 20000}", False), (f"x-api-key: {KEY.upper()}", False),
    (f"Authorization: Bearer {KEY} \t", True),  # blanks behind a header's value are no part of it
    (f"Authorization: Bearer {KEY} x", False), (f"x-api-key: {KEY},{KEY}", False), (f"Authorization: Bearer {KEY}\r\nX: y", True),
])
def test_every_route_but_health_wants_the_right_key(keyed, header, right):
    headers = [header] if header else []
    for path in KEYED:
        status, head, body = ask(keyed, path, headers=headers)
        assert status == (200 if right else 401), path
        if not right:
            assert b'"code":"invalid_api_key"' in body and "www-authenticate" in head
    for path in POSTED:
        status, _, body = ask(keyed, path, method="POST", headers=headers, body={})
        assert status == (400 if right else 401), path
    for path in ("/health", "/health/ready", "/"):
        assert ask(keyed, path, headers=headers)[0] == 200


def test_key_in_the_query_is_no_key_and_keys_are_not_logged(keyed):
    assert ask(keyed, f"/v1/models?api_key={KEY}")[0] == 401
    ask(keyed, "/v1/models", headers=["Authorization: Bearer sk-some-wrong-key-that-is-seen"])
    log = keyed.stderr() + keyed.block
    assert KEY not in log and "sk-some-wrong-key" not in log and "GET /v1/models 401" in log


def test_keys_are_in_no_log_of_any_level(pergola, tmp_path):
    requests, keys = tmp_path / "requests", tmp_path / "keys"
    keys.write_text("sk-in-a-file\n")
    with serving("--backend", "echo", "--log-level", "debug", "--request-log", requests, "--log-prompts", "--api-key-file", keys,
                 env={"PERGOLA_API_KEY": "sk-in-the-environment"}) as server:
        for key in ("sk-in-a-file", "sk-in-the-environment", "sk-of-nobody"):
            for path, body in (("/v1/models", None), ("/v1/completions", {"prompt": "x", "max_tokens": 1}), ("/v1/none", None),
                               ("/props", None), ("/metrics", None), ("/openapi.json", None)):
                _, _, answer = ask(server, path, "POST" if body else "GET", [f"Authorization: Bearer {key}", f"x-api-key: {key}"], body)
                assert b"sk-" not in answer
        with server.connect() as wire:
            wire.send("GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-in-a-file\r\nbroken line\r\n\r\n")
            assert b"sk-" not in wire.answer()[2]
    log = server.stderr() + server.block + requests.read_text()
    assert "sk-in" not in log and "sk-of" not in log and "/v1/completions" in log


def test_keys_do_not_stay_where_processes_are_listed(pergola):
    for options in ({"env": {"PERGOLA_API_KEY": "sk-listed-1,sk-listed-2"}}, {}):
        arguments = [] if options else ["--api-key", "sk-listed-1,sk-listed-2"]
        with serving("--backend", "echo", *arguments, **options) as server:
            for name in ("cmdline", "environ"):
                with open(f"/proc/{server.process.pid}/{name}", "rb") as text:
                    assert b"sk-listed" not in text.read()
            for key in ("sk-listed-1", "sk-listed-2"):
                assert ask(server, "/v1/models", headers=[f"x-api-key: {key}"])[0] == 200


def test_keys_from_a_file_and_the_command_line(pergola, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# for the tests\nfile-key-1\n\nfile-key-2\r\n")
    with serving("--backend", "echo", "--api-key-file", keys, "--api-key", "line-key-1,line-key-2") as server:
        for key in ("file-key-1", "file-key-2", "line-key-1", "line-key-2"):
            assert ask(server, "/v1/models", headers=[f"Authorization: Bearer {key}"])[0] == 200
        assert ask(server, "/v1/models", headers=["Authorization: Bearer # for the tests"])[0] == 401


@pytest.mark.parametrize("arguments, text", [
    (["--host", "0.0.0.0"], "--allow-no-key"),
    (["--api-key-file", "/no/such/file"], "/no/such/file"),
    (["--api-key", "bad key"], "API key number 1"),
    (["--host", "no.such.host.invalid"], "does not resolve"),
    (["--model", "/no/such/model"], "/no/such/model"),
    (["--port", "65536"], "--port"),
    (["--thinking", "maybe"], "--thinking"),
])
def test_start_is_refused_early_with_a_clear_text(pergola, arguments, text):
    command = [pergola, "serve", "--backend", "echo", "--port", "0", "--model", str(TINY), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode in (1, 2) and text in result.stderr, result.stderr
    assert "bad key" not in result.stderr


def test_port_in_use_is_said_before_the_model_is_read(pergola, echo):
    command = [pergola, "serve", "--port", str(echo.port), "--model", "/no/such/model"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "in use" in result.stderr


def test_other_machines_only_with_a_key_or_when_told(pergola):
    with serving("--backend", "echo", "--host", "0.0.0.0", "--allow-no-key") as server:
        assert "EVERYONE" in server.block
        assert ask(server, "/health", headers=[])[0] == 200
        with server.connect() as wire:
            wire.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert wire.answer()[0] == 403
            wire.send("GET /health HTTP/1.1\r\nHost: 192.168.7.7:8000\r\n\r\n")
            assert wire.answer()[0] == 200
    with serving("--backend", "echo", "--host", "0.0.0.0", "--api-key", "k") as server:
        assert "EVERYONE" not in server.block


def test_preflight_needs_no_key_and_allows_what_is_asked(keyed):
    asked = "authorization,content-type,x-stainless-os"
    status, head, body = ask(keyed, "/v1/chat/completions", method="OPTIONS", headers=[
        "Origin: https://chat.example", "Access-Control-Request-Method: POST", f"Access-Control-Request-Headers: {asked}"])
    assert status == 204 and body == b""
    assert head["access-control-allow-origin"] == "*" and head["access-control-allow-headers"] == asked
    assert "POST" in head["access-control-allow-methods"] and "access-control-max-age" in head


def test_probes_with_head_and_without_a_key(keyed):
    for path, status in (("/", 200), ("/health", 200), ("/health/ready", 200), ("/v1/models", 401), ("/v1/none", 404),
                         ("/v1/completions", 405)):
        got, head, body = ask(keyed, path, method="HEAD")
        assert got == status and body == b"" and int(head["content-length"]) > 0, path


def test_preflight_of_a_foreign_page_is_refused_without_a_key(echo, keyed):
    lines = ["Origin: https://evil.example", "Access-Control-Request-Method: POST"]
    status, head, _ = ask(echo, "/v1/chat/completions", method="OPTIONS", headers=lines)
    assert status == 403 and "access-control-allow-origin" not in head
    # Names that are no names of headers are not sent back.
    status, head, _ = ask(keyed, "/v1/models", method="OPTIONS", headers=["Origin: https://a.example", "Access-Control-Request-Headers: a(b)"])
    assert status == 204 and "access-control-allow-headers" not in head and head["allow"] == "GET, HEAD, OPTIONS"


def test_a_list_of_origins_binds_pages_with_a_key_too(pergola):
    with serving("--backend", "echo", "--api-key", "k", "--cors-origin", "https://chat.example") as server:
        for origin, allowed in (("https://chat.example", "https://chat.example"), ("https://evil.example", None)):
            status, head, _ = ask(server, "/v1/models", headers=["x-api-key: k", f"Origin: {origin}"])
            assert status == 200 and head.get("access-control-allow-origin") == allowed
            assert ("vary" in head) == (allowed is not None)


def test_error_answers_carry_cors_headers(keyed):
    for path, status in (("/v1/models", 401), ("/v1/no/such", 404), ("/v1/chat/completions", 405)):
        got, head, _ = ask(keyed, path, headers=["Origin: https://chat.example"])
        assert got == status and head["access-control-allow-origin"] == "*"
        assert "X-Request-Id" in head["access-control-expose-headers"]
    for path in ("/v1/chat/completions", "/tokenize"):
        got, head, _ = ask(keyed, path, method="POST", body=b"{",
                           headers=["Origin: https://chat.example", f"x-api-key: {KEY}"])
        assert got == 400 and head["access-control-allow-origin"] == "*"


def test_without_a_key_foreign_pages_and_rebound_names_are_refused(echo):
    for host, origin, status in (("localhost", "https://evil.example", 403), ("localhost", "null", 403),
                                 ("localhost", "http://localhost:3000", 200), ("localhost", "http://127.0.0.1:1", 200),
                                 ("evil.example", None, 403), ("127.0.0.1:9", None, 200), ("[::1]:9", None, 200),
                                 ("localhost.evil.example", None, 403)):
        with echo.connect() as wire:
            line = f"Origin: {origin}\r\n" if origin else ""
            wire.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n{line}\r\n")
            got, head, body = wire.answer()
            assert got == status, (host, origin)
            if origin and status == 200:
                assert head["access-control-allow-origin"] == origin and head["vary"] == "Origin"
            elif origin:
                assert "access-control-allow-origin" not in head


def test_configured_origins_and_hosts(pergola):
    with serving("--backend", "echo", "--cors-origin", "https://chat.example", "--allow-host", "box.lan") as server:
        for host, origin, status in (("box.lan:8000", "https://chat.example", 200), ("box.lan", "https://evil.example", 403)):
            with server.connect() as wire:
                wire.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n")
                assert wire.answer()[0] == status


def test_wrong_methods_say_what_is_allowed(echo):
    status, head, body = ask(echo, "/v1/chat/completions")
    assert status == 405 and head["allow"] == "POST, OPTIONS" and b"method_not_allowed" in body
    status, head, _ = ask(echo, "/v1/models", method="POST", body={})
    assert status == 405 and head["allow"] == "GET, HEAD, OPTIONS"
    for method in ("PUT", "DELETE", "PATCH"):
        assert ask(echo, "/health", method=method)[0] == 405


def test_paths(echo):
    assert ask(echo, "/v1/models/")[0] == 200
    assert ask(echo, "/v1/models?x=1")[0] == 200
    assert ask(echo, "/health?verbose")[0] == 200
    for path in ("/v1/v1/models", "/v2/models", "/v1/models/tiny-a/x", "/v1", "/%", "/v1/models/%zz",
                 "/v1/models/a%00b", "/v1/models/" + "x" * 4000):
        status, head, body = ask(echo, path)
        assert status == 404 and head["content-type"] == "application/json" and b'"error"' in body, path


def test_models_list_tells_the_served_context(pergola):
    with serving("--backend", "echo", "--context", 777, "--served-model-name", "org/name,alias") as server:
        listed = server.get("/v1/models").json()
        assert [m["id"] for m in listed["data"]] == ["org/name", "alias"]
        for model in listed["data"]:
            assert model["object"] == "model" and model["owned_by"] and isinstance(model["created"], int)
            assert model["max_model_len"] == 777 and model["context_length"] == 777
        for path in ("/v1/models/org/name", "/v1/models/org%2Fname", "/v1/models/alias"):
            assert server.get(path).status_code == 200
        assert server.get("/v1/models/none").status_code == 404
        assert server.openai().models.list().data[0].id == "org/name"
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        for model, status in (("alias", 200), ("org/name", 200), ("", 200), (None, 200), ("gpt-4", 404)):
            answer = server.post("/v1/chat/completions", {**body, "model": model})
            assert answer.status_code == status
            if status == 404:
                assert answer.json()["error"]["code"] == "model_not_found" and answer.json()["error"]["param"] == "model"
            else:
                assert answer.json()["model"] == "org/name"


def test_props_slots_version_and_metrics(echo):
    props = echo.get("/props").json()
    assert props["total_slots"] == 4 and props["n_ctx"] == 8192 and props["chat_template"] is True
    assert props["default_generation_settings"]["params"]["temperature"] == pytest.approx(0.6)
    assert [slot["id"] for slot in echo.slots()] == [0, 1, 2, 3]
    version = echo.get("/version").json()
    assert version["version"] and set(version) == {"version", "revision"}
    before = echo.metric("vllm:generation_tokens_total")
    requests = echo.metric("pergola:http_requests_total", route="/v1/completions", status="2xx")
    echo.post("/v1/completions", {"prompt": "count me", "max_tokens": 3})
    assert echo.metric("vllm:generation_tokens_total") > before
    assert echo.metric("pergola:http_requests_total", route="/v1/completions", status="2xx") == requests + 1
    assert echo.metric("vllm:e2e_request_latency_seconds_count") >= 1
    text = echo.get("/metrics").text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
    assert os.path.basename(TINY) in text
