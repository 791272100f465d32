"""A calm line over the width of its place: what happened and what to do, with an action or two and a way to close."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from app.language import tr
from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, named

Tone = Literal["notice", "bad"]
_ICON_PX, _WIDE_PX, _NARROW_PX = 14, 820, 480


class Banner(QFrame):
    """Hidden until :meth:`show_words`. ``name`` begins the object names of its parts."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        named(self, name, card="notice")
        self._label = named(
            QLabel(wordWrap=True, textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse), f"{name}.text"
        )
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._action = named(QPushButton(), f"{name}.action", title=tr("What to do"))
        self._action.hide()
        self._other = named(QPushButton(), f"{name}.other", kind="quiet")
        self._other.hide()
        self._close = named(QToolButton(), title=tr("Close the notice"), clicked=self.hide, kind="quiet")
        self._inner = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        buttons = fill(QHBoxLayout(), self._action, self._other, 1, spacing=12)
        fill(self._inner, (self._label, 1000), buttons, 1, spacing=12)
        row = fill(QHBoxLayout(self), (self._inner, 1), margins=(16, 6, 10, 6), spacing=12)
        fill(row, (self._close, 0, Qt.AlignmentFlag.AlignTop))
        self._recolour()
        theme.changed.connect(self._recolour)
        self.hide()

    @property
    def text(self) -> str:
        """The sentence on show, empty when the banner is hidden."""
        return "" if self.isHidden() else self._label.text()

    def show_words(self, text: str, tone: Tone, action: str, other: str = "") -> None:
        """``action`` and ``other`` are what stands on the buttons; empty for none."""
        self._label.setText(text)
        self._action.setText(button_text(action))
        self._action.setAccessibleName(action or tr("What to do"))
        self._action.setVisible(bool(action))
        self._other.setText(button_text(other))
        self._other.setVisible(bool(other))
        named(self, title=text, card=tone)
        restyle(self)
        self.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow banner the buttons stand below the words."""
        super().resizeEvent(event)
        narrow = event.size().width() < self._theme.px(_NARROW_PX)
        down, across = QBoxLayout.Direction.TopToBottom, QBoxLayout.Direction.LeftToRight
        self._inner.setDirection(down if narrow else across)

    def _recolour(self) -> None:
        self._label.setMaximumWidth(max(_WIDE_PX, self._theme.px(_WIDE_PX)))
        side = self._theme.px(_ICON_PX)
        self._close.setIcon(icon(self._theme, "close", side))
        self._close.setIconSize(QSize(side, side))
