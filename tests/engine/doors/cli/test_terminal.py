"""`kvasir chat` in a real terminal: what Ctrl-C does, at every moment at which it can be pressed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("POSIX terminals", allow_module_level=True)

import fcntl
import pty
import termios

PATIENCE_S = 300.0
PROMPT = "\x1b[1m> "
CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """A program with a terminal of its own, of which it is the foreground process."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.master, slave = pty.openpty()

        def take_terminal() -> None:
            for number in (signal.SIGHUP, signal.SIGINT):  # nohup and background shells have them ignored
                signal.signal(number, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "OMP_NUM_THREADS": "1", **environment},
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def interrupt_until(self, text: str) -> str:
        """Press Ctrl-C until ``text`` stands on the terminal, and return everything up to there.

        ``input()`` sees a Ctrl-C of the microseconds before it begins to wait only with the next key.
        """
        seen = ""
        for _ in range(30):
            self.type(CTRL_C)
            seen += self._read(lambda read: text.encode() in read, PATIENCE_S / 30, or_fail=False)
            if text in seen:
                break
        else:
            pytest.fail(f"no Ctrl-C was answered: {seen[-2000:]!r}")
        return seen

    def read_until(self, text: str) -> str:
        """Everything up to where ``text`` stands on the terminal."""
        return self._read(lambda seen: text.encode() in seen)

    def read_more(self, after: str) -> str:
        """Everything up to some text behind ``after``: a terminal shows what is typed whether or not it is read."""
        return self._read(lambda seen: bool(seen.partition(after.encode())[2]))

    def _read(self, enough: Callable[[bytes], bool], patience_s: float = PATIENCE_S, or_fail: bool = True) -> str:
        seen = b""
        deadline = time.monotonic() + patience_s
        while not enough(seen):
            if time.monotonic() > deadline:
                assert not or_fail, seen[-2000:]
                break
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    seen += os.read(self.master, 65536)
                except OSError:  # Linux says so when the last program has closed the terminal
                    pytest.fail(f"it ended: {seen[-2000:]!r}")
        return seen.decode(errors="replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Terminal]:
    """At a temperature of 100 every token is as likely as the next, and an answer hardly ever ends by itself."""
    command = [sys.executable, "-m", "engine.doors.cli.main", "chat", "--temperature", "100", "--set", "kv_cache=off"]
    terminal = Terminal(*command, KVASIR_HOME=str(tmp_path), KVASIR_MODELS="")
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_not_the_program(chat: Terminal) -> None:
    chat.read_until(PROMPT)
    for _ in range(2):
        chat.type(b"Tell me everything\r")
        chat.read_more("everything\r\n")
        chat.type(CTRL_C)
        said = chat.read_until(PROMPT)
        assert "stopped" in said
        assert "Traceback" not in said
    chat.type(b"half a question")
    said = chat.interrupt_until("/quit or Ctrl-D leaves")  # not the prompt: one cut short is written again
    assert "Traceback" not in said
    chat.type(CTRL_D)
    assert chat.process.wait(PATIENCE_S) == 0


def test_ctrl_c_at_the_start_leaves_without_a_traceback(chat: Terminal) -> None:
    """While the imports run or the model loads there is no answer to stop."""
    time.sleep(0.5)
    chat.type(CTRL_C)
    chat.process.wait(PATIENCE_S)
    left = b""
    while select.select([chat.master], [], [], 0.2)[0]:
        try:
            left += os.read(chat.master, 65536)
        except OSError:
            break
    assert b"Traceback" not in left, left.decode(errors="replace")
    assert chat.process.returncode in (130, -signal.SIGINT)


@pytest.mark.slow
def test_a_killed_terminal_takes_the_program_along(chat: Terminal) -> None:
    chat.read_until(PROMPT)
    chat.type(b"Tell me everything\r")
    chat.read_more("everything\r\n")
    os.kill(chat.process.pid, signal.SIGHUP)
    assert chat.process.wait(PATIENCE_S) != 0
