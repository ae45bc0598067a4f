"""pergola chat, in a pseudo-terminal and without one, on the golden model (which babbles)."""

import os
import pathlib
import pty
import re
import select
import stat
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests/goldens/tiny-a")
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
SLOWDOWN = int(os.environ.get("PGL_TEST_SLOWDOWN", "1"))
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("PERGOLA_") and k != "NO_COLOR"}
PROMPT = b"> "
READY = b"\x1b[?2004h"  # the terminal is asked to announce pastes: a line is being read


class Chat:
    """The program on a terminal."""

    def __init__(self, state, *args, env=None):
        self.seen = b""
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:  # a chroot without /dev/pts, for one
            pytest.skip(f"this system gives out no pseudo-terminals: {error}")
        if self.pid == 0:
            os.environ.clear()
            os.environ.update({**CLEAN, "TERM": "xterm-256color", "XDG_STATE_HOME": str(state), **(env or {})})
            os.execv(PERGOLA, [PERGOLA, "chat", "-m", TINY, "--seed", "1", *args])
        self.until(READY)

    def more(self, timeout):
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def until(self, mark, timeout=30):
        """Everything up to mark, which is taken as well."""
        end = time.monotonic() + timeout * SLOWDOWN
        while mark not in self.seen:
            if time.monotonic() > end or (not self.more(0.5) and not self.alive()):
                pytest.fail(f"{mark!r} did not come: {self.seen[-2000:]!r}")
        before, self.seen = self.seen.split(mark, 1)
        return before

    def alive(self):
        return os.waitpid(self.pid, os.WNOHANG) == (0, 0)

    def send(self, data):
        os.write(self.fd, data)

    def ask(self, line):
        """A line, and what comes up to the next prompt."""
        self.send(line + b"\r")
        return self.until(READY)

    def end(self, keys=b"\x04"):
        self.send(keys)
        end = time.monotonic() + 30 * SLOWDOWN
        while time.monotonic() < end:
            self.more(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        pytest.fail(f"did not end: {self.seen[-1000:]!r}")


@pytest.fixture
def chat(tmp_path):
    open_chats = []

    def start(*args, **kw):
        one = Chat(tmp_path, *args, **kw)
        open_chats.append(one)
        return one

    yield start
    for one in open_chats:
        try:
            if one.alive():
                os.kill(one.pid, 9)
                os.waitpid(one.pid, 0)
        except ChildProcessError:
            pass


def test_a_conversation_and_its_statistics(chat):
    c = chat("--no-think", "-n", "10")
    assert len(c.ask(b"Name a tree.")) > 20
    assert b"answer 10 tokens" in c.ask(b"/stats")
    first = re.search(rb"prompt (\d+) tokens", c.ask(b"/stats")).group(1)
    c.ask(b"And a river.")
    second = re.search(rb"prompt (\d+) tokens \((\d+) cached\)", c.ask(b"/stats"))
    assert int(second.group(1)) > int(first) and int(second.group(2)) > 0
    assert c.end() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(chat):
    c = chat("--no-think", "-c", "30000", "--ignore-end")
    c.send(b"Go on for ever.\r")
    c.until(b"Go on for ever.\r\n")
    while len(c.seen) < 200:
        assert c.more(20)
    c.send(b"\x03")
    start = time.monotonic()
    assert b"(stopped)" in c.until(READY)
    assert time.monotonic() - start < 5 * SLOWDOWN
    assert b"answer" in c.ask(b"/stats")
    assert c.end() == 0


def test_ctrl_c_clears_the_line_being_typed(chat):
    c = chat("--no-think", "-n", "3")
    c.send(b"abc")
    time.sleep(0.2)
    c.send(b"\x03")
    assert b"/quit" in c.until(READY)
    c.send(b"/stats\r")  # had the line kept its text, this would be a message
    assert b"No answer yet" in c.until(READY)
    assert c.end(b"/quit\r") == 0


def test_a_paste_of_several_lines_is_one_message(chat, tmp_path):
    c = chat("--no-think", "-n", "3")
    c.send(b"\x1b[200~first line\rsecond line\rthird line\r\x1b[201~")
    time.sleep(0.3)
    c.ask(b"")
    c.ask(b"/undo")
    assert b"nothing to take back" in c.ask(b"/undo")  # it was one
    big = b"".join(b"line number %d\r" % i for i in range(400))
    c.send(b"\x1b[200~" + big + b"\x1b[201~")
    c.until(b"[pasted 400 lines")
    c.ask(b"")
    prompt = int(re.search(rb"prompt (\d+) tokens", c.ask(b"/stats")).group(1))
    assert prompt > 400 * 3
    assert c.end() == 0
    assert "first\\040line\\012second\\040line" in (tmp_path / "pergola/chat_history").read_text()


def test_what_is_pasted_behind_a_command_is_a_message(chat):
    """By a terminal that does not announce pastes: all of it is there when the first line is read."""
    c = chat("--backend", "echo")
    c.send(b"/nothink\rhello there\r")
    assert b"hello there\r\n\r\n" in c.until(READY)
    assert b"answer" in c.ask(b"/stats")
    c.send(b"/clear\r/stats\r")
    c.until(READY)
    c.send(b"/system first\rsecond\r")
    assert b"System prompt set." in c.until(READY)
    assert b"nothing to take back" in c.ask(b"/undo")
    assert c.end() == 0


def test_ctrl_d_during_an_answer_leaves_behind_it(chat):
    c = chat("--no-think", "-n", "300", "--ignore-end")
    c.send(b"Go on.\r")
    c.until(b"Go on.\r\n")
    while len(c.seen) < 100:
        assert c.more(20)
    assert c.end(b"\x04") == 0


def test_lines_that_end_with_a_backslash_go_on(chat):
    c = chat("--no-think", "-n", "3")
    c.send(b"one\\\r")
    c.until(b". ")
    c.ask(b"two")
    c.ask(b"/undo")
    assert b"nothing to take back" in c.ask(b"/undo")
    assert c.end() == 0


def test_history_is_kept_for_its_owner_only(chat, tmp_path):
    c = chat("--no-think", "-n", "3")
    c.ask(b"a question worth keeping")
    assert c.end() == 0
    path = tmp_path / "pergola/chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    c = chat("--no-think", "-n", "3")
    c.send(b"\x1b[A")  # arrow up
    c.until(b"a question worth keeping")
    c.send(b"\x15")  # clears the line
    assert c.end() == 0
    c = chat("--no-history")
    c.ask(b"/think")
    assert c.end() == 0
    assert "/think" not in path.read_text()


def test_thinking_is_dimmed_and_can_be_switched(chat):
    c = chat("-n", "5")
    c.ask(b"/think")
    out = c.ask(b"Name a tree.")
    assert b"\x1b[2m" in out and b"\x1b[0m" in out
    c.ask(b"/nothink")
    assert b"\x1b[2m" not in c.ask(b"Name a tree.")
    assert c.end() == 0
    c = chat("-n", "5", "--think", env={"NO_COLOR": "1"})
    out = c.ask(b"Name a tree.")
    assert b"\x1b[2m" not in out and b"(thinking)" in out
    assert c.end() == 0


def test_commands(chat):
    c = chat("--no-think", "-n", "2")
    text = c.ask(b"/help")
    for name in (b"/help", b"/think", b"/nothink", b"/system", b"/clear", b"/stats", b"/quit"):
        assert name in text
    assert b"did you mean /stats?" in c.ask(b"/sttas")
    c.ask(b"Hi")
    plain = int(re.search(rb"prompt (\d+) tokens", c.ask(b"/stats")).group(1))
    c.ask(b"/clear")
    c.ask(b"/system Answer as briefly as you can.")
    c.ask(b"Hi")
    assert int(re.search(rb"prompt (\d+) tokens", c.ask(b"/stats")).group(1)) > plain
    c.ask(b"/clear")
    c.ask(b"/system")
    c.ask(b"Hi")
    assert int(re.search(rb"prompt (\d+) tokens", c.ask(b"/stats")).group(1)) == plain
    assert c.end(b"/quit\r") == 0


def test_a_full_context_is_said_and_survived(chat):
    c = chat("--no-think", "-c", "128", "-n", "2")
    out = c.ask(b"word " * 120)
    assert b"context" in out and b"/clear" in out
    assert b"No answer yet" in c.ask(b"/stats")
    c.ask(b"Hi")
    assert b"answer" in c.ask(b"/stats")
    assert c.end() == 0


def test_the_model_cannot_send_control_characters_to_the_terminal(chat):
    c = chat("--no-think", "-n", "400", "--temperature", "3", "--ignore-end")
    out = c.ask(b"Hi")
    out = out[out.index(b"Hi\r\n") + 4 :].replace(b"\x1b[?2004l", b"")
    bad = [b for b in out if b < 32 and b not in b"\r\n\t"]
    assert not bad and b"\x7f" not in out
    assert re.search(rb"<[01][0-9A-F]>", out)  # there were some, made visible
    assert c.end() == 0


def test_without_a_terminal_lines_in_answers_out():
    lines = b"Name a tree.\n\n/stats\n/nonsense\nName a river.\n"
    done = subprocess.run([PERGOLA, "chat", "-m", TINY, "--no-think", "-n", "4", "--temperature", "0"], input=lines,
                          capture_output=True, env=CLEAN, timeout=60 * SLOWDOWN)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout and b"tokens" not in done.stdout
    assert done.stdout.count(b"\n") >= 2
    assert b"answer 4 tokens" in done.stderr and b"/nonsense" in done.stderr
    long_line = b"word " * 300 + b"\nHi\n"
    done = subprocess.run([PERGOLA, "chat", "-m", TINY, "--no-think", "-n", "4", "-c", "128"], input=long_line,
                          capture_output=True, env=CLEAN, timeout=60 * SLOWDOWN)
    assert done.returncode == 1 and b"context" in done.stderr and len(done.stdout) > 3
