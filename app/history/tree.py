"""The messages of one chat as a tree, with the branch that is shown. Knows no Qt and no file."""

from __future__ import annotations

from collections.abc import Iterable

from app.history.records import StoredMessage


class MessageTree:
    """Messages by id; children keep the order in which they came. :attr:`leaf` is "" for an empty chat.

    One whose parent is missing among those before it hangs below the message before it.
    """

    def __init__(self, messages: Iterable[StoredMessage] = (), leaf: str = "") -> None:
        self._messages: dict[str, StoredMessage] = {}
        self._children: dict[str, list[str]] = {}
        before = ""
        for message in messages:
            if message.parent not in self._messages:  # it is lost, or comes later: hide nothing for that
                message = message._replace(parent=before if message.parent else "")
            self.put(message)
            before = message.id
        if leaf not in self._messages:
            leaf = next(reversed(self._messages), "")
        self.leaf = leaf

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._messages

    def all(self) -> list[StoredMessage]:
        """Every message, in the order in which they came."""
        return list(self._messages.values())

    def get(self, message_id: str) -> StoredMessage:
        """Raises KeyError for an id that is not in the tree."""
        return self._messages[message_id]

    def put(self, message: StoredMessage) -> None:
        """Add a message, or replace the one with its id (parent and place stay)."""
        if message.id not in self._messages:
            self._children.setdefault(message.parent, []).append(message.id)
        self._messages[message.id] = message

    def remove(self, message_id: str) -> None:
        """Remove a message without children; if it was the leaf, the branch goes on with another version of it."""
        assert not self._children.get(message_id), "a message with answers cannot be removed"
        message = self._messages.pop(message_id)
        self._children[message.parent].remove(message_id)
        if self.leaf == message_id:
            self.leaf = self.newest_leaf(message.parent)

    def path(self, leaf: str | None = None) -> list[StoredMessage]:
        """From the first message down to ``leaf`` (the shown one by default)."""
        at, path = self.leaf if leaf is None else leaf, {}
        while at in self._messages and at not in path:  # a damaged file may name a message its own ancestor
            path[at] = self._messages[at]
            at = self._messages[at].parent
        return list(path.values())[::-1]

    def siblings(self, message_id: str) -> list[str]:
        """All versions of a message, itself included, oldest first."""
        return list(self._children[self._messages[message_id].parent])

    def children(self, message_id: str) -> list[str]:
        """The messages that follow one, "" being before the first, oldest first."""
        return list(self._children.get(message_id, ()))

    def newest_leaf(self, message_id: str) -> str:
        """The end of the branch through ``message_id`` that takes the newest child at each fork."""
        seen = {message_id}
        while (children := self._children.get(message_id)) and children[-1] not in seen:
            message_id = children[-1]
            seen.add(message_id)
        return message_id
