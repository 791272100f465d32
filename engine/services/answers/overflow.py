"""Policies for a chat that outgrows the context: stop, leave out its middle, or let a window slide over it.

Leaving out the middle keeps the system prompt, the first turn and the last ones, in whole turns. Dropping one turn more
each time would make every prompt a new one to the cache. So the places where a cut may end lie apart, at the first turn
behind each quarter of a context's worth of messages: a cut stays where it is until what follows it has grown by a
quarter, and until then each prompt begins with all of the one before. The places follow from the messages alone, so
that clients which send the whole conversation each time, and a server that was started anew, find the same.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.loop.admission import TOO_LONG
from engine.protocol import ChatMessage
from engine.services.answers.refused import Refused
from engine.text.tokenizer import Tokenizer

MOST_TEXT = 8 << 20
"""Bytes of a prompt that is tokenised, whatever becomes of it: about 2,000,000 tokens, or a gigabyte for a moment."""
SINKS = 4
"""First tokens that a sliding window keeps in sight (StreamingLLM, arXiv 2309.17453)."""
LEAST_RESERVE = 256
"""Tokens kept free for an answer whose length nobody limits, where the context allows it."""
_OVERHEAD = 5
"""Tokens that a template writes around a message, about."""


class DroppedMessages(NamedTuple):
    """Messages [first, last) of the conversation that the model is not shown."""

    first: int
    last: int

    def without(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        return [*messages[: self.first], *messages[self.last :]]


def reserve(context: int, max_tokens: int | None) -> int:
    """Tokens kept free for the answer: those asked for, else a quarter of the context; never more than half of it."""
    wanted = max_tokens if max_tokens is not None else max(LEAST_RESERVE, context // 4)
    return min(wanted, context // 2)


def chosen_cut(
    messages: Sequence[ChatMessage],
    tokens: Callable[[ChatMessage], int],
    fits: Callable[[DroppedMessages], bool],
    context: int,
) -> DroppedMessages | None:
    """The first cut that makes the conversation fit, else the longest; None where there is no middle to leave out.

    ``tokens`` counts those of a message, ``fits`` renders the conversation without a cut and says whether it fits.
    """
    places = list(cuts(messages, tokens, context))
    # Between two places lies a quarter of a context: what fits at one fits at all behind it.
    return places[min(bisect_left(places, True, key=fits), len(places) - 1)] if places else None


def cuts(
    messages: Sequence[ChatMessage], tokens: Callable[[ChatMessage], int], context: int
) -> Iterator[DroppedMessages]:
    """The cuts to try, shorter ones first; the last leaves the first turn and the newest message."""
    starts = [i for i, message in enumerate(messages) if message.role == "user"]
    if len(starts) < 3:
        return
    first, newest = starts[1], starts[-1]
    step = max(1, context // 4)
    size, due = 0, step
    for start, end in itertools.pairwise(starts[1:]):
        size += sum(tokens(message) + _OVERHEAD for message in messages[start:end])
        if size >= due:
            due = (size // step + 1) * step
            if end != newest:
                yield DroppedMessages(first, end)
    yield DroppedMessages(first, newest)


def too_long(tokens: int, context: int, shortened: bool) -> Refused:
    """Refusal of a prompt of ``tokens`` tokens."""
    what = "even without the middle of the conversation the prompt has" if shortened else "the prompt has"
    text = TOO_LONG.format(context=context, what=what, tokens=tokens)
    return Refused("prompt_too_long", text, {"n_prompt_tokens": tokens, "n_ctx": context})


def check_length(text: str, tokenizer: Tokenizer, context: int | None = None) -> None:
    """Refuse a prompt that has too many bytes before it is tokenised. Raises :class:`Refused`.

    With a ``context``, in tokens, also what cannot fit it: text of more bytes than that many of the longest tokens.
    """
    size = len(text.encode(errors="surrogatepass"))
    # The longest token is looked for only where a text has more bytes than the context has tokens.
    if context is not None and size > context and (longest := tokenizer.longest) and size > context * longest:
        raise Refused(
            "prompt_too_long",
            f"This model's maximum context length is {context} tokens, which are {context * longest:,} bytes at most, "
            f"and the prompt has {size:,} bytes. Shorten the conversation, or load the model with a longer context.",
            {"n_ctx": context},
        )
    if size > MOST_TEXT:
        text = f"The prompt has {size:,} bytes, and at most {MOST_TEXT:,} are read at once. Send a shorter one."
        raise Refused("too_large", text)


def window_of(context: int) -> int:
    """Tokens of the sliding window, whole pages: with the sinks and a window that begins within a page no row sees a
    distance beyond the context, and a quarter of it is left for what is being read before the window moves on.
    Raises :class:`Refused` where there is no room for one."""
    window = min(context - SINKS - PAGE_SIZE, context * 3 // 4) // PAGE_SIZE * PAGE_SIZE
    if window < PAGE_SIZE:
        text = (
            f"A context of {context:,} tokens has no room for a sliding window. Load the model with a longer context."
        )
        raise Refused("prompt_too_long", text)
    return window
