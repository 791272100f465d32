"""What the engine thread tells of its cache, and texts that it scores beside its other work."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from engine.cache.pool import PAGE_SIZE
from engine.core.cache_view import CacheView, Holding, PageView, TreeView, view
from engine.core.commands import Inspect, MeasureText
from engine.core.score import ReaderFactory, Scores, score
from engine.protocol import PageOwner

if TYPE_CHECKING:
    from engine.core.loaded import LoadedModel
    from engine.core.stepper import Stepper

_log = logging.getLogger(__name__)


def inspected(stepper: Stepper | None, command: Inspect, version: int) -> CacheView | TreeView | PageView | None:
    """The answer to the command; see there."""
    if stepper is None or command.kind == "tree":
        return None
    if command.kind == "page":
        return _page(stepper, command.page)
    pool = stepper.pool
    held = [Holding(PageOwner(chat="", id=request.id), request.pages) for request in stepper.requests.values()]
    return view(version, [pool.refs(page) for page in range(pool.total + 1)], held)


def _page(stepper: Stepper, page: int) -> PageView | None:
    if not 1 <= page <= stepper.pool.total:
        return None
    if not stepper.pool.refs(page):
        return PageView(page, "free")
    readers = [request for request in stepper.requests.values() if page in request.pages]
    if not readers:
        return PageView(page, "private")
    first = readers[0].pages.index(page) * PAGE_SIZE
    tokens = readers[0].tokens[: readers[0].num_computed][first : first + PAGE_SIZE]
    return PageView(page, "shared" if len(readers) > 1 else "private", (), first, tuple(tokens))


class Readers(NamedTuple):
    """How a text is scored with one model: exactly, and as its present settings see it, which ``setting`` names."""

    exact: ReaderFactory
    present: ReaderFactory
    setting: str


class Measuring:
    """Texts being scored, one after the other, a chunk at a time so that answers go on in between."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Generator[None, None, Scores], Callable[[Scores | str], None]]] = deque()

    def add(self, model: LoadedModel | None, readers: Readers | None, command: MeasureText) -> None:
        """Queue a text. ``readers`` None: the model cannot be read beside its answers."""
        if model is None:
            command.reply("No model is loaded. Load one first.")
        elif readers is None:
            command.reply(f"{model.card.name} cannot be scored: it runs over arenas of its own.")
        else:
            ids = command.token_ids[: model.card.context]
            self._waiting.append((score(ids, *readers[:2], model.card.vocabulary, readers.setting), command.reply))

    def step(self) -> bool:
        """Compute one chunk; false if nothing waits. A failure is the reply to its own text."""
        if not self._waiting:
            return False
        work, reply = self._waiting[0]
        try:
            next(work)
            return True
        except StopIteration as end:
            reply(end.value)
        except Exception as error:
            _log.exception("a text could not be scored")
            reply(f"The text could not be scored ({error}). Choose a shorter one, or try again.")
        self._waiting.popleft()
        return True

    def drop(self) -> None:
        """The model goes: say so to all who wait."""
        while self._waiting:
            self._waiting.popleft()[1]("The model was unloaded meanwhile. Measure again.")
