"""`make soak` under a sanitizer: the build that is soaked, and what its programs are given."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("line, slower", [("PGL_ASAN:BOOL=OFF", 1), ("PGL_ASAN:BOOL=ON", 4), ("PGL_TSAN:BOOL=ON", 8)])
def test_a_build_says_how_much_slower_it_is(tmp_path, line, slower):
    (tmp_path / "CMakeCache.txt").write_text(f"CMAKE_BUILD_TYPE:STRING=Release\n{line}\n")
    script = f'set -eu; . {ROOT}/scripts/sanitizers "$1"; env'
    result = subprocess.run(["bash", "-c", script, "bash", tmp_path], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=True)
    given = dict(entry.split("=", 1) for entry in result.stdout.splitlines() if "=" in entry)
    assert given["PGL_TEST_SLOWDOWN"] == str(slower)
    assert "halt_on_error=1" in given["TSAN_OPTIONS"] and "ASAN_OPTIONS" in given and "UBSAN_OPTIONS" in given


def test_soak_takes_the_build_that_is_named():
    def commands(*arguments):
        return subprocess.run(["make", "-n", "soak", "SOAK_REQUESTS=7", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "scripts/soak build --requests 7" in commands()
    assert "scripts/soak build-asan --requests 7" in commands("SOAK_BUILD=build-asan")
