"""The pages of sequences: found in the prefix tree, taken from the pool, copied before a write, given back.

The scheduler decides who runs; this decides where what runs lies. Pure but for the two calls that move content
(:class:`Content`, :class:`engine.cache.radix_node.Tier`), which happen at once, before the step's forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, cast

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.radix import PrefixTree
from engine.cache.radix_node import Drafts, Held, Key, Node, Tier, leading
from engine.scheduling.policy import S, keys_of
from engine.scheduling.recent_memory import Content, RecentMemory

EVICTED_AT_ONCE = 16
"""Pages given up at the least when one is needed: fewer, longer pieces go to the tier below."""


class Room(NamedTuple):
    """Pages: free now, and those that the tree would give up."""

    free: int
    evictable: int

    @property
    def pages(self) -> int:
        return self.free + self.evictable


class Memory(Generic[S]):
    """Owns every page that sequences and the prefix tree hold.

    Invariants: a sequence's first ``shared`` pages are the tree's, which it locks by ``node``; a page that others refer
    to is never written, but copied first.
    """

    def __init__(
        self,
        pool: PagePool,
        tree: PrefixTree | None = None,
        content: Content | None = None,
        tier: Tier | None = None,
        swaps: Callable[[S, int, int], bool] = lambda sequence, pages, recent: False,
        recent: RecentMemory[S] | None = None,
    ) -> None:
        """``swaps(sequence, pages, recent)``: whether a preempted sequence that has so many pages of both pools is
        kept in ``tier``, rather than computed again. ``recent``: of a cache that keeps recent tokens apart.
        """
        self.recent = recent
        self.pool, self.content, self.tier, self.swaps = pool, content, tier, swaps
        self.tree = tree or PrefixTree(pool)

    @property
    def room(self) -> Room:
        return Room(self.pool.free_count, self.tree.evictable)

    # --- a sequence comes ----------------------------------------------------------------------------------------

    def found(self, sequence: S) -> int:
        """Tokens of the sequence that need not be computed, wherever they are; remembered while nothing changes."""
        version, tokens = sequence.found
        now = self.tree.version + (self.recent.snapshots.version if self.recent is not None else 0)
        if version != now:
            tokens = self._found(sequence)
            sequence.found = now, tokens
        return tokens

    def _found(self, sequence: S) -> int:
        if sequence.held is not None:
            return sequence.num_computed
        if sequence.namespace is None:
            return 0
        if self.recent is not None:
            hit = self.recent.look_up(sequence)
            return 0 if hit is None else hit.tokens
        return self.tree.matched(sequence.namespace, self.wanted(sequence)) * PAGE_SIZE

    def will_find(self, pages: int, other: S) -> bool:
        """Whether a text that shares so many pages with another's, when that is read, begins with them."""
        return self.recent is None or self.recent.will_find(pages * PAGE_SIZE, other)

    def open(self, sequence: S) -> None:
        """Give a sequence that holds no page those of its beginning that are on the device; :meth:`close` undoes it."""
        if sequence.held is not None or sequence.namespace is None:
            return
        if self.recent is not None:
            self.recent.open(sequence)
            return
        if self._fork(sequence):
            return
        limit, keys = self._limit(sequence), self.wanted(sequence)
        match = self.tree.match(sequence.namespace, keys, sequence.tokens[len(keys) * PAGE_SIZE : limit])
        node, pages, tokens, drafted = match.node, list(match.pages), len(match.pages) * PAGE_SIZE, match.drafted
        if match.partial is not None:
            node, more = match.partial  # locked until its page is copied
            drafted = leading(node, drafted, len(pages))
            pages.append(node.pages[0])
            tokens += more
        self.tree.lock(node)
        sequence.node, sequence.shared = node, len(match.pages)
        self.pool.retain(pages, sequence.owner)
        sequence.pages, sequence.num_computed = pages, tokens
        sequence.drafts = drafted.at_most(tokens)

    def take_less(self, sequence: S) -> bool:
        """Give up what takes a page more than it spares: one of which only a part was found; whether there was one.

        Where recent tokens are apart, it is all that was found: without it their pages can be used for rows.
        """
        if self.recent is not None and sequence.recent and sequence.held is None:
            self.close(sequence)
            return True
        if len(sequence.pages) <= sequence.shared or sequence.held is not None:
            return False
        self.shrink(sequence, sequence.shared)
        sequence.num_computed = sequence.shared * PAGE_SIZE
        sequence.drafts = sequence.drafts.at_most(sequence.num_computed)
        self._lock_no_more_than_shared(sequence)
        return True

    def _fork(self, sequence: S) -> bool:
        """Begin with the pages of another answer to the same prompt, which has read it; the last one is not full."""
        other = cast("S | None", sequence.fork_of)
        start = sequence.known - 1
        if other is None or sequence.known != sequence.prompt_length:
            return False
        if other.num_computed < start or not other.pages or other.namespace != sequence.namespace:
            return False
        self.commit(other)  # whole pages that both read are the tree's, and locked by both
        pages = other.pages[: pages_for(start)]
        if 0 in pages:
            return False
        self.pool.retain(pages, sequence.owner)
        if other.node is not None:
            self.tree.lock(other.node)
        sequence.node, sequence.shared = other.node, min(other.shared, len(pages))
        sequence.pages, sequence.num_computed = pages, start
        sequence.drafts = other.drafts.at_most(start)
        return True

    def restore(self, sequence: S) -> None:
        """Bring what a tier keeps of an opened sequence to the device. There is room for all that it knows."""
        if sequence.held is not None:
            self._swap_in(sequence)
        elif sequence.namespace is not None and self.recent is not None:
            tokens, packed = sequence.num_computed, self.recent.packed(sequence)
            self._restore(sequence, self.keys(sequence, packed))
            sequence.num_computed = tokens
            if len(sequence.pages) * PAGE_SIZE != packed:
                self.close(sequence)  # recent tokens alone are of no use
        elif sequence.namespace is not None and sequence.pending > 1:
            self._restore(sequence, self.wanted(sequence))

    def _swap_in(self, sequence: S) -> None:
        held, sequence.held = sequence.held, None
        assert held is not None
        assert self.tier is not None
        self.grow(sequence, pages_for(sequence.num_computed))
        main, recent = self.tier, self.recent
        if not (main.take(held, sequence.pages) if recent is None else recent.take(held, sequence, main)):
            sequence.num_computed, sequence.drafts = 0, Drafts()

    def _restore(self, sequence: S, keys: list[Key]) -> None:
        """What follows the matched pages in a tier below: node by node, as long as the text goes on."""
        while True:
            match = self.tree.match(sequence.namespace, keys)
            if not match.held or len(match.pages) != sequence.shared:
                return
            node = self.tree.trim(match.held[0], min(match.held_pages, len(match.held[0].keys)))
            if len(sequence.pages) > sequence.shared:  # a page that began alike gives way to whole ones
                self.shrink(sequence, sequence.shared)
            before = len(sequence.pages)
            sequence.drafts = sequence.drafts.at_most(before * PAGE_SIZE)
            self.grow(sequence, before + len(node.keys))
            if node.held is None or not self.tree.restore(node, sequence.pages[before:]):
                self.shrink(sequence, before)
                sequence.num_computed = before * PAGE_SIZE
                return
            self._share(sequence, node, len(sequence.pages))
            sequence.num_computed = len(sequence.pages) * PAGE_SIZE
            sequence.drafts = leading(node, sequence.drafts, before)

    # --- it runs -------------------------------------------------------------------------------------------------

    def ready(self, sequence: S, tokens: int) -> bool:
        """Whether the sequence can be written up to so many tokens as it is: most often it can."""
        pages, at = sequence.pages, sequence.num_computed // PAGE_SIZE
        return self.recent is None and tokens <= len(pages) * PAGE_SIZE and self.pool.refs(pages[at]) == 1

    def missing(self, sequence: S, tokens: int) -> int:
        """Pages that must be found before the sequence can be written up to so many tokens."""
        return max(0, pages_for(tokens) - len(sequence.pages)) + (1 if self._copies(sequence) else 0)

    def lacking(self, sequence: S, tokens: int, chunk: int) -> int:
        """Pages that the sequence has to find until it holds so many tokens, read in chunks: dead ones come back."""
        whole, held = pages_for(tokens), len(sequence.pages)
        most = sequence.kept_pages(tokens) + pages_for(min(chunk, sequence.longest_chunk, sequence.pending))
        if most < whole:
            whole, held = most, held - sequence.pages.count(0)
        return max(0, whole - held) + (1 if self._copies(sequence) else 0)

    def grow(self, sequence: S, pages: int) -> None:
        """Let the sequence hold so many pages. There is room."""
        more = pages - len(sequence.pages)
        if more > 0:
            sequence.pages.extend(self._take(sequence, more))

    def lacks_recent(self, sequence: S, rows: int) -> bool:
        """Whether the second pool, if there is one, has too few pages for so many more rows."""
        return self.recent is not None and self.recent.lacks(sequence, rows)

    def crowds_recent(self, sequences: Iterable[S], chunk: int) -> bool:
        """Whether the second pool, if there is one, has too few pages for all of them at their longest."""
        return self.recent is not None and self.recent.crowded(sequences, chunk)

    def grow_recent(self, sequence: S, rows: int) -> None:
        """Let the sequence hold pages for its recent tokens and so many more rows. There is room."""
        if self.recent is not None:
            self.recent.grow(sequence, rows)

    @property
    def most_rows(self) -> int:
        """Rows of one sequence that a step always has room for in the second pool."""
        return 1 << 40 if self.recent is None else self.recent.most_rows

    def own(self, sequence: S) -> None:
        """Copy the page that the next row is written to if others refer to it (copy-on-write). There is room."""
        if not self._copies(sequence):
            return
        assert self.content is not None
        at = sequence.num_computed // PAGE_SIZE
        (page,) = self._take(sequence, 1)
        self.content.copy_page(sequence.pages[at], page)
        self.pool.release([sequence.pages[at]], sequence.owner)
        sequence.pages[at] = page
        sequence.shared = min(sequence.shared, at)
        self._lock_no_more_than_shared(sequence)

    def _lock_no_more_than_shared(self, sequence: S) -> None:
        """A page that began alike was copied: let go of the node that it came from, if a node ends before it."""
        node = sequence.node
        depth = node.depth // PAGE_SIZE if node is not None else 0
        while node is not None and depth > sequence.shared:
            depth -= len(node.keys)
            node = node.parent
        if node is not None and node is not sequence.node and depth == sequence.shared:
            self._share(sequence, node, depth)

    def _copies(self, sequence: S) -> bool:
        at = sequence.num_computed // PAGE_SIZE
        return at < len(sequence.pages) and self.pool.refs(sequence.pages[at]) > 1

    def _take(self, sequence: S, pages: int) -> list[int]:
        short = pages - self.pool.free_count
        while short > 0 and self.tree.evict(max(short, EVICTED_AT_ONCE)):
            short = pages - self.pool.free_count
        return self.pool.allocate(pages, sequence.owner)

    def shrink(self, sequence: S, keep: int) -> None:
        """Give back all pages but the first ``keep``."""
        if len(sequence.pages) <= keep:
            return
        surplus = [page for page in sequence.pages[keep:] if page]
        if surplus:
            self.pool.release(surplus, sequence.owner)
        del sequence.pages[keep:]

    def shed(self, sequence: S) -> None:
        """Give back pages within the sequence that no row of it will read again; the table names page 0 there."""
        first, stop = sequence.dead_pages
        if stop > first and sequence.pages[stop - 1]:  # they die in order: else all of them have gone already
            dead = [page for page in sequence.pages[first:stop] if page]
            self.pool.release(dead, sequence.owner)
            sequence.pages[first:stop] = [0] * (stop - first)
        if self.recent is not None:
            self.recent.shed(sequence)

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, sequence: S, ended: bool = True) -> None:
        """Let the tree have the full pages that are computed; duplicates of its own are given back.

        Of recent tokens kept apart there is a snapshot where the sequence ``ended``, and where its prompt does.
        """
        final = sequence.num_computed if self.recent is None else self.recent.packed(sequence)
        self._commit(sequence, min(final, sequence.shareable) // PAGE_SIZE)
        if self.recent is None or sequence.namespace is None or not sequence.recent:
            return
        if ended or sequence.num_computed == sequence.prompt_length:
            self.recent.keep(sequence)

    def _commit(self, sequence: S, count: int) -> None:
        count = min(count, len(sequence.pages))  # of a sequence that a tier keeps, more is computed than it has here
        if sequence.namespace is None or count <= sequence.shared or 0 in sequence.pages[:count]:
            return
        keys = self.keys(sequence, count * PAGE_SIZE)
        inserted = self.tree.insert(sequence.namespace, keys, sequence.pages[:count], sequence.drafts, sequence.chat)
        for i in range(sequence.shared, count):
            mine, kept = sequence.pages[i], inserted.pages[i]
            if mine != kept:
                self.pool.retain([kept], sequence.owner)
                self.pool.release([mine], sequence.owner)
                sequence.pages[i] = kept
                sequence.drafts = sequence.drafts.at_most(i * PAGE_SIZE)
        self._share(sequence, inserted.node, count)

    def close(self, sequence: S) -> None:
        """Give everything back; nothing of the sequence is computed then."""
        self.shrink(sequence, 0)
        if sequence.held is not None and self.tier is not None:
            if self.recent is None:
                self.tier.drop(sequence.held)
            else:
                self.recent.drop(sequence.held, self.tier)
        if self.recent is not None:
            self.recent.close(sequence)
        if sequence.node is not None:
            self.tree.unlock(sequence.node)
        sequence.held = sequence.node = None
        sequence.shared = sequence.num_computed = 0
        sequence.drafts = Drafts()

    def preempt(self, sequence: S) -> None:
        """Take the sequence's pages: what they hold goes to the tier, or is computed again later (if not found)."""
        computed, drafted = sequence.num_computed, sequence.drafts
        held = self._put(sequence) if self.tier is not None else None
        if held is not None and self.recent is not None:
            drafted = drafted.at_most(self.recent.packed(sequence))
        if held is None:
            self.commit(sequence)
        self.close(sequence)
        sequence.found = -1, 0
        if held is not None:
            sequence.held, sequence.num_computed, sequence.drafts = held, computed, drafted

    def _put(self, sequence: S) -> Held | None:
        """The sequence's pages in the tier, if they are to go there and there is room."""
        assert self.tier is not None
        pages = sequence.pages[: pages_for(sequence.num_computed)]
        if self.recent is None:
            wanted = bool(pages) and 0 not in pages and self.swaps(sequence, len(pages), 0)
            return self.tier.put(pages, keep=True) if wanted else None
        pages, recent = self.recent.swapped(sequence)
        wanted = bool(recent) and self.swaps(sequence, len(pages), len(recent))
        return self.recent.put(sequence, self.tier) if wanted else None

    def _share(self, sequence: S, node: Node, pages: int) -> None:
        old = sequence.node
        self.tree.lock(node)
        if old is not None:
            self.tree.unlock(old)
        sequence.node, sequence.shared = node, pages

    def check(self, idle: bool = False) -> None:
        """Prove the books of the second pool; the others are the pool's and the tree's own. Raises AssertionError."""
        if self.recent is not None:
            self.recent.check(idle)

    # --- keys ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _limit(sequence: S) -> int:
        """Tokens that may be found: a last row must be computed, and rows that choose pages are nobody else's."""
        return min(sequence.known - 1, sequence.shareable)

    def wanted(self, sequence: S) -> list[Key]:
        """The keys of the whole pages that the sequence may find."""
        return self.keys(sequence, self._limit(sequence))

    @staticmethod
    def keys(sequence: S, tokens: int) -> list[Key]:
        """See :func:`keys_of`."""
        return keys_of(sequence, tokens)
