"""The text of one answer as it grows: whole characters only, in its channel, and nothing that may yet become a stop
string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol import Channel, ToolCallDelta
from engine.text.channels import ChannelParser, Split
from engine.text.detokenise import detokeniser
from engine.text.formats.reading import begun_length
from engine.text.tokenizer import Tokenizer


class Piece(NamedTuple):
    """Text that one token released; it may have been held back since earlier tokens. Thinking comes before content, and
    parts of calls of tools behind it.

    ``channel`` is the one that the token itself belongs to: where its last text went, or for a token without text (a
    mark) thinking if that is what it begins or ends. ``own`` counts the characters that the token itself completed, in
    its channel: those released, held back and cut off by a stop string.
    """

    text: str = ""
    thinking: str = ""
    channel: Channel = "content"
    own: int = 0
    calls: Sequence[ToolCallDelta] = ()

    @property
    def chars(self) -> int:
        """Characters of the token's own channel."""
        return {"content": len(self.text), "thinking": len(self.thinking), "tool": 0}[self.channel]


class TextStream:
    """Turns the tokens of one answer into text.

    ``stopped`` is set once a stop string completed; the text ends before it and later tokens add nothing. Text is held
    back only while its end is the beginning of a stop string or of a channel's mark. Stop strings are looked for in the
    content alone: thinking may well mention one. ``before`` are the ids of plain text (no chat template) that the
    answer goes on from, so that a leading space that the tokenizer would drop belongs to it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        before: Sequence[int] | None = None,
        channels: ChannelParser | None = None,
    ) -> None:
        self._decoder = detokeniser(tokenizer, before)
        self._stop = StopStrings(stop)
        self._channels = channels

    @property
    def stopped(self) -> bool:
        return self._stop.stopped or (self._channels is not None and self._channels.stopped)

    @property
    def notice(self) -> str:
        """Sentence about what of the answer could not be sorted."""
        return "" if self._channels is None else self._channels.notice

    @property
    def held(self) -> int:
        """Characters of the content that are held back, or were cut off once it stopped."""
        return self._stop.held

    def push(self, token_id: int, stops: bool = True) -> Piece:
        """Add one token; at most the cost of its own text. Without ``stops`` no stop string is looked for in it."""
        if self.stopped:
            return Piece()
        text, channels = self._decoder.push(token_id), self._channels
        if channels is None:
            return Piece(self._stop.push(text) if stops else text, own=len(text))
        before = channels.channel
        content, thinking, calls = channels.push(token_id, text)
        released = self._stop.push(content) if stops else content
        if channels.stopped:
            released += self._stop.flush()
        where = self._of_token(content, thinking, (before, channels.channel))
        own = {"content": len(content), "thinking": len(thinking), "tool": 0}[where]
        return Piece(released, thinking, where, own, calls)

    @staticmethod
    def _of_token(content: str, thinking: str, channels: tuple[Channel, Channel]) -> Channel:
        """The channel of a token that released this, ``channels`` being those before and behind it."""
        if content:
            return "content"
        return "thinking" if thinking or "thinking" in channels else "tool" if "tool" in channels else "content"

    def flush(self) -> Piece:
        """The text held back, at the end of the answer. Bytes of an unfinished character are left out."""
        content, thinking, calls = self._channels.flush() if self._channels is not None else Split()
        return Piece(self._stop.push(content) + self._stop.flush(), thinking, calls=calls)


class StopStrings:
    """Passes text through until one of ``stop`` completes, whatever the pieces it comes in."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(dict.fromkeys(s for s in stop if s))
        self._held = ""
        self._cut = 0
        self.stopped = False

    @property
    def held(self) -> int:
        """Characters that are held back, or were cut off once one completed."""
        return self._cut if self.stopped else len(self._held)

    def push(self, text: str) -> str:
        """The text that is now certain to precede any stop string."""
        if not self._stop:
            return text
        if self.stopped or not text:
            return ""
        text = self._held + text
        # Of several the one that completes first counts, and the longest of those that complete together.
        ends = [(start + len(s), start) for s in self._stop if (start := text.find(s)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            start = min(ends)[1]
            self._cut = len(text) - start
            return text[:start]
        sure = len(text) - max(begun_length(text, s) for s in self._stop)
        self._held = text[sure:]
        return text[:sure]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held
