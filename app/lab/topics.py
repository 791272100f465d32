"""The list on the left: every experiment with a tick where it has a result, and what else the Lab has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QFont, QIcon, QPixmap, QTextLayout
from PySide6.QtWidgets import QListView, QListWidget, QListWidgetItem, QStyleOptionViewItem

from app.lab import words
from app.lab.tools import COMPARE, TOOLS
from app.language import known, tr
from app.theme.icons import icon
from app.theme.lists import WrappedRows
from app.theme.theme import Theme
from app.theme.widgets import named
from engine.protocol.lab import LabPage

_NAME, _TITLE = Qt.ItemDataRole.UserRole, Qt.ItemDataRole.UserRole + 1
_EDGES_PX = 30
"""What a row has besides its words and its tick, at most, pixels."""
_FIGURE_SPACE, _BREAK = "\u2007", "\u2028"
"""A space as wide as a digit, and Qt's sign for a new line of a row."""


class NumberedRows(WrappedRows):
    """Rows whose titles wrap below themselves, not below their numbers."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        super().initStyleOption(option, index)
        number, gap, title = option.text.partition(words.GAP)
        if not gap:
            return
        view = self.parent()
        assert isinstance(view, QListWidget)
        metrics = option.fontMetrics
        room = view.viewport().width() - _EDGES_PX - option.decorationSize.width()
        lines = broken(title, option.font, room - metrics.horizontalAdvance(number + gap))
        option.text = f"{number}{gap}" + f"{_BREAK}{_FIGURE_SPACE * len(number)}{gap}".join(lines)


def broken(text: str, font: QFont, width: int) -> list[str]:
    """The lines that the text has in this width, pixels."""
    layout = QTextLayout(text, font)
    layout.beginLayout()
    lines = []
    while (line := layout.createLine()).isValid():
        line.setLineWidth(width)
        lines.append(text[line.textStart() : line.textStart() + line.textLength()].strip())
    layout.endLayout()
    return lines


class TopicList(QListWidget):
    """``chosen`` carries the name of what the person went to, "" for all experiments."""

    chosen = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        named(self, title=tr("Experiments"), horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setItemDelegate(NumberedRows(self))
        named(self, wordWrap=True, textElideMode=Qt.TextElideMode.ElideNone)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.currentItemChanged.connect(self._on_current)

    def fill(self, pages: Iterable[LabPage]) -> None:
        """Make the list anew, with nothing chosen."""
        self.blockSignals(True)
        self.clear()
        self._add(tr("All experiments"), "")
        group = ""
        for page in pages:
            if page.group != group:
                group = page.group
                self._add_heading(known(group))
            self._add(words.heading(page), page.name, known(page.title))
        self._add_heading(tr("On this computer"))
        for name, title in TOOLS.items():
            self._add(title, name, title)
        self.blockSignals(False)

    def choose(self, name: str) -> None:
        for row in range(self.count()):
            if self.item(row).data(_NAME) == name:
                self.setCurrentRow(row)

    def show_states(self, running: Collection[str], found: Mapping[str, bool]) -> None:
        """Show the pages that run now and those with a result, by name, and whether that is a verdict."""
        side = self._theme.px(14)
        self.setIconSize(QSize(side, side))
        blank = QPixmap(side, side)  # in the place of a tick, so that names stand in one column
        blank.fill(Qt.GlobalColor.transparent)
        states = {
            "running": (icon(self._theme, "measure", side, "accent"), tr("running")),
            "clear": (icon(self._theme, "check", side, "good"), tr("with a result")),
            "unclear": (icon(self._theme, "check", side, "mute"), tr("with a result, no verdict")),
            "none": (QIcon(blank), tr("no result")),
        }
        for item in map(self.item, range(self.count())):
            name, title = item.data(_NAME), item.data(_TITLE)
            if name:
                state = "clear" if found.get(name) else "unclear" if name in found else "none"
                mark, said = states["running" if name in running else state]
                item.setIcon(mark)
                item.setData(Qt.ItemDataRole.AccessibleTextRole, title if name == COMPARE else f"{title}, {said}")

    def _add(self, text: str, name: str, title: str = "") -> None:
        item = QListWidgetItem(text)
        item.setData(_NAME, name)
        item.setData(_TITLE, title)
        self.addItem(item)

    def _add_heading(self, group: str) -> None:
        heading = QListWidgetItem(group)
        heading.setFlags(Qt.ItemFlag.NoItemFlags)
        heading.setFont(self._theme.ui_font(12, QFont.Weight.DemiBold))
        self.addItem(heading)

    def _on_current(self, item: QListWidgetItem | None) -> None:
        if item is not None and item.data(_NAME) is not None:
            self.chosen.emit(item.data(_NAME))
