"""The help tab: topics on the left, a page of the documentation on the right, one search over all."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QFont, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QListView,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from app.help.pages import Page, load, search
from app.language import code, tr
from app.theme.lists import WrappedRows
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, fill, named, tip

_LIST_WIDTH, _TEXT_WIDTH, _EDGE_PX = 264, 820, 12
_LIST_SHARE = 0.33
"""Share of the window's width that the list takes at most, with larger text."""
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
_CELL = re.compile(r"<(t[hd])>")


class HelpPage(FocusFirst):
    """Reads its files when it is first shown."""

    shortcuts_requested = Signal()
    about_requested = Signal()
    log_requested = Signal()

    def __init__(self, folder: Path, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._theme = theme
        self._pages: list[Page] | None = None
        self._found: list[Page] = []
        named(self, surface="bg")
        self.search_field = named(
            QLineEdit(placeholderText=tr("Search the help"), clearButtonEnabled=True), title=tr("Search the help")
        )
        self.search_field.textChanged.connect(self._search)
        self.first = self.search_field
        self.topics = named(QListWidget(), title=tr("Help topics"))
        self.topics.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.topics.setItemDelegate(WrappedRows(self.topics))
        named(self.topics, wordWrap=True, textElideMode=Qt.TextElideMode.ElideNone)
        self.topics.setResizeMode(QListView.ResizeMode.Adjust)  # rows are higher where the scroll bar takes room
        self.topics.currentItemChanged.connect(self._show)
        self.text = named(QTextBrowser(openLinks=False), title=tr("Help text"))
        self.text.anchorClicked.connect(self._follow)
        self._lay_out()
        self._fit()
        theme.changed.connect(self._recolour)

    @property
    def found(self) -> list[Page]:
        """Pages that the search shows."""
        return self._found

    @property
    def pages(self) -> list[Page]:
        """All pages."""
        if self._pages is None:
            self._pages = load(self._folder)
        return self._pages

    def open(self, page: Page) -> None:
        """Show a page among all of them."""
        self.search_field.clear()
        self._search("")
        for row in range(self.topics.count()):
            if self.topics.item(row).data(Qt.ItemDataRole.UserRole) == page:
                self.topics.setCurrentRow(row)

    def show_switch(self, key: str) -> None:
        """Open the page about the switch of that key; what was open stays where there is none."""
        if (page := next((page for page in self.pages if page.key == key), None)) is not None:
            self.open(page)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._found:
            self._search(self.search_field.text())

    def _lay_out(self) -> None:
        self._side = side = QWidget()
        named(side, surface="panel", edge="right")
        column = fill(QVBoxLayout(side), self.search_field, (self.topics, 1), margins=_EDGE_PX, spacing=8)
        shortcuts = QPushButton(tr("Keyboard shortcuts"))
        shortcuts.setAccessibleName(tr("Keyboard shortcuts"))
        shortcuts.clicked.connect(self.shortcuts_requested)
        column.addWidget(shortcuts)
        log = named(QPushButton(tr("Log")), "help.log", title=tr("Log"), clicked=self.log_requested)
        column.addWidget(log)
        about = QPushButton(tr("About and licences"))
        named(about, "help.about", title=tr("About Kvasir, and licences"))
        about.clicked.connect(self.about_requested)
        column.addWidget(about)
        row = fill(QHBoxLayout(self), side, 1, margins=0, spacing=0)
        self._buttons = (shortcuts, log, about)
        self.text.document().setDocumentMargin(16)
        fill(row, (self.text, 1000), 1)

    def _search(self, words: str) -> None:
        self._found = search(self.pages, words)
        self.topics.blockSignals(True)
        self.topics.clear()
        group = ""
        for page in self._found:
            if page.group != group and not words:
                heading = QListWidgetItem(page.group)
                heading.setFlags(Qt.ItemFlag.NoItemFlags)
                self.topics.addItem(heading)
                group = page.group
            item = QListWidgetItem(page.title)
            item.setToolTip(tip(page.title))
            item.setData(Qt.ItemDataRole.UserRole, page)
            self.topics.addItem(item)
            if page is self._found[0]:
                self.topics.setCurrentItem(item)
        self.topics.blockSignals(False)
        self._set_fonts()
        if self._found:
            self._show(self.topics.currentItem())
        else:
            what = tr("Nothing in the help has these words. Try fewer or other words.") if words else ""
            missing = what or tr("The help texts are not at {folder}. Install Kvasir again.", folder=self._folder)
            self.text.setHtml(self._html("", f"<p>{escape(missing)}</p>"))

    def _set_fonts(self) -> None:
        """Set the font of the groups' names, which are no pages."""
        font = self._theme.ui_font(12, QFont.Weight.DemiBold)
        for item in map(self.topics.item, range(self.topics.count())):
            if item.data(Qt.ItemDataRole.UserRole) is None:
                item.setFont(font)

    def _show(self, item: QListWidgetItem | None) -> None:
        page = item.data(Qt.ItemDataRole.UserRole) if item is not None else None
        if page is not None:
            self.text.setHtml(self._html(page.title, self._language() + self._rendered(page)))

    def _language(self) -> str:
        """Says that the pages are English, where the window is not."""
        said = "" if code() == "en" else escape(tr("The pages of the help are in English."))
        return said and f'<p style="color: {self._theme.tokens.mute}">{said}</p>'

    def _rendered(self, page: Page) -> str:
        """The page's text as HTML; a link that leads nowhere from here is its words alone."""
        anchors = {other.anchor for other in self.pages}

        def link(match: re.Match[str]) -> str:
            address, words = match.groups()
            leads = address.startswith("https://") or address.partition("#")[2] in anchors
            return match[0] if leads else words

        return _CELL.sub(r'<\1 align="left">', _LINK.sub(link, _markdown.render(page.text)))

    def _follow(self, url: QUrl) -> None:
        if url.scheme() == "https":
            QDesktopServices.openUrl(url)
        else:
            page = next((page for page in self.pages if page.anchor == url.fragment()), None)
            if page is not None:
                self.open(page)

    def _html(self, title: str, body: str) -> str:
        t, px = self._theme.tokens, self._theme.px
        style = (
            f"body {{ color: {t.text}; font-size: {px(14)}px; }} h2 {{ font-size: {px(18)}px; }} "
            f"a {{ color: {t.accent}; }} code, pre {{ color: {t.text}; }} "
            f"p, pre, li {{ margin-top: 0; margin-bottom: {px(10)}px; }} "
            f"th, td {{ padding: 2px {px(16)}px 2px 0; }}"
        )
        return f"<style>{style}</style><body><h2>{escape(title)}</h2>{body}</body>"

    def _fit(self) -> None:
        """The list leaves most of a narrow window to the text; its titles wrap. Lines keep their number of letters."""
        self.text.setMaximumWidth(max(_TEXT_WIDTH, self._theme.px(_TEXT_WIDTH)))
        share = max(_LIST_WIDTH, round(_LIST_SHARE * self.width()))
        words = max(button.sizeHint().width() for button in self._buttons) + 2 * _EDGE_PX
        self._side.setFixedWidth(max(words, min(self._theme.px(_LIST_WIDTH), share)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _recolour(self) -> None:
        self._fit()
        self._set_fonts()
        self._show(self.topics.currentItem())
