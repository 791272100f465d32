"""A question typed into the chat page, what the engine is asked, and the buttons of the answer."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QLabel, QPushButton, QTextEdit

from app import paths
from app.chat.page import ChatPage
from app.chat.transcript.message import MessageView
from app.chat.transcript.text.tint import TintRun
from app.history.records import StoredMessage
from app.history.store import HistoryStore
from app.link.link import EngineLink
from app.models.selector import ModelSelector
from app.models.state.choice import LoadChoice
from app.models.state.library import ModelLibrary
from app.models.state.loads import ModelLoads
from app.program import WindowProgram
from app.settings.store import SettingsStore
from app.theme.theme import Theme
from engine import protocol


def chat_page(link: EngineLink, history: HistoryStore, theme: Theme) -> ChatPage:
    """The page alone, with settings of the test's own."""
    store = SettingsStore(paths.settings_file())
    return ChatPage(link, history, ModelLoads(link, LoadChoice(link, store, ModelLibrary(link))), theme)


def selector(qtbot, page: ChatPage, theme: Theme) -> ModelSelector:
    """The model's button and menu of the title row, which belong to that page."""
    made = ModelSelector(page._link, page.loads, theme)
    qtbot.addWidget(made)
    made.fill_menu()
    return made


def ask(qtbot, page: ChatPage, text: str) -> MessageView:
    """Type, press Enter, wait for the end; returns the answer's view."""
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    page.composer.edit.setPlainText(text)
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    return page.transcript.views[-1]


def button(view: MessageView, name: str) -> QPushButton:
    return view.findChild(QPushButton, f"message-{name}")


def shown_text(view: QTextEdit, run: TintRun) -> str:
    """The text behind a run."""
    cursor = QTextCursor(view.document())
    cursor.setPosition(run.start)
    cursor.setPosition(run.end, QTextCursor.MoveMode.KeepAnchor)
    return cursor.selectedText()


def mime(*paths: Path, text: str = "") -> QMimeData:
    data = QMimeData()
    if paths:
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    if text:
        data.setText(text)
    return data


def ended(qtbot, program: WindowProgram) -> StoredMessage:
    """Wait for the answer; the question."""
    session = program.chat.session
    qtbot.waitUntil(lambda: session.talk.last("assistant") is not None and not session.streaming)
    question = session.talk.last("user")
    assert question is not None
    return question


def asked(program: WindowProgram) -> list[protocol.Generate]:
    """What the engine is asked from now on."""
    found: list[protocol.Generate] = []
    send = program.link.send

    def record(message: protocol.Message) -> None:
        if isinstance(message, protocol.Generate):
            found.append(message)
        send(message)  # type: ignore[arg-type]

    program.link.send = record  # type: ignore[method-assign, assignment]
    return found


def labels(widget: object, name: str) -> list[str]:
    return [label.text() for label in widget.findChildren(QLabel, name) if not label.isHidden()]  # type: ignore[attr-defined]
