"""The cache of one loaded model: pages, prefix tree, the tiers below, and their statistics."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import msgspec
import numpy as np
from torch import Tensor

from engine.cache.groups.base import AnyGroup
from engine.cache.groups.residual import ResidualGroup
from engine.cache.groups.state import StateGroup
from engine.cache.groups.window import WindowGroup
from engine.cache.manager import KVCacheManager, Offload
from engine.cache.offload.saved import Kind, SavedChats
from engine.cache.offload.swap import SwapSpace
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.sequences import SequenceCache
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.paged import PagedStore
from engine.cache.stores.store import KVStore
from engine.cache.text import CachedText, NewSequence
from engine.cache.tiers import OnDisk, Received, Tiers
from engine.cache.types import TREE
from engine.decoding.hand_over import CONTRADICTS, NOTHING, VERSION, Begun, BegunAnswer, HandOverRefused
from engine.decoding.options import EngineOptions, RequestOptions
from engine.decoding.request import Request
from engine.decoding.scheduling.preemption import TransferRates, Victim, swap_or_recompute
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.model import LoadedModel
from engine.loading.parts.adapter import adapters_of
from engine.protocol import CacheStats, PageState

_log = logging.getLogger(__name__)
_FORGET = 0.8
OTHER_MODEL = (
    "This answer was begun by another model than {name}, or on another kind of device. Load the same on both sides."
)
OTHER_CACHE = (
    "This answer was begun over another cache. Set the KV cache and batch-invariant results alike in both engines, and "
    "ask for the same adapter."
)
OTHER_PROMPT = "This answer was begun for another prompt. Send the same request to both engines."
BESIDE = ("recent", "state")
"""Names of what is saved beside a chat's pages."""
MOST_PAGES_BACK = 64
"""Pages at the end of what a chat has saved among whose ends what is saved beside them is looked for."""


