"""The checks of scripts/ find what they are there to find: each runs on a small tree that breaks one rule."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    """A repository with one file in each of three layers, and the scripts of this one."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for path, text in {
        "src/base/a.h": "#include <stddef.h>\n",
        "src/codec/b.h": '#include "base/a.h"\n',
        "src/server/c.c": '#include "server/c.h"\n#include "codec/b.h"\n#include "pergola.h"\n',
        "tests/unit/test_a.c": '#include "base/a.h"\n',
        "docs/tour.md": "Start at `src/base/a.h`.\n",
    }.items():
        write(tmp_path, path, text)
    return tmp_path


def write(tree, path, text):
    target = tree / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def run(tree, script):
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    return subprocess.run([tree / "scripts" / script], cwd=tree, capture_output=True, text=True, timeout=60)


def test_clean_tree_passes(tree):
    for script in ("check-includes", "check-tree"):
        result = run(tree, script)
        assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "path, text, words",
    [
        ("src/base/bad.c", '#include "server/c.h"\n', "src/base/bad.c:1: base may not include server/c.h"),
        ("src/text/bad.c", '\n#  include "backend/backend.h"\n', "src/text/bad.c:2: text may not include"),
        ("src/codec/bad.c", '#include "b.h"\n', 'write "layer/name.h", not "b.h"'),
        ("src/base/bad.c", '#include "base/other.c"\n', "includes a .c file"),
        ("src/novel/bad.c", '#include "base/a.h"\n', "the layer novel is not in"),
        ("tests/unit/test_bad.c", '#include "base/a.c"\n', "tests/unit/test_bad.c:1: includes a .c file"),
        ("tests/unit/test_bad.c", '#include "../../src/base/a.c"\n', "includes a .c file"),
    ],
)
def test_include_that_breaks_the_order_is_found(tree, path, text, words):
    write(tree, path, text)
    result = run(tree, "check-includes")
    assert result.returncode == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    "path, text, words",
    [
        ("docs/tour.md", "Then `src/base/gone.c`.\n", "docs/tour.md: src/base/gone.c does not exist"),
        ("README.md", "See `docs/gone.md`.\n", "README.md: docs/gone.md does not exist"),
        ("src/base/long.c", "\n" * 1001, "src/base/long.c: 1001 lines"),
    ],
)
def test_tree_that_breaks_a_promise_is_found(tree, path, text, words):
    write(tree, path, text)
    result = run(tree, "check-tree")
    assert result.returncode == 1
    assert words in result.stderr


def write_zeros(tree, path, size):
    with open(tree / path, "wb") as file:
        file.truncate(size)


def test_size_of_a_tracked_file_is_bounded(tree):
    write_zeros(tree, "data.bin", (16 << 20) + 1)
    result = run(tree, "check-tree")
    assert result.returncode == 1
    assert result.stderr == "data.bin: 16777217 bytes, more than 16 MiB\n"


def test_sum_of_tracked_files_is_bounded(tree):
    for i in range(3):
        write_zeros(tree, f"part{i}.bin", 12 << 20)
    result = run(tree, "check-tree")
    assert result.returncode == 1
    assert "more than 32 MiB" in result.stderr


def test_setup_names_an_unknown_option(tree):
    result = subprocess.run([tree / "scripts/setup", "--nonsense"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "unknown option --nonsense" in result.stderr
