"""The window, used as a person does: looked at, asked a question, closed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from smoke.programs import Programs
from smoke.report import Report
from smoke.sandbox import Done, Running, Sandbox
from smoke.screen import Screen

TITLE = "Kvasir"
WINDOW_S, ANSWER_S, END_S = 120.0, 180.0, 60.0
POLL_S = 0.1
"""Looking costs a few milliseconds, which the program cannot have meanwhile where there are few cores."""
QUESTION = "What is the KV cache?"
SENSE = re.compile(r"\b(key|value|token|attention|store|memory|remember)", re.IGNORECASE)
"""How words begin of which an answer to QUESTION has at least two."""
TROUBLE = re.compile(r"Traceback \(most recent call last\)| (WARNING|ERROR|CRITICAL) ")
DATABASE = ".local/share/kvasir/history.db"
LOG = ".local/state/kvasir/log/kvasir.log"
_COMPOSER = (0.4, 233)
"""Where the message field of a new window is: a share of its width, and pixels from its lower edge."""


def sensible(answer: str) -> bool:
    """Whether it speaks of what QUESTION asks."""
    return len({word.lower() for word in SENSE.findall(answer)}) >= 2


class Message(NamedTuple):
    role: str
    content: str
    state: str
    stats: str
    created: float


def read_history(file: Path) -> list[Message]:
    """All messages, oldest first; empty while there is no history. The file may be in use."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "history.db"
        for suffix in ("", "-wal"):
            if file.with_name(file.name + suffix).exists():
                shutil.copyfile(file.with_name(file.name + suffix), copy.with_name(copy.name + suffix))
        if not copy.exists():
            return []
        try:
            connection = sqlite3.connect(copy)
            try:
                rows = connection.execute(
                    "SELECT role, content, state, stats, created FROM messages ORDER BY created, number"
                )
                return [Message(*row) for row in rows]
            finally:
                connection.close()
        except sqlite3.DatabaseError:  # copied in the middle of a write, or its tables are not made yet
            return []


@dataclass(frozen=True)
class Answered:
    """Seconds on the monotonic clock of this machine; ``asked`` is when the engine got the question, which may have
    waited for its model until then."""

    answer: Message
    asked: float
    finished: float

    @property
    def first_word(self) -> float:
        """By what the engine measured from the question on; the end where it says nothing."""
        timings = json.loads(self.answer.stats).get("timings") or {}
        return min(self.finished, self.asked + timings["ttft_ms"] / 1000) if "ttft_ms" in timings else self.finished


class Talk:
    """One run of the window on a screen. Leaving the context ends it, however."""

    def __init__(self, sandbox: Sandbox, programs: Programs, screen: Screen) -> None:
        self.screen = screen
        self._history = sandbox.outside(f"{sandbox.home}/{DATABASE}")
        self.log = sandbox.outside(f"{sandbox.home}/{LOG}")
        self.running: Running = sandbox.start(programs.window, display=screen.number, cwd=programs.cwd)
        self.window = 0

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.__exit__(None, None, None)

    def wait_for_window(self) -> float:
        """How long it took from the start until something is to be seen in it, seconds."""
        self.window = self.screen.wait_for_window(TITLE, self.running, WINDOW_S)
        self.screen.wait_for_paint(self.running, WINDOW_S)
        return time.monotonic() - self.running.began

    def messages(self) -> list[Message]:
        return read_history(self._history)

    def ask(self, question: str, click: bool = True) -> Answered:
        """Click into the message field, type, press Enter until it is taken, wait for the whole answer.

        Raises TimeoutError, RuntimeError when the program ends meanwhile.
        """
        before = len(self.messages())
        self.screen.focus(self.window)
        if click:
            left, top, width, height = self.screen.geometry(self.window)
            self.screen.click(left + round(width * _COMPOSER[0]), top + height - _COMPOSER[1])
        self.screen.key("ctrl+l")  # wherever the click went
        self.screen.type(question)
        until = time.monotonic() + ANSWER_S
        taken = 0.0
        while time.monotonic() < until:
            new = self.messages()[before:]
            if not taken and new:
                taken = time.monotonic()
            if not taken:
                self.screen.key("Return")  # the window takes it once the model is loaded
            if taken and len(new) > 1 and new[-1].state != "streaming":
                now = time.monotonic()
                return Answered(new[-1], now - (time.time() - new[-1].created), now)
            if not self.running.alive:
                raise RuntimeError(f"the program ended while it was asked: {self.running.err}")
            time.sleep(POLL_S)
        stage = "the answer did not end" if taken else "the question was never taken"
        raise TimeoutError(f"{stage} within {ANSWER_S:.0f} s; log:\n{self._log_text()[-2000:]}")

    def close(self, by_signal: bool = False) -> Done:
        """By the window's close button or by SIGTERM; how the program ended."""
        if by_signal:
            self.running.send(signal.SIGTERM)
        else:
            self.screen.close(self.window)
        return self.running.wait(END_S)

    def trouble(self) -> list[str]:
        """Lines of the log that should not be there."""
        return [line for line in self._log_text().splitlines() if TROUBLE.search(line)]

    def _log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def converse(report: Report, sandbox: Sandbox, programs: Programs, picture: Path, by_signal: bool = False) -> None:
    """Start the window, ask, look, close; every expectation checked."""
    with Screen() as screen, Talk(sandbox, programs, screen) as talk:
        try:
            report.figure("window", f"{talk.wait_for_window():.1f} s")
            answered = talk.ask(QUESTION)
        except (TimeoutError, RuntimeError):
            screen.picture(picture.with_name(picture.stem + "-failed.png"))
            raise
        report.figure("first answer", f"{answered.finished - talk.running.began:.1f} s after the start")
        report.note(f"asked: {QUESTION}\nanswered: {answered.answer.content}")
        asked = [message.content for message in talk.messages() if message.role == "user"]
        report.check(asked[-1] == QUESTION, "what was typed is what was asked", str(asked))
        report.check(answered.answer.role == "assistant", "the last message is the answer", answered.answer.role)
        report.check(bool(answered.answer.content.strip()), "the answer is not empty")
        report.check(answered.answer.state == "complete", "the answer is complete", answered.answer.state)
        report.check(sensible(answered.answer.content), "the answer speaks of what was asked", answered.answer.content)
        report.note(f"picture: {screen.picture(picture)}")
        done = talk.close(by_signal)
        how = "SIGTERM" if by_signal else "its close button"
        report.check(done.code == 0, f"closed by {how}, the program ends with exit code 0", f"{done.code} {done.err}")
        report.check(not done.left, "the engine ended with the window", "\n".join(done.left))
        report.check(not done.err.strip(), "nothing on standard error", done.err[-1500:])
        report.check(talk.log.exists(), "there is a log file", str(talk.log))
        report.check(not talk.trouble(), "the log holds no warning and no error", "\n".join(talk.trouble()[:20]))
