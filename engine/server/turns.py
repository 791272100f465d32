"""The exact tokens of finished answers, so that the next turn of a conversation begins with them.

Text tokenised again need not give the tokens that a model drew: it may have spelled a word in another way than the
tokenizer would. Only the drawn ids are a prefix of what the cache held, and only they are what the model itself said.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from engine.core.events import TokensEvent
from engine.text.detokenise import detokeniser
from engine.text.prompt import PromptText
from engine.text.tokenizer import Tokenizer

MOST_TURNS = 256


class Turn(NamedTuple):
    """A finished answer: what was asked, as text and as tokens, and what was answered.

    ``text`` is the content. ``thinks`` says that the answer has more in front of it, which a chat template shows the
    model again or leaves out.
    """

    prompt: PromptText
    prompt_ids: array[int]
    text: str
    ids: array[int]
    thinks: bool = False


class Answer:
    """Collects one answer while it is written."""

    def __init__(self, prompt: PromptText, prompt_ids: Sequence[int]) -> None:
        self._prompt, self._prompt_ids = prompt, array("i", prompt_ids)
        self._parts: list[str] = []
        self._ids = array("i")
        self._thinks = False

    def take(self, event: TokensEvent) -> None:
        if event.channel == "thinking":
            self._thinks = True
        else:
            self._parts.append(event.text)
        self._ids.extend(token.id for token in event.tokens)

    def finished(self) -> Turn:
        return Turn(self._prompt, self._prompt_ids, "".join(self._parts), self._ids, self._thinks)


class Turns:
    """The last finished answers of one client by name; they belong to the tokenizer that made them."""

    def __init__(self, most: int = MOST_TURNS) -> None:
        self._most = most
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._tokenizer: Tokenizer | None = None

    def __len__(self) -> int:
        return len(self._turns)

    def remember(self, name: str, turn: Turn, tokenizer: Tokenizer) -> None:
        """Keep the turn, and forget those of another model and the one that was used longest ago."""
        if tokenizer is not self._tokenizer:
            self._turns.clear()
            self._tokenizer = tokenizer
        self._turns[name] = turn
        self._turns.move_to_end(name)
        while len(self._turns) > self._most:
            self._turns.popitem(last=False)

    def find(self, name: str, tokenizer: Tokenizer) -> Turn | None:
        """The turn of that name, if this tokenizer made it."""
        if tokenizer is not self._tokenizer or name not in self._turns:
            return None
        self._turns.move_to_end(name)
        return self._turns[name]


def continued_ids(tokenizer: Tokenizer, prompt: PromptText, before: Turn | None) -> list[int]:
    """Token ids of ``prompt``; where it goes on from ``before`` they begin with that turn's own ids.

    Plain tokenisation where the text does not begin with that turn's, or where its ids would read differently.
    """
    plain = tokenizer.encode(prompt.text, special=prompt.special)
    if before is None or prompt.special != before.prompt.special or not prompt.text.startswith(before.prompt.text):
        return plain
    found = _continuation(prompt, before)
    kept, end = _whole(tokenizer, before, found) if found is not None else _marked(tokenizer, before, prompt.text)
    if not kept:
        return plain
    joined = [*before.prompt_ids, *kept, *tokenizer.encode(prompt.text[end:], special=False)]
    # Some tokenizers begin every text with a space of their own, which has no place in the middle of one.
    return joined if _reads(tokenizer, joined) == _reads(tokenizer, plain) else plain


def _continuation(prompt: PromptText, before: Turn) -> str | None:
    """The turn's answer as it stands in ``prompt``, which some templates give back the space that the window drops."""
    if before.thinks:
        return None
    return next((t for t in (before.text, f" {before.text}") if prompt.text.startswith(before.prompt.text + t)), None)


def _whole(tokenizer: Tokenizer, turn: Turn, text: str) -> tuple[array[int], int]:
    """The ids that ``text`` (the answer) holds completely, and where the prompt goes on behind them, in characters.

    Not held: an end-of-text token, a character that was never finished, and what a stop string cut off.
    """
    stream = detokeniser(tokenizer, continues=turn.prompt.continues or text != turn.text)
    kept = chars = end = 0
    for count, token in enumerate(turn.ids, 1):
        piece = stream.push(token)
        if not text.startswith(piece, end):
            break
        end += len(piece)
        if piece:
            kept, chars = count, end
    return turn.ids[:kept], len(turn.prompt.text) + chars


def _marked(tokenizer: Tokenizer, turn: Turn, prompt: str) -> tuple[array[int], int]:
    """The same for an answer that stands in the prompt with the marks of its channels: all of it, or nothing.

    The last marks may differ, since an end in a conversation need not be the end that was drawn.
    """
    ids = turn.ids
    while ids and ids[-1] in tokenizer.special_ids:
        ids = ids[:-1]
    stream = detokeniser(tokenizer, continues=turn.prompt.continues)
    end = len(turn.prompt.text)
    for token in ids:
        piece = tokenizer.token(token) if token in tokenizer.special_ids else stream.push(token)
        if not prompt.startswith(piece, end):
            return array("i"), 0
        end += len(piece)
    return ids, end


def _reads(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, skip_special=False)
