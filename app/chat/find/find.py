"""Find in the chat on screen: counts matches message by message, marks them, and goes from one to the next."""

from __future__ import annotations

import time
from collections.abc import Callable

import shiboken6
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QTextEdit, QWidget

from app.chat.find.bar import FindBar
from app.chat.find.matches import Count, Matches, Texts, finder
from app.chat.session.session import ChatSession
from app.chat.transcript.text.found import Find, TextMatch
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.theme.theme import Theme
from app.theme.widgets import named

SLICE_S = 0.008
"""Seconds of counting before the window has its turn again."""
GROWN_MS = 300
"""How often a growing answer is looked through again."""


class FindInChat(QObject):
    """The shown branch is looked through from what is in sight on, in slices, so that a long chat stays at hand."""

    def __init__(
        self,
        session: ChatSession,
        transcript: Transcript,
        go_home: Callable[[], None],
        theme: Theme,
        parent: QObject,
    ) -> None:
        """``go_home`` gives the keyboard to where it belongs if what had it before is gone."""
        super().__init__(parent)
        self._go_home = go_home
        self._session, self._transcript = session, transcript
        self.bar = FindBar(theme, transcript)
        transcript.set_bar(self.bar)
        self._texts = Texts()
        self._find: Find = finder("")
        self._counts: dict[str, Count] = {}
        self._left: list[StoredMessage] = []
        """Messages that are still to be looked through, the next one last."""
        self._matches = Matches([])
        self._current: TextMatch | None = None
        self._from = ""
        """The message from which on the first match is wanted, "" for none."""
        self._before: QWidget | None = None
        """What had the keyboard before the bar was opened."""
        self._slice = named(QTimer(self, singleShot=True, interval=0), "find-slice")
        self._slice.timeout.connect(self._go_on)
        self._grown = named(QTimer(self, singleShot=True, interval=GROWN_MS), "find-grown")
        self._grown.timeout.connect(self._count_growing)
        self.bar.changed.connect(self._on_words)
        self.bar.stepped.connect(self.step)
        self.bar.closed.connect(self._on_closed)
        session.opened.connect(self._on_branch)
        session.changed.connect(self._on_branch)
        session.updated.connect(self._on_branch)
        session.answers.grown.connect(self._on_grown)
        theme.changed.connect(transcript.place_bar)

    @property
    def open(self) -> bool:
        return not self.bar.isHidden()

    def begin(self) -> None:
        """Open the bar, with the words that are selected in a message."""
        focused = self._transcript.window().focusWidget()
        words = ""
        if isinstance(focused, QTextEdit) and self._transcript.isAncestorOf(focused):
            words = focused.textCursor().selectedText().split("\u2029")[0].strip()
        if focused is not self.bar.field:
            self._before = focused
        fresh = not self.open
        self.bar.open(words)
        self._transcript.place_bar()
        if fresh:
            self._on_words(self.bar.field.text())

    def step(self, forward: bool) -> None:
        """To the next match, or the one before, round the ends; opens the bar where it is closed."""
        if not self.open:
            self.begin()
            return
        if self._left or not len(self._matches):
            return
        if self._current is None:
            number = self._matches.first_from(self._transcript.first_in_sight) - (not forward)
        else:
            number = self._matches.number(self._current) + (1 if forward else -1)
        self._show(self._matches.match(number))

    def close(self) -> None:
        if self.open:
            self.bar.close_bar()

    def stop(self) -> None:
        """Count no more (the program closes)."""
        self._slice.stop()
        self._grown.stop()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _on_words(self, words: str) -> None:
        self._from = self._current.message if self._current is not None else self._transcript.first_in_sight
        self._current, self._counts = None, {}
        self._find = finder(words if words.strip() else "")
        self._transcript.mark(self._find if words.strip() else None)
        self._count_all()

    def _on_closed(self) -> None:
        self.stop()
        self._left, self._counts, self._current = [], {}, None
        self._texts.forget()
        self._transcript.mark(None)
        before, self._before = self._before, None
        if before is not None and shiboken6.isValid(before) and before.isVisible():
            before.setFocus()
        else:
            self._go_home()

    def _on_branch(self, *_: object) -> None:
        """Other messages are shown, or one has another text."""
        if self.open:
            self._counts = {}
            self._count_all()

    def _on_grown(self, message_id: str) -> None:
        if self.open and message_id in self._session.ends and not self._grown.isActive():
            self._grown.start()

    def _count_growing(self) -> None:
        if not self._words or self._left:
            return
        for end in self._session.ends:
            if (found := self._transcript.count_found(end, self._find)) is not None:
                self._counts[end] = Count(*found)
                if self._current is not None and self._current.message == end:
                    self._transcript.mark_again(end)
        self._tell()

    @property
    def _words(self) -> str:
        return self.bar.field.text() if self.bar.field.text().strip() else ""

    def _count_all(self) -> None:
        path = self._session.shown if self._words else []
        place = next((place for place, message in enumerate(path) if message.id == self._from), 0)
        self._left = [*path[place:], *path[:place]][::-1]
        self._go_on()

    def _go_on(self) -> None:
        """Look through messages for a slice of time; the first match from where the reader is on is shown at once."""
        until, words = time.monotonic() + SLICE_S, self._words
        while self._left and time.monotonic() < until:
            message = self._left.pop()
            count = self._count(message, words)
            self._counts[message.id] = count
            if count.total and self._from and self._current is None:
                self._from = ""
                self._current = TextMatch(message.id, count.place(0))
                self._transcript.show_match(self._current)
        if self._left:
            self._slice.start()
            self.bar.show_count(-1, sum(count.total for count in self._counts.values()), whole=False)
        else:
            self._from = ""
            self._tell()

    def _count(self, message: StoredMessage, words: str) -> Count:
        if message.state == "streaming":
            found = self._transcript.count_found(message.id, self._find)
            if found is not None:
                return Count(*found)
        return self._texts.count(message, words, self._find)

    def _tell(self) -> None:
        path = self._session.shown if self._words else []
        counted = [(message.id, self._counts.get(message.id, Count())) for message in path]
        self._matches = Matches(counted)
        number = self._matches.number(self._current) if self._current is not None else -1
        if number < 0:
            self._current = None
        self.bar.show_count(number, len(self._matches), whole=True)

    def _show(self, match: TextMatch) -> None:
        self._current = match
        self._transcript.show_match(match)
        self._tell()
