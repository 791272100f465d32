"""Versions of the messages of a chat as a list: each place where it branches, and what begins there."""

from __future__ import annotations

from typing import NamedTuple

from app.chat.session.conversation import title_of
from app.history.records import StoredMessage
from app.history.tree import MessageTree
from app.language import tr

WRITERS = {
    "user": tr("You", "the person who wrote a message"),
    "assistant": tr("Answer"),
    "tool": tr("Results of tools"),
}
"""The role of a message -> who speaks in it."""


class Version(NamedTuple):
    """``depth``: how many branches it lies in; ``shown``: it is part of the branch on screen."""

    message: StoredMessage
    depth: int
    shown: bool

    @property
    def words(self) -> str:
        """Who said it, and its first words."""
        message = self.message
        who = WRITERS[message.role]
        if message.stats.beside is not None:
            who = f"{who}, {message.stats.beside.heading}"
        if message.stats.edited:
            who = tr("{who} (edited)", who=who)
        first = title_of(message.content) or (tr("A picture") if message.pictures else tr("no text"))
        return f"{who}: {first}"


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
