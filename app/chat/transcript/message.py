"""One message of the transcript: its blocks, what it cost, and what can be done with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QEnterEvent, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QLabel, QWidget

from app.chat.pictures import ShownPictures
from app.chat.session.branches import WRITERS
from app.chat.session.tools import ShownCall
from app.chat.transcript.calls import CallBlock, ResultBlock
from app.chat.transcript.documents import DocumentBlock
from app.chat.transcript.folded import Folded
from app.chat.transcript.footer import Footer
from app.chat.transcript.offered import MessagePlace, offered
from app.chat.transcript.text import found
from app.chat.transcript.text.blocks import TextBlock, TextView
from app.chat.transcript.text.found import Find, MatchPlace
from app.chat.transcript.text.message_text import GAP_PX, Block, MessageText
from app.chat.transcript.thinking import ThinkingBlock
from app.chat.transcript.unseen import Veil
from app.documents.records import MessageDocument
from app.history.records import StoredMessage, TextSpan
from app.language import tr
from app.texts.markdown import MarkdownBlock, merged, parse
from app.theme.direction import mirror
from app.theme.theme import Theme
from app.theme.widgets import named, take_out
from engine.protocol import ToolCall

FoldedT = TypeVar("FoldedT", bound=Folded)

FOOTER_PX = {"user": 24, "assistant": 40, "tool": 24}
"""Height of the footer with the gap to the next message, at the usual text size."""
_LINE_PX = 22
BUBBLE_PX = (13, 9)
BUBBLE_SHARE = 0.8
UNSAID = tr("The model thought but gave no answer.")


class MessageView(QWidget):
    """Laid out by :meth:`fit`, not by a QLayout: while text streams in, only the last block changes."""

    acted = Signal(str, str)
    """(message id, action): "continue", "regenerate", "again", "compare", "edit", "begin", "retry", "overflow",
    "branches", "previous" or "next"."""
    decided = Signal(str, str, str)
    """(message id, call id, "once" | "always" | "deny")."""

    refolded = Signal(str)
    """The person unfolded or folded a part of this message (its id); it has another height now."""
    resized = Signal(str)
    """A part of this message (its id) may have another height, by no act of the person's."""

    def __init__(self, message: StoredMessage, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._message = message
        self._place = MessagePlace()
        self._fitted = 0
        self._thinking: ThinkingBlock | None = None
        self._calls: list[CallBlock] = []
        self._results = [self._folding(ResultBlock(result, theme, self)) for result in message.results]
        self._veil: Veil | None = None
        self._bubble = QFrame(self) if message.role == "user" else None
        if self._bubble is not None:
            self._bubble.setProperty("card", "user")
        self._text = MessageText(theme, self._bubble or self, plain=self._bubble is not None)
        self._text.refolded.connect(lambda: self.refolded.emit(self._message.id))
        self._text.resized.connect(lambda: self.resized.emit(self._message.id))
        self._pictures = ShownPictures(message.pictures, self._bubble) if self._bubble and message.pictures else None
        self._documents: list[DocumentBlock] = []
        self._shown_documents: tuple[MessageDocument, ...] = ()
        self._waiting = named(QLabel(self), "waiting", role="caption")
        self._waiting.setVisible(False)
        self._footer = Footer(message, self)
        self._footer.acted.connect(self._on_action)
        named(self, f"message-{message.role}", focusPolicy=Qt.FocusPolicy.TabFocus)
        self.show_message(message)

    @property
    def message(self) -> StoredMessage:
        return self._message

    @property
    def blocks(self) -> list[Block]:
        return self._text.blocks

    @property
    def thinking(self) -> ThinkingBlock | None:
        return self._thinking

    @property
    def folds(self) -> list[Folded]:
        """The parts that can be folded, from the top."""
        thinking = [self._thinking] if self._thinking is not None else []
        documents = [part for each in self._documents for part in (each, *each.passages)]
        return [*documents, *thinking, *self._calls, *self._results]

    @property
    def focused(self) -> bool:
        """True if the keyboard focus is on this message or inside it."""
        return self._place.focused

    @property
    def waiting_text(self) -> str:
        return self._waiting.text() if not self._waiting.isHidden() else ""

    def show_message(self, message: StoredMessage) -> None:
        """Show the record as it is now: all of it, its state and its statistics."""
        self._message, text = message, self._text
        self._show_documents(message.documents)
        if message.state == "streaming":
            calls = tuple(message.calls)
            self.stream(message.content, message.spans, message.thinking, message.stats.thought_s, calls)
        elif text.growing:
            text.finish(message.content, message.spans)
            self.wait("")
        else:
            text.show_blocks(self._whole(message), message.spans)
            if text.blocks:
                self._waiting.hide()
        silent = message.role == "assistant" and not message.content.strip() and not message.calls
        if silent and message.state != "streaming":
            self.wait(UNSAID if message.thinking else tr("The answer is empty."))
        if message.state != "streaming":
            self._show_thinking(message.thinking, message.stats.thought_s, False)
        self._footer.show_stats(message)
        self._name()
        self._update_actions()

    def show_calls(self, calls: Sequence[ShownCall]) -> bool:
        """Show the calls behind the text as they stand; True if that is another height."""
        changed = len(calls) > len(self._calls)
        for place, shown in enumerate(calls):
            if place == len(self._calls):
                self._calls.append(self._folding(CallBlock(shown, self._theme, self)))
                self._calls[-1].decided.connect(
                    lambda decision, id=shown.call.id: self.decided.emit(self._message.id, id, decision)
                )
            changed |= self._calls[place].show_call(shown)
        return changed

    def show_saved(self, sentences: Sequence[str]) -> bool:
        """Say at each document what the cache saved of reading it; True if that is another height."""
        changed = [each.say(words) for each, words in zip(self._documents, sentences, strict=False)]
        return any(changed)

    def stream(
        self,
        text: str,
        spans: Sequence[TextSpan],
        thinking: str = "",
        thought_s: float = 0.0,
        calls: Sequence[ToolCall] = (),
    ) -> None:
        """The text so far; only blocks from the last one on are rendered again."""
        self._show_thinking(thinking, thought_s, not text and not calls)
        self.show_calls([ShownCall(call, "done") for call in calls])
        self._text.grow(text, spans)
        self.wait("" if text or thinking or calls else tr("waiting for the first token"))

    def wait(self, words: str) -> None:
        """Show what happens before the first token; "" takes it off."""
        self._waiting.setText(words)
        self._waiting.setVisible(bool(words) and not self.blocks)

    def mark_found(self, find: Find | None, current: MatchPlace | None = None) -> int | None:
        """Mark what ``find`` finds, nothing for None, and the match ``current`` more strongly.

        Returns how far below the top that one is, or the first where none is given, pixels; None where there is none.
        """
        if find is None and self._text.find is None:
            return None
        self._text.find = find
        thinking, texts = -1, -1
        if current is not None:
            thinking, texts = (current.ordinal, -1) if current.thinking else (-1, current.ordinal)
        thought = self._mark([self._thinking.body] if self._thinking is not None else [], thinking)
        said = self._mark(self._text.views, texts)
        rest = self._mark([fold.body for fold in self.folds if fold is not self._thinking], -1)
        if current is not None:
            return thought if current.thinking else said
        return next((top for top in (thought, said, rest) if top is not None), None)

    def _mark(self, views: Sequence[TextView], current: int) -> int | None:
        """Mark the matches in these texts, which are counted as one; returns how far below the top the current one is,
        or the first where that is -1."""
        wanted, top, before = max(0, current), None, 0
        for view in views:
            count = found.mark(view, self._text.find, self._theme, current - before if current >= 0 else -1)
            if before <= wanted < before + count:
                place = found.reach(view, wanted - before, across=current >= 0)
                top = view.mapTo(self, QPoint(0, place)).y()
            before += count
        return top

    def count_found(self, find: Find) -> tuple[int, int]:
        """The matches in what is shown: in the thinking, folded or not, and in the text."""
        thinking = len(find(self._thinking.text)) if self._thinking is not None else 0
        return thinking, sum(len(find(view.toPlainText())) for view in self._text.views)

    def set_branch(self, index: int, count: int) -> None:
        self._footer.show_branch(index, count)

    def set_last(self, last: bool, queued: bool = False) -> None:
        """``queued``: it waits for the model, and will be answered by itself."""
        self._place.last, self._place.queued = last, queued
        self._update_actions()

    def set_beside(self, beside: bool) -> None:
        """``beside``: it stands in a column, whose frame has what can be done with it."""
        if beside != self._place.beside:
            self._place.beside = beside
            self._update_actions()

    @property
    def branches_corner(self) -> QPoint:
        """The place on the screen for a list of the versions."""
        return self._footer.branches_corner

    def show_model(self, named: bool) -> None:
        """``named``: another model gave this answer than the one before it."""
        self._footer.show_model(named)

    def set_dimmed(self, dimmed: bool) -> None:
        """Dim the message if the model no longer sees it, or end that."""
        if dimmed == (self._veil is not None):
            return
        if self._veil is None:
            self._veil = Veil(self._theme, self)
        else:
            take_out(self._veil)
            self._veil = None
        self._name()

    def resizeEvent(self, event: QResizeEvent) -> None:
        if self._veil is not None:
            self._veil.fit()

    def set_tint(self, tint: bool) -> None:
        self._text.set_tint(tint)

    def restyle(self) -> None:
        for fold in self.folds:
            fold.restyle()
        self._text.restyle()
        self._fitted = 0

    def unfold(self, places: Collection[int]) -> None:
        """Show all of these parts that can be folded, as the person had them before."""
        for place, fold in enumerate(self.folds):
            if place in places and not fold.open:
                fold.toggle()

    @property
    def wrapped(self) -> frozenset[int]:
        """The code blocks, counted from the top, whose long lines the person wrapped."""
        return self._text.wrapped

    def wrap(self, places: Collection[int]) -> None:
        """Wrap the long lines of these code blocks, as the person had them before."""
        self._text.wrap(places)

    def fit(self, width: int) -> int:
        """Place everything for ``width`` pixels; returns the height."""
        whole = width != self._fitted
        self._fitted = width
        height = self._fit_bubble(width) if self._bubble is not None else self._fit_blocks(width, whole)
        self._footer.setGeometry(0, height, width, self._theme.px(_LINE_PX))
        self._footer.choose(width)
        return height + self._theme.px(FOOTER_PX[self._message.role])

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hover(True)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(False)

    def set_focused(self, focused: bool) -> None:
        """Set whether the keyboard focus is on this message or inside it (the transcript knows)."""
        if focused != self._place.focused:
            self._place.focused = focused
            self._update_actions()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _whole(self, message: StoredMessage) -> list[MarkdownBlock]:
        if message.role == "tool":
            return []
        if message.role == "user":
            return [MarkdownBlock("text", 0, len(message.content), message.content, 0)]
        return merged(parse(message.content), message.content)

    def _show_thinking(self, text: str, seconds: float, growing: bool) -> None:
        if text and self._thinking is None:
            self._thinking = self._folding(ThinkingBlock(self._theme, self))
        if self._thinking is not None:
            self._thinking.show_thinking(text, seconds, growing)

    def _show_documents(self, documents: tuple[MessageDocument, ...]) -> None:
        """The documents of a message of the person, and once that is decided what of them is sent."""
        if documents == self._shown_documents or self._bubble is None:
            return
        self._shown_documents = documents
        for block in self._documents:
            take_out(block)
        self._documents = [self._folding(DocumentBlock(each, self._theme, self._bubble)) for each in documents]

    def _folding(self, fold: FoldedT) -> FoldedT:
        fold.refolded.connect(lambda: self.refolded.emit(self._message.id))
        fold.show()
        return fold

    def _fit_blocks(self, width: int, whole: bool) -> int:
        y = 0
        if self._thinking is not None:
            height = self._thinking.fit(width)
            self._thinking.setGeometry(0, 0, width, height)
            y = height + GAP_PX
        y = self._text.fit(y, width, whole)
        for fold in (*self._calls, *self._results):
            height = fold.fit(width)
            fold.setGeometry(0, y, width, height)
            y += height + GAP_PX
        if not self.blocks and not self._waiting.isHidden():
            self._waiting.setGeometry(0, y, width, 20)
            return y + 24
        return y - GAP_PX + 6 if y else 24

    def _fit_bubble(self, width: int) -> int:
        assert self._bubble is not None
        text, (left, top) = self.blocks[0], BUBBLE_PX
        assert isinstance(text, TextBlock)
        most = int(width * BUBBLE_SHARE) - 2 * left
        shown = self._pictures.fit(most) if self._pictures is not None else QSize(0, 0)
        listed = max((each.natural_width() for each in self._documents), default=0)
        inner = max(shown.width(), min(most, max(listed, text.natural_width() + 2)))
        parts: list[tuple[QWidget, QSize]] = [(each, QSize(inner, each.fit(inner))) for each in self._documents]
        parts += [(self._pictures, shown)] if self._pictures is not None else []
        said = bool(self._message.content) or not parts
        parts += [(text, QSize(inner, text.fit(inner)))] if said else []
        text.setVisible(said)
        for part, size in parts:
            part.setGeometry(mirror(QRect(left, top, size.width(), size.height()), inner + 2 * left))
            top += size.height() + GAP_PX
        height = top - GAP_PX + BUBBLE_PX[1]
        self._bubble.setGeometry(mirror(QRect(width - inner - 2 * left, 0, inner + 2 * left, height), width))
        return height + 2

    def _hover(self, hovered: bool) -> None:
        self._place.hovered = hovered
        self._update_actions()

    def _update_actions(self) -> None:
        self._footer.show_actions(*offered(self._message, self._place))
        self._text.show_actions(self._place.near)

    def _name(self) -> None:
        who = WRITERS[self._message.role]
        if self._veil is not None:
            who = tr("{who} (the model no longer sees this)", who=who)
        names = "".join(f"{each.document.name}, " for each in self._message.documents)
        self.setAccessibleName(f"{who}: {names}{self._message.content[:200]}")

    def _on_action(self, name: str) -> None:
        if name == "copy":
            QGuiApplication.clipboard().setText(self._message.content)
        else:
            self.acted.emit(self._message.id, name)
