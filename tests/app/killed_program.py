"""Somebody who asks one question after the other and writes down what is shown, and the program that kills.py kills.

python -m tests.app.killed_program HOME (--window | --engine KILLS --seed SEED)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.history.records import StoredMessage
from app.link.link import LinkState
from app.program import WindowProgram
from engine.protocol import Sampling
from tests.app.kills import ENGINE_LIFE_S, SEEN
from tests.kit.engine_thread import kill

LOOK_MS = 20
QUESTIONS = ("What is a page?", "What is the KV cache?", "Why is decoding bound by memory?", "What is speculation?")
LONG = Sampling(ignore_eos=True, max_tokens=600)
"""So that there is an answer to cut; every third chat has the short answers of the model itself."""


class Person:
    """Looks at the window every LOOK_MS and does the next thing.

    ``kills`` times, each ``life`` seconds after the engine was ready, it kills the engine; then ``over`` is called.
    """

    def __init__(
        self,
        program: WindowProgram,
        home: Path,
        kills: int,
        seed: int,
        over: Callable[[], None],
        life: tuple[float, float] = ENGINE_LIFE_S,
    ) -> None:
        self._program, self._page = program, program.chat
        self._file = os.open(home / SEEN, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._kills, self._chance, self._over, self._life = kills, random.Random(seed), over, life
        self._kill_at = 0.0
        self._engine = 0
        self._shown: dict[str, str] = {}
        self._asked = self._typed = 0
        self._name = f"{os.getpid()}-{time.monotonic_ns()}"
        self._page.answers.ended.connect(self._on_ended)
        self._timer = QTimer(interval=LOOK_MS)
        self._timer.timeout.connect(self._look)
        self._timer.start()

    def _say(self, kind: str, **facts: object) -> None:
        os.write(self._file, (json.dumps({"kind": kind, "at": time.monotonic(), **facts}) + "\n").encode())

    def _look(self) -> None:
        page, link = self._page, self._program.link
        if link.engine_pid and link.engine_pid != self._engine:
            self._engine = link.engine_pid
            self._say("engine", pid=self._engine)
        leaf = page.session.talk.leaf
        if page.answers.running(leaf):
            text = page.answers.snapshot(leaf).text
            if text != self._shown.get(leaf, ""):
                self._shown[leaf] = text
                self._say("shown", id=leaf, text=text)
            self._type()
        elif not page.session.queued and (not page.composer.reason or page.sending.queues):
            self._ask()
        if self._kills:
            self._kill()

    def _type(self) -> None:
        """Something that is not sent, while an answer is written."""
        self._typed += 1
        if self._typed % 10 == 0:
            QTest.keyClicks(self._page.composer.edit, "x")
            self._say("typed", text=self._page.composer.text)

    def _ask(self) -> None:
        if self._asked % 3 == 0:
            self._page.new_chat()
            self._page.session.talk.set_settings("", Sampling() if self._asked % 2 else LONG)
        text = f"{QUESTIONS[self._asked % len(QUESTIONS)]} ({self._name}, {self._asked})"
        self._asked += 1
        self._page.composer.edit.setPlainText(text)
        QTest.keyClick(self._page.composer.edit, Qt.Key.Key_Return)
        self._say("typed", text="")
        self._say("asked", text=text)

    def _on_ended(self, message: StoredMessage) -> None:
        facts = {"text": message.content, "state": message.state, "shown": self._shown.get(message.id, "")}
        if message.content.startswith(str(facts["shown"])):  # what came since the last look is not lost either
            facts["shown"] = message.content
        self._say("ended", id=message.id, **facts)

    def _kill(self) -> None:
        link, now = self._program.link, time.monotonic()
        if link.state is LinkState.DEAD:  # several deaths in a row: what "Start the engine" does
            link.revive()
        elif link.state is not LinkState.CONNECTED or link.card is None:
            self._kill_at = 0.0
        elif not self._kill_at:
            self._kill_at = now + self._chance.uniform(*self._life)
        elif now >= self._kill_at and link.engine_pid:
            self._kill_at = 0.0
            self._kills -= 1
            kill(link.engine_pid)
            self._say("killed")
            if not self._kills:
                self._timer.stop()
                self._over()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--window", action="store_true")
    parser.add_argument("--engine", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    app = QApplication([])
    program = WindowProgram(app, given.home / "kvasir.log")
    program.window.show()
    person = Person(program, given.home, given.engine, given.seed, lambda: QTimer.singleShot(3000, app.quit))
    app.exec()
    del person
    program.close()


if __name__ == "__main__":
    main()
