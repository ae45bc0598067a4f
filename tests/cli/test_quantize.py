"""pergola quantize: what it refuses on the command line. What it makes is tested in tests/unit/test_quantize.c."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))


def quantize(*arguments):
    return subprocess.run([PERGOLA, "quantize", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_both_directories_are_needed(tmp_path):
    result = quantize("--in", tmp_path)
    assert result.returncode == 2 and "--out" in result.stderr


def test_what_cannot_be_coded_is_refused_by_name(tmp_path):
    out = tmp_path / "out"
    result = quantize("--in", tmp_path / "gone", "--out", out)
    assert result.returncode == 1 and "gone" in result.stderr and not out.exists()
    result = quantize("--in", ROOT / "tests/goldens/tiny-a", "--out", out)
    assert result.returncode == 1 and "quantized already" in result.stderr and not out.exists()
    result = quantize("--in", ROOT / "tests/goldens/tiny-a", "--out", out, "--k-down", 9)
    assert result.returncode == 2 and "k-down" in result.stderr
    text = tmp_path / "text"
    text.write_text("words")
    result = quantize("--in", tmp_path, "--out", out, "--draft-only", "--calibration", text)
    assert result.returncode == 2 and "without calibration" in result.stderr and not out.exists()
