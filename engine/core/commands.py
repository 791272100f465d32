"""What other threads may ask of the engine; see :meth:`engine.core.engine.Engine.submit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from engine.core.cache_view import CacheView, PageView, TreeView
from engine.core.score import Scores
from engine.protocol import LoadOptions, Sampling, Value


class AddRequest(NamedTuple):
    """Generate ``n`` answers to a prompt. Events name the answers 0 to n - 1.

    ``continues``: the answer goes on from plain text (no chat template), so that its first space belongs to it.
    ``window``: rows see the first few tokens and these many last ones (a multiple of 16), so that prompt and answer may
    outgrow the context; None: rows see all. ``chat`` is the conversation as the client calls it, "" where it has none.
    """

    id: str
    prompt_ids: Sequence[int]
    sampling: Sampling = Sampling()
    n: int = 1
    optimisations: Mapping[str, Value] = {}
    continues: bool = False
    window: int | None = None
    chat: str = ""


class CancelRequest(NamedTuple):
    """End every answer of a request within one step; what was generated stays."""

    id: str


class SetOption(NamedTuple):
    key: str
    value: Value


class LoadModel(NamedTuple):
    """Load the model folder at ``path``; ``draft`` is the folder of a draft model or ""."""

    path: str
    draft: str = ""
    options: LoadOptions = LoadOptions()


class UnloadModel(NamedTuple):
    pass


class Inspect(NamedTuple):
    """Look into the cache between two steps. ``reply`` is called on the engine thread, with None without a model.

    "pages" gives a :class:`CacheView`, "tree" a :class:`TreeView` (None where there is no prefix tree), "page" the
    :class:`PageView` of page number ``page`` (of the pool, so 1 is the first; None for a number that it lacks).
    """

    kind: Literal["pages", "tree", "page"]
    reply: Callable[[CacheView | TreeView | PageView | None], None]
    page: int = 0


class MeasureText(NamedTuple):
    """Score a text as the present kind of keys and values and the page policy see it, beside 16 bits and all pages.

    ``reply`` is called on the engine thread, with a sentence where it cannot be done. Answers in progress go on.
    """

    token_ids: Sequence[int]
    reply: Callable[[Scores | str], None]


class DropChat(NamedTuple):
    """A conversation was deleted: whatever is kept of it, in memory and on disk, goes too."""

    chat: str


class Shutdown(NamedTuple):
    pass


Command = AddRequest | CancelRequest | SetOption | LoadModel | UnloadModel | Inspect | MeasureText | DropChat | Shutdown
