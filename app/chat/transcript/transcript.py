"""The conversation on screen: widgets exist only near the viewport, and painting of a streaming answer is throttled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from PySide6.QtCore import QEvent, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QWidget

from app.chat.session.tools import ShownCall
from app.chat.side_by_side.frames import AnswerFrames
from app.chat.transcript.items import ShownMessages, TranscriptItem, estimate
from app.chat.transcript.marks import FoundMarks
from app.chat.transcript.message import MessageView
from app.chat.transcript.stream_frames import Snapshot, StreamFrames
from app.chat.transcript.text.blocks import LINE_PX
from app.chat.transcript.text.found import Find, TextMatch
from app.chat.transcript.to_end import ToEnd
from app.chat.transcript.unseen import UnseenLine
from app.history.records import StoredMessage
from app.language import tr
from app.theme.direction import mirror
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import named

COLUMN_PX = 820
"""The most that the column is wide at the usual text size, and at smaller ones."""
SIDE_PX = 24
TOP_PX = 20
"""Above the first message and below the last one; above it more with larger text, as the line there needs."""
NEAR = 1.0
"""Messages within this many viewport heights of what is seen have widgets."""
FAR = 3.0
"""Beyond this many, widgets are dropped again."""
_AT_BOTTOM_PX = 12
BAR_PX = 8
"""Pixels above a bar that stands over the text."""

Branch = Callable[[str], tuple[int, int]]
"""(index, count) of a message among its versions."""
Calls = Callable[[StoredMessage], Sequence[ShownCall]]
"""Calls of an answer, as they stand."""
Saved = Callable[[StoredMessage], Sequence[str]]
"""For each document of a message, what the cache saved of reading it."""


class _ShownPath(NamedTuple):
    """Functions that tell of the messages on show; ``queued`` is the id of the one that waits for the model."""

    branch: Branch = lambda _: (0, 1)
    queued: str = ""
    calls: Calls = lambda _: []
    saved: Saved = lambda _: []


def column_px(theme: Theme) -> int:
    """The most that the column is wide: lines keep their number of letters when the text grows."""
    return max(COLUMN_PX, theme.px(COLUMN_PX))


class Transcript(QScrollArea):
    """Shows one branch of one chat. It follows the end only while the end is in sight."""

    acted = Signal(str, str)
    """(message id, action), as MessageView.acted."""
    decided = Signal(str, str, str)
    """(message id, call id, decision), as MessageView.decided."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._items = ShownMessages()
        self._shown = _ShownPath()
        self._tint = False
        self._stick = True
        self._syncing = False
        self._marks = FoundMarks(self._items)
        self._bar: QWidget | None = None
        self._head: QWidget | None = None
        self._head_px = 0
        """Height of the line above the text, while that is shown."""
        named(self, frameShape=QFrame.Shape.NoFrame, horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        named(self, "transcript", title=tr("Conversation"))
        self._page = named(QWidget(), "transcript-page")
        self.setWidget(self._page)
        self._columns = AnswerFrames(theme, self._page)
        self._columns.acted.connect(self.acted)
        self._line = UnseenLine(theme, self._page)
        self._to_end = ToEnd(theme, self)
        self._to_end.clicked.connect(self.scroll_to_end)
        self._news = False
        """True if text came below what is in sight."""
        self.verticalScrollBar().valueChanged.connect(self._on_scroll)
        self.verticalScrollBar().rangeChanged.connect(self._on_range)
        self._frames = StreamFrames(self._paint, self)
        theme.changed.connect(self._restyle)
        cast(QApplication, QApplication.instance()).focusChanged.connect(self._on_focus)

    @property
    def views(self) -> list[MessageView]:
        """The messages that have widgets now, top to bottom."""
        return [item.view for item in self._items if item.view is not None]

    def view(self, message_id: str) -> MessageView | None:
        item = self._items.get(message_id)
        return item.view if item is not None else None

    def show_path(
        self,
        messages: Sequence[StoredMessage],
        branch: Branch,
        queued: str = "",
        calls: Calls = lambda _: [],
        saved: Saved = lambda _: [],
        beside: int = 0,
    ) -> None:
        """Show these messages, the last ``beside`` of them side by side; widgets of messages that stay are kept.

        ``queued``: the one that waits for the model.
        """
        self._shown = _ShownPath(branch, queued, calls, saved)
        self._items.show(messages, beside, self._column())
        self._columns.show_messages([item.message for item in self._items.beside])
        self._frames.clear()
        self._say_unseen()
        self._sync()

    def scroll_to_end(self) -> None:
        self._stick = True
        self._sync()

    def update_message(self, message: StoredMessage) -> None:
        """The record of a shown message changed (finished, interrupted)."""
        item = self._items.update(message)
        if item is None:
            return
        self._frames.forget(message.id)
        if item.beside:
            self._columns.update_message(message)
        self._say_unseen()
        self._sync()

    def stream(self, message_id: str, snapshot: Snapshot) -> None:
        """New text has come; ``snapshot`` is asked for all of it when the next frame is painted."""
        self._frames.add(message_id, snapshot)

    def stop(self) -> None:
        """Paint no more frames (the program closes)."""
        self._frames.stop()

    def wait(self, message_id: str, words: str) -> None:
        """Show what the engine does before the first token of that answer."""
        item = self._items.get(message_id)
        if item is not None and item.view is not None:
            item.view.wait(words)

    def reveal(self, message_id: str, words: str) -> None:
        """Scroll to the first of ``words`` in that message and mark all of them there; "" marks none anywhere."""
        self._marks.lead_to(message_id, words)
        item = self._items.get(message_id)
        if item is not None:
            self._bring(item, always=True)

    def mark(self, find: Find | None) -> None:
        """Mark what ``find`` finds in every message, nothing for None; new messages, too."""
        self._marks.seek(find)

    def show_match(self, match: TextMatch | None) -> None:
        """Mark this one of the matches more strongly, and scroll to it where it is out of sight; what is folded over it
        is unfolded."""
        self._marks.step_to(match)
        item = self._items.get(match.message) if match is not None else None
        if match is None or item is None:
            return
        if match.place.thinking and 0 not in item.unfolded:
            item.unfolded |= {0}
            item.measured = False
            if item.view is not None:
                item.view.unfold(item.unfolded)
        self._bring(item)

    def mark_again(self, message_id: str) -> None:
        """Mark a message whose text grew."""
        item = self._items.get(message_id)
        if item is not None:
            self._marks.mark(item)

    def count_found(self, message_id: str, find: Find) -> tuple[int, int] | None:
        """The matches in the thinking and in the text of a message that has a widget."""
        view = self.view(message_id)
        return view.count_found(find) if view is not None else None

    @property
    def first_in_sight(self) -> str:
        """The id of the message at the top of what is seen, "" for none."""
        item = self._items.first_below(self.verticalScrollBar().value())
        return item.message.id if item is not None else ""

    def set_head(self, head: QWidget) -> None:
        """A line above the text, as high as its words want. The text stays where it is when the line comes or goes."""
        self._head = head
        self.place_head()

    def place_head(self) -> None:
        """The line above the text came, went or has other words."""
        if self._head is None or self._syncing:
            return
        room, shown = self.contentsRect(), not self._head.isHidden()
        height = self._head.heightForWidth(room.width()) if shown else 0
        self._head.setGeometry(room.x(), room.y(), room.width(), height)
        if height == self._head_px:
            return
        anchor, lower = self._anchor(), height - self._head_px
        self._head_px = height
        self._syncing = True
        try:
            self.setViewportMargins(0, height, 0, 0)
        finally:
            self._syncing = False
        self._sync((anchor[0], anchor[1] + lower) if anchor is not None else None)
        self.place_bar()

    def set_bar(self, bar: QWidget) -> None:
        """A bar over the text's top right (left in a mirrored window), as wide as it wants where there is room."""
        self._bar = bar
        self.place_bar()

    def place_bar(self) -> None:
        """The bar, or the room for it, has another size."""
        if self._bar is None:
            return
        left, column = (self._room() - self._column()) // 2, self._column()
        size = self._bar.sizeHint()
        width, top = min(size.width(), column), self._head_px + BAR_PX
        self._bar.setGeometry(mirror(QRect(left + column - width, top, width, size.height()), self._room()))
        self._bar.raise_()

    def set_tint(self, tint: bool) -> None:
        self._tint = tint
        for view in self.views:
            view.set_tint(tint)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        elif event.key() == Qt.Key.Key_Home:
            self.verticalScrollBar().setValue(0)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show where the keyboard is to who came with it: a click between the messages draws no edge around them."""
        super().focusInEvent(event)
        if event.reason() not in (Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason):
            named(self, ring="false" if event.reason() == Qt.FocusReason.MouseFocusReason else "true")
            restyle(self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            for item in self._items:
                item.measured = False
                item.height = estimate(item.message, self._width(item))
        self.place_head()
        self._sync()
        self.place_bar()

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() is QEvent.Type.LayoutRequest:  # the line above the text has other words or another font
            self.place_head()
        return done

    @property
    def unseen(self) -> str:
        """The line that says what the model does not see, "" where it sees everything."""
        return self._line.text

    # --- inside ----------------------------------------------------------------------------------------------------

    def _say_unseen(self) -> None:
        """Say what the model did not see for the last answer."""
        hidden = self._items.hidden
        self._line.say(hidden.sentence if hidden is not None else "")

    def _column(self) -> int:
        return max(120, min(column_px(self._theme), self._room()) - 2 * SIDE_PX)

    def _width(self, item: TranscriptItem) -> int:
        """Pixels that an item has across."""
        return self._columns.text_width(self._room()) if item.beside else self._column()

    def _room(self) -> int:
        """The width without the scroll bar, shown or not: nothing moves when it comes."""
        return self.width() - self.verticalScrollBar().sizeHint().width()

    def _paint(self, pending: dict[str, Snapshot]) -> bool:
        """Paint new text of answers; False where none of them has a widget."""
        painted = False
        for message_id, snapshot in pending.items():
            item = self._items.get(message_id)
            if item is not None and item.view is not None:
                item.view.stream(*snapshot())
                item.measured, painted = False, True
        if painted:
            self._news = not self._stick
            self._sync()
        return painted

    def _on_scroll(self) -> None:
        if not self._syncing:
            bar = self.verticalScrollBar()
            self._stick = bar.value() >= bar.maximum() - _AT_BOTTOM_PX
            self._sync()

    def _on_range(self) -> None:
        """Scroll to the end if the transcript sticks to it. Text that grew while another page was on screen comes into
        the scroll bar's range only when this one is shown again."""
        if self._stick:
            self._sync()

    def _on_refolded(self, message_id: str) -> None:
        """A message was folded or unfolded by the person: it stays where it is, and what follows makes room."""
        item = self._items.get(message_id)
        if item is not None and item.view is not None:
            item.unfolded = frozenset(place for place, fold in enumerate(item.view.folds) if fold.open)
            item.wrapped = item.view.wrapped
            item.measured = False
            self._stick = False
            self._sync()
            self._on_scroll()

    def _on_resized(self, message_id: str) -> None:
        if (item := self._items.get(message_id)) is not None:
            item.measured = False
            self._sync()
            self._marks.mark(item)  # its text was made again

    def _sync(self, anchor: tuple[TranscriptItem, int] | None = None) -> None:
        """Make positions, heights and widgets agree. What the reader looks at stays where it is, or ``anchor`` does."""
        if self._syncing:
            return
        self._syncing = True
        try:
            anchor = anchor or self._anchor()
            self._place(anchor)
            for _ in range(5):  # building widgets replaces estimates, which may bring others into sight
                changed = self._build_near()
                self._place(anchor)
                if not changed:
                    break
            self._drop_far()
        finally:
            self._syncing = False
        self._show_way_to_end()

    def _show_way_to_end(self) -> None:
        bar = self.verticalScrollBar()
        below = 0 if self._stick else bar.maximum() - bar.value()
        self._news = self._news and below > 0
        self._to_end.show_for(below, self._news)
        self._to_end.place(self.viewport().width(), self._head_px + self.viewport().height())

    def _anchor(self) -> tuple[TranscriptItem, int] | None:
        """The first message in sight and how far its top lies above the viewport's; None to follow the end."""
        if self._stick:
            return None
        value = self.verticalScrollBar().value()
        item = self._items.first_below(value)
        return (item, value - item.top) if item is not None else None

    def _place(self, anchor: tuple[TranscriptItem, int] | None) -> None:
        pad = max(TOP_PX, self._theme.px(TOP_PX))
        y = max(0, pad - self._head_px)  # the line above the text stands in this room first
        left, width = (self._room() - self._column()) // 2, self._column()
        hidden = self._items.hidden
        for index, item in enumerate(self._items):
            if hidden is not None and index == hidden.line:
                self._line.setGeometry(left, y, width, self._line.room)
                y += self._line.room
            if item.beside:
                y = self._columns.place(self._items.beside, y, self._room())
                break
            item.left, item.top = left, y
            y += item.height
        higher = max(0, self._head_px - pad) if len(self._items) else 0
        self._page.resize(self.viewport().width(), max(y + TOP_PX, self.viewport().height() + higher))
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum() if anchor is None else anchor[0].top + anchor[1])
        for item in self._items:
            if item.view is not None:
                item.view.setGeometry(item.left, item.top, self._width(item), item.height)

    def _build_near(self) -> bool:
        """Give messages near the viewport widgets; True when a height changed."""
        value, height = self.verticalScrollBar().value(), self.viewport().height()
        low, high = value - NEAR * height, value + (1 + NEAR) * height
        changed = False
        for index, item in enumerate(self._items):
            if item.top + item.height < low or item.top > high:
                continue
            if item.view is None:
                self._build(item)
            last = index == len(self._items) - 1
            assert item.view is not None
            item.view.set_beside(item.beside)
            item.view.set_last(last, item.message.id == self._shown.queued)
            item.view.set_dimmed(self._items.dimmed(index))
            item.view.show_model(item.other_model)
            item.view.set_branch(*((0, 1) if item.beside else self._shown.branch(item.message.id)))
            if item.message.state != "streaming" and item.view.show_calls(self._shown.calls(item.message)):
                item.measured = False
            if item.message.documents:
                item.saved = self._shown.saved(item.message) if item.saved is None else item.saved
                if item.view.show_saved(item.saved):
                    item.measured = False
            if not item.measured:
                fitted = item.view.fit(self._width(item))
                changed |= fitted != item.height
                item.height, item.measured = fitted, True
        return changed

    def _build(self, item: TranscriptItem) -> None:
        view = MessageView(item.message, self._theme, self._page)
        view.set_tint(self._tint)
        view.unfold(item.unfolded)
        view.wrap(item.wrapped)
        view.acted.connect(self.acted)
        view.decided.connect(self.decided)
        view.refolded.connect(self._on_refolded)
        view.resized.connect(self._on_resized)
        view.show()
        item.view = view
        item.measured = False
        self._marks.mark(item)

    def _bring(self, item: TranscriptItem, always: bool = False) -> None:
        """Scroll to what is marked in a message; where it is in sight only if ``always``."""
        self._stick = False
        bar, height = self.verticalScrollBar(), self.viewport().height()
        if item.view is None or not item.measured:
            if item.view is None:
                bar.setValue(item.top)
            self._sync()
        place = item.top + (self._marks.mark(item) or 0)
        covered = BAR_PX + self._bar.height() if self._bar is not None and not self._bar.isHidden() else 0
        in_sight = bar.value() + covered <= place <= bar.value() + height - LINE_PX
        if always or not in_sight:
            bar.setValue(place - height // 3)
        self._show_way_to_end()

    def _drop_far(self) -> None:
        value, height = self.verticalScrollBar().value(), self.viewport().height()
        low, high = value - FAR * height, value + (1 + FAR) * height
        for item in self._items:
            far = item.top + item.height < low or item.top > high
            if far and item.view is not None and item.message.state != "streaming" and not item.view.focused:
                item.drop()

    def _restyle(self) -> None:
        for item in self._items:
            item.measured = False
            if item.view is not None:
                item.view.restyle()
                self._marks.mark(item)
        self._sync()

    def _on_focus(self, _old: QWidget | None, new: QWidget | None) -> None:
        for view in self.views:
            view.set_focused(new is not None and (view is new or view.isAncestorOf(new)))