class ModelCache:
    """The cache of one loaded model; it lives as long as its stepper."""

    def __init__(
        self, model: LoadedModel, options: EngineOptions, clock: Callable[[], float], saved: SavedChats | None = None
    ) -> None:
        self._model, self._options, self._saved = model, options, saved
        self.pool = PagePool(model.pages)
        self.space = SwapSpace(options.host_cache_bytes)
        self._tiers = Tiers(model.stores, self.space)
        self.tree = PrefixTree(self.pool, clock, self._tiers)
        self._slots = model.stores[0].new_slots() if model.stores else None
        self._beside: list[_Beside] = []
        groups = [group for own in model.stores[:1] for group in self._groups(own)]
        self.manager = KVCacheManager(self.pool, self.tree, self, self._tiers, self._swaps, groups)
        self._prefill_rate: float | None = None
        bits, with_recent = _bits(model), _bits_with_recent(model)
        states = model.stores[0].states if model.stores else None
        self.state_bytes = 0 if states is None else states.page_bytes
        """Bytes of a sequence's state; 0: it has none."""
        self._stats = CacheStats(
            kind=model.kind.title,
            bits_per_element=bits,
            bits_with_recent=with_recent,
            state_bytes=self.state_bytes,
        )

    def _groups(self, own: KVStore) -> Iterator[AnyGroup]:
        """Groups of the target's layers, in the order of their page tables."""
        if own.recent is not None:
            tier = Tiers([own.recent], self.space, gives_way=False)
            recent = ResidualGroup(PagePool(self._model.recent_pages), own.residual, own.recent, tier)
            self._beside.append(_Beside(recent, own.recent, "recent"))
            yield recent
        if own.windowed is not None and self._slots is not None:
            yield WindowGroup(self._slots, own.windowed)
        if own.states is not None:
            tiers = Tiers([own.states], self.space, gives_way=False), Tiers([own.states], self.space)
            states = StateGroup(PagePool(own.states.pages, in_runs=False), *tiers)
            self._beside.append(_Beside(states, own.states, "state"))
            yield states

    # --- called by the step loop ---------------------------------------------------------------------------------

    def copy_page(self, src: int, dst: int) -> None:
        """Implements :meth:`engine.cache.sequences.Content.copy_page`."""
        for store in self._model.stores:
            store.copy_page(src, dst)

    def new(
        self,
        owner: tuple[str, int],
        tokens: list[int],
        options: RequestOptions,
        chat: str,
        fork_of: SequenceCache | None,
        adapter: str = "",
        marks: Sequence[int] = (),
        wholes: Sequence[tuple[int, int]] = (),
    ) -> SequenceCache:
        """The cache of a new request. It shares pages with texts of its own arithmetic only, and of its own
        ``adapter``, which is named by its fingerprint."""
        namespace: Hashable = None
        if options.prefix_cache and options.policy.shareable(len(tokens)):
            namespace = self._arithmetic(adapter)
        asked = NewSequence(owner, tokens, options.policy, namespace, chat, fork_of, marks, wholes)
        return SequenceCache(self.manager, asked)

    def _arithmetic(self, adapter: str) -> tuple[str, ...]:
        """What keys and values depend on beside the model's own weights."""
        names = self._model.kind.title, "batch invariant" if self._options.batch_invariant else "fast"
        return (*names, f"adapter {adapter}") if adapter else names

    def find_saved(self, request: Request) -> None:
        """Add to the tree the pages that the chat of a new request has saved on disk."""
        if self.space.budget != self._options.host_cache_bytes:
            self.space.resize(self._options.host_cache_bytes)
        kind = self._kind(request.chat, request.cache)
        if kind is None or self._saved is None:
            return
        cache, namespace, chat, saved = request.cache, request.cache.namespace, request.chat, self._saved
        tokens = saved.match(chat, kind, cache.identity(request.known - 1)) * PAGE_SIZE
        if self._beside:
            tokens = self._find_place(cache, chat, kind, tokens)
        keys = cache.keys(self.manager.packed(tokens))
        if len(keys) > self.tree.matched(namespace, keys):
            text = cache.identity(len(keys) * PAGE_SIZE)
            self.tree.adopt(namespace, keys, lambda first, stop: OnDisk(saved, chat, kind, text, first, stop))
        for each in self._beside if tokens else ():
            each.group.adopt(cache, tokens, each.on_disk(saved, chat, kind, cache.identity(tokens)))

    def kept(self, tokens: list[int], chat: str, adapter: str = "") -> int:
        """Number of leading ``tokens`` of a prompt that need not be read: what the prefix tree has of them in any tier,
        or its chat has saved on disk. Changes nothing."""
        cache = self.new((chat, 0), tokens, self._options.for_request({}, len(tokens)), chat, None, adapter)
        found, kind = cache.found(), self._kind(chat, cache)
        if kind is None or self._saved is None or not tokens:
            return found
        saved = self._saved.match(chat, kind, cache.identity(len(tokens) - 1)) * PAGE_SIZE
        return max(found, self._find_place(cache, chat, kind, saved) if self._beside else saved)

    def _find_place(self, cache: SequenceCache, chat: str, kind: Kind, packed: int) -> int:
        """The most of its tokens, of which ``packed`` are saved in pages, after which the chat has saved what groups
        keep beside them; 0: there is no such place."""
        assert self._saved is not None
        recent = cache.reusable - self.manager.packed(cache.reusable)
        most = min(cache.reusable, packed + recent + CHANNEL_GROUP) // PAGE_SIZE
        for pages in range(most, max(0, most - MOST_PAGES_BACK), -1):
            tokens = pages * PAGE_SIZE
            if self.manager.packed(tokens) > packed:
                continue
            held = (each.on_disk(self._saved, chat, kind, cache.identity(tokens)) for each in self._beside)
            if all(self._saved.match(each.chat, each.kind, each.tokens) == each.stop for each in held):
                return tokens
        return 0

    def count_hits(self, request: Request) -> None:
        """Count the first admission of a request, whose ``cached_tokens`` were found in the cache."""
        last = request.cache.node
        for node in last.path() if last is not None and request.num_computed else ():
            node.hits += 1
        found = self._stats
        self._stats = msgspec.structs.replace(
            found, looked_up=found.looked_up + request.prompt_length, hit=found.hit + request.progress.cached_tokens
        )

    def keep(self, request: Request) -> None:
        """Save the pages of an ended answer, which it still holds, as far as its chat has not saved them yet."""
        kind = self._kind(request.chat, request.cache)
        count = self.manager.packed(min(request.num_computed, request.cache.shareable)) // PAGE_SIZE
        pages = request.pages[:count]
        if kind is None or self._saved is None or not pages or 0 in pages:
            return
        tokens = request.cache.identity(count * PAGE_SIZE)
        self._saved.save(request.chat, kind, tokens, self._export(self._model.stores[0], pages))
        place = request.cache.last_kept() if self._beside else 0
        for each in self._beside if place else ():
            mine = each.group.of(request.cache).kept(request.cache, place)
            held = each.on_disk(self._saved, request.chat, kind, request.cache.identity(place))
            if mine:
                self._saved.save(held.chat, held.kind, held.tokens, self._export(each.store, mine))

    @staticmethod
    def _export(store: PagedStore, pages: Sequence[int]) -> Callable[[int, int], Tensor]:
        return lambda first, stop: store.export_pages(pages[first:stop])

    # --- to another engine and from one --------------------------------------------------------------------------

    def handed_over(self, request: Request) -> BegunAnswer:
        """A running request with all that the cache holds of it; where that does not lie in whole pages, as under a
        sliding window of the chat, with its tokens alone."""
        cache, parts = request.cache, []
        for part in cache.offloaded() or ():
            own = NOTHING if part is None else cast("Tiers", part.tier).stores[0].export_pages(part.pages)
            parts.append(own.flatten())
        begun = Begun(
            VERSION,
            self._model.fingerprint,
            self._cache_of(request),
            request.params.seed,
            prompt=cache.identity(cache.prompt_length),
            drawn=cache.tokens[cache.prompt_length :],
            computed=cache.num_computed if parts else 0,
            sizes=[len(part) for part in parts],
        )
        return BegunAnswer(begun, parts)

    def receive(self, request: Request, answer: BegunAnswer) -> None:
        """Let a new request go on as another engine began it, once it is admitted. Its tokens are appended by others.

        Raises :class:`HandOverRefused`.
        """
        cache, begun, model = request.cache, answer.begun, self._model
        if not model.fingerprint or begun.model != model.fingerprint:
            raise HandOverRefused(OTHER_MODEL.format(name=model.card.name))
        if begun.cache != self._cache_of(request):
            raise HandOverRefused(OTHER_CACHE)
        if begun.prompt != cache.identity(cache.prompt_length):
            raise HandOverRefused(OTHER_PROMPT)
        pages = pages_for(self.manager.packed(begun.computed))
        sizes = [self._tiers.stores[0].page_bytes * pages]
        sizes += [
            group.tier.size(group.saved_pages(begun.computed))[0] if group.tier is not None else 0
            for group in self.manager.groups
        ]
        known = 0 <= begun.computed < len(begun.prompt) + len(begun.drawn) and bool(begun.drawn)
        if not known or begun.sizes != (sizes if begun.computed else []):
            raise HandOverRefused(CONTRADICTS)
        if begun.computed:
            cache.num_computed = begun.computed
            cache.held = [Received(part) if len(part) else None for part in answer.parts]

    def _cache_of(self, request: Request) -> str:
        """Kind, arithmetic and layouts that two engines must share."""
        adapters = {adapter.number: adapter.fingerprint for adapter in adapters_of(self._model)}
        layouts = [self._model.stores[0].page_layout, *(each.store.page_layout for each in self._beside)]
        return "; ".join([*self._arithmetic(adapters.get(request.adapter, "")), *layouts])

    def forget(self, chat: str) -> None:
        """Drop what is kept of a deleted chat, in the prefix tree and on disk."""
        self.tree.forget(chat)
        if self._saved is not None:
            self._saved.forget(chat)
            for name in BESIDE:
                self._saved.forget(chat_of(chat, name))

    def read(self, rows: int, seconds: float) -> None:
        """Update the prefill rate with a step that computed ``rows`` prompt rows in ``seconds``."""
        if rows and seconds > 0:
            rate, known = rows / seconds, self._prefill_rate
            self._prefill_rate = rate if known is None else _FORGET * known + (1 - _FORGET) * rate

    def _swaps(self, sequence: CachedText, parts: Sequence[Offload]) -> bool:
        """Return True if what a preempted answer has is copied to host memory; :func:`swap_or_recompute` decides."""
        sizes = [part.tier.size(len(part.pages)) for part in parts]
        size, room = sum(own for own, _ in sizes), self.space.fits((), 0, sum(taken for _, taken in sizes))
        tokens = sequence.num_computed - sequence.shared * PAGE_SIZE
        rates = TransferRates(self.space.out.per_second, self.space.into.per_second, self._prefill_rate)
        decision = swap_or_recompute(self._options.preemption, Victim(tokens, size, room), rates)
        _log.info("%s gives way. %s", sequence.owner, decision.reason)
        return decision.swap

    def _kind(self, chat: str, cache: SequenceCache) -> Kind | None:
        """The kind that saved pages must have to be usable; None where the sequence's pages are not saved."""
        if not chat or cache.namespace is None or not self._model.fingerprint:
            return None
        if self._saved is None or self._options.disk_cache_bytes <= 0:
            return None
        store = self._model.stores[0]
        return Kind(self._model.fingerprint, repr(cache.namespace), store.page_layout, store.page_bytes)

    # --- contents and statistics ---------------------------------------------------------------------------------

    def live_tokens(self, running: Iterable[Request]) -> int:
        """Distinct tokens in pages: tokens that several answers share count once, a window's dead pages not at all."""
        tokens = pages = 0
        for request in running:
            first, stop = request.cache.dead_pages
            before = request.cache.shared + max(0, min(stop, len(request.pages)) - first)
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
    def used_share(self) -> float | None:
        """Share of the cache's bytes in use, for :attr:`PageCounts.share`; None: it is that of pages."""
        if self._slots is None:
            return None
        own, slots = self._model.stores[0], self._slots.pool
        assert own.windowed is not None
        page, slot = self.page_bytes - own.page_bytes + own.whole_bytes, own.windowed.page_bytes
        reserved = self.pool.total * page + slots.total * slot
        return (self.pool.used_count * page + slots.used_count * slot) / max(1, reserved)

    @property
    def used_state(self) -> PageState:
        """The state of a page that a single answer holds."""
        return "private" if self._model.kind.name == "16bit" else "quantised"

    @property
    def stats(self) -> CacheStats:
        counts = self.space.counts
        return msgspec.structs.replace(
            self._stats,
            evicted_pages=self.tree.evicted,
            recent_pages=self.manager.snapshot_pages,
            states=self.manager.states.held,
            states_kept=self.manager.states.kept,
            host_pages=counts.pages,
            host_bytes=counts.size,
            disk_bytes=self._saved.sizes().size if self._saved is not None else 0,
            swapped_out=self.space.out.total,
            swapped_in=self.space.into.total,
        )

    def check(self, idle: bool = False) -> None:
        """Check that all ledgers agree; when ``idle``, also that no sequence holds a page. Raises AssertionError."""
        self.pool.check()
        self.tree.check()
        self.space.check()
        self.manager.check(idle)
        strays = [owner for owner in self.pool.owners() if owner != TREE]
        if idle and (strays or self.tree.evictable != self.tree.pages):
            raise AssertionError(f"pages are held for {strays or 'the tree'}, and nobody runs")


