"""How commands begin and end: wrong settings are named with their source and exit code 2, ends of input and closed streams
are survived."""

import os
import pathlib
import pty
import select
import signal
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests/goldens/tiny-a")
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
SLOWDOWN = int(os.environ.get("PGL_TEST_SLOWDOWN", "1"))
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_")}


def run(*arguments, env=None, **options):
    return subprocess.run([PERGOLA, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**CLEAN, **(env or {})}, timeout=60 * SLOWDOWN, **options)


def serve(*arguments, **options):
    return run("serve", "--model", TINY, "--port", 0, *arguments, **options)


@pytest.mark.parametrize("arguments, env, says", [
    (["--backend", "abacus"], {}, ["--backend:", "abacus"]),
    ([], {"PERGOLA_BACKEND": "abacus"}, ["PERGOLA_BACKEND", "abacus"]),
    (["--context", 300000], {}, ["--context:", "262144", "300000"]),
    ([], {"PERGOLA_CONTEXT": "300000"}, ["PERGOLA_CONTEXT", "262144"]),
    ([], {"PERGOLA_SLOTS": "none"}, ["PERGOLA_SLOTS", "none"]),
    (["--host", "0.0.0.0"], {}, ["--host:", "0.0.0.0", "--api-key"]),
    ([], {"PERGOLA_HOST": "no.such.host.invalid"}, ["PERGOLA_HOST", "does not resolve"]),
    (["--api-key", ""], {}, ["--api-key:", "expected a key"]),
    (["--api-key", ","], {}, ["--api-key:", "expected a key"]),
    (["--model", ""], {}, ["--model:", "empty"]),
])
def test_wrong_settings_are_named_with_where_they_come_from(arguments, env, says):
    result = serve(*arguments, env=env)
    assert result.returncode == 2 and result.stdout == "", result.stderr
    assert all(word in result.stderr for word in says) and "pergola serve --help" in result.stderr


def test_a_wrong_setting_of_a_file_is_named_with_its_line(tmp_path):
    (tmp_path / "conf").write_text("slots = 1\ncontext = 300000\n")
    result = serve("--config", tmp_path / "conf")
    assert result.returncode == 2 and f"{tmp_path}/conf:2: context:" in result.stderr
    (tmp_path / "conf").write_text('api-key = ""\n')
    result = serve("--config", tmp_path / "conf")
    assert result.returncode == 2 and f"{tmp_path}/conf:1: api-key: expected a key" in result.stderr


def test_what_the_system_lacks_is_no_wrong_setting():
    result = serve("--api-key-file", "/no/such/file")
    assert result.returncode == 1 and "--api-key-file: /no/such/file" in result.stderr
    result = serve(env={"PERGOLA_API_KEY_FILE": "/no/such/file"})
    assert result.returncode == 1 and "environment variable PERGOLA_API_KEY_FILE" in result.stderr


def test_a_cache_that_does_not_fit_is_not_cut_in_silence():
    result = serve("--cache", "10G", "--memory", "600M")
    assert result.returncode == 1 and "prefix cache" in result.stderr and result.stderr.count("too much") == 1
    plan = run("plan", "--model", TINY, "--cache", "10G", "--memory", "600M")
    assert plan.returncode == 1 and "does not fit" in plan.stderr


@pytest.mark.parametrize("command", [["serve", "--model", TINY, "--port", "0"], ["bench", "serve", "--url", "http://127.0.0.1:1/v1"]])
def test_too_few_open_files_are_said(command):
    script = 'ulimit -n 6; exec "$0" "$@"'
    result = subprocess.run(["bash", "-c", script, PERGOLA, *command], capture_output=True, text=True, env=CLEAN, timeout=60 * SLOWDOWN)
    said = "the process may open 6 files, and needs 64 at least (see `ulimit -n`)"
    assert result.returncode == 1 and said in result.stderr, result.stderr


@pytest.mark.parametrize("arguments, data", [
    (["tokenize"], b"hello\n"), (["detokenize"], b"[5, 6]\n"), (["parse"], b"hello\n"), (["tokenize"], b""),
])
def test_one_ctrl_d_ends_the_input(arguments, data):
    model = [] if arguments == ["parse"] else ["--model", TINY]
    try:
        master, terminal = pty.openpty()
    except OSError as error:
        pytest.skip(f"this system gives out no pseudo-terminals: {error}")
    with subprocess.Popen([PERGOLA, *arguments, *model], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN) as p:
        os.close(terminal)
        os.write(master, data)
        time.sleep(0.3)
        os.write(master, b"\x04")
        try:
            p.wait(10 * SLOWDOWN)
        finally:
            p.kill()
        out, err = p.communicate()
    os.close(master)
    assert p.returncode == 0 and out, err


def ready(process, says):
    """Waits until standard error says so."""
    seen = b""
    end = time.monotonic() + 30 * SLOWDOWN
    while says not in seen and time.monotonic() < end:
        if select.select([process.stderr], [], [], 0.5)[0]:
            seen += os.read(process.stderr.fileno(), 65536)
        if process.poll() is not None:
            break
    assert says in seen, seen
    return seen


def test_a_server_without_standard_output_ends_in_order():
    script = 'exec "$0" "$@" >&-'
    command = ["bash", "-c", script, PERGOLA, "serve", "--model", TINY, "--backend", "echo", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=CLEAN) as process:
        ready(process, b"standard output could not be written")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30 * SLOWDOWN) == 0


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as plain:
            plain.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host, shown, addresses", [
    ("::1", "http://[::1]:", ["::1"]), ("[::1]", "http://[::1]:", ["::1"]), ("::", "http://127.0.0.1:", ["::1", "127.0.0.1"]),
])
def test_ipv6(host, shown, addresses):
    key = ["--allow-no-key"] if host == "::" else []
    command = [PERGOLA, "serve", "--model", TINY, "--backend", "echo", "--port", "0", "--host", host, *key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN) as process:
        try:
            block = ""
            while not block.endswith("ends it\n"):
                line = process.stdout.readline()
                assert line, process.communicate()[1]
                block += line
            assert shown in block
            port = int(block.split(shown)[1].split("/")[0])
            for address in addresses:
                with socket.create_connection((address, port), timeout=10 * SLOWDOWN) as plain:
                    name = f"[{address}]" if ":" in address else address
                    plain.sendall(f"GET /health HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
                    assert plain.recv(1000).startswith(b"HTTP/1.1 200"), address
        finally:
            process.terminate()
            process.communicate(timeout=40 * SLOWDOWN)


def test_help_says_defaults_and_echo():
    for command, words in ((["serve"], ["(1)", "echo"]), (["run"], ["echo"]), (["chat"], ["echo"]), (["plan"], ["(1)"]),
                           (["bench"], ["(512)", "(32)", "(3)", "bench engine", "bench serve"]), (["bench", "engine"], ["echo"]),
                           (["synth"], ["(0)"]), (["quantize"], ["(2)", "(3)", "(2048)"]), (["eval"], ["(256)", "(1024)"])):
        text = " ".join(run(*command, "--help").stdout.split())
        assert all(word in text for word in words), (command, text)


def test_the_script_that_serves_has_a_help():
    result = subprocess.run([ROOT / "scripts/serve", "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "DIR" in result.stdout and "pergola serve --help" in result.stdout
    result = subprocess.run([ROOT / "scripts/serve", "--port", "1"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "--port" in result.stderr
