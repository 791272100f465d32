"""The help tab: topics on the left, questions and answers on the right, one search over all."""

from __future__ import annotations

from html import escape
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QListWidget, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from app.help.pages import Page, load, search
from app.theme.theme import Theme

_LIST_WIDTH = 232


class HelpPage(QWidget):
    """Reads its files when it is first shown."""

    shortcuts_requested = Signal()
    about_requested = Signal()

    def __init__(self, folder: Path, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._theme = theme
        self._pages: list[Page] | None = None
        self._found: list[Page] = []
        self.setProperty("surface", "bg")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.search_field = QLineEdit()
        self.search_field.setPlaceholderText("Search the help")
        self.search_field.setAccessibleName("Search the help")
        self.search_field.setClearButtonEnabled(True)
        self.search_field.textChanged.connect(self._search)
        self.setFocusProxy(self.search_field)
        self.topics = QListWidget()
        self.topics.setAccessibleName("Help topics")
        self.topics.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.topics.currentRowChanged.connect(self._show)
        self.text = QTextBrowser()
        self.text.setAccessibleName("Help text")
        self.text.setOpenExternalLinks(False)
        self._lay_out()
        self._fit()
        theme.changed.connect(self._recolour)

    @property
    def found(self) -> list[Page]:
        """What the search shows."""
        return self._found

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._pages is None:
            self._pages = load(self._folder)
            self._search("")

    def _lay_out(self) -> None:
        self._side = side = QWidget()
        side.setProperty("surface", "panel")
        side.setProperty("edge", "right")
        side.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(side)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(8)
        column.addWidget(self.search_field)
        column.addWidget(self.topics, 1)
        shortcuts = QPushButton("Keyboard shortcuts")
        shortcuts.setAccessibleName("Keyboard shortcuts")
        shortcuts.clicked.connect(self.shortcuts_requested)
        column.addWidget(shortcuts)
        about = QPushButton("About and licences")
        about.setObjectName("help.about")
        about.setAccessibleName("About Kvasir, and licences")
        about.clicked.connect(self.about_requested)
        column.addWidget(about)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(side)
        row.addStretch(1)
        self.text.setMaximumWidth(820)
        self.text.document().setDocumentMargin(16)
        row.addWidget(self.text, 12)
        row.addStretch(1)

    def _search(self, words: str) -> None:
        self._found = search(self._pages or [], words)
        self.topics.blockSignals(True)
        self.topics.clear()
        self.topics.addItems([page.title for page in self._found])
        self.topics.blockSignals(False)
        if self._found:
            self.topics.setCurrentRow(0)
            self._show(0)
        else:
            what = "Nothing in the help has these words. Try fewer or other words." if words else ""
            self.text.setHtml(
                self._html("", what or f"The help texts are not at {self._folder}. Install Kvasir again.")
            )

    def _show(self, row: int) -> None:
        if not 0 <= row < len(self._found):
            return
        page = self._found[row]
        body = "".join(
            f'<p class="q">{escape(entry.question)}</p><p>{escape(entry.answer)}</p>' for entry in page.entries
        )
        self.text.setHtml(self._html(page.title, body))

    def _html(self, title: str, body: str) -> str:
        t, px = self._theme.tokens, self._theme.px
        style = (
            f"body {{ color: {t.text}; font-size: {px(14)}px; }} h2 {{ font-size: {px(18)}px; }} "
            "p.q { font-weight: 600; margin-bottom: 2px; margin-top: 18px; } p { margin-top: 0; margin-bottom: 0; }"
        )
        return f"<style>{style}</style><body><h2>{escape(title)}</h2>{body}</body>"

    def _fit(self) -> None:
        self._side.setFixedWidth(max(_LIST_WIDTH, self._theme.px(_LIST_WIDTH)))

    def _recolour(self) -> None:
        self._fit()
        self._show(self.topics.currentRow())
