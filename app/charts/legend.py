"""Legend of a chart or a picture: what its colours and marks mean."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from app.theme.theme import Theme
from app.theme.widgets import named


class Legend(NamedTuple):
    """``token``: of the theme, or a colour as ``#rrggbb``."""

    token: str
    text: str
    mark: str = "■"


class LegendLabel(QLabel):
    """Squares in colours, each with its word; it is laid out again only when it changed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._shown: list[Legend] = []
        theme.changed.connect(self._draw)
        named(self, role="tiny", textFormat=Qt.TextFormat.RichText, wordWrap=True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._draw()

    def show_entries(self, entries: list[Legend]) -> None:
        if entries != self._shown:
            self._shown = entries
            self._draw()

    def _draw(self) -> None:
        tokens = self._theme.tokens
        marked = '<span style="color:{}">{}</span>&nbsp;{}'  # not shown
        self.setText(
            "&nbsp; ".join(
                marked.format(getattr(tokens, color, color), mark, self._whole(text))
                for color, text, mark in self._shown
            )
        )

    def _whole(self, text: str) -> str:
        """A name is not broken between its words where a line has room for it; a sentence is."""
        wide = self.fontMetrics().horizontalAdvance(f"■ {text}") > self.width()
        return escape(text if len(text) > 20 or wide else text.replace(" ", "\xa0"))
