"""Every command that has a name of its own, with its usual keys, declared once: see app/commands/registry.py."""

from __future__ import annotations

import sys
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent

from app.language import tr


class Shortcut(NamedTuple):
    action: str
    """The name under which the window gives the function; empty where a widget handles the key itself."""
    keys: str
    """The usual keys; empty for a command that has none until the person chooses some."""
    words: str
    group: str
    also: tuple[str, ...] = ()
    """Further keys that do the same, until the person chooses others."""
    offered: bool = True
    """True if the palette offers it."""


_CHAT, _WINDOW, _MODEL = tr("Chat"), tr("Window"), tr("Model")
TABLE = (
    Shortcut("new_chat", "Ctrl+N", tr("New chat"), _CHAT),
    Shortcut("search", "Ctrl+Shift+F", tr("Search all chats"), _CHAT),
    Shortcut("find", "Ctrl+F", tr("Find in this chat"), _CHAT),
    Shortcut("find_next", "F3", tr("Next match"), _CHAT, also=("Ctrl+G",)),
    Shortcut("find_previous", "Shift+F3", tr("Previous match"), _CHAT, also=("Ctrl+Shift+G",)),
    Shortcut("focus_composer", "Ctrl+L", tr("Go to the message field"), _CHAT),
    Shortcut("attach", "Ctrl+U", tr("Add documents or pictures"), _CHAT),
    Shortcut("", "Return", tr("Send the message"), _CHAT),
    Shortcut("", "Shift+Return", tr("Break the line"), _CHAT),
    Shortcut("", "Up", tr("Edit the last message, from the empty message field"), _CHAT),
    Shortcut("", "Ctrl+Return", tr("Save an edited answer and let the model continue"), _CHAT),
    Shortcut("", "End", tr("To the end of the chat, from the empty field or a message"), _CHAT),
    # No QShortcut: it would take Esc from the fields that cancel an edit with it; the window gets what they leave.
    Shortcut("", "Esc", tr("Stop the answer, or cancel an edit"), _CHAT),
    Shortcut("regenerate", "Ctrl+R", tr("Answer again"), _CHAT),
    Shortcut("ask_several", "Ctrl+Shift+Return", tr("Ask several: two to four answers side by side"), _CHAT),
    Shortcut("rename", "F2", tr("Rename the chat, or what is chosen in the list of chats"), _CHAT),
    Shortcut("toggle_tint", "Ctrl+Shift+T", tr("Highlight drafted tokens"), _CHAT),
    Shortcut("chat_settings", "", tr("Chat settings: system prompt and sampling"), _CHAT),
    Shortcut("show_palette", "Ctrl+K", tr("Find a command, a chat or a model"), _WINDOW, offered=False),
    Shortcut("toggle_sidebar", "Ctrl+B", tr("Show or hide the list of chats"), _WINDOW),
    Shortcut("toggle_panel", "Ctrl+Shift+O", tr("Show or hide the optimisations"), _WINDOW),
    Shortcut("toggle_plots", "Ctrl+Shift+P", tr("Fold or unfold the plots"), _WINDOW),
    Shortcut("toggle_cache", "Ctrl+Shift+K", tr("Show or hide the cache"), _WINDOW),
    Shortcut("zoom_in", "Ctrl+=", tr("Larger text"), _WINDOW, also=("Ctrl++",)),
    Shortcut("zoom_out", "Ctrl+-", tr("Smaller text"), _WINDOW),
    Shortcut("zoom_reset", "Ctrl+0", tr("Text at its usual size"), _WINDOW),
    Shortcut("next_region", "F6", tr("To the next part of the window"), _WINDOW, offered=False),
    Shortcut("previous_region", "Shift+F6", tr("To the part before"), _WINDOW, offered=False),
    Shortcut("", "Down", tr("In the panel: move between switches (Up, Down) or within one (Left, Right)"), _WINDOW),
    Shortcut("", "Left", tr("In the Lab: move between sides (Left, Right); Return runs, Esc cancels"), _WINDOW),
    Shortcut("show_chat", "Ctrl+1", tr("Go to Chat"), _WINDOW),
    Shortcut("show_models", "Ctrl+2", tr("Go to Models"), _WINDOW),
    Shortcut("show_lab", "Ctrl+3", tr("Go to Lab"), _WINDOW),
    Shortcut("show_server", "Ctrl+4", tr("Go to Server"), _WINDOW),
    Shortcut("show_settings", "Ctrl+,", tr("Go to Settings"), _WINDOW),
    Shortcut("show_help", "F1", tr("Go to Help"), _WINDOW),
    Shortcut("show_shortcuts", "Ctrl+/", tr("Keyboard shortcuts"), _WINDOW),
    Shortcut("quick_chat", "", tr("Quick chat: a small window over all others"), _WINDOW),
    Shortcut("show_log", "", tr("Log"), _WINDOW),
    Shortcut("show_about", "", tr("About Kvasir, and licences"), _WINDOW),
    Shortcut("open_file", "", tr("Open a model file"), _MODEL),
    Shortcut("get_model", "", tr("Get a model"), _MODEL),
    Shortcut("reload_model", "", tr("Reload the model"), _MODEL),
    Shortcut("unload_model", "", tr("Unload the model"), _MODEL),
    Shortcut("close_window", "Ctrl+W" if sys.platform == "darwin" else "", tr("Close the window"), _WINDOW),
    Shortcut("quit", "Ctrl+Q", tr("Quit"), _WINDOW),
)


def typed(event: QKeyEvent) -> str:
    """The text that a key types, "" for one that commands."""
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    return event.text() if event.text().isprintable() and not event.modifiers() & commands else ""
