"""A model that was unloaded for being idle comes back with the next message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSpinBox

from app.link.link import EngineLink
from app.program import WindowProgram
from engine.protocol import Load, Message, UnloadAfter


def idle(program: WindowProgram, qtbot, minutes: int = 5) -> None:
    """Let the time pass in which nothing is asked."""
    spin = program.window.settings_page.findChild(QSpinBox, "settings.unload_after")
    spin.setValue(minutes)
    qtbot.waitUntil(lambda: program.link.idle)


def menu(program: WindowProgram) -> list[str]:
    program.selector.fill_menu()
    return [action.text() for action in program.selector.model.menu().actions()]


@pytest.mark.parametrize("how", ["send", "regenerate"])
def test_the_next_request_loads_it_again(start: Callable[..., WindowProgram], qtbot, how: str) -> None:
    program = start()
    chat, link = program.chat, program.link
    if how == "regenerate":
        chat.send("Hello")
        qtbot.waitUntil(lambda: not chat.streaming)
    assert "Unload the model" in menu(program)
    idle(program, qtbot)
    assert program.selector.model.accessibleName().startswith("Model: tiny · unloaded")
    assert "loads it again" in program.selector.model.toolTip()
    assert "after 5 minutes without a request" in program.window.notice.text
    assert "Unload the model" not in menu(program)
    assert not chat.composer.reason, "something can be sent"
    waited: list[str] = []
    chat.loads.changed.connect(lambda: waited.append(chat.transcript.views[-1].waiting_text))
    if how == "send":
        qtbot.keyClicks(chat.composer.edit, "Hello")
        qtbot.keyClick(chat.composer.edit, Qt.Key.Key_Return)
    else:
        chat.regenerate_last()
    assert chat.streaming
    qtbot.waitUntil(lambda: not chat.streaming)
    assert "loading tiny: reading weights 60%" in waited
    assert link.card is not None
    assert not link.idle
    assert "drawn with seed" in chat.session.talk.path[-1].content
    assert program.selector.model.accessibleName().startswith("Model: tiny · GPTQ")
    assert not program.window.notice.text


def test_a_load_that_fails_says_so_and_may_be_tried_again(start: Callable[..., WindowProgram], qtbot) -> None:
    program = start()
    program.link.send(Load(model="/models/vanishing"))
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == "vanishing")
    idle(program, qtbot)
    program.chat.send("Hello")
    qtbot.waitUntil(lambda: not program.chat.streaming)
    assert "There is no model" in program.chat.notice.text
    assert program.link.idle
    assert [message.role for message in program.chat.session.talk.path] == ["user"]
    assert not program.chat.composer.reason


@pytest.mark.slow
def test_every_engine_is_told_the_time(
    start: Callable[..., WindowProgram], qtbot, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Message] = []
    send = EngineLink.send
    monkeypatch.setattr(EngineLink, "send", lambda self, message: (sent.append(message), send(self, message))[1])
    program = start()
    assert UnloadAfter(minutes=0) in sent
    program.store.update(unload_after=7)
    assert sent[-1] == UnloadAfter(minutes=7)
    program.close()
    sent.clear()
    start()
    assert UnloadAfter(minutes=7) in sent
