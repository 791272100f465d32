"""The list of shortcuts: every command with its keys, which a click and a press of others change."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QMessageBox,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.commands.keymap import Keymap
from app.language import tr
from app.shortcuts import Shortcut
from app.theme.keys import HOW, KeyCell, native
from app.theme.question import ask
from app.theme.room import Scrolled, room_of
from app.theme.widgets import caption, fill, keep_place, named, say, tip

_LETTERS, _LEAST_LETTERS = 44, 22
"""Letters of a command's words that stand in one line where there is room, and at least."""
_AIR_PX = 12
"""Pixels above and below a row's words together, as in a button."""
INTRODUCTION = tr("Click the keys of a command to choose others.")


class ShortcutsDialog(QDialog):
    """The table, for people. What they choose is in force at once."""

    def __init__(self, keymap: Keymap, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._keymap = keymap
        self._cells: dict[str, tuple[KeyCell, QPushButton]] = {}
        """The keys of a command, and what brings back the usual ones."""
        self._wish: tuple[Shortcut, str, Shortcut] | None = None
        """A command, the keys that are wanted for it, and the command that has them."""
        self._grids: list[QGridLayout] = []
        named(self, "shortcuts", windowTitle=tr("Keyboard shortcuts"))
        inside = QWidget()
        column = fill(QVBoxLayout(inside), margins=(24, 8, 24, 16), spacing=8)
        for group in dict.fromkeys(entry.group for entry in keymap.table):
            head = named(QLabel(group), role="section")
            head.setContentsMargins(0, 8, 0, 0)
            self._grids.append(self._grid([entry for entry in keymap.table if entry.group == group]))
            fill(column, head, self._grids[-1])
        self._area = Scrolled(inside)
        fill(QVBoxLayout(self), (self._area, 1), self._foot(), margins=0, spacing=0)
        keymap.changed.connect(self._show)
        self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self._fit)  # how wide its words are is known once all have their style

    def _align(self) -> None:
        """Keys stand in one column over all groups."""
        widest = max(cell.sizeHint().width() for cell, _ in self._cells.values())
        for grid in self._grids:
            grid.setColumnMinimumWidth(1, widest)

    def _fit(self) -> None:
        self._align()
        more = (_LETTERS - _LEAST_LETTERS) * self.fontMetrics().averageCharWidth()
        wide = QSize(more + self._area.verticalScrollBar().sizeHint().width(), 0)
        self.resize((self.sizeHint().expandedTo(self._area.sizeHint()) + wide).boundedTo(room_of(self)))

    def _grid(self, entries: list[Shortcut]) -> QGridLayout:
        grid = fill(QGridLayout(), spacing=(16, 4), wide=0)
        grid.setColumnMinimumWidth(0, _LEAST_LETTERS * self.fontMetrics().averageCharWidth())
        for row, entry in enumerate(entries):
            grid.setRowMinimumHeight(row, self.fontMetrics().lineSpacing() + _AIR_PX)
            fill(grid, (QLabel(entry.words, wordWrap=True), row, 0))
            if entry.action:
                cell = KeyCell(entry.action, entry.words)
                cell.asked.connect(self._on_asked)
                cell.left.connect(self._say)
                cell.pressed.connect(lambda keys, entry=entry: self._want(entry, keys))
                reset = named(QPushButton(tr("Reset")), f"keys.{entry.action}.reset", kind="link")
                reset.clicked.connect(lambda _=False, entry=entry: self._want(entry, entry.keys))
                keep_place(reset)
                self._cells[entry.action] = cell, reset
                fill(grid, (cell, row, 1), (reset, row, 2))
            else:
                keys = named(QLabel(native(entry.keys)), role="mute")
                keys.setToolTip(tip(tr("These keys cannot be changed.")))
                fill(grid, (keys, row, 1, Qt.AlignmentFlag.AlignHCenter))
        return grid

    def _foot(self) -> QWidget:
        foot = named(QWidget(), surface="panel", edge="top")
        self.said = caption(INTRODUCTION, "keys.said")
        self.swap = named(QPushButton(tr("Swap")), "keys.swap", clicked=self._on_swap)
        self.reset = named(QPushButton(tr("Reset all…")), "keys.reset", kind="quiet", clicked=self._ask_reset)
        fill(QHBoxLayout(foot), (self.said, 1), self.swap, self.reset, margins=(24, 8, 16, 8), spacing=8)
        return foot

    def _show(self) -> None:
        for action, (cell, reset) in self._cells.items():
            cell.show_keys(self._keymap.shown(action))
            usual = self._keymap.default(action)
            reset.setVisible(self._keymap.is_changed(action))
            reset.setToolTip(tip(tr("Back to {keys}", keys=native(usual)) if usual else tr("Back to no keys")))
            reset.setAccessibleName(tr("Reset: {what}", what=cell.button.accessibleName()))
        self.reset.setEnabled(self._keymap.any_changed)
        self._align()
        self._say()

    def _say(self, sentence: str = "", wish: tuple[Shortcut, str, Shortcut] | None = None) -> None:
        """A sentence at the foot, and the swap that it offers."""
        self._wish = wish
        self.swap.setVisible(wish is not None)
        say(self.said, sentence or INTRODUCTION)

    def _on_asked(self) -> None:
        self._say(HOW)

    def _want(self, entry: Shortcut, keys: str) -> None:
        sentence, holder = self._keymap.ruling(entry.action, keys)
        if holder is not None:
            mine = self._keymap.shown(entry.action)
            gets = {"command": entry.words, "keys": native(keys)}
            offer = (
                tr("Swap: “{command}” gets {keys}, and that one gets {others}.", others=mine, **gets)
                if mine
                else tr("Swap: “{command}” gets {keys}, and that one is then without keys.", **gets)
            )
            self._say(f"{sentence} {offer}", (entry, keys, holder))
        elif sentence:
            self._say(sentence)
        else:
            self._say()
            self._keymap.choose(entry.action, keys)

    def _on_swap(self) -> None:
        if self._wish is not None:
            entry, keys, holder = self._wish
            self._keymap.swap(entry.action, keys, holder.action)

    def _ask_reset(self) -> None:
        question = tr("All commands get their usual keys again. The keys that you chose are forgotten.")
        role = QMessageBox.ButtonRole.ResetRole
        ask(self, "keys.reset.ask", tr("Keyboard shortcuts"), question, tr("Reset all"), self._keymap.reset_all, role)
