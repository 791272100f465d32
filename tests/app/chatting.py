"""A question typed into the chat page, and the buttons of its answer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app.chat.page import ChatPage
from app.chat.transcript.message import MessageView


def ask(qtbot, page: ChatPage, text: str) -> MessageView:
    """Type, press Enter, wait for the end; returns the answer's view."""
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    page.composer.edit.setPlainText(text)
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    return page.transcript.views[-1]


def button(view: MessageView, name: str) -> QPushButton:
    return view.findChild(QPushButton, f"message-{name}")
