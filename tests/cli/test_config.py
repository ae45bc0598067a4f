"""serve --config FILE: the file's form, every error with file and line, and what beats what."""

import os
import re
import subprocess

import pytest

from conftest import TINY, binary, serving


def start(*arguments, env=None):
    """A start that has to fail before anything is opened."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_")}
    result = subprocess.run([binary(), "serve", "--model", TINY, "--port", "0", *map(str, arguments)], capture_output=True,
                            text=True, timeout=60, env={**clean, **(env or {})})
    assert result.stdout == ""
    return result


def write(tmp_path, text):
    path = tmp_path / "pergola.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text, line, says", [
    ("prot = 1", 1, 'unknown name "prot"; did you mean "port"?'),
    ("\n\n  zzzzzz = 1", 3, 'unknown name "zzzzzz"'),
    ("--port = 1", 1, 'unknown name "--port"'),
    ("help = on", 1, 'unknown name "help"'),
    ("port = lots", 1, 'port: expected a whole number from 0 to 65535, found "lots"'),
    ("# one\nport = 70000", 2, 'port: expected a whole number from 0 to 65535, found "70000"'),
    ("thinking = maybe", 1, 'thinking: expected one of on, off, found "maybe"'),
    ("mlock = yes", 1, 'mlock: expected on or off, found "yes"'),
    ("memory = much", 1, 'memory: expected a size such as 800M or 12G, found "much"'),
    ("max-body = 1", 1, 'max-body: expected a size in bytes from 1024 to 1073741824, found "1"'),
    ("request-timeout = -1", 1, "request-timeout: expected a number from 0"),
    ("port = 1\nslots = 2\nport = 1", 3, "port was set before, in line 1"),
    ("prefix-cache = on\nno-prefix-cache = on", 2, "prefix-cache was set before, in line 1"),
    ("config = other", 1, "config cannot be set in a file"),
    ("port", 1, "expected NAME = VALUE"),
    ("port 8000", 1, "expected NAME = VALUE"),
    ("= 8000", 1, "expected NAME = VALUE"),
    ("[server]", 1, "expected NAME = VALUE"),
    ("port =", 1, "a value is missing"),
    ("port =   # none", 1, "a value is missing"),
    ('host = "127.0.0.1', 1, 'no closing "'),
    ('host = "a\\n"', 1, "a backslash stands only"),
    ('host = "a\\', 1, "a backslash stands only"),
    ('host = "a" b', 1, "only a comment may stand"),
    ("port = 8000 9000", 1, 'port: expected a whole number from 0 to 65535, found "8000 9000"'),
])
def test_every_error_names_file_and_line(tmp_path, text, line, says):
    path = write(tmp_path, text)
    result = start("--config", path)
    assert result.returncode == 2, result.stderr
    first = result.stderr.split("\n")[0]
    assert first.startswith(f"pergola serve: {path}:{line}: ") and says in first


def test_files_that_cannot_be_read(tmp_path):
    for path, says in ((tmp_path / "none", str(tmp_path / "none")), (tmp_path, str(tmp_path)),
                       (write(tmp_path, b"port = 1\0"), "NUL"), ):
        result = start("--config", path)
        assert result.returncode == 2 and says in result.stderr, result.stderr
    large = tmp_path / "large"
    large.write_text("# padding\n" * 200_000)
    assert start("--config", large).returncode == 2
    assert start("--config", "").returncode == 2
    from_environment = start(env={"PERGOLA_CONFIG": str(tmp_path / "none")})
    assert from_environment.returncode == 2 and str(tmp_path / "none") in from_environment.stderr


def test_a_value_that_something_stronger_replaces_is_still_checked(tmp_path):
    path = write(tmp_path, "slots = many\n")
    assert start("--config", path, "--slots", 2).returncode == 2


def test_keys_from_the_file_are_not_shown(tmp_path):
    result = start("--config", write(tmp_path, 'api-key = "sk-secret-in-a-file'))
    assert result.returncode == 2 and "sk-secret" not in result.stderr


def test_flag_beats_environment_beats_file_beats_default(tmp_path):
    path = write(tmp_path, '''
# what this machine serves
served-model-name = from-file      # a comment
context           = 1024
max-queue\t=\t7
backend = "echo"\r
thinking=off
no-prefix-cache = on
host = "127.0.0.1"   # quoted
''')
    with serving("--config", path) as server:
        assert "serves from-file\n" in server.block and f"settings   {path}\n" in server.block
        assert "1024 tokens a conversation, 1 at the same time, prefix cache off" in server.block
        assert server.get("/props").json()["thinking"] is False
    env = {"PERGOLA_CONFIG": str(path), "PERGOLA_SERVED_MODEL_NAME": "from-env", "PERGOLA_CONTEXT": "2048"}
    with serving("--served-model-name", "from-flag", "--prefix-cache", env=env) as server:
        assert "serves from-flag\n" in server.block
        assert "2048 tokens a conversation, 1 at the same time, prefix cache on" in server.block


def test_one_table_has_flags_environment_and_file(tmp_path):
    result = subprocess.run([binary(), "serve", "--help"], capture_output=True, text=True, check=True)
    text = re.sub(r"\s+", " ", result.stdout)
    names = re.findall(r" --(?:\[no-\])?([a-z][a-z-]*)", text.split("options:")[1])
    names = [n for i, n in enumerate(names) if n not in names[:i] and n != "help"]
    assert len(names) > 20
    for name in names:
        assert f"[PERGOLA_{name.upper().replace('-', '_')}]" in text, name
    # All are known to the file: the error is in the line behind them.
    values = {"host": "127.0.0.1", "thinking": "on", "prefix-cache": "on", "mlock": "on", "allow-no-key": "on", "log-level": "info",
              "log-prompts": "on", "max-body": "1M"}
    lines = [f"{name} = {values.get(name, '1')}" for name in names if name != "config"]
    result = start("--config", write(tmp_path, "\n".join([*lines, "wrong"])))
    assert f":{len(lines) + 1}: expected NAME = VALUE" in result.stderr, result.stderr
