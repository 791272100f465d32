"""Colours of chats in the page map and the prefix tree."""

from __future__ import annotations

HUES = 8
NO_OWNER = 0
"""The hue of what no chat owns; chats have 1 .. HUES."""


class ChatHues:
    """Hue of each chat: assigned in the order in which chats are first seen, and kept."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, chat: str) -> int:
        """1 .. HUES, or NO_OWNER for "". Chats beyond the eighth share hues with earlier ones."""
        if not chat:
            return NO_OWNER
        return self._given.setdefault(chat, len(self._given) % HUES + 1)
