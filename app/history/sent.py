"""What the messages of a branch were sent with of the documents that belong to a folder."""

from __future__ import annotations

from collections.abc import Sequence

from app.documents.records import MessageDocument
from app.history.records import StoredMessage


def in_front(path: Sequence[StoredMessage]) -> tuple[MessageDocument, ...]:
    """The documents that stand before all messages of a branch: those that its last question was asked with."""
    last = next((message for message in reversed(path) if message.role == "user"), None)
    return tuple(each for each in last.documents if each.in_front) if last is not None else ()


def without_repeats(path: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The branch with a document in front at the first question of those that were asked with it alone."""
    found: list[StoredMessage] = []
    before: tuple[MessageDocument, ...] = ()
    for message in path:
        if message.role == "user":
            front = in_front([message])
            if front:
                kept = tuple(each for each in message.documents if not (each.in_front and _stays(each, before)))
                message = message._replace(documents=kept)
            before = front
        found.append(message)
    return found


def _stays(each: MessageDocument, before: Sequence[MessageDocument]) -> bool:
    """True if it stands where it stood for the question before, as far as that is decided."""
    known = next((other for other in before if other.document.digest == each.document.digest), None)
    return known is not None and (each.use is None or known.use is None or each.use == known.use)