class _Beside(NamedTuple):
    """A group of which a part is saved with each chat, as a chat of its own whose tokens stand for that text."""

    group: AnyGroup
    store: PagedStore
    name: str

    def on_disk(self, saved: SavedChats, chat: str, kind: Kind, text: Sequence[int]) -> OnDisk:
        """Saved state of a chat, or the one that will be, with what it takes to go on after ``text``."""
        own = kind._replace(layout=f"{kind.layout}; {self.store.page_layout}", page_bytes=self.store.page_bytes)
        count = self.group.saved_pages(len(text))
        return OnDisk(saved, chat_of(chat, self.name), own, mark_of(text) * count, 0, count)


def chat_of(chat: str, name: str) -> str:
    """The chat as which a part of another is saved; no client's id has this character."""
    return f"{chat}\0{name}"


def mark_of(tokens: Sequence[int]) -> list[int]:
    """A page of 16 "tokens" that stands for a text: its digest."""
    digest = hashlib.blake2b(np.array(tokens, dtype="<i4").tobytes(), digest_size=4 * PAGE_SIZE).digest()
    return np.frombuffer(digest, dtype="<i4").tolist()


def _bits(model: LoadedModel) -> float:
    """Bits per element of the target's keys and values, its share of scales included."""
    if model.model is None:
        return 16.0
    config = model.model.config
    return 8 * kv_bytes_per_token(config, model.model.kv_dtype, model.kind) / config.cached_elements


def _bits_with_recent(model: LoadedModel) -> float:
    """Bits per element if the bytes of recent tokens, too, are divided by the packed tokens."""
    bits, recent = _bits(model), model.stores[0].recent if model.stores else None
    if model.model is None or recent is None:
        return bits
    return bits + 8.0 * recent.storage_size() / (model.model.config.cached_elements * model.pages * PAGE_SIZE)
