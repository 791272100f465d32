"""The parser of one answer that may call tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.protocol import Channel
from engine.text.channels import ChannelParser, Split
from engine.text.formats.calls import CUT_SHORT, CallFormat, CallWriter
from engine.text.formats.reading import FormatError, Reading, Unread


class ToolParser:
    """Implements :class:`engine.text.channels.ChannelParser` around the parser of an answer's channels, and takes calls
    out of the content.

    ``names`` are special tokens of the format, which have no text, with what they mean, and ``opens`` all tokens that
    begin calls: one of these ends the thinking, which some models forget to close. With ``one`` call the answer ends.
    """

    def __init__(
        self,
        inner: ChannelParser | None,
        format: CallFormat,
        calls: CallWriter,
        names: Mapping[int, str],
        opens: Collection[int],
        one: bool = False,
    ) -> None:
        self._inner, self._format, self._calls = inner, format, calls
        self._names, self._opens, self._one = names, opens, one
        self._unread = Unread()
        self._inside = False
        self.stopped = False
        self._reading = self._answer()

    @property
    def channel(self) -> Channel:
        if self._inner is not None and self._inner.channel == "thinking":
            return "thinking"
        return "tool" if self._inside else "content"

    @property
    def notice(self) -> str:
        """What went wrong, as a sentence."""
        return next(iter(self._calls.notices), "")

    def push(self, token_id: int, text: str) -> Split:
        text, thinking = self._names.get(token_id, text), ""
        if self._inner is not None and token_id in self._opens and self._inner.channel == "thinking":
            (content, thinking, _), self._inner = self._inner.flush(), None
            text = content + text
        elif self._inner is not None:
            text, thinking, _ = self._inner.push(token_id, text)
        return self._read(text, thinking)

    def flush(self) -> Split:
        content, thinking, _ = self._inner.flush() if self._inner is not None else Split()
        self._unread.ended = True
        return self._read(content, thinking)

    def _read(self, text: str, thinking: str) -> Split:
        self._unread.add(text)
        next(self._reading, None)
        calls = self._calls
        content, told, calls.content, calls.calls = "".join(calls.content), tuple(calls.calls), [], []
        return Split(content, thinking, told)

    def _answer(self) -> Reading[None]:
        """Read the whole answer."""
        form, unread, calls = self._format, self._unread, self._calls
        if form.bare:
            yield from self._bare()
        while mark := (yield from unread.until([*form.opens, *form.dropped], calls.say, spaces=True)):
            if mark in form.opens:
                yield from self._call(mark)
            if self.stopped:
                return
            yield from unread.spaces()

    def _bare(self) -> Reading[None]:
        """Read an answer that may be calls alone."""
        self._unread.mark()
        yield from self._unread.spaces()
        if (yield from self._unread.peek()) in ("{", "["):
            yield from self._call("")
        else:
            self._unread.at = 0

    def _call(self, mark: str) -> Reading[None]:
        """Read what follows the mark of a call. What is no call, or nothing of one, is text."""
        unread, calls, before = self._unread, self._calls, self._calls.index
        unread.mark()
        self._inside = True
        try:
            yield from self._format.read(unread, calls, bare=not mark)
        except FormatError:
            if calls.index == before:
                calls.say(mark + unread.marked)
            if mark:
                calls.notices.append(CUT_SHORT)
        self._inside = False
        self.stopped = self._one and calls.index > before
