"""What the program says about itself, and what it needs to run."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))


def output(*arguments):
    result = subprocess.run([PERGOLA, *arguments], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_version_names_the_release_and_the_revision():
    assert re.fullmatch(r"pergola \d+\.\d+\.\d+( \([0-9a-f]{12}(-dirty)?\))?\n", output("--version"))


def test_licenses_are_whole():
    text = output("--licenses")
    for name in ("NOTICE", "LICENSE", "THIRD_PARTY_LICENSES"):
        assert (ROOT / name).read_text() in text


def test_every_locked_crate_that_is_linked_is_named():
    linked = re.findall(r"^(\S+ \S+) \(crate\)", output("--licenses"), re.M)
    locked = re.findall(r'^name = "(.+)"\nversion = "(.+)"', (ROOT / "bridge/Cargo.lock").read_text(), re.M)
    assert linked
    assert set(linked) <= {f"{name} {version}" for name, version in locked}


def test_needs_only_the_c_library():
    text = subprocess.run(["ldd", PERGOLA], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("/")[-1] for line in text.splitlines()}
    if any(name.startswith(("libasan", "libtsan", "libubsan")) for name in names):
        pytest.skip("a sanitizer build links its run-time libraries")
    assert names <= {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
