"""A small round button over the transcript that leads to its end, and says that text came there."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QToolButton, QWidget

from app.language import tr
from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import named, tip

SIDE_PX, ICON_PX = 32, 16
ABOVE_PX = 12
"""Pixels between it and what is below the transcript."""
AWAY_PX = 80
"""Pixels of the transcript below what is in sight from which on it is shown."""


class ToEnd(QToolButton):
    """Hidden at the end. It takes no focus: the key End does the same."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._news = False
        named(self, "to-end", kind="round", focusPolicy=Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        theme.changed.connect(self._restyle)
        self._restyle()
        self.hide()

    @property
    def news(self) -> bool:
        """True if text came below what is in sight."""
        return self._news

    def show_for(self, below: int, news: bool) -> None:
        """``below``: pixels of the transcript below what is in sight; ``news``: text came there since."""
        self.setVisible(below > AWAY_PX)
        if news != self._news:
            self._news = news
            self._restyle()

    def place(self, width: int, bottom: int) -> None:
        """Stand in the middle of ``width`` pixels, above ``bottom``."""
        self.move((width - self.width()) // 2, bottom - self.height() - ABOVE_PX)
        self.raise_()

    def _restyle(self) -> None:
        side, image = max(SIDE_PX, self._theme.px(SIDE_PX)), self._theme.px(ICON_PX)
        self.setFixedSize(side, side)
        self.setIconSize(QSize(image, image))
        self.setIcon(icon(self._theme, "down", image, "accent" if self._news else "mute"))
        if self._news:
            title, help_text = tr("New text below: to the end"), tr("New text below: to the end (End)")
        else:
            title, help_text = tr("To the end"), tr("To the end (End)")
        named(self, title=title, tooltip=tip(help_text))
        self.setProperty("kind", "round-news" if self._news else "round")
        restyle(self)
