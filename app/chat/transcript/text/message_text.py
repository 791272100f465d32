"""The text of a message as blocks one below the other: while it streams in, only those from the last one on change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.chat.transcript.text import found
from app.chat.transcript.text.blocks import TextBlock, TextView
from app.chat.transcript.text.code_block import CodeBlock
from app.chat.transcript.text.found import Find
from app.chat.transcript.text.table_block import TableBlock
from app.chat.transcript.text.unfinished import steady
from app.history.records import TextSpan
from app.texts.markdown import GrowingText, MarkdownBlock
from app.theme.theme import Theme

Block = TextBlock | CodeBlock | TableBlock

_KINDS: dict[str, type[Block]] = {"text": TextBlock, "code": CodeBlock, "table": TableBlock}

GAP_PX = 10
"""Pixels between the parts of a message."""


class MessageText(QObject):
    """Blocks in the widget ``home``, laid out by :meth:`fit`; ``plain``: text as it was typed."""

    refolded = Signal()
    """The person unfolded or folded a block."""
    resized = Signal()
    """A block may have another height, by no act of the person's."""

    def __init__(self, theme: Theme, home: QWidget, plain: bool) -> None:
        super().__init__(home)
        self._theme, self._home, self._plain = theme, home, plain
        self.blocks: list[Block] = []
        self._heights: list[int] = []
        self._growing: GrowingText | None = None
        self._spans: Sequence[TextSpan] = ()
        self._tint = False
        self._actions = False
        self.find: Find | None = None
        """What is marked in blocks that come."""

    @property
    def growing(self) -> bool:
        """True from :meth:`grow` to :meth:`finish`."""
        return self._growing is not None

    @property
    def views(self) -> list[TextView]:
        return [block.view for block in self.blocks]

    def show_blocks(self, blocks: Sequence[MarkdownBlock], spans: Sequence[TextSpan]) -> None:
        """Show a text that is whole; ``spans`` tell where its tokens came from."""
        self._spans = spans
        self._show(blocks, 0, growing=False)

    def grow(self, text: str, spans: Sequence[TextSpan]) -> None:
        """The text so far; only blocks from the last one on are rendered again."""
        self._spans = spans
        if self._growing is None:
            self._growing = GrowingText()
        first = self._growing.update(steady(text))
        self._show(self._growing.blocks, first, growing=True)

    def finish(self, text: str, spans: Sequence[TextSpan]) -> None:
        """Blocks stay as they stand (no flicker); only the last may have changed or want its final colours."""
        assert self._growing is not None
        self._spans = spans
        first = self._growing.update(text)
        self._show(self._growing.blocks, first, growing=False)
        for widget, block in zip(self.blocks, self._growing.blocks, strict=True):
            if isinstance(widget, CodeBlock):
                widget.show_block(block, growing=False)
        self._growing = None

    def set_tint(self, tint: bool) -> None:
        if tint != self._tint:
            self._tint = tint
            for block in self.blocks:
                block.set_tint(self._spans if tint else None)

    def restyle(self) -> None:
        for block in self.blocks:
            block.restyle()
            block.set_tint(self._spans if self._tint else None)

    def show_actions(self, shown: bool) -> None:
        """Show or hide what can be done with tables."""
        self._actions = shown
        for block in self.blocks:
            if isinstance(block, TableBlock):
                block.show_actions(shown)

    @property
    def wrapped(self) -> frozenset[int]:
        """The code blocks, counted from the top, whose long lines the person wrapped."""
        return frozenset(place for place, block in enumerate(self._code_blocks) if block.wrapped)

    def wrap(self, places: Collection[int]) -> None:
        """Wrap the long lines of these code blocks, as the person had them before."""
        for place, block in enumerate(self._code_blocks):
            block.wrap(place in places)

    def fit(self, top: int, width: int, whole: bool) -> int:
        """Place the blocks from ``top`` on, pixels; returns where the next part begins. ``whole``: the width is another
        one, for blocks that did not change, too."""
        for index, widget in enumerate(self.blocks):
            if whole or not self._heights[index]:
                self._heights[index] = widget.fit(width)
            widget.setGeometry(0, top, width, self._heights[index])
            top += self._heights[index] + GAP_PX
        return top

    @property
    def _code_blocks(self) -> list[CodeBlock]:
        return [block for block in self.blocks if isinstance(block, CodeBlock)]

    def _show(self, blocks: Sequence[MarkdownBlock], first: int, growing: bool) -> None:
        for index in range(first, len(blocks)):
            block = blocks[index]
            kind = _KINDS[block.kind]
            if index < len(self.blocks) and not isinstance(self.blocks[index], kind):
                self._drop(index)
            if index >= len(self.blocks):
                self.blocks.append(self._make(block))
                self._heights.append(0)
            widget = self.blocks[index]
            widget.show_block(block, growing and index == len(blocks) - 1)
            if self.find is not None:
                found.mark(widget.view, self.find, self._theme)
            if self._tint:
                widget.set_tint(self._spans)
            self._heights[index] = 0
        self._drop(len(blocks))

    def _make(self, block: MarkdownBlock) -> Block:
        widget: Block
        if block.kind == "text":
            widget = TextBlock(self._theme, self._home, plain=self._plain)
        else:
            widget = _KINDS[block.kind](self._theme, self._home)
        if isinstance(widget, TableBlock):
            widget.show_actions(self._actions)
        if isinstance(widget, CodeBlock):
            widget.refolded.connect(lambda: self._on_refolded(widget))
        else:
            widget.resized.connect(lambda: self._on_resized(widget))
        widget.show()
        return widget

    def _on_refolded(self, widget: CodeBlock) -> None:
        if widget in self.blocks:
            self._heights[self.blocks.index(widget)] = 0
            self.refolded.emit()

    def _on_resized(self, widget: Block) -> None:
        if widget in self.blocks:
            self._heights[self.blocks.index(widget)] = 0
            if self._tint:
                widget.set_tint(self._spans)
            self.resized.emit()

    def _drop(self, start: int) -> None:
        for widget in self.blocks[start:]:
            widget.hide()
            widget.deleteLater()
        del self.blocks[start:]
        del self._heights[start:]
