"""An answer's text in two channels: what the model thinks first, and what it says.

Two ways of marking them are known. *Tags* open and close one stretch of thinking at the beginning of an answer, as text
or as special tokens; after it everything is content, also text that mentions a tag. *Harmony* (the response format of
gpt-oss, https://cookbook.openai.com/articles/openai-harmony) is a row of messages, each with a channel in its header;
its marks are special tokens and only they count. Which way a model has is told from its chat template and its
vocabulary, never from its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from engine.protocol import Channel, ToolCallDelta
from engine.text.formats.calls import CallWriter
from engine.text.formats.reading import begun_length
from engine.text.tokenizer import Tokenizer


class TagPair(NamedTuple):
    """Tags that open and close thinking."""

    opens: str
    closes: str


PAIRS = (
    TagPair("<think>", "</think>"),  # DeepSeek-R1, Qwen3, SmolLM3, GLM-4.5 and most others
    TagPair("[THINK]", "[/THINK]"),  # Magistral
    TagPair("<seed:think>", "</seed:think>"),  # Seed-OSS
    TagPair("<|channel>thought", "<channel|>"),  # Gemma 4
    TagPair("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, OpenThinker
    TagPair("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    TagPair("Here is my thought process:", "Here is my response:"),  # Granite 3.2
)
WRAPS = (
    TagPair("<response>", "</response>"),  # Granite 3.3
    TagPair("<answer>", "</answer>"),  # models trained as DeepSeek-R1-Zero was
    TagPair("<|begin_of_solution|>", "<|end_of_solution|>"),  # Sky-T1, OpenThinker
)
"""Tags that some models put around the content after their thinking; they are no part of the answer."""
SPELLINGS = {
    "Here is my thought process:": "Here's my thought process:",
    "Here is my response:": "Here's my response:",
}
"""Spellings that a model may write for a tag of its template."""
_TAIL = 64
"""Ids at the end of a prompt in which its last tag is looked for."""


class Split(NamedTuple):
    """Text of both channels that one token released, and parts of calls of tools, which come after the content."""

    content: str = ""
    thinking: str = ""
    calls: Sequence[ToolCallDelta] = ()


class ChannelParser(Protocol):
    """Sorts the text of one answer."""

    @property
    def channel(self) -> Channel:
        """The channel that text which came now would go to."""

    def push(self, token_id: int, text: str) -> Split:
        """Take one token and the text that it completed."""

    def flush(self) -> Split:
        """Text that was held back, at the end of the answer."""

    @property
    def stopped(self) -> bool:
        """True once the answer has all that it may have."""

    @property
    def notice(self) -> str:
        """Sentence about what could not be sorted; "" where all could."""


class ChannelStyle(Protocol):
    """Interface to the way in which one model marks its channels."""

    def parser(self, prompt_ids: Sequence[int]) -> ChannelParser:
        """The parser of an answer to this prompt, whose end may have opened a channel already."""

    def eos(self, ids: Sequence[int]) -> list[int]:
        """The ids that end a text, given those that the model's files name."""

    @property
    def opens(self) -> tuple[int, ...]:
        """Tokens by which an answer begins to think."""


def channel_style(tokenizer: Tokenizer, template: str) -> ChannelStyle | None:
    """The style of a model with this chat template (its source); ``None`` for one that only has content."""
    harmony = {mark: tokenizer.token_id(mark) for mark in _MARKS}
    if "<|channel|>" in template and all(harmony[mark] in tokenizer.special_ids for mark in _NEEDED):
        return HarmonyStyle(tokenizer, {id: mark for mark, id in harmony.items() if id is not None})
    pairs, wraps = (tuple(pair for pair in table if _used(tokenizer, template, pair)) for table in (PAIRS, WRAPS))
    return TagStyle(tokenizer, pairs, wraps) if pairs else None


def _used(tokenizer: Tokenizer, template: str, pair: TagPair) -> bool:
    return pair.closes in template or all(tokenizer.token_id(tag) is not None for tag in pair)


