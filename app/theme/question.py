"""A question before what cannot be undone: a box over its window, which goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QMessageBox, QWidget

from app.theme.widgets import named

DESTRUCTIVE = QMessageBox.ButtonRole.DestructiveRole


def ask(
    window: QWidget,
    name: str,
    title: str,
    question: str,
    go: str,
    act: Callable[[], object],
    role: QMessageBox.ButtonRole = DESTRUCTIVE,
) -> QMessageBox:
    """Call ``act`` when the button ``go`` is pressed, of ``role``; Cancel leaves all as it is."""
    cancel = QMessageBox.StandardButton.Cancel
    box = named(QMessageBox(QMessageBox.Icon.Question, title, question, cancel, window), name)
    box.addButton(go, role).clicked.connect(lambda: act())
    box.finished.connect(box.deleteLater)
    box.open()
    return box
