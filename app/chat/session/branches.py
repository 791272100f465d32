"""Versions of the messages of a chat as a list: each place where it branches, and what begins there."""

from __future__ import annotations

from typing import NamedTuple

from app.chat.session.conversation import title_of
from app.history.records import StoredMessage
from app.history.tree import MessageTree


class Version(NamedTuple):
    """``depth``: how many branches it lies in; ``shown``: it is part of the branch on screen."""

    message: StoredMessage
    depth: int
    shown: bool

    @property
    def words(self) -> str:
        """Who said it, and its first words."""
        message = self.message
        who = {"user": "You", "assistant": "Answer", "tool": "Results of tools"}[message.role]
        if message.stats.beside is not None:
            who = f"{who}, {message.stats.beside.heading}"
        first = title_of(message.content) or ("A picture" if message.pictures else "no text")
        return f"{who}{' (edited)' if message.stats.edited else ''}: {first}"


def versions(tree: MessageTree) -> list[Version]:
    """Every message that has others in its place, those that follow from it below it, oldest first."""
    shown = {message.id for message in tree.path()}
    found: list[Version] = []
    left = [(id, 0) for id in reversed(tree.children(""))]
    while left:
        id, depth = left.pop()
        forks = len(tree.siblings(id)) > 1
        if forks:
            found.append(Version(tree.get(id), depth, id in shown))
        left += [(child, depth + forks) for child in reversed(tree.children(id))]
    return found