# --- tags --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagStyle:
    """Implements :class:`ChannelStyle` with tags. Several pairs may be in question; the one that the answer begins with
    counts."""

    tokenizer: Tokenizer
    pairs: tuple[TagPair, ...]
    wraps: tuple[TagPair, ...] = ()

    def parser(self, prompt_ids: Sequence[int]) -> TagParser:
        end = self.tokenizer.decode(prompt_ids[-_TAIL:], skip_special=False).rstrip()
        opened = next((pair for pair in self.pairs if end.endswith(pair.opens)), None)
        closed = any(end.endswith(pair.closes) for pair in self.pairs)
        # Gemma 4's opens with a token and a word.
        tags = (tag[: tag.find(">") + 1] or tag for pair in (*self.pairs, *self.wraps) for tag in pair)
        ids = {self.tokenizer.token_id(tag): tag for tag in tags}
        special = {id: tag for id, tag in ids.items() if id is not None and id in self.tokenizer.special_ids}
        return TagParser(self.pairs, opened, closed, special, self.wraps)

    def eos(self, ids: Sequence[int]) -> list[int]:
        return list(ids)

    @property
    def opens(self) -> tuple[int, ...]:
        """Those of tags that are one token; others begin like any text."""
        ids = (self.tokenizer.token_id(pair.opens) for pair in self.pairs)
        return tuple(id for id in ids if id is not None)


class TagParser:
    """Thinking at most once, at the beginning. White space around a tag belongs to the tag.

    ``opened``: the prompt ends with this pair's opening tag (a model that writes it once more means the same).
    ``closed``: it ends with a closing one, so that there is no thinking. ``special`` names tags whose tokens have no
    text. ``wraps`` are taken off the content behind the thinking.
    """

    stopped, notice = False, ""

    def __init__(
        self,
        pairs: Sequence[TagPair],
        opened: TagPair | None = None,
        closed: bool = False,
        special: Mapping[int, str] | None = None,
        wraps: Sequence[TagPair] = (),
    ) -> None:
        self._pairs = pairs if opened is None else (opened,)
        self._opened, self._special, self._wraps = opened, special or {}, wraps
        self._at: Literal["start", "thinking", "closed", "wrapped", "content"] = "content" if closed else "start"
        self._closes = ""
        self._held = ""
        self._begun = False

    @property
    def channel(self) -> Channel:
        thinks = self._at == "thinking" or (self._at == "start" and self._opened is not None)
        return "thinking" if thinks else "content"

    def push(self, token_id: int, text: str) -> Split:
        if self._at == "content":
            return Split(text)
        self._held += self._special.get(token_id, text)
        if self._at == "start":
            self._open()
        thinking = self._think() if self._at == "thinking" else ""
        return Split(self._say(), thinking)

    def flush(self) -> Split:
        thinks = self.channel == "thinking"
        rest, self._held = self._held, ""
        return Split(thinking=self._shown(rest.rstrip())) if thinks else Split(rest)

    def _open(self) -> None:
        """Decide whether the answer begins with a tag, once that can be told."""
        rest = self._held.lstrip()
        for pair in self._pairs:
            for opens in _spelled(pair.opens):
                if rest.startswith(opens):
                    self._at, self._closes, self._held = "thinking", pair.closes, rest[len(opens) :]
                    return
        if any(opens.startswith(rest) for pair in self._pairs for opens in _spelled(pair.opens)):
            return
        if self._opened is None:
            self._at = "content"
        else:
            self._at, self._closes = "thinking", self._opened.closes

    def _think(self) -> str:
        text, closed = self._before(self._closes)
        if closed:
            self._at, self._closes = "closed", ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        text = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(text)
        return text

    def _say(self) -> str:
        if self._at == "closed":
            self._unwrap()
        text = ""
        if self._at == "wrapped":
            text, closed = self._before(self._closes)
            self._at = "content" if closed else "wrapped"
        if self._at == "content":
            text, self._held = text + self._held, ""
        return text

    def _unwrap(self) -> None:
        """Find the beginning of the content, once that can be told."""
        self._held = self._held.lstrip()
        for opens, closes in self._wraps:
            if self._held.startswith(opens):
                self._wraps, self._closes, self._held = (), closes, self._held[len(opens) :].lstrip()
                break
        if self._held and not any(wrap.opens.startswith(self._held) for wrap in self._wraps):
            self._at = "wrapped" if self._closes else "content"

    def _before(self, tag: str) -> tuple[str, bool]:
        """Text that certainly comes before the tag, and True if the tag has come; then it is taken off.

        What may yet become the tag stays held, and space before it.
        """
        tags = _spelled(tag)
        place, end = min(((at, at + len(t)) for t in tags if (at := self._held.find(t)) >= 0), default=(-1, 0))
        if place < 0:
            sure = len(self._held) - max(begun_length(self._held, t) for t in tags)
            text = self._held[:sure].rstrip()
            self._held = self._held[len(text) :]
            return text, False
        text, self._held = self._held[:place].rstrip(), self._held[end:]
        return text, True


