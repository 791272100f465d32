"""LoRA adapters in the window: chosen in a chat's settings, kept with the chat, loaded from a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFileDialog

from app import model_dialog
from app.chat.page import ChatPage
from app.chat.settings.adapter_choice import LOAD, NONE
from app.chat.settings.adapters import NAMES, is_adapter
from app.history.store import HistoryStore
from engine.protocol import LoadAdapter
from tests.app.chatting import ask, chat_page

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)


@pytest.fixture
def page(qtbot, make_link, history, theme) -> ChatPage:
    page = chat_page(make_link(), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 900)
    page.show()
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    return page


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    (made / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    (made / "adapter_model.safetensors").write_bytes(b"")
    return made


def actions(page: ChatPage) -> dict[str, QAction]:
    return {action.text(): action for action in page.settings.adapter.menu().actions() if action.text()}


def checked(page: ChatPage) -> list[str]:
    return [text for text, action in actions(page).items() if action.isChecked()]


def load(qtbot, page: ChatPage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_dialog, "ask", lambda *asked: str(path))
    with qtbot.waitSignal(page._link.adapters_changed):
        actions(page)[LOAD].trigger()


def test_an_adapter_that_is_loaded_answers_in_this_chat(
    qtbot, page: ChatPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: HistoryStore
) -> None:
    ask(qtbot, page, "Hello")
    assert checked(page) == [NONE]
    load(qtbot, page, folder(tmp_path, "pirate"), monkeypatch)
    assert checked(page) == ["pirate: rank 16, 84 MB"]
    assert page.settings.adapter.text().startswith("pirate")
    ask(qtbot, page, "Hello again")
    answer = page.session.talk.last("assistant")
    assert answer is not None
    assert answer.content.startswith("[pirate] ")
    assert (answer.stats.adapter, page.last_adapter()) == ("pirate", "pirate")
    first = page.chat_id
    page.new_chat()
    assert checked(page) == [NONE], "another chat has its own"
    ask(qtbot, page, "Hello")
    assert not page.session.talk.path[-1].content.startswith("[")
    page.open_chat(first)
    assert checked(page) == ["pirate: rank 16, 84 MB"]
    chat = history.chat(first)
    assert chat is not None
    assert chat.adapter == "pirate"
    page.session.again(page.session.talk.path[1])
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    assert not page.session.talk.path[-1].content.startswith("["), "run again as it was asked for, without one"


def test_one_that_is_gone_is_said_and_can_be_left(
    qtbot, page: ChatPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(qtbot, page, folder(tmp_path, "pirate"), monkeypatch)
    with qtbot.waitSignal(page._link.adapters_changed):
        actions(page)["Unload pirate"].trigger()
    assert checked(page) == ["pirate (not loaded)"]
    assert page.settings.adapter.accessibleName() == "Adapter: pirate (not loaded)"
    page.send("Hello")
    qtbot.waitUntil(lambda: "No adapter is called 'pirate'" in page.notice.text, timeout=10_000)
    actions(page)[NONE].trigger()
    assert checked(page) == [NONE]
    assert page.session.talk.chat.adapter == ""
    assert "Unload pirate" not in actions(page)


def test_a_bad_one_is_refused_with_its_sentence(
    qtbot, page: ChatPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_dialog, "ask", lambda *asked: str(folder(tmp_path, "bad")))
    actions(page)[LOAD].trigger()
    qtbot.waitUntil(lambda: "it is a DoRA adapter" in page.notice.text, timeout=10_000)
    assert checked(page) == [NONE]


def test_two_folders_of_one_name(qtbot, page: ChatPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in ("a", "b"):
        (tmp_path / number).mkdir()
        load(qtbot, page, folder(tmp_path / number, "pirate"), monkeypatch)
    assert [card.name for card in page._link.adapters] == ["pirate", "pirate 2"]
    assert page.session.talk.chat.adapter == "pirate 2"


def test_after_a_restart_they_are_loaded_again(
    qtbot, page: ChatPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(qtbot, page, folder(tmp_path, "pirate"), monkeypatch)
    load(qtbot, page, folder(tmp_path, "poet"), monkeypatch)
    link = page._link
    held: list[int] = []
    link.state_changed.connect(lambda *_: held.append(len(link.adapters)))
    with qtbot.waitSignal(link.welcomed, timeout=20_000):
        link.restart()
    qtbot.waitUntil(lambda: len(link.adapters) == 2, timeout=30_000)
    assert held[0] == 0
    assert [card.name for card in link.adapters] == ["pirate", "poet"]
    page.loads.load("other", "")
    qtbot.waitUntil(lambda: link.card is not None and link.card.name == "other", timeout=10_000)
    assert link.adapters == [], "another model begins without"


def test_there_is_nothing_to_load_without_a_model(qtbot, make_link, history, theme) -> None:
    page = chat_page(make_link(load=False), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    assert not actions(page)[LOAD].isEnabled()
    page._link.send(LoadAdapter(name="x", path="/x"))


def test_the_dialogue_takes_folders_of_adapters(qtbot, tmp_path: Path, qapp) -> None:
    good, other = folder(tmp_path, "good"), tmp_path / "other"
    other.mkdir()
    assert is_adapter(str(good))
    assert not is_adapter(str(other))
    for path in (good, good / "adapter_model.safetensors", good / "adapter_config.json"):
        dialog = model_dialog.ModelDialog(None, "Load", str(tmp_path), NAMES, is_adapter)  # type: ignore[arg-type]
        qtbot.addWidget(dialog)
        assert isinstance(dialog, QFileDialog)
        _choose(dialog, path)
        assert dialog.chosen == str(good)


def _choose(dialog: model_dialog.ModelDialog, path: Path) -> None:
    dialog.selectedFiles: Callable[[], list[str]] = lambda: [str(path)]  # type: ignore[method-assign]
    dialog.accept()
