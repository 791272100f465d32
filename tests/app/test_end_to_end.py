"""The whole program: the real window, the real engine process, the bundled model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app.link.link import LinkState
from app.program import Program

PATIENCE_MS = 90_000  # a machine that does other things as well


@pytest.fixture
def start(qapp: QApplication, qtbot, own_folders: Path) -> Iterator[Callable[[], Program]]:
    """``start()``: a running program with its model loaded; called again it is the next start with the same folders."""
    programs: list[Program] = []

    def run() -> Program:
        program = Program(qapp, own_folders / "kvasir.log")
        programs.append(program)
        program.window.resize(1440, 900)
        program.window.show()
        qtbot.waitUntil(lambda: program.link.card is not None, timeout=PATIENCE_MS)
        qtbot.waitUntil(lambda: not program.chat.composer.reason, timeout=PATIENCE_MS)
        return program

    yield run
    for program in programs:
        program.close()
        program.window.deleteLater()


def ask(program: Program, qtbot, text: str) -> None:
    """Type the question and press Enter."""
    qtbot.keyClicks(program.chat.composer.edit, text)
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Return)
    assert program.chat.streaming


def answered(program: Program, qtbot) -> str:
    """Wait for the end of the answer and return its text."""
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=PATIENCE_MS)
    return last(program).content


def last(program: Program):
    program.history.flush()
    return program.history.messages(program.chat.chat_id)[-1]


def test_ask_stop_switch_kill_recover_and_reopen(start, qtbot, own_folders: Path) -> None:
    program = start()
    card = program.link.card
    assert card is not None
    assert card.name == "kvasir-guide"
    assert card.draft

    ask(program, qtbot, "What is a page?")
    first = answered(program, qtbot)
    assert "16" in first or "sixteen" in first
    stats = last(program).stats
    assert stats.timings is not None
    assert stats.timings.tokens_per_second > 0
    assert stats.reason == "stop"

    spec = program.window.panel.spec("speculation")
    assert spec is not None
    program.window.panel.value_changed.emit("speculation", "draft")
    qtbot.waitUntil(lambda: program.window.panel.spec("speculation").value == "draft", timeout=PATIENCE_MS)
    ask(program, qtbot, "What is speculation?")
    assert answered(program, qtbot)
    assert last(program).stats.timings.proposed > 0

    program.chat.new_chat()
    ask(program, qtbot, "Why is decoding bound by memory?")
    qtbot.waitUntil(lambda: bool(last(program).content) or not program.chat.streaming, timeout=PATIENCE_MS)
    program.chat.stop()
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=PATIENCE_MS)
    assert last(program).stats.reason in ("cancelled", "stop")

    _kill_engine(program, qtbot)
    ask(program, qtbot, "What is the KV cache?")
    assert answered(program, qtbot)
    chats = [(chat.title, len(program.history.messages(chat.id))) for chat in program.history.chats()]
    assert len(chats) == 2
    program.close()

    again = start()
    again.history.flush()
    assert [(chat.title, len(again.history.messages(chat.id))) for chat in again.history.chats()] == chats
    again.chat.open_chat(again.history.chats()[-1].id)
    texts = [message.content for message in again.history.messages(again.chat.chat_id)]
    assert first in texts


def _kill_engine(program: Program, qtbot) -> None:
    """Kill -9 the engine: the window notices within a second, restarts it and loads the model again."""
    pid = program.link.engine_pid
    assert pid is not None
    states: list[LinkState] = []
    program.link.state_changed.connect(lambda state, sentence: states.append(state))
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    qtbot.waitUntil(lambda: LinkState.RESTARTING in states, timeout=10_000)
    assert time.monotonic() - killed < 5, "a second on a quiet machine"
    qtbot.waitUntil(lambda: states[-1] is LinkState.CONNECTED, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: not program.chat.composer.reason, timeout=PATIENCE_MS)
    assert program.link.engine_pid != pid
