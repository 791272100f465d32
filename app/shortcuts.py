"""Every keyboard shortcut, declared once: the window binds this table and the dialog shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QVBoxLayout, QWidget

from app.theme.room import Scrolled
from app.theme.widgets import fill, named


class Shortcut(NamedTuple):
    action: str
    """The name under which the window gives the function; empty where a widget handles the key itself."""
    keys: str
    words: str
    group: str


TABLE = (
    Shortcut("new_chat", "Ctrl+N", "New chat", "Chat"),
    Shortcut("search", "Ctrl+K", "Search all chats", "Chat"),
    Shortcut("focus_composer", "Ctrl+L", "Go to the message field", "Chat"),
    Shortcut("", "Return", "Send the message", "Chat"),
    Shortcut("", "Shift+Return", "Break the line", "Chat"),
    # No QShortcut: it would take Esc from the fields that cancel an edit with it; the window gets what they leave.
    Shortcut("", "Esc", "Stop the answer, or cancel an edit", "Chat"),
    Shortcut("regenerate", "Ctrl+R", "Answer again", "Chat"),
    Shortcut("rename", "F2", "Rename the chat, or what is chosen in the list of chats", "Chat"),
    Shortcut("toggle_tint", "Ctrl+Shift+T", "Highlight drafted tokens", "Chat"),
    Shortcut("toggle_sidebar", "Ctrl+B", "Show or hide the list of chats", "Window"),
    Shortcut("toggle_panel", "Ctrl+Shift+O", "Show or hide the optimisations", "Window"),
    Shortcut("toggle_plots", "Ctrl+Shift+P", "Fold or unfold the plots", "Window"),
    Shortcut("toggle_cache", "Ctrl+Shift+K", "Show or hide the cache", "Window"),
    Shortcut("next_region", "F6", "To the next part of the window", "Window"),
    Shortcut("previous_region", "Shift+F6", "To the part before", "Window"),
    Shortcut("", "Up", "In the panel: move between switches (Up, Down) or within one (Left, Right)", "Window"),
    Shortcut("", "Left", "In the Lab: move between sides (Left, Right); Return runs, Esc cancels", "Window"),
    Shortcut("show_chat", "Ctrl+1", "Chat", "Window"),
    Shortcut("show_models", "Ctrl+2", "Models", "Window"),
    Shortcut("show_lab", "Ctrl+3", "Lab", "Window"),
    Shortcut("show_server", "Ctrl+4", "Server", "Window"),
    Shortcut("show_settings", "Ctrl+,", "Settings", "Window"),
    Shortcut("show_help", "F1", "Help", "Window"),
    Shortcut("show_shortcuts", "Ctrl+/", "This list", "Window"),
    Shortcut("quit", "Ctrl+Q", "Quit", "Window"),
)


def typed(event: QKeyEvent) -> str:
    """The text that a key types, "" for one that commands."""
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    return event.text() if event.text().isprintable() and not event.modifiers() & commands else ""


def bind(window: QWidget, actions: Mapping[str, Callable[[], object]]) -> list[QShortcut]:
    """Bind the table's keys to the window's functions. Raises KeyError when the window lacks one."""
    bound = []
    for entry in TABLE:
        if entry.action:
            shortcut = QShortcut(QKeySequence(entry.keys), window)
            shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
            shortcut.activated.connect(actions[entry.action])
            bound.append(shortcut)
    return bound


class ShortcutsDialog(QDialog):
    """The table, for people."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "shortcuts", windowTitle="Keyboard shortcuts")
        inside = QWidget()
        fill(QVBoxLayout(self), Scrolled(inside), margins=0)
        column = fill(QVBoxLayout(inside), margins=(24, 16, 24, 24), spacing=8)
        for group in dict.fromkeys(entry.group for entry in TABLE):
            head = named(QLabel(group), role="section")
            head.setContentsMargins(0, 8, 0, 0)
            fill(column, head, self._grid([entry for entry in TABLE if entry.group == group]))
        self.resize(self.sizeHint())

    def _grid(self, entries: list[Shortcut]) -> QGridLayout:
        grid = fill(QGridLayout(), spacing=(24, -1))
        grid.setColumnMinimumWidth(0, 240)
        for row, entry in enumerate(entries):
            keys = named(QLabel(QKeySequence(entry.keys).toString(QKeySequence.SequenceFormat.NativeText)), role="mute")
            fill(grid, (QLabel(entry.words), row, 0), (keys, row, 1, Qt.AlignmentFlag.AlignRight))
        return grid