def _spelled(tag: str) -> tuple[str, ...]:
    return (tag, SPELLINGS[tag]) if tag in SPELLINGS else (tag,)


# --- harmony -----------------------------------------------------------------------------------------------------

_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
_NEEDED = _MARKS[:4]
_ROLE = "assistant"
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTION = re.compile(r"to=functions\.([^\s<]+)")


@dataclass(frozen=True)
class HarmonyStyle:
    """Implements :class:`ChannelStyle` with the marks of Harmony."""

    tokenizer: Tokenizer
    marks: Mapping[int, str]

    def parser(self, prompt_ids: Sequence[int], calls: CallWriter | None = None, one: bool = False) -> HarmonyParser:
        """The header of the last message of the prompt is read like one of the answer. ``calls``: what is written to
        functions is a call of a tool, of which there is ``one`` at most or several."""
        made = HarmonyParser(self.marks, calls, one)
        start = self.tokenizer.token_id("<|start|>")
        tail = list(prompt_ids[-_TAIL:])
        if start not in tail:
            made.enter("content")
        else:
            for token in tail[len(tail) - tail[::-1].index(start) :]:
                made.push(token, self.tokenizer.piece(token))
        return made

    def eos(self, ids: Sequence[int]) -> list[int]:
        """A message's end is not the answer's: that is ``<|return|>``, or ``<|call|>`` where a tool is to be asked."""
        ends = [id for id, mark in self.marks.items() if mark in ("<|return|>", "<|call|>")]
        return [*(id for id in ids if self.marks.get(id) != "<|end|>"), *(id for id in ends if id not in ids)]

    @property
    def opens(self) -> tuple[int, ...]:
        """None: each answer begins with a header, which belongs to thinking."""
        return ()


class HarmonyParser:
    """Messages: a header up to ``<|message|>``, then a body up to the next mark that ends it.

    "analysis" is thinking, and so is what is written to a tool (a header with a recipient), but for ``calls`` of
    functions where there are some; "final" and the "commentary" for the reader are content. Messages of one channel are
    set apart by an empty line. An answer that begins with no header is content as it stands. A header belongs to what
    was before it, the first one to thinking: no mark is a token of the content.
    """

    notice = ""

    def __init__(self, marks: Mapping[int, str], calls: CallWriter | None = None, one: bool = False) -> None:
        self._marks, self._calls, self._one = marks, calls, one
        self.stopped = False
        self._header = ""
        self._in_body = False
        self._said: set[Channel] = set()
        self._gap = False
        self.channel: Channel = "thinking"

    def push(self, token_id: int, text: str) -> Split:
        mark = self._marks.get(token_id)
        if mark is None:
            return self._body(text) if self._in_body else self._head(text)
        if mark == "<|message|>" and not self._in_body:
            return self._opened()
        if mark in ("<|channel|>", "<|constrain|>") and not self._in_body:
            self._header += mark
        elif mark not in ("<|message|>", "<|constrain|>"):
            # Also a header that follows a body without an end between them.
            self.stopped = self._one and self.channel == "tool"
            self._in_body, self._header = False, mark if mark == "<|channel|>" else ""
        return Split()

    def flush(self) -> Split:
        return Split()

    def enter(self, channel: Channel) -> None:
        """Begin a body."""
        self._in_body, self._header = True, ""
        self.channel, self._gap = channel, channel in self._said

    def _opened(self) -> Split:
        """Begin the body that the header names."""
        called = _FUNCTION.search(self._header)
        if self._calls is None or called is None:
            self.enter(_channel(self._header))
            return Split()
        self.enter("tool")
        self._calls.begin(called[1])
        return self._taken()

    def _taken(self) -> Split:
        assert self._calls is not None
        told, self._calls.calls = tuple(self._calls.calls), []
        return Split(calls=told)

    def _head(self, text: str) -> Split:
        self._header += text
        rest = self._header.removeprefix(_ROLE).lstrip()
        if not rest or "<|channel|>" in rest or rest[:3] == "to="[: len(rest)] or not self._header.startswith(_ROLE):
            return Split()
        self.enter("content")
        return self._body(rest)

    def _body(self, text: str) -> Split:
        if not text:
            return Split()
        if self.channel == "tool" and self._calls is not None:
            self._calls.argue(text)
            return self._taken()
        text, self._gap = ("\n\n" + text if self._gap else text), False
        self._said.add(self.channel)
        return Split(text) if self.channel == "content" else Split(thinking=text)


def _channel(header: str) -> Channel:
    found = _CHANNEL.search(header)
    return "thinking" if "to=" in header or (found is not None and found[1] == "analysis") else "content"
