"""The exact tokens of finished answers, so that the next turn of a conversation begins with them.

Text tokenised again need not give the tokens that a model drew: it may have spelled a word in another way than the
tokenizer would. Only the drawn ids are a prefix of what the cache held, and only they are what the model itself said.
"""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from engine.protocol import CallCollector, ChatMessage, Delta, MessagePart, PicturePart, ToolCall, ToolResult
from engine.text.prompt import PromptText
from engine.text.tokenizer import Tokenizer

MOST_TURNS = 256


class Turn(NamedTuple):
    """A finished answer: what was asked, as text and as tokens, and what was answered.

    ``text`` is the content. ``thinks`` says that the answer has more in front of it, which a chat template shows the
    model again or leaves out; ``calls`` of tools come behind it. ``messages`` is the conversation that was asked (None:
    plain text), ``parent`` the name of the turn that it went on from, and ``chat`` what the client calls the
    conversation. It has digests of pictures.
    """

    prompt: PromptText
    prompt_ids: array[int]
    text: str
    ids: array[int]
    thinks: bool = False
    calls: tuple[ToolCall, ...] = ()
    messages: tuple[ChatMessage, ...] | None = None
    parent: str = ""
    chat: str = ""

    @property
    def all_ids(self) -> array[int]:
        """Token ids that the model read and wrote; the last one was drawn but not read."""
        return self.prompt_ids + self.ids


class AnswerCollector:
    """Collects one answer while it is written."""

    def __init__(
        self,
        prompt: PromptText,
        prompt_ids: Sequence[int],
        messages: Sequence[ChatMessage] | str = "",
        parent: str = "",
        chat: str = "",
    ) -> None:
        said = None if isinstance(messages, str) else tuple(map(without_pictures, messages))
        self._turn = Turn(prompt, array("i", prompt_ids), "", array("i"), messages=said, parent=parent, chat=chat)
        self._parts: list[str] = []
        self._calls = CallCollector()

    def take(self, event: Delta) -> None:
        if event.channel == "thinking":
            self._turn = self._turn._replace(thinks=True)
        else:
            self._parts.append(event.text)
        self._calls.take(event)
        self._turn.ids.extend(token.id for token in event.tokens)

    def finished(self) -> Turn:
        return self._turn._replace(text="".join(self._parts), calls=tuple(self._calls.calls))


class Turns:
    """The last finished answers by name; they belong to the tokenizer that made them."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._tokenizer: Callable[[], Tokenizer | None] = lambda: None
        """Weak: turns outlive their model, which is to go when it is unloaded."""

    def remember(self, name: str, turn: Turn, tokenizer: Tokenizer) -> None:
        """Keep the turn, and forget those of another model and the one that was used longest ago.

        One that goes on from the turn of its own name is a whole with it.
        """
        if tokenizer is not self._tokenizer():
            self._turns.clear()
            self._tokenizer = weakref.ref(tokenizer)
        if turn.parent == name:
            before = self._turns.get(name)
            turn = _joined(before, turn) if before is not None else turn._replace(parent="")
        self._turns[name] = turn
        self._turns.move_to_end(name)
        while len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)

    def line(self, name: str, tokenizer: Tokenizer) -> list[Turn]:
        """The turn of that name, the one that it went on from, and so on, as far as they are remembered."""
        if tokenizer is not self._tokenizer():
            return []
        names: list[str] = []
        while name in self._turns and name not in names:
            names.append(name)
            name = self._turns[name].parent
        for used in reversed(names):
            self._turns.move_to_end(used)
        return [self._turns[name] for name in names]

    def last_of(self, chat: str, tokenizer: Tokenizer) -> Turn | None:
        """The turn of a conversation that was used last."""
        if tokenizer is not self._tokenizer() or not chat:
            return None
        return next((turn for turn in reversed(self._turns.values()) if turn.chat == chat), None)

    def forget(self, chat: str) -> None:
        """Drop the turns of a conversation that was deleted."""
        for name in [name for name, turn in self._turns.items() if turn.chat == chat]:
            del self._turns[name]

    def match(self, prompt: Sequence[ChatMessage] | str, tokenizer: Tokenizer) -> str:
        """The name of the longest remembered turn that ``prompt`` goes on from, for clients that name none; or "".

        A conversation goes on from an answer if it holds that answer and all that was said before it (see
        :func:`named`); plain text, if it begins with a prompt and what was written after it.
        """
        if tokenizer is not self._tokenizer():
            return ""
        if isinstance(prompt, str):
            fitting = [
                (len(turn.prompt.text) + len(turn.text), name)
                for name, turn in self._turns.items()
                if turn.messages is None and prompt.startswith(turn.prompt.text + turn.text)
            ]
            return max(fitting, default=(0, ""))[1]
        names = [name for message, name in zip(prompt, _names(prompt), strict=True) if message.role == "assistant"]
        return next((name for name in reversed(names) if name in self._turns), "")


def _joined(before: Turn, turn: Turn) -> Turn:
    """An answer and its continuation as one, if that read what the answer read and wrote; else the continuation."""
    start, said = len(before.prompt_ids), turn.messages[-1].content if turn.messages else ""
    if turn.prompt_ids[:start] != before.prompt_ids or said != before.text:
        return turn._replace(parent=before.parent)
    ids, thinks = turn.prompt_ids[start:] + turn.ids, before.thinks or turn.thinks
    return before._replace(text=before.text + turn.text, ids=ids, thinks=thinks, calls=turn.calls)


def without_pictures(message: ChatMessage) -> ChatMessage:
    """The message with the digests of its pictures, which is enough to know them again."""
    if not message.pictures:
        return message
    return structs.replace(message, parts=[_digested(part) for part in message.parts])


def _digested(part: MessagePart) -> MessagePart:
    match part:
        case PicturePart(file=file):
            return PicturePart(hashlib.sha256(file).digest())
        case ToolResult(pictures=pictures) if pictures:
            return structs.replace(part, pictures=[hashlib.sha256(file).digest() for file in pictures])
    return part


def told(message: ChatMessage) -> list[tuple[object, ...]]:
    """What is said in a message, without thinking, names of calls and space around its text."""
    calls = [("call", call.name, "".join(call.arguments.split())) for call in message.calls]
    results = [("result", result.content.strip()) for result in message.results]
    return [(message.role, message.content.strip()), *calls, *results]


def named(prompt: Sequence[ChatMessage] | str, answer: str, calls: Sequence[ToolCall] = ()) -> str:
    """A name for the turn made of a prompt and its answer that follows from what was said alone.

    Spaces around a message do not count: clients drop them. Nor does thinking, which most clients do not send back.
    """
    if isinstance(prompt, str):
        return hashlib.sha256(f"text\0{prompt}\0{answer}".encode(errors="surrogatepass")).hexdigest()
    *_, name = _names([*prompt, ChatMessage.of("assistant", answer, calls=calls)])
    return name


def _names(messages: Iterable[ChatMessage]) -> Iterable[str]:
    """Yield, for each message, a hash of the conversation up to it."""
    digest = hashlib.sha256()
    for message in messages:
        for part in told(message):
            said = " ".join(map(str, part))
            digest.update(f"{len(said)} {said}".encode(errors="surrogatepass"))
        digest.update(b"".join(without_pictures(message).pictures))
        yield digest.hexdigest()
