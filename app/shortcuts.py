"""Every command that has a name of its own, with its usual keys, declared once: see app/commands/registry.py."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent


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


TABLE = (
    Shortcut("new_chat", "Ctrl+N", "New chat", "Chat"),
    Shortcut("search", "Ctrl+Shift+F", "Search all chats", "Chat"),
    Shortcut("find", "Ctrl+F", "Find in this chat", "Chat"),
    Shortcut("find_next", "F3", "Next match", "Chat"),
    Shortcut("find_previous", "Shift+F3", "Previous match", "Chat"),
    Shortcut("focus_composer", "Ctrl+L", "Go to the message field", "Chat"),
    Shortcut("attach", "Ctrl+U", "Add documents or pictures", "Chat"),
    Shortcut("", "Return", "Send the message", "Chat"),
    Shortcut("", "Shift+Return", "Break the line", "Chat"),
    Shortcut("", "Up", "Edit the last message, from the empty message field", "Chat"),
    Shortcut("", "Ctrl+Return", "Save an edited answer and let the model continue", "Chat"),
    Shortcut("", "End", "To the end of the chat, from the empty field or a message", "Chat"),
    # No QShortcut: it would take Esc from the fields that cancel an edit with it; the window gets what they leave.
    Shortcut("", "Esc", "Stop the answer, or cancel an edit", "Chat"),
    Shortcut("regenerate", "Ctrl+R", "Answer again", "Chat"),
    Shortcut("ask_several", "Ctrl+Shift+Return", "Ask several: two to four answers side by side", "Chat"),
    Shortcut("rename", "F2", "Rename the chat, or what is chosen in the list of chats", "Chat"),
    Shortcut("toggle_tint", "Ctrl+Shift+T", "Highlight drafted tokens", "Chat"),
    Shortcut("chat_settings", "", "Chat settings: system prompt and sampling", "Chat"),
    Shortcut("show_palette", "Ctrl+K", "Find a command, a chat or a model", "Window", offered=False),
    Shortcut("toggle_sidebar", "Ctrl+B", "Show or hide the list of chats", "Window"),
    Shortcut("toggle_panel", "Ctrl+Shift+O", "Show or hide the optimisations", "Window"),
    Shortcut("toggle_plots", "Ctrl+Shift+P", "Fold or unfold the plots", "Window"),
    Shortcut("toggle_cache", "Ctrl+Shift+K", "Show or hide the cache", "Window"),
    Shortcut("zoom_in", "Ctrl+=", "Larger text", "Window", also=("Ctrl++",)),
    Shortcut("zoom_out", "Ctrl+-", "Smaller text", "Window"),
    Shortcut("zoom_reset", "Ctrl+0", "Text at its usual size", "Window"),
    Shortcut("next_region", "F6", "To the next part of the window", "Window", offered=False),
    Shortcut("previous_region", "Shift+F6", "To the part before", "Window", offered=False),
    Shortcut("", "Down", "In the panel: move between switches (Up, Down) or within one (Left, Right)", "Window"),
    Shortcut("", "Left", "In the Lab: move between sides (Left, Right); Return runs, Esc cancels", "Window"),
    Shortcut("show_chat", "Ctrl+1", "Go to Chat", "Window"),
    Shortcut("show_models", "Ctrl+2", "Go to Models", "Window"),
    Shortcut("show_lab", "Ctrl+3", "Go to Lab", "Window"),
    Shortcut("show_server", "Ctrl+4", "Go to Server", "Window"),
    Shortcut("show_settings", "Ctrl+,", "Go to Settings", "Window"),
    Shortcut("show_help", "F1", "Go to Help", "Window"),
    Shortcut("show_shortcuts", "Ctrl+/", "Keyboard shortcuts", "Window"),
    Shortcut("show_log", "", "Log", "Window"),
    Shortcut("show_about", "", "About Kvasir, and licences", "Window"),
    Shortcut("open_file", "", "Open a model file", "Model"),
    Shortcut("get_model", "", "Get a model", "Model"),
    Shortcut("reload_model", "", "Reload the model", "Model"),
    Shortcut("unload_model", "", "Unload the model", "Model"),
    Shortcut("quit", "Ctrl+Q", "Quit", "Window"),
)


def typed(event: QKeyEvent) -> str:
    """The text that a key types, "" for one that commands."""
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    return event.text() if event.text().isprintable() and not event.modifiers() & commands else ""
