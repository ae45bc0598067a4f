""".ci/run adds up what its stages say, whatever happens to a stage."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGES = ("test", "lint", "test-asan", "test-tsan", "test-neon", "fuzz")


def run(tmp_path, setup="true", minute=60, **recipes):
    """Runs .ci/run in a tree whose Makefile says what each stage does; a stage that is not named passes two tests."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "scripts/setup").write_text(f"#!/bin/bash\n{setup}\n")
    (tmp_path / "scripts/setup").chmod(0o755)
    lines = [".PHONY: " + " ".join(STAGES)]
    for stage in STAGES:
        lines.append(f"{stage}:\n\t@{recipes.get(stage.replace('-', '_'), 'echo 2 passed, 0 failed')}")
    (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
    result = subprocess.run(["bash", tmp_path / ".ci/run"], cwd="/", capture_output=True, text=True, timeout=120,
                            env={**os.environ, "CI_MINUTE_SECONDS": str(minute), "MAKEFLAGS": ""})
    return result.returncode, result.stdout.splitlines()


def test_counts_are_added_up(tmp_path):
    code, lines = run(tmp_path)
    assert (code, lines[-1]) == (0, "13 passed, 0 failed")


@pytest.mark.parametrize(
    "recipes, last",
    [
        ({"lint": "echo 7 passed, 1 failed; exit 1"}, "18 passed, 1 failed"),
        ({"test": "echo 7 passed, 0 failed; exit 1"}, "18 passed, 1 failed"),  # passed, and yet it went wrong
        ({"test_tsan": "echo no such compiler; exit 1"}, "11 passed, 1 failed"),  # could not run
        ({"fuzz": "kill -9 $$$$"}, "11 passed, 1 failed"),
        ({"setup": "exit 1"}, "12 passed, 1 failed"),
    ],
)
def test_a_stage_that_fails_is_counted_and_the_others_still_run(tmp_path, recipes, last):
    code, lines = run(tmp_path, **recipes)
    assert (code, lines[-1]) == (1, last)


def test_a_stage_that_hangs_is_cut_short_and_counted(tmp_path):
    began = time.monotonic()
    code, lines = run(tmp_path, minute=1, setup="echo 3 passed, 0 failed; sleep 1000")
    assert (code, lines[-1]) == (1, "15 passed, 1 failed")
    assert any("cut short" in line for line in lines)
    assert time.monotonic() - began < 60


def test_a_process_that_a_stage_left_behind_does_not_hold_it_up(tmp_path):
    began = time.monotonic()
    code, lines = run(tmp_path, lint="echo 4 passed, 0 failed; (setsid sleep 60 &)")
    assert (code, lines[-1]) == (0, "15 passed, 0 failed")
    assert time.monotonic() - began < 40
