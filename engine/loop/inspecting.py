"""Views of the cache for :class:`Inspect`, and texts that are scored while requests are served."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.cache.pool import PAGE_SIZE
from engine.cache.types import tokens_of
from engine.compute.runner.perplexity import LEAST_TOKENS, TOO_SHORT, Readers, Scores, score
from engine.loading.parts.adapter import adapters_of
from engine.loop.admission import NO_MODEL
from engine.loop.cache_view import SHOWN_TOKENS, Holding, PagesSnapshot, PageView, TreeSnapshot, view
from engine.loop.commands import FindKept, Inspect, MeasureText
from engine.protocol import PageDescribed, PageOwner, PageState, TreeNode

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel
    from engine.loop.stepper import Stepper

_log = logging.getLogger(__name__)


def found_kept(stepper: Stepper | None, command: FindKept) -> int:
    """The reply to a :class:`FindKept` command; of an adapter that is not in memory nothing is kept."""
    if stepper is None or stepper.model.encodes:
        return 0
    known = {adapter.name: adapter.fingerprint for adapter in adapters_of(stepper.model)}
    if command.adapter and command.adapter not in known:
        return 0
    return stepper.cache.kept(list(command.token_ids), command.chat, known.get(command.adapter, ""))


def inspected(stepper: Stepper | None, command: Inspect) -> PagesSnapshot | TreeSnapshot | PageView | None:
    """The reply to an :class:`Inspect` command."""
    if stepper is None:
        return None
    match command.kind:
        case "tree":
            return _tree(stepper)
        case "page":
            return _page(stepper, command.page)
    return _pages(stepper)


def _pages(stepper: Stepper) -> PagesSnapshot:
    cache = stepper.cache
    held = [
        Holding(PageOwner(chat=request.chat, id=request.id), [page for page in request.pages if page], cache.used_state)
        for request in stepper.requests.values()
    ]
    kept = [
        Holding(PageOwner(chat=node.chat, id=""), node.pages, "locked" if node.locks else "cached")
        for node in cache.tree.nodes()
        if node.pages
    ]
    refs = cache.pool.all_refs()
    gone = cache.tree.gone
    gone -= {page for page in gone if refs[page]}
    saved = cache.stats.disk_bytes // max(1, cache.page_bytes)
    seen = view(refs, held, kept, gone=sorted(gone), swapped=cache.space.counts.pages, saved=saved)
    filled = np.zeros(len(refs), np.uint8)
    for request in stepper.requests.values():
        filled[request.pages] = np.clip(request.num_computed - PAGE_SIZE * np.arange(len(request.pages)), 0, PAGE_SIZE)
    return seen._replace(filled=filled[1:])


def _tree(stepper: Stepper) -> TreeSnapshot:
    tree, now = list(stepper.cache.tree.nodes()), stepper.clock()
    nodes = tuple(
        TreeNode(
            id=node.id,
            parent=node.parent.id if node.parent is not None and node.parent.parent is not None else -1,
            tokens=len(node.keys) * PAGE_SIZE,
            idle_seconds=max(0.0, now - node.used_at),
            locks=node.locks,
            hits=node.hits,
            place="device" if node.held is None else "disk" if node.held.place == "disk" else "host",
            chat=node.chat,
        )
        for node in tree
    )
    heads = {
        node.id: [token for key in node.keys[: SHOWN_TOKENS // PAGE_SIZE] for token in tokens_of(key)] for node in tree
    }
    return TreeSnapshot(nodes, heads)


def _page(stepper: Stepper, page: int) -> PageView | None:
    cache = stepper.cache
    if not 1 <= page <= cache.pool.total:
        return None
    described = partial(PageDescribed, id="", page=page - 1)
    if not cache.pool.refs(page):
        return PageView(described(state="evicted" if page in cache.tree.gone else "free"))
    state: PageState
    readers = [request for request in stepper.requests.values() if page in request.pages]
    node = next((node for node in cache.tree.nodes() if page in node.pages), None)
    chats = list(dict.fromkeys(chat for chat in [node.chat if node else "", *(r.chat for r in readers)] if chat))
    if node is not None:
        at = node.pages.index(page)
        first = node.depth - (len(node.keys) - at) * PAGE_SIZE
        state = "locked" if node.locks else "cached"
        return PageView(described(state=state, chats=chats, first=first), tuple(tokens_of(node.keys[at])))
    if not readers:
        return PageView(described(state="private"))
    first = readers[0].pages.index(page) * PAGE_SIZE
    tokens = readers[0].tokens[: readers[0].num_computed][first : first + PAGE_SIZE]
    state = "shared" if len(readers) > 1 else cache.used_state
    return PageView(described(state=state, chats=chats, first=first), tuple(tokens))


class Measuring:
    """Scores queued texts one after the other, a chunk at a time, so that answers go on in between."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Generator[None, None, Scores], Callable[[Scores | str], None]]] = deque()

    def add(self, model: LoadedModel | None, readers: Readers | None, command: MeasureText) -> None:
        """Queue a text. ``readers`` None: the model cannot score texts while it serves requests."""
        if model is None:
            command.reply(NO_MODEL)
        elif readers is None:
            why = "writes no text" if model.encodes else "runs over arenas of its own"
            command.reply(f"{model.card.name} cannot be scored: it {why}.")
        elif len(command.token_ids) < LEAST_TOKENS:
            command.reply(TOO_SHORT)
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
        """Reply to all waiting texts that the model was unloaded."""
        while self._waiting:
            self._waiting.popleft()[1]("The model was unloaded meanwhile. Measure again.")
