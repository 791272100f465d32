"""The cache of one loaded model: pages, prefix tree, the tiers below, and what they did."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable

import msgspec
from torch import Tensor

from engine.cache.policies import KeepAll, Quest
from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.radix import PrefixTree
from engine.cache.radix_node import TREE, page_keys
from engine.cache.saved import Kind, SavedChats
from engine.cache.swap import SwapSpace
from engine.core.loaded import LoadedModel
from engine.core.options import EngineOptions
from engine.core.request import Request
from engine.core.tiers import OnDisk, Tiers
from engine.protocol import CacheStats, PageState
from engine.scheduling.memory import Memory
from engine.scheduling.preemption import Rates, SwapOrRecompute, Victim
from engine.scheduling.recent_memory import RecentMemory

_log = logging.getLogger(__name__)
_FORGET = 0.8


class ModelCache:
    """Made with a stepper, and gone with it."""

    def __init__(
        self, model: LoadedModel, options: EngineOptions, clock: Callable[[], float], saved: SavedChats | None = None
    ) -> None:
        self._model, self._options, self._saved = model, options, saved
        self.pool = PagePool(model.pages)
        self.space = SwapSpace(options.host_cache_bytes)
        self._tiers = Tiers(model.stores, self.space)
        self.tree = PrefixTree(self.pool, clock, self._tiers)
        self.recent = self._recent_memory(model)
        self.memory: Memory[Request] = Memory(self.pool, self.tree, self, self._tiers, self._swaps, self.recent)
        self._prefill_rate: float | None = None
        bits, with_recent = _bits(model), _bits_with_recent(model)
        self._stats = CacheStats(kind=model.kind.title, bits_per_element=bits, bits_with_recent=with_recent)

    def _recent_memory(self, model: LoadedModel) -> RecentMemory[Request] | None:
        store = model.stores[0].recent if model.kind.residual else None
        if store is None:
            return None
        tier = Tiers([store], self.space, gives_way=False)
        return RecentMemory(PagePool(model.recent_pages), model.kind.residual, store, self.tree, tier)

    # --- what the step loop does ---------------------------------------------------------------------------------

    def copy_page(self, src: int, dst: int) -> None:
        """See :class:`engine.scheduling.memory.Content`."""
        for store in self._model.stores:
            store.copy_page(src, dst)

    def welcome(self, request: Request) -> None:
        """A request arrives: say what it may share, and know of what its chat has on disk."""
        request.namespace = self._namespace(request)
        if self.space.budget != self._options.host_cache_bytes:
            self.space.resize(self._options.host_cache_bytes)
        kind = self._kind(request)
        if kind is None or self._saved is None:
            return
        count = self._saved.match(request.chat, kind, request.tokens[:-1])
        keys = page_keys(request.tokens[: count * PAGE_SIZE])
        if count > self.tree.matched(request.namespace, keys):
            tokens, saved = request.tokens[: count * PAGE_SIZE], self._saved
            self.tree.adopt(
                request.namespace, keys, lambda first, stop: OnDisk(saved, request.chat, kind, tokens, first, stop)
            )

    def admitted(self, request: Request) -> None:
        """The first admission: ``num_computed`` of its tokens were found."""
        request.cached_tokens = request.num_computed
        for node in request.node.path() if request.node is not None and request.num_computed else ():
            node.hits += 1
        found = self._stats
        self._stats = msgspec.structs.replace(
            found, looked_up=found.looked_up + request.prompt_length, hit=found.hit + request.num_computed
        )

    def keep(self, request: Request) -> None:
        """An answer ended, and its pages are still its own: save what its chat has not saved yet."""
        kind = self._kind(request)
        count = min(request.num_computed, request.shareable) // PAGE_SIZE
        pages = request.pages[:count]
        if kind is None or self._saved is None or not pages or 0 in pages:
            return

        def export(first: int, stop: int) -> Tensor:
            return self._model.stores[0].export_pages(pages[first:stop])

        self._saved.save(request.chat, kind, request.tokens[: count * PAGE_SIZE], export)

    def forget(self, chat: str) -> None:
        """A chat was deleted: what is kept of it goes, wherever it is."""
        self.tree.forget(chat)
        if self._saved is not None:
            self._saved.forget(chat)

    def read(self, rows: int, seconds: float) -> None:
        """So many rows of prompts were computed in a step of this length."""
        if rows and seconds > 0:
            rate, known = rows / seconds, self._prefill_rate
            self._prefill_rate = rate if known is None else _FORGET * known + (1 - _FORGET) * rate

    def _swaps(self, sequence: Request, pages: int, recent: int) -> bool:
        """Whether a preempted answer's pages are copied to host memory; see :class:`SwapOrRecompute`."""
        size, beside, store = pages * self.page_bytes, 0, self._model.stores[0].recent if recent else None
        if store is not None:
            size, beside = size + recent * store.page_bytes, self.space.cost([store], recent)
        room = self.space.fits(self._model.stores, pages, beside)
        tokens = sequence.num_computed - sequence.shared * PAGE_SIZE
        rates = Rates(self.space.out.per_second, self.space.into.per_second, self._prefill_rate)
        decision = SwapOrRecompute(self._options.preemption).decide(Victim(tokens, size, room), rates)
        _log.info("%s gives way. %s", sequence.owner, decision.reason)
        return decision.swap

    def _namespace(self, request: Request) -> Hashable:
        """What must agree for two texts to share pages; None: nothing is shared."""
        if not request.options.prefix_cache or not request.cached:
            return None
        if not isinstance(request.options.policy, (KeepAll, Quest)):
            return None
        return self._model.kind.title, "batch invariant" if self._options.batch_invariant else "fast"

    def _kind(self, request: Request) -> Kind | None:
        """What saved pages must be like; None where the request's are not saved.

        Of a cache that keeps recent tokens apart none are: a file has packed pages, which spare nothing without the
        recent tokens after them (`engine.cache.snapshots`).
        """
        if self._model.kind.residual:
            return None
        if not request.chat or request.namespace is None or not self._model.fingerprint:
            return None
        if self._saved is None or self._options.disk_cache_bytes <= 0:
            return None
        store = self._model.stores[0]
        return Kind(self._model.fingerprint, repr(request.namespace), store.page_layout, store.page_bytes)

    # --- what there is -------------------------------------------------------------------------------------------

    def live_tokens(self, running: Iterable[Request]) -> int:
        """Different tokens that pages hold: a window's dead pages do not count, nor what several answers hold twice."""
        tokens = pages = 0
        for request in running:
            first, stop = request.dead_pages
            before = request.shared + max(0, min(stop, len(request.pages)) - first)
            tokens += max(0, request.num_computed - before * PAGE_SIZE)
            pages += max(0, len(request.pages) - before)
        own = self.pool.used_count - self.tree.pages
        twice = max(0, pages - own)
        return self.tree.pages * PAGE_SIZE + max(0, min(tokens - twice * PAGE_SIZE, own * PAGE_SIZE))

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in all arenas."""
        return sum(store.page_bytes for store in self._model.stores)

    @property
    def used_state(self) -> PageState:
        """What a page is that one answer holds for itself."""
        return "private" if self._model.kind.name == "16bit" else "quantised"

    @property
    def stats(self) -> CacheStats:
        counts = self.space.counts
        return msgspec.structs.replace(
            self._stats,
            evicted_pages=self.tree.evicted,
            recent_pages=self.recent.snapshots.pages if self.recent is not None else 0,
            host_pages=counts.pages,
            host_bytes=counts.size,
            disk_bytes=self._saved.sizes().size if self._saved is not None else 0,
            swapped_out=self.space.out.total,
            swapped_in=self.space.into.total,
        )

    def check(self, idle: bool = False) -> None:
        """Prove that all books agree; when ``idle``, also that nobody holds a page. Raises AssertionError."""
        self.pool.check()
        self.tree.check()
        self.space.check()
        self.memory.check(idle)
        strays = [owner for owner in self.pool.owners() if owner != TREE]
        if idle and (strays or self.tree.evictable != self.tree.pages):
            raise AssertionError(f"pages are held for {strays or 'the tree'}, and nobody runs")


def _bits(model: LoadedModel) -> float:
    """Of an element of the target's keys and values, its share of scales included."""
    if model.model is None:
        return 16.0
    if model.kind.name == "16bit":
        return 8.0 * model.model.dtype.itemsize
    return model.kind.bits_per_element(model.model.config.head_dim)


def _bits_with_recent(model: LoadedModel) -> float:
    """The same of the bytes that all arenas of keys and values take, shared by the tokens that they hold packed."""
    if model.model is None or not model.kind.residual:
        return _bits(model)
    config = model.model.config
    elements = config.num_layers * config.cached_width * model.pages * PAGE_SIZE
    return 8.0 * model.stores[0].storage_size() / elements
