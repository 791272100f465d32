"""What was found, marked in the messages on show: the words of a place that a search led to, or what is sought here."""

from __future__ import annotations

from app.chat.transcript.items import ShownMessages, TranscriptItem
from app.chat.transcript.text.found import Find, TextMatch
from app.history.search import places


class FoundMarks:
    """Messages that get a widget are marked by :meth:`mark`."""

    def __init__(self, items: ShownMessages) -> None:
        self._items = items
        self._hit: tuple[str, Find | None] = "", None
        """A message, and what to mark in it."""
        self._find: Find | None = None
        """Matches to mark in every message, instead of that."""
        self._current: TextMatch | None = None
        """The match that is marked more strongly."""

    def lead_to(self, message_id: str, words: str) -> None:
        """Mark ``words`` in that message; "" marks none anywhere."""
        self._hit = (message_id, (lambda text: places(text, words)) if words else None)
        self._mark_all()

    def seek(self, find: Find | None) -> None:
        """Mark what ``find`` finds in every message, nothing for None."""
        self._find, self._current = find, None
        self._mark_all()

    def step_to(self, match: TextMatch | None) -> None:
        """Mark this one of the matches more strongly once its message is marked again, and the last one no more."""
        before, self._current = self._current, match
        if before is not None and (old := self._items.get(before.message)) is not None:
            self.mark(old)

    def mark(self, item: TranscriptItem) -> int | None:
        """Mark what was found in a message; returns how far below its top the current match is, or the first one."""
        if item.view is None:
            return None
        if self._find is None:
            return item.view.mark_found(self._hit[1] if item.message.id == self._hit[0] else None)
        current = self._current
        here = current is not None and current.message == item.message.id
        return item.view.mark_found(self._find, current.place if current is not None and here else None)

    def _mark_all(self) -> None:
        for item in self._items:
            self.mark(item)
