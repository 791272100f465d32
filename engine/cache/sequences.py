"""KV cache of each sequence: pages found in the prefix tree, taken from the pool, copied before a write.

The scheduler decides who runs; this decides where what runs lies. Pure but for the two calls that move content
(:class:`Content`, :class:`engine.cache.types.Tier`), which happen at once, before the step's forward.

:class:`SequenceCache` is the interface as well as its first implementation, for caches that consist of pages alone. A
cache that holds more than its pages extends both classes of this file (`engine.cache.residual`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from engine.cache.policies import KEEP_ALL, NO_LIMIT, PagePolicy
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.types import DraftKVLengths, Key, Node, OffloadedPages, StateRun, Tier, leading, page_keys

EVICTED_AT_ONCE = 16
"""Pages given up at the least when one is needed: fewer, longer pieces go to the tier below."""


class Content(Protocol):
    """Content of pages, in every arena."""

    def copy_page(self, src: int, dst: int) -> None:
        """Copy one page."""


class NewSequence(NamedTuple):
    """A sequence that asks for a cache. ``tokens`` is its prompt, and the list that grows with its output.

    ``owner`` is its name in the ledger. ``namespace``: within it texts share pages; None: this one shares none.
    ``chat`` is remembered with the pages that it leaves in the tree. ``fork_of`` is another answer to the same prompt,
    whose pages it may begin with. ``marks`` take the place of the prompt's tokens where texts are told apart: those of
    two pictures differ while their tokens do not; (): the tokens do. ``wholes`` are tokens [first, stop) that see each
    other, so that no step may end within them; in order.
    """

    owner: tuple[str, int]
    tokens: list[int]
    policy: PagePolicy = KEEP_ALL
    namespace: Hashable = None
    chat: str = ""
    fork_of: SequenceCache | None = None
    marks: Sequence[int] = ()
    wholes: Sequence[tuple[int, int]] = ()


Swaps = Callable[["SequenceCache", int, int], bool]
"""``swaps(cache, pages, more)``: whether a preempted sequence with these numbers of pages, in the pool and outside of
it, is kept in a tier below rather than computed again."""


class StateCounts(NamedTuple):
    """States ``held`` on the device, and how many are ``kept`` of texts, wherever."""

    held: int = 0
    kept: int = 0


class KVCacheManager:
    """Makes the caches of sequences; owns every page that they and the prefix tree hold."""

    def __init__(
        self,
        pool: PagePool,
        tree: PrefixTree | None = None,
        content: Content | None = None,
        tier: Tier | None = None,
        swaps: Swaps = lambda cache, pages, more: False,
    ) -> None:
        self.pool, self.content, self.tier, self.swaps = pool, content, tier, swaps
        self.tree = tree or PrefixTree(pool)

    def new(self, sequence: NewSequence) -> SequenceCache:
        """A cache for the sequence, empty."""
        return SequenceCache(self, sequence)

    @property
    def room(self) -> int:
        """Pages that are free now or that the tree would give up."""
        return self.pool.free_count + self.tree.evictable

    @property
    def version(self) -> int:
        """Changes with whatever can change what a text finds."""
        return self.tree.version

    @property
    def most_rows(self) -> int:
        """Rows of one sequence for which a step always has room outside of its pages, if no other sequence runs."""
        return NO_LIMIT

    @property
    def snapshot_pages(self) -> int:
        """Pages outside of the pool that are kept for texts that ended."""
        return 0

    @property
    def states(self) -> StateCounts:
        """States outside of the pool."""
        return StateCounts()

    def admits(self, cache: SequenceCache, running: Sequence[SequenceCache], chunk: int) -> bool:
        """Return True if an opened sequence, read in chunks, has room outside of the pages to run with the others."""
        return True

    def will_find(self, pages: int, other: SequenceCache) -> bool:
        """Return True if a text that shares its first ``pages`` pages with ``other`` can reuse them once ``other`` is
        read."""
        return True

    def take(self, owner: tuple[str, int], pages: int) -> list[int]:
        """Allocate ``pages`` pages of the pool; the tree evicts as many as are missing. There must be room."""
        short = pages - self.pool.free_count
        while short > 0 and self.tree.evict(max(short, EVICTED_AT_ONCE)):
            short = pages - self.pool.free_count
        return self.pool.allocate(pages, owner)

    def check(self, idle: bool = False) -> None:
        """Check what is counted outside of the pool and the tree; when ``idle``, that no sequence holds anything.

        Raises AssertionError.
        """


class SequenceCache:
    """Keys and values of one sequence: the first ``num_computed`` of its ``tokens``, in ``pages``.

    ``drafts`` counts the same for the arenas of drafters. ``held`` is what a tier below keeps of it while it waits. The
    other fields are those of :class:`NewSequence`.

    Invariants: the first ``shared`` pages are the tree's, locked by ``node``; a page that others refer to is never
    written, but copied first; a page that no row will read again is 0.
    """

    __slots__ = (
        "_found",
        "_keys",
        "chat",
        "drafts",
        "fork_of",
        "held",
        "manager",
        "marks",
        "namespace",
        "node",
        "num_computed",
        "owner",
        "pages",
        "policy",
        "prompt_length",
        "shared",
        "tokens",
        "wholes",
    )

    def __init__(self, manager: KVCacheManager, sequence: NewSequence) -> None:
        self.manager = manager
        self.owner, self.tokens, self.policy, self.namespace, self.chat, self.fork_of, self.marks, self.wholes = (
            sequence
        )
        self.prompt_length = len(self.tokens)
        self.num_computed = self.shared = 0
        self.drafts = DraftKVLengths()
        self.pages: list[int] = []
        self.node: Node | None = None
        self.held: OffloadedPages | None = None
        self._found = (-1, 0)
        self._keys: list[Key] = []

    # --- its text ------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Rows still to compute before the next token can be drawn."""
        return len(self.tokens) - self.num_computed

    @property
    def shareable(self) -> int:
        """Tokens whose keys and values equal those that any other request would compute."""
        return self.policy.shareable(len(self.tokens))

    @property
    def dead_pages(self) -> tuple[int, int]:
        """Pages [first, stop) that no row of the sequence will read again."""
        return self.policy.dead_pages(self.num_computed)

    @property
    def longest_chunk(self) -> int:
        """The most rows of it that one step may read."""
        return min(self.policy.longest_chunk, self.manager.most_rows)

    def whole(self, rows: int) -> int:
        """Number of rows that a step reads of at most ``rows``: it ends before tokens that see each other, or after
        them where it begins with them (or within them, the first ones being found)."""
        begin = self.num_computed
        for first, stop in self.wholes:
            if first < begin + rows < stop:
                return (first if first > begin else stop) - begin
        return rows

    def chunk(self, most: int) -> int:
        """The most rows that it reads in a step of ``most``."""
        return max(min(most, self.longest_chunk), max((stop - first for first, stop in self.wholes), default=0))

    @property
    def more_pages(self) -> tuple[list[int], ...]:
        """The page tables of layer groups 1, 2, ... (:class:`engine.compute.batch.SequenceRows`)."""
        return ()

    @property
    def packs(self) -> bool:
        """True if a step packs what earlier steps computed, so that it is planned when those are over."""
        return False

    @property
    def newest_pages(self) -> list[int]:
        """The page table by which the rows of a step are written."""
        return self.pages

    @property
    def reusable(self) -> int:
        """Tokens that may be found: a last row must be computed."""
        return min(len(self.tokens) - 1, self.shareable)

    def identity(self, stop: int, start: int = 0) -> list[int]:
        """Ids that tell its tokens [start, stop) apart from those of other texts."""
        if not self.marks:
            return self.tokens[start:stop]
        return [*self.marks[start:stop], *self.tokens[max(start, len(self.marks)) : stop]]

    def keys(self, tokens: int) -> list[Key]:
        """The keys of the whole pages of its first ``tokens`` tokens; each is made once."""
        whole, known = tokens // PAGE_SIZE, self._keys
        if len(known) < whole:
            known += page_keys(self.identity(whole * PAGE_SIZE), len(known))
        return known[:whole]

    # --- it comes ------------------------------------------------------------------------------------------------

    def found(self) -> int:
        """Tokens that need not be computed, wherever they are; remembered while nothing changes."""
        version, tokens = self._found
        now = self.manager.version
        if version != now:
            if self.held is not None:
                tokens = self.num_computed
            else:
                tokens = self._look_up() if self.namespace is not None else 0
            self._found = now, tokens
        return tokens

    def _look_up(self) -> int:
        return self.manager.tree.matched(self.namespace, self.keys(self.reusable)) * PAGE_SIZE

    def open(self) -> None:
        """Give a sequence that holds no page those of its beginning that are on the device; :meth:`close` undoes it."""
        if self.held is None and self.namespace is not None:
            self._open()

    def _open(self) -> None:
        if self._fork():
            return
        tree, limit, keys = self.manager.tree, self.reusable, self.keys(self.reusable)
        match = tree.match(self.namespace, keys, self.identity(limit, len(keys) * PAGE_SIZE))
        node, pages, tokens, drafted = match.node, list(match.pages), len(match.pages) * PAGE_SIZE, match.drafted
        if match.partial is not None:
            node, more = match.partial  # locked until its page is copied
            drafted = leading(node, drafted, len(pages))
            pages.append(node.pages[0])
            tokens += more
        tree.lock(node)
        self.node, self.shared = node, len(match.pages)
        self.manager.pool.retain(pages, self.owner)
        self.pages, self.num_computed = pages, tokens
        self.drafts = drafted.at_most(tokens)

    def _fork(self) -> bool:
        """Begin with the pages of another answer to the same prompt, which has read it; the last one is not full."""
        other, start = self.fork_of, len(self.tokens) - 1
        if other is None or len(self.tokens) != self.prompt_length:
            return False
        if other.num_computed < start or not other.pages or other.namespace != self.namespace:
            return False
        other.commit()  # whole pages that both read are the tree's, and locked by both
        pages = other.pages[: pages_for(start)]
        if 0 in pages:
            return False
        self.manager.pool.retain(pages, self.owner)
        if other.node is not None:
            self.manager.tree.lock(other.node)
        self.node, self.shared = other.node, min(other.shared, len(pages))
        self.pages, self.num_computed = pages, start
        self.drafts = other.drafts.at_most(start)
        return True

    def take_less(self) -> bool:
        """Give up what takes a page more than it spares: one of which only a part was found; whether there was one."""
        if len(self.pages) <= self.shared or self.held is not None:
            return False
        self.shrink(self.shared)
        self.num_computed = self.shared * PAGE_SIZE
        self.drafts = self.drafts.at_most(self.num_computed)
        self._lock_no_more_than_shared()
        return True

    def restore(self) -> None:
        """Bring what a tier keeps of an opened sequence to the device. There is room for all that it knows."""
        if self.held is not None:
            held, self.held = self.held, None
            self._grow(pages_for(self.num_computed))
            if not self._take(held):
                self.num_computed, self.drafts = 0, DraftKVLengths()
        elif self.namespace is not None:
            self._restore()

    def _take(self, held: OffloadedPages) -> bool:
        """Bring back what :meth:`_put` kept; there are pages for it. False: it is lost."""
        assert self.manager.tier is not None
        return self.manager.tier.take(held, self.pages)

    def _restore(self) -> None:
        if self.pending > 1:
            self._restore_pages(self.keys(self.reusable))

    def _restore_pages(self, keys: list[Key]) -> None:
        """Bring back the nodes in a tier below that follow the matched pages, one by one, as long as the text goes
        on."""
        tree = self.manager.tree
        while True:
            match = tree.match(self.namespace, keys)
            if not match.held or len(match.pages) != self.shared:
                return
            node = tree.trim(match.held[0], min(match.held_pages, len(match.held[0].keys)))
            if len(self.pages) > self.shared:  # a page that began alike gives way to whole ones
                self.shrink(self.shared)
            before = len(self.pages)
            self.drafts = self.drafts.at_most(before * PAGE_SIZE)
            self._grow(before + len(node.keys))
            if node.held is None or not tree.restore(node, self.pages[before:]):
                self.shrink(before)
                self.num_computed = before * PAGE_SIZE
                return
            self._share(node, len(self.pages))
            self.num_computed = len(self.pages) * PAGE_SIZE
            self.drafts = leading(node, self.drafts, before)

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, rows: int) -> bool:
        """Return True if there is room to write ``rows`` more rows."""
        tokens, pages, at = self.num_computed + rows, self.pages, self.num_computed // PAGE_SIZE
        if tokens <= len(pages) * PAGE_SIZE and self.manager.pool.refs(pages[at]) == 1:
            return True  # the usual case: neither new pages nor a copy
        return max(0, pages_for(tokens) - len(pages)) + self._must_copy() <= self.manager.room

    def allocate(self, rows: int) -> None:
        """Hold pages of its own for ``rows`` more rows: what others refer to is copied. There is room."""
        self._own()
        self._grow(pages_for(self.num_computed + rows))

    def reserve(self, tokens: int) -> None:
        """Hold pages for ``tokens`` tokens. There is room."""
        self._grow(pages_for(tokens))

    def lacking(self, tokens: int, chunk: int) -> int:
        """Pages still needed to hold ``tokens`` tokens; read in chunks, dead pages are used again."""
        whole, held = pages_for(tokens), len(self.pages)
        most = self.policy.kept_pages(tokens) + pages_for(min(self.chunk(chunk), self.pending))
        if most < whole:
            whole, held = most, held - self.pages.count(0)
        return max(0, whole - held) + self._must_copy()

    def _must_copy(self) -> bool:
        """Return True if others refer to the page that the next row is written to."""
        at = self.num_computed // PAGE_SIZE
        return at < len(self.pages) and self.manager.pool.refs(self.pages[at]) > 1

    def _own(self) -> None:
        """Copy the page that the next row is written to if others refer to it (copy-on-write)."""
        if not self._must_copy():
            return
        assert self.manager.content is not None
        at = self.num_computed // PAGE_SIZE
        (page,) = self.manager.take(self.owner, 1)
        self.manager.content.copy_page(self.pages[at], page)
        self.manager.pool.release([self.pages[at]], self.owner)
        self.pages[at] = page
        self.shared = min(self.shared, at)
        self._lock_no_more_than_shared()

    def _grow(self, pages: int) -> None:
        more = pages - len(self.pages)
        if more > 0:
            self.pages.extend(self.manager.take(self.owner, more))

    def shrink(self, keep: int) -> None:
        """Give back all pages but the first ``keep``."""
        if len(self.pages) > keep:
            self.manager.pool.release([page for page in self.pages[keep:] if page], self.owner)
            del self.pages[keep:]

    def runs(self, drafts: int) -> tuple[StateRun, ...]:
        """Runs that advance a state in the planned step, before ``drafts`` draft tokens; () if there is none."""
        return ()

    def take_replays(self) -> tuple[StateRun, ...]:
        """Take the runs that advance a state over draft tokens accepted in this step; () if there are none."""
        return ()

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more as computed and stored in its pages."""
        self.num_computed += tokens

    def stop_sharing(self) -> None:
        """Let no other sequence reuse what this one computes from now on, nor this one reuse what others have."""
        self.namespace = None

    def shed(self) -> None:
        """Give back pages within the sequence that no row of it will read again."""
        first, stop = self.dead_pages
        if stop > first and self.pages[stop - 1]:  # they die in order: else all of them have gone already
            dead = [page for page in self.pages[first:stop] if page]
            self.manager.pool.release(dead, self.owner)
            self.pages[first:stop] = [0] * (stop - first)

    def _lock_no_more_than_shared(self) -> None:
        """A page that began alike was copied: let go of the node that it came from, if a node ends before it."""
        node = self.node
        depth = node.depth // PAGE_SIZE if node is not None else 0
        while node is not None and depth > self.shared:
            depth -= len(node.keys)
            node = node.parent
        if node is not None and node is not self.node and depth == self.shared:
            self._share(node, depth)

    def _share(self, node: Node, pages: int) -> None:
        old = self.node
        self.manager.tree.lock(node)
        if old is not None:
            self.manager.tree.unlock(old)
        self.node, self.shared = node, pages

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, ended: bool = True) -> None:
        """Let the tree have the full pages that are computed. ``ended``: no more will be."""
        self._commit(self.num_computed)

    def _commit(self, tokens: int) -> None:
        """Let the tree have the full pages of the first ``tokens``; it keeps its own where it has them already."""
        # Of a sequence that a tier keeps, more is computed than it has here.
        count = min(min(tokens, self.shareable) // PAGE_SIZE, len(self.pages))
        if self.namespace is None or count <= self.shared or 0 in self.pages[:count]:
            return
        pool, keys = self.manager.pool, self.keys(count * PAGE_SIZE)
        inserted = self.manager.tree.insert(self.namespace, keys, self.pages[:count], self.drafts, self.chat)
        # [0, shared)      the tree's already, and locked
        # [shared, count)  the tree's now: ours where it had none, else its own, and ours are duplicates to give back
        # [count, ...)     ours alone: the last page is not full, or not shareable
        for i in range(self.shared, count):
            mine, kept = self.pages[i], inserted.pages[i]
            if mine != kept:
                pool.retain([kept], self.owner)
                pool.release([mine], self.owner)
                self.pages[i] = kept
                self.drafts = self.drafts.at_most(i * PAGE_SIZE)
        self._share(inserted.node, count)

    def last_kept(self) -> tuple[int, int] | None:
        """The most of its tokens after which a state is kept on the device, and where; None where there is none."""
        return None

    def close(self) -> None:
        """Give everything back; nothing of the sequence is computed then."""
        self.shrink(0)
        if self.held is not None:
            self._drop(self.held)
        if self.node is not None:
            self.manager.tree.unlock(self.node)
        self.held = self.node = None
        self.shared = self.num_computed = 0
        self.drafts = DraftKVLengths()

    def _drop(self, held: OffloadedPages) -> None:
        assert self.manager.tier is not None
        self.manager.tier.drop(held)

    def preempt(self) -> None:
        """Give up the pages: what they hold goes to the tier, or is computed again later (if not found)."""
        computed = self.num_computed
        kept = self._put() if self.manager.tier is not None else None
        if kept is None:
            self.commit()
        self.close()
        self._found = -1, 0
        if kept is not None:
            self.num_computed = computed
            self.held, self.drafts = kept

    def _put(self) -> tuple[OffloadedPages, DraftKVLengths] | None:
        """Keep what is computed in the tier, if it is to go there and there is room; what of it drafters have."""
        manager, pages = self.manager, self.pages[: pages_for(self.num_computed)]
        assert manager.tier is not None
        if not pages or 0 in pages or not manager.swaps(self, len(pages), 0):
            return None
        held = manager.tier.put(pages, keep=True)
        return None if held is None else (held, self.drafts)
