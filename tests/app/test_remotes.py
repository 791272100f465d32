"""Other servers in the window: added on the page Models, chosen for a chat, kept with it; what is disabled then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QMessageBox, QPushButton

from app.chat.elsewhere import reason
from app.chat.transcript.stats import describe, explain
from app.lab.page import LabView
from app.lab.tools import COMPARE
from app.models.remotes import CHECKING, RemotesView
from app.models.state.remotes import RemoteServers
from app.program import WindowProgram
from app.window.window import MainWindow
from engine import protocol as p
from engine.protocol.operations import ADD_REMOTE, LIST_REMOTE_MODELS, LIST_REMOTES, REMOVE_REMOTE
from engine.services.operations import OperationFailed
from tests.app.chatting import ask, button
from tests.app.tabbing import tab_reaches_all
from tests.kit.operations import ScriptedOperations

LAB = p.RemoteServer(name="lab", url="http://lab.example:8000/v1", warning="Chats and the key go there unencrypted.")
MODELS = [p.OfferedModel(name="Qwen/Qwen3-32B", context=32_768), p.OfferedModel(name="<b>plain</b>")]
REMOTE = p.RemoteModel(server="lab", model="Qwen/Qwen3-32B")


@pytest.fixture
def engine() -> ScriptedOperations:
    return ScriptedOperations()


@pytest.fixture
def view(qtbot, engine: ScriptedOperations) -> RemotesView:
    view = RemotesView(RemoteServers(engine))
    qtbot.addWidget(view)
    view.resize(800, 500)
    view.show()
    engine.answer(LIST_REMOTES, [])
    return view


def words(view: RemotesView) -> list[str]:
    return [label.text() for label in view.findChildren(QLabel) if label.text()]


def test_a_server_is_added_once_it_has_told_its_models(qtbot, view: RemotesView, engine: ScriptedOperations) -> None:
    view.url.setText("lab.example:8000")
    view.key.setText("a-secret")
    qtbot.keyClick(view.key, Qt.Key.Key_Return)
    assert view.said.text() == CHECKING
    qtbot.keyClick(view.key, Qt.Key.Key_Return)
    assert engine.requests(ADD_REMOTE) == [p.AddRemote(url="lab.example:8000", key="a-secret")], "once"
    engine.answer(ADD_REMOTE, OperationFailed("lab does not accept the key."))
    assert view.said.text() == "lab does not accept the key."
    assert view.key.text() == "a-secret", "to be corrected"
    view.add.click()
    engine.answer(ADD_REMOTE, p.AddedRemote(server=LAB, models=MODELS))
    assert view.url.text() == view.key.text() == view.said.text() == ""
    assert {"lab", LAB.url, LAB.warning, "32,768 tokens of context", "<b>plain</b>"} <= set(words(view))
    assert all(label.textFormat() == Qt.TextFormat.PlainText for label in view.findChildren(QLabel))
    assert "a-secret" not in "".join(words(view))
    with qtbot.waitSignal(view.chosen) as chosen:
        view.findChild(QPushButton, "remotes.chat.lab.Qwen/Qwen3-32B").click()
    assert chosen.args == [REMOTE]


def test_one_that_is_gone_says_so_and_can_be_removed(qtbot, view: RemotesView, engine: ScriptedOperations) -> None:
    view.hide()
    view.show()
    engine.answer(LIST_REMOTES, [LAB])
    engine.answer(LIST_REMOTE_MODELS, OperationFailed("lab cannot be reached."))
    assert "lab cannot be reached." in words(view)
    view.findChild(QPushButton, "remotes.remove.lab").click()
    box = view.findChild(QMessageBox)
    next(each for each in box.buttons() if each.text() == "Remove").click()
    assert engine.requests(REMOVE_REMOTE) == [p.RemoveRemote(name="lab")]
    engine.answer(REMOVE_REMOTE, [])
    assert view._list.count() == 0
    assert view.none.isVisible()


@pytest.fixture
def program(make_program: Callable[..., WindowProgram], tmp_path: Path) -> WindowProgram:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({
        LIST_REMOTES.name: {"answer": builtins([LAB])},
        LIST_REMOTE_MODELS.name: {"answer": builtins(MODELS)},
    }))  # fmt: skip
    return make_program("--answers", str(path))


def builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)


def choose(qtbot, program: WindowProgram) -> None:
    program.window.show_page(MainWindow.MODELS)
    program.window.models_page.show_view("other")
    name = f"remotes.chat.lab.{REMOTE.model}"
    qtbot.waitUntil(lambda: program.window.findChild(QPushButton, name) is not None)
    tab_reaches_all(qtbot, program.window)
    program.window.findChild(QPushButton, name).click()


@pytest.mark.slow
def test_a_chat_is_answered_elsewhere_until_a_model_here_is_chosen(qtbot, program: WindowProgram) -> None:
    window, chat = program.window, program.chat
    ask(qtbot, chat, "Hello")
    choose(qtbot, program)
    why = "This model runs on another server (lab): Kvasir sees only its text and its counts of tokens."
    assert window.page == MainWindow.CHAT
    assert (chat.elsewhere.text(), chat.elsewhere.isVisible()) == (why, True)
    assert program.selector.model.accessibleName().startswith("Model: Qwen/Qwen3-32B · lab")
    for part in (window.panel, window.plots, window.cache):
        assert not part.isEnabled()
        assert "another server (lab)" in part.toolTip()
    assert window.panel.row("kv_cache").result._blocked == why
    view = ask(qtbot, chat, "Hello again")
    answer = chat.session.talk.path[-1]
    assert answer.content.startswith("[Qwen/Qwen3-32B] ")
    assert answer.stats.remote == REMOTE
    assert answer.stats.sampling.seed is None, "that server drew its own"
    assert describe(answer).startswith("Qwen/Qwen3-32B on lab · ")
    assert "tokens · " in describe(answer)
    assert explain(answer).startswith("Qwen/Qwen3-32B on lab; counts are that server's")
    assert not button(view, "again").isEnabled()
    with qtbot.waitSignal(program.link.unloaded):
        program.link.send(p.Unload())
    assert chat.composer.reason == "", "no model is needed here"
    with qtbot.waitSignal(program.link.loaded):
        program.link.send(p.Load(model="tiny"))
    first = chat.chat_id
    chat.new_chat()
    assert window.panel.isEnabled()
    assert not chat.elsewhere.isVisible()
    chat.open_chat(first)
    assert chat.session.talk.chat.remote == REMOTE, "kept with the chat"
    kept = program.history.chat(first)
    assert kept is not None
    assert kept.remote == REMOTE
    program.selector.fill_menu()
    next(
        each for each in program.selector.model.menu().actions() if each.text() == "Answer on this machine again"
    ).trigger()
    assert window.panel.isEnabled()
    assert not window.panel.toolTip()
    ask(qtbot, chat, "Hello once more")
    assert chat.session.talk.path[-1].stats.remote is None
    window.show_page(MainWindow.LAB)
    lab = window.findChild(LabView)
    lab.show_experiment(COMPARE)
    card = lab.compare.columns.cards[1]
    name = f"compare.model.lab: {REMOTE.model}"
    qtbot.waitUntil(lambda: card.findChild(QAction, name) is not None)
    card.findChild(QAction, name).trigger()
    assert card.column.remote == REMOTE


def test_words_name_the_server() -> None:
    assert reason(None) == ""
    assert "(lab)" in reason(REMOTE)
