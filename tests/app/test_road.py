"""From the first start to a downloaded model that answers, by clicks alone: the real program, and a hub of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.get_card import LOOKING, GetCard
from app.program import WindowProgram
from app.window.window import MainWindow
from tests.app.conftest import answer
from tests.engine.library.library_support import gguf_model
from tests.hub_server import Hub, Repository

PATIENCE_MS = 180_000


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    yield hub
    hub.close()


def click(qtbot, within: QWidget, name: str) -> None:
    """With the mouse, as one that is seen and can be pressed."""
    button = within.findChild(QPushButton, name)
    assert button is not None, [child.objectName() for child in within.findChildren(QPushButton)]
    assert (button.isVisible(), button.isEnabled()) == (True, True), (name, button.toolTip())
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def show(program: WindowProgram, step: str, folder: Path) -> None:
    """Leave pictures to be looked at."""
    for mode in ("dark", "light"):
        program.theme.set_mode(mode)
        QTest.qWait(300)  # as a person sees it
        program.window.grab().save(str(folder / f"{step}-{mode}.png"))


@pytest.mark.long
def test_a_first_start_leads_to_a_model_that_answers(qapp, qtbot, start, hub: Hub, tmp_path: Path) -> None:
    program = start(engine=None, model=False, size=(1440, 900))
    window, chat, library = program.window, program.chat, program.library
    card = window.findChild(GetCard)
    assert (card.isVisible(), card.said.text()) == (True, LOOKING), "something is there before the engine is"
    show(program, "1-start", tmp_path)
    qtbot.waitUntil(lambda: len(card.lines) == 3, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: library.listed and not chat.composer.reason, timeout=PATIENCE_MS)
    assert not hub.asked, "nothing is asked of the hub that was not asked for"
    assert all(line.badge.text() and line.about.text() and line.bytes.text() for line in card.lines)
    show(program, "2-three-models", tmp_path)

    line = card.lines[0]
    repository, _, variant = line.key.partition(" ")
    file = gguf_model(tmp_path / "served" / f"model-{variant}.gguf")
    hub.repositories[repository] = Repository({file.name: file.read_bytes()}, tags=["gguf"])
    hub.pause = 0.1
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=PATIENCE_MS)
    click(qtbot, line, f"get.{line.key}.get")
    qtbot.waitUntil(lambda: line.bar.isVisible() and line.bar.fraction > 0, timeout=PATIENCE_MS)
    show(program, "3-download", tmp_path)
    assert line.buttons.isAncestorOf(qapp.focusWidget()), "another Return does not get another model"
    hub.pause = 0.0
    qtbot.waitUntil(lambda: window.notice.text == f"{file.name} is here.", timeout=PATIENCE_MS)
    assert line.findChild(QPushButton, f"get.{line.key}.load").text() == "Chat with it"
    show(program, "4-it-is-here", tmp_path)

    click(qtbot, window.notice, "window.notice.action")
    qtbot.waitUntil(lambda: chat._link.card is not None and chat._link.card.name == file.name, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: not chat.composer.reason, timeout=PATIENCE_MS)
    assert window.notice.text == ""
    assert not card.isVisible()
    show(program, "5-loaded", tmp_path)
    answer(program, qtbot, "Hello")
    assert chat.session.talk.path[-1].content
    show(program, "6-answered", tmp_path)

    program.selector.fill_menu()
    entries = [action.text() for action in program.selector.model.menu().actions()]
    assert next(text for text in entries if text.startswith(file.name)).endswith(f"\t0.8 MB · GGUF {variant.upper()}")
    program.selector.model.menu().grab().save(str(tmp_path / "7-menu.png"))
    window.show_page(MainWindow.MODELS)
    row = next(row for row in window.models_page.stored_rows if row.title.text() == file.name)
    assert row.badge.text() == "loaded"
    show(program, "8-models", tmp_path)
    window.models_page.show_view("hub")
    more = window.models_page.findChild(QPushButton, "models.recommended.more")
    if more.isVisible():  # what fits in much memory stands before a small model
        qtbot.mouseClick(more, Qt.MouseButton.LeftButton)
    load = window.models_page.findChild(QPushButton, f"models.recommended.{repository}.load")
    assert (load.text(), load.toolTip()) == ("Load", "It is loaded.")
    show(program, "9-recommended", tmp_path)
