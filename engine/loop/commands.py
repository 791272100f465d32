"""The commands that other threads send to the engine; see :meth:`engine.loop.engine.Engine.submit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from engine.compute.runner.perplexity import Scores
from engine.compute.vision.placeholders import PlaceholderSpans
from engine.config.pooling import Pooling
from engine.decoding.hand_over import BegunAnswer
from engine.loading.model import LoadModel
from engine.loop.cache_view import PagesSnapshot, PageView, TreeSnapshot
from engine.protocol import Cancel, ForgetChat, LoadAdapter, Sampling, Set, ToolConfig, Unload, UnloadAdapter, Value
from engine.text.grammar import Grammar


class HandOver(NamedTuple):
    """An answer that one engine begins and another goes on with, which is asked the same with more tokens.

    ``give`` is called on the engine thread with an answer that ended by ``max_tokens``; the other engine is told that
    it is ``begun``, and tells all of its tokens.
    """

    give: Callable[[BegunAnswer], None] | None = None
    begun: BegunAnswer | None = None


class AddRequest(NamedTuple):
    """Generate ``n`` answers to a prompt. Events name the answers 0 to n - 1.

    ``continues``: the answer goes on from plain text (no chat template), so that its first space belongs to it.
    ``window``: rows see the first few tokens and these many last ones (a multiple of 16), so that prompt and answer may
    outgrow the context; None: rows see all. ``chat`` is the conversation as the client calls it, "" where it has none.
    ``adapter`` is the name of the LoRA adapter that answers, "" for the model alone.
    ``pictures`` says which tokens of the prompt stand for pictures, and for which.
    ``prefilled``: the answer goes on from a message of its own in the conversation, to which its first space belongs.
    ``written``: the last ids of the prompt that this answer drew before it was cut, thinking and marks among them; its
    text goes on as if it had not been.
    ``prompt_logprobs``: :class:`Prefill` tells the log-probabilities of the prompt's tokens but the first, with so many
    alternatives each; the prompt is read whole for that, and not found in the cache.
    ``pooling``: an embedding of the prompt is computed instead of answers (:class:`engine.loop.events.Embedded`).
    ``second`` is the token with which the second of an encoder's two texts begins, 0 where there is one.
    ``grammar`` says what the answer has to be; with ``thinks`` it may begin with what the model thinks instead.
    ``tools`` are those that it may call. ``service`` names its service class, "" the standard one.
    """

    id: str
    prompt_ids: Sequence[int]
    sampling: Sampling = Sampling()
    n: int = 1
    optimisations: Mapping[str, Value] = {}
    continues: bool = False
    window: int | None = None
    chat: str = ""
    adapter: str = ""
    pictures: PlaceholderSpans | None = None
    prefilled: bool = False
    written: int = 0
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    thinks: bool = True
    tools: ToolConfig | None = None
    pooling: Pooling | None = None
    second: int = 0
    service: str = ""
    hand_over: HandOver = HandOver()


class Inspect(NamedTuple):
    """Look into the cache between two steps. ``reply`` is called on the engine thread, with None without a model.

    "pages" gives a :class:`PagesSnapshot`, "tree" a :class:`TreeSnapshot` (None where there is no prefix tree), "page"
    the :class:`PageView` of page number ``page`` (of the pool, so 1 is the first; None for a number that it lacks).
    """

    kind: Literal["pages", "tree", "page"]
    reply: Callable[[PagesSnapshot | TreeSnapshot | PageView | None], None]
    page: int = 0


class FindKept(NamedTuple):
    """Find how many leading tokens of a prompt need not be read, in the prefix tree or saved on disk by its chat.

    ``reply`` is called on the engine thread, with 0 without a model. Nothing changes by it.
    """

    token_ids: Sequence[int]
    chat: str
    adapter: str
    reply: Callable[[int], None]


class MeasureText(NamedTuple):
    """Score a text with the present KV cache kind and page policy, and for comparison with 16 bits and all pages.

    ``reply`` is called on the engine thread, with a sentence if scoring is not possible. Answers in progress go on.
    """

    token_ids: Sequence[int]
    reply: Callable[[Scores | str], None]


class Shutdown(NamedTuple):
    pass


Command = (
    AddRequest
    | Cancel
    | Set
    | LoadModel
    | Unload
    | LoadAdapter
    | UnloadAdapter
    | Inspect
    | FindKept
    | MeasureText
    | ForgetChat
    | Shutdown
)
