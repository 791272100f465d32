"""Frames round answers that stand side by side in the transcript: a heading above each, what to do with it below."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject, QRect, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.side_by_side.columns import across
from app.chat.transcript.items import TranscriptItem
from app.history.records import StoredMessage
from app.language import tr
from app.theme.direction import mirror
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, named, say, take_out

LEAST_PX = 260
"""Least width of a column at the usual text size; where less is left, they stand in rows."""
MOST_PX = 800
"""The most that a column is wide at the usual text size, and at smaller ones."""
GAP_PX, SIDE_PX, PAD_PX = 12, 24, 14
"""Pixels between two frames, beside all of them, and between a frame and its text."""


class ColumnFrame(QFrame):
    """``acted`` carries "use" or "regenerate". The answer itself lies over it, between heading and buttons."""

    acted = Signal(str)

    def __init__(self, message: StoredMessage, parent: QWidget) -> None:
        super().__init__(parent)
        named(self, "column", card="choice")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.heading = named(ElidedLabel("", "figure"), "column-heading")
        self.problem = named(QLabel(textFormat=Qt.TextFormat.PlainText, wordWrap=True), "column-problem", role="bad")
        self.use = named(QPushButton(tr("Use this one")), "column-use", clicked=lambda: self.acted.emit("use"))
        self.copy = named(QPushButton(tr("Copy")), "column-copy", kind="link", clicked=self._copy)
        again = lambda: self.acted.emit("regenerate")  # noqa: E731
        self.again = named(QPushButton(tr("Regenerate")), "column-regenerate", kind="link", clicked=again)
        self._foot = fill(QHBoxLayout(), self.use, 1, self.copy, self.again, spacing=10)
        column = fill(QVBoxLayout(self), self.heading, 1, self.problem, self._foot, spacing=6)
        column.setContentsMargins(PAD_PX, 10, PAD_PX, PAD_PX)
        self.show_message(message)

    def show_message(self, message: StoredMessage) -> None:
        self._message = message
        beside, streams = message.stats.beside, message.state == "streaming"
        heading = beside.heading if beside is not None else ""
        self.heading.setText(heading)
        self.setAccessibleName(tr("Answer: {heading}", heading=heading))
        for button in (self.use, self.copy, self.again):
            button.setAccessibleName(f"{button.text()}: {heading}")
        said = message.stats.detail if message.stats.reason not in ("stop", "cancelled") else ""
        say(self.problem, "" if streams else said)
        self._copies = bool(message.content) and not streams
        self.again.setVisible(not streams)

    @property
    def above(self) -> int:
        """Pixels above the answer's text."""
        return 10 + self.heading.sizeHint().height() + 8

    def below(self, width: int) -> int:
        """Pixels below the answer, in a frame of that width, which may have no room for all that can be done."""
        others = [button.sizeHint().width() + self._foot.spacing() for button in (self.use, self.again, self.copy)]
        self.copy.setVisible(self._copies and sum(others) <= width - 2 * PAD_PX)
        problem = 0
        if not self.problem.isHidden():
            problem = self.problem.heightForWidth(width - 2 * PAD_PX) + 6
        return problem + self.use.sizeHint().height() + PAD_PX

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._message.content)


class AnswerFrames(QObject):
    """Frames of the answers that stand side by side now, in ``page``. ``acted`` as that of the transcript."""

    acted = Signal(str, str)

    def __init__(self, theme: Theme, page: QWidget) -> None:
        super().__init__(page)
        self._theme, self._page = theme, page
        self.frames: dict[str, ColumnFrame] = {}
        """By the id of the answer, from the left."""

    def show_messages(self, messages: Sequence[StoredMessage]) -> None:
        """Frame these answers and no others."""
        old = self.frames
        self.frames = {message.id: old.get(message.id) or self._frame(message) for message in messages}
        for message_id in old.keys() - self.frames.keys():
            take_out(old[message_id])
        for message in messages:
            self.update_message(message)

    def update_message(self, message: StoredMessage) -> None:
        self.frames[message.id].show_message(message)

    def text_width(self, room: int) -> int:
        """Pixels that each answer has across, in a transcript of ``room`` pixels."""
        return self._width(room) - 2 * PAD_PX

    def place(self, items: Sequence[TranscriptItem], top: int, room: int) -> int:
        """Place the frames from ``top`` on and say in the items where their answers lie; returns where they end."""
        width, columns = self._width(room), self._across(room)
        left = (room - columns * width - (columns - 1) * GAP_PX) // 2
        for first in range(0, len(items), columns):
            row = [(item, self.frames[item.message.id]) for item in items[first : first + columns]]
            height = max(frame.above + item.height + frame.below(width) for item, frame in row)
            for place, (item, frame) in enumerate(row):
                x = mirror(QRect(left + place * (width + GAP_PX), top, width, height), room).left()
                frame.setGeometry(x, top, width, height)
                item.left, item.top = x + PAD_PX, top + frame.above
            top += height + GAP_PX
        return top - GAP_PX

    def _across(self, room: int) -> int:
        return across(len(self.frames), room - 2 * SIDE_PX, self._theme.px(LEAST_PX), GAP_PX)

    def _width(self, room: int) -> int:
        columns = self._across(room)
        most = max(MOST_PX, self._theme.px(MOST_PX))
        return max(120, min(most, (room - 2 * SIDE_PX - (columns - 1) * GAP_PX) // columns))

    def _frame(self, message: StoredMessage) -> ColumnFrame:
        frame = ColumnFrame(message, self._page)
        frame.acted.connect(partial(self.acted.emit, message.id))
        frame.lower()
        frame.show()
        return frame
