"""The token ids of a prompt that goes on from an earlier answer: its own ids first, wherever the chat template permits.

What a prompt shares with the turn before it, the cache need not read again. A template that writes earlier messages in
another way than it did takes that away; where and why is told, so that it can be shown.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol import ChatMessage
from engine.services.answers.turns import Turn, told, without_pictures
from engine.text.detokenise import detokeniser
from engine.text.prompt import PromptText
from engine.text.tokenizer import Tokenizer

REWRITTEN = "The chat template writes the earlier messages in another way than it did before."
CHANGED = "The messages before this one were changed since they were read."
EDITED = "The answer before this message was changed since it was written."
LEFT_OUT = "The conversation outgrew the context, so the messages in its middle were left out."
THINKING = "The prompt leaves out what the model thought before its earlier answer."
CALLS = "The chat template writes the calls of tools in another way than the model did."
TRIMMED = "The chat template drops spaces or lines around the earlier answer."
CUT = "The earlier answer was cut at a stop string or within a character, and the model had written more."
SPELLED = "The tokenizer joins the end of the earlier answer with the text that follows it."
MARKED = "The earlier answer has marks without text, which the conversation does not repeat."
ANOTHER_KIND = "The text before was read without the chat template, or with it."


class Continued(NamedTuple):
    """``diverged`` is the first index at which ``ids`` leave what was read and written before, None where they begin
    with all of it; ``divergence`` is a sentence that says why. The last ``written`` ids are those that the answer drew
    which goes on."""

    ids: list[int]
    diverged: int | None = None
    divergence: str = ""
    written: int = 0


def continued(
    tokenizer: Tokenizer,
    prompt: PromptText,
    line: Sequence[Turn],
    messages: Sequence[ChatMessage] | str = "",
    cut: bool = False,
) -> Continued:
    """Token ids of ``prompt``, which goes on from ``line[0]``, which went on from ``line[1]``, and so on.

    They begin with all ids of the newest turn that the text allows. ``messages`` is the conversation, and ``cut`` says
    that ``prompt`` was rendered without a part of it.
    """
    plain = tokenizer.encode(prompt.text, special=prompt.special)
    if not line:
        return Continued(plain)
    ids = next((ids for turn in line if (ids := _joined(tokenizer, prompt, turn, plain)) is not None), plain)
    before = line[0].all_ids
    shared = common(ids, before)
    # The last token was drawn but never read, so nothing is lost where the conversation ends in another one.
    if shared >= len(before) - 1:
        return Continued(ids)
    return Continued(ids, shared, _why(tokenizer, prompt, line[0], messages, cut))


def going_on(tokenizer: Tokenizer, prompt: PromptText, said: str, turn: Turn) -> Continued | None:
    """Ids by which the answer of ``turn`` goes on as if it had not been cut: its prompt's, and those that it drew, with
    whatever it thought, as far as they made whole characters.

    None where it is not the answer ``said`` to ``prompt``, which then is read as its template writes it.
    """
    if turn.prompt != prompt or turn.text != said or turn.calls:
        return None
    stream, kept = detokeniser(tokenizer, turn.prompt_ids if prompt.continues else None), 0
    for count, token in enumerate(turn.ids, 1):
        if stream.push(token) or token in tokenizer.special_ids:
            kept = count
    return Continued([*turn.prompt_ids, *turn.ids[:kept]], written=kept)


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """Number of ids, or characters, that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _joined(tokenizer: Tokenizer, prompt: PromptText, before: Turn, plain: Sequence[int]) -> list[int] | None:
    """Ids that begin with the turn's prompt and as much of its answer as stands in ``prompt``.

    None where the text does not begin with that turn's prompt, or where its ids would read differently.
    """
    if prompt.special != before.prompt.special or not prompt.text.startswith(before.prompt.text):
        return None
    found = _continuation(prompt, before)
    kept, end = _whole(tokenizer, before, found) if found is not None else _marked(tokenizer, before, prompt.text)
    if not kept and prompt.continues:
        return None  # plain text may have ended within a word
    joined = [*before.prompt_ids, *kept, *tokenizer.encode(prompt.text[end:], special=False)]
    # Some tokenizers begin every text with a space of their own, which has no place in the middle of one.
    reads = _reads(tokenizer, joined)
    if reads == _reads(tokenizer, plain):
        return joined
    # The window drops the space that such a model drew before its answer, and some templates do not give it back: it
    # stays in the ids of this answer, as in those of earlier ones.
    base = _reads(tokenizer, before.prompt_ids)
    rest = _reads(tokenizer, tokenizer.encode(prompt.text[len(before.prompt.text) :], special=False))
    return joined if kept and reads in (base + rest, f"{base} {rest}") else None


def _continuation(prompt: PromptText, before: Turn) -> str | None:
    """The turn's answer as it stands in ``prompt``: some templates trim it or give back the space that is not shown."""
    if before.thinks or before.calls:
        return None
    text, rest = before.text, prompt.text[len(before.prompt.text) :]
    ways = (text, f" {text}", text.rstrip(), text.strip(), f" {text.strip()}")
    return next((way for way in ways if way.strip() and rest.startswith(way)), None)


def _why(
    tokenizer: Tokenizer, prompt: PromptText, before: Turn, messages: Sequence[ChatMessage] | str, cut: bool
) -> str:
    """Reason ``prompt`` does not begin with all of the turn before."""
    if prompt.special != before.prompt.special or isinstance(messages, str) != (before.messages is None):
        return ANOTHER_KIND
    said, asked = before.messages or (), () if isinstance(messages, str) else tuple(messages)
    if not _same(said, asked[: len(said)]):
        return CHANGED
    if not prompt.text.startswith(before.prompt.text):
        return LEFT_OUT if cut else CHANGED if isinstance(messages, str) else REWRITTEN
    rest = prompt.text[len(before.prompt.text) :]
    answer = asked[len(said)].content if len(asked) > len(said) else rest
    if not answer.lstrip().startswith(before.text.strip()):
        return EDITED
    if before.thinks:
        return THINKING
    if before.calls:
        return CALLS
    if len(tokenizer.decode(before.ids).strip()) > len(before.text.strip()):
        return CUT
    if tokenizer.special_ids & set(before.ids[:-1]):
        return MARKED
    return SPELLED if rest.startswith((before.text, f" {before.text}")) else TRIMMED


def _same(one: Sequence[ChatMessage], other: Sequence[ChatMessage]) -> bool:
    """Return True if the same was said and shown; spaces around it and thinking do not count."""
    return [(told(m), m.pictures) for m in one] == [(told(m), without_pictures(m).pictures) for m in other]


def _whole(tokenizer: Tokenizer, turn: Turn, text: str) -> tuple[array[int], int]:
    """The ids that ``text`` (the answer) holds completely, and where the prompt goes on behind them, in characters.

    Not held: an end-of-text token, a character that was never finished, and what a stop string cut off.
    """
    led = text != turn.text and text[1:] in (turn.text, turn.text.strip())
    stream = detokeniser(tokenizer, turn.prompt_ids if turn.prompt.continues or led else None)
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
    stream = detokeniser(tokenizer, turn.prompt_ids if turn.prompt.continues else None)
    end = len(turn.prompt.text)
    for token in ids:
        piece = tokenizer.token(token) if token in tokenizer.special_ids else stream.push(token)
        if not prompt.startswith(piece, end):
            return array("i"), len(turn.prompt.text)
        end += len(piece)
    return ids, end


def _reads(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, skip_special=False)
