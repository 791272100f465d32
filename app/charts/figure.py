"""The live figure at the head of a chart or a pane."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QSizePolicy

from app.theme.widgets import ElidedLabel


class Figure(ElidedLabel):
    """Takes the room that it needs before the title does, and is shortened beyond that."""

    def __init__(self, text: str, role: str) -> None:
        super().__init__(text, role)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())
