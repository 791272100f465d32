"""KV cache of each sequence: pages found in the prefix tree, taken from the pool, copied before a write.

The scheduler decides who runs; this decides where what runs lies. Pure but for the two calls that move content
(:class:`engine.cache.types.Content`, :class:`engine.cache.types.Tier`), which happen at once, before the step's
forward.

What layers keep beside pages is in groups (`engine.cache.groups`), any number of them: here is what they have in
common, so that all of them agree about what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.groups.base import SequencePart
from engine.cache.manager import KVCacheManager, Offload
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.text import CachedText, NewSequence
from engine.cache.types import DraftKVLengths, Key, Node, OffloadedPages, StateRun, leading


class SequenceCache(CachedText):
    """Keys and values of one sequence.

    ``parts`` are those of the manager's groups, ``more_pages`` the page tables of layer groups 1, 2, ...
    (:class:`engine.compute.batch.SequenceRows`). ``drafts`` counts what is computed for the arenas of drafters.
    ``held`` is what tiers below keep of it while it waits: of its pages, then of each part.

    Invariants: the first ``shared`` pages are the tree's, locked by ``node``; a page that others refer to is never
    written, but copied first; a page that no row will read again is 0.
    """

    __slots__ = ("_found", "drafts", "held", "manager", "more_pages", "node")
    fork_of: SequenceCache | None
    parts: tuple[SequencePart, ...]

    def __init__(self, manager: KVCacheManager, sequence: NewSequence) -> None:
        """Empty."""
        super().__init__(sequence, manager.pool, manager.most_rows)
        self.manager = manager
        self.drafts = DraftKVLengths()
        self.node: Node | None = None
        self.held: Sequence[OffloadedPages | None] | None = None
        self._found = (-1, 0)
        self.parts = tuple(group.new(self) for group in manager.groups)
        self.more_pages = tuple(part.table for part in self.parts if part.table is not None)

    @property
    def packs(self) -> bool:
        """True if a step packs what earlier steps computed, so that it is planned when those are over."""
        return self.manager.packs

    @property
    def newest_pages(self) -> list[int]:
        """The page table by which the rows of a step are written."""
        return self.more_pages[0] if self.manager.packs else self.pages

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
        tree, keys = self.manager.tree, self.keys(self.reusable)
        if not self.parts:
            return tree.matched(self.namespace, keys) * PAGE_SIZE
        return self._longest(tree.pages_of(self.namespace, keys), self.reusable)

    def _longest(self, pages: Sequence[int], tokens: int) -> int:
        """The most of the first ``tokens`` tokens, with no more than these ``pages`` (0: in a tier below), after which
        all groups can go on. Each goes back to where it can until all agree."""
        asked = -1
        tokens = tokens if self.manager.packs else min(tokens, len(pages) * PAGE_SIZE)
        while asked != tokens:
            asked = tokens
            for part in self.parts:
                tokens = part.longest(self, tokens, pages)
        return tokens

    def open(self) -> None:
        """Give a sequence that holds no page those of its beginning that are on the device; :meth:`close` undoes it."""
        if self.held is not None or self.namespace is None:
            return
        for part in self.parts:
            part.opening(self)
        if not self._fork():
            self._begin(self.reusable if self.manager.anywhere else self._look_up())

    def _begin(self, tokens: int) -> None:
        """Begin with what is on the device of the first ``tokens`` tokens. Where groups can go on at some places alone
        this is one of them, and pages in a tier below are to follow."""
        tree, limit = self.manager.tree, self.manager.packed(tokens)
        keys = self.keys(limit)
        match = tree.match(self.namespace, keys, self.identity(limit, len(keys) * PAGE_SIZE))
        node, pages, computed, drafted = match.node, list(match.pages), len(match.pages) * PAGE_SIZE, match.drafted
        if match.partial is not None and self.manager.anywhere:  # else it would count as one that is alike throughout
            node, more = match.partial  # locked until its page is copied
            drafted = leading(node, drafted, len(pages))
            pages.append(node.pages[0])
            computed += more
        tree.lock(node)
        self.node, self.shared = node, len(match.pages)
        self.pool.retain(pages, self.owner)
        self.pages, self.num_computed = pages, computed if self.manager.anywhere else tokens
        self.drafts = drafted.at_most(computed)
        if match.held:
            self._open_parts()  # what follows in a tier below decides where it goes on
        else:
            self._go_on()

    def _open_parts(self) -> None:
        for part in self.parts:
            part.open(self)

    def _go_on(self) -> None:
        """Go on from here, or from the last place before at which all groups can."""
        tokens = self._longest(self.pages, self.num_computed)
        if tokens == self.num_computed:
            self._open_parts()
            return
        self.close()
        if tokens:
            self._begin(tokens)

    def _fork(self) -> bool:
        """Begin with the pages of another answer to the same prompt, which has read it; the last one is not full."""
        other, start = self.fork_of, len(self.tokens) - 1
        if other is None or len(self.tokens) != self.prompt_length or not self.manager.anywhere:
            return False
        if other.num_computed < start or not other.pages or other.namespace != self.namespace:
            return False
        other.commit()  # whole pages that both read are the tree's, and locked by both
        pages = other.pages[: pages_for(start)]
        if 0 in pages:
            return False
        self.pool.retain(pages, self.owner)
        if other.node is not None:
            self.manager.tree.lock(other.node)
        self.node, self.shared = other.node, min(other.shared, len(pages))
        self.pages, self.num_computed = pages, start
        self.drafts = other.drafts.at_most(start)
        if self._longest(pages, start) < start:
            self.close()  # the other has gone on, and given up what this one would read
            return False
        self._open_parts()
        return True

    def take_less(self) -> bool:
        """Give up what takes more room than it spares: a page of which only a part was found, or all that was found
        where that takes what rows need; whether there was something."""
        if self.held is not None:
            return False
        if any(part.crowds() for part in self.parts):
            self.close()
            return True
        if len(self.pages) <= self.shared:
            return False
        self.shrink(self.shared)
        self.num_computed = self.shared * PAGE_SIZE
        self.drafts = self.drafts.at_most(self.num_computed)
        self._lock_no_more_than_shared()
        self._go_on()
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

    def _restore(self) -> None:
        manager, before, goal = self.manager, self.shared, self.num_computed
        if manager.anywhere:
            goal = manager.tree.matched(self.namespace, self.keys(self.reusable)) * PAGE_SIZE
        if not goal or (self.pending <= 1 and manager.anywhere):
            return
        self._restore_pages(self.keys(manager.packed(goal)), goal)
        for part in self.parts:
            part.filled(self, before)
        self.num_computed = self.num_computed if manager.anywhere else goal
        self._go_on()
        if not all(part.restore(self) for part in self.parts):
            self.close()

    def _restore_pages(self, keys: list[Key], goal: int) -> None:
        """Bring back the nodes in a tier below that follow the matched pages, one by one, as long as the text goes
        on to its ``goal`` in tokens."""
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
            for part in self.parts:
                part.grown(self, before, goal)
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
        for part in self.parts:
            if not part.fits(self, rows):
                return False
        tokens, pages, at = self.num_computed + rows, self.pages, self.num_computed // PAGE_SIZE
        if tokens <= len(pages) * PAGE_SIZE and self.pool.refs(pages[at]) == 1:
            return True  # the usual case: neither new pages nor a copy
        return max(0, pages_for(tokens) - len(pages)) + self.must_copy() <= self.manager.room

    def allocate(self, rows: int) -> None:
        """Hold pages of its own for ``rows`` more rows: what others refer to is copied. There is room."""
        if self.must_copy():
            self._own()
        pages = pages_for(self.num_computed + rows)
        if pages > len(self.pages):
            self._grow(pages)
        for part in self.parts:
            part.allocate(self, rows)

    def reserve(self, tokens: int) -> None:
        """Hold pages for ``tokens`` tokens. There is room."""
        self._grow(pages_for(tokens))

    def lacking(self, tokens: int, chunk: int) -> int:
        """Pages still needed to hold ``tokens`` tokens; read in chunks, dead pages are used again."""
        whole, held = pages_for(tokens), len(self.pages)
        kept = self.policy.kept_pages(tokens)
        if kept < whole and (most := kept + pages_for(min(self.chunk(chunk), self.pending))) < whole:
            whole, held = most, held - self.pages.count(0)
        return max(0, whole - held) + self.must_copy()

    def _own(self) -> None:
        """Copy the page that the next row is written to, to which others refer (copy-on-write)."""
        assert self.manager.content is not None
        at = self.num_computed // PAGE_SIZE
        (page,) = self.manager.take(self.owner, 1)
        self.manager.content.copy_page(self.pages[at], page)
        self.pool.release([self.pages[at]], self.owner)
        self.pages[at] = page
        for part in self.parts:
            part.copied(self, at)
        self.shared = min(self.shared, at)
        self._lock_no_more_than_shared()

    def _grow(self, pages: int) -> None:
        more = pages - len(self.pages)
        if more > 0:
            self.pages.extend(self.manager.take(self.owner, more))

    def shrink(self, keep: int) -> None:
        """Give back all pages but the first ``keep``."""
        if len(self.pages) > keep:
            for part in self.parts:
                part.shrink(self, keep)
            self.pool.release([page for page in self.pages[keep:] if page], self.owner)
            del self.pages[keep:]

    def runs(self, drafts: int) -> tuple[StateRun, ...]:
        """Runs that advance a state in the planned step, before ``drafts`` draft tokens; () if there is none."""
        for part in self.parts:
            if found := part.runs(self, drafts):
                return found
        return ()

    def take_replays(self) -> tuple[StateRun, ...]:
        """Take the runs that advance a state over draft tokens accepted in this step; () if there are none."""
        for part in self.parts:
            if found := part.take_replays(self):
                return found
        return ()

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more as computed and stored in its pages: the known rows of a step first, then accepted
        draft tokens."""
        for part in self.parts:
            part.advance(self, tokens)
        self.num_computed += tokens

    def stop_sharing(self) -> None:
        """Let no other sequence reuse what this one computes from now on, nor this one reuse what others have."""
        self.namespace = None

    def shed(self) -> None:
        """Give back pages within the sequence that no row of it will read again."""
        first, stop = self.dead_pages
        if stop > first and self.pages[stop - 1]:  # they die in order: else all of them have gone already
            dead = [page for page in self.pages[first:stop] if page]
            self.pool.release(dead, self.owner)
            self.pages[first:stop] = [0] * (stop - first)
        for part in self.parts:
            part.shed(self)

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
        """Let the tree have the full pages that are computed, and groups keep what goes with them. ``ended``: no more
        will be."""
        before = self.shared
        self._commit(self.manager.packed(self.num_computed))
        for part in self.parts:
            part.commit(self, before, ended)

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
                for part in self.parts:
                    part.replaced(self, i, kept)
                pool.retain([kept], self.owner)
                pool.release([mine], self.owner)
                self.pages[i] = kept
                self.drafts = self.drafts.at_most(i * PAGE_SIZE)
        self._share(inserted.node, count)

    def last_kept(self) -> int:
        """The most of its tokens, whole pages, after which all groups have kept what it takes to go on; or 0."""
        self.commit()
        tokens = self._longest(self.pages, min(self.num_computed, self.shareable) // PAGE_SIZE * PAGE_SIZE)
        return tokens if tokens % PAGE_SIZE == 0 else 0

    def close(self) -> None:
        """Give everything back; nothing of the sequence is computed then."""
        self.shrink(0)
        for part in self.parts:
            part.close(self)
        if self.held is not None:
            self._drop(self.held)
        if self.node is not None:
            self.manager.tree.unlock(self.node)
        self.held = self.node = None
        self.shared = self.num_computed = 0
        self.drafts = DraftKVLengths()

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

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def offloaded(self) -> list[Offload | None] | None:
        """Copies that tiers keep: of its pages, then of each part, None where that has nothing. None: it cannot go."""
        count = pages_for(self.manager.packed(self.num_computed))
        found: list[Offload | None] = []
        for tier, pages in (
            (self.manager.tier, self.pages[:count]),
            *((group.tier, part.offloaded(self)) for group, part in zip(self.manager.groups, self.parts, strict=True)),
        ):
            if pages and (tier is None or 0 in pages):
                return None
            found.append(Offload(tier, pages) if tier is not None and pages else None)
        return found

    def _put(self) -> tuple[Sequence[OffloadedPages | None], DraftKVLengths] | None:
        """Keep what is computed in the tiers, if it is to go there and there is room; what of it drafters have."""
        parts = self.offloaded()
        wanted = [part for part in parts or () if part is not None]
        if parts is None or not wanted or not self.manager.swaps(self, wanted):
            return None
        held: list[OffloadedPages | None] = []
        for part in parts:
            held.append(None if part is None else part.tier.put(part.pages, keep=True))
            if part is not None and held[-1] is None:
                self._drop(held)
                return None
        return held, self.drafts.at_most(self.manager.packed(self.num_computed))

    def _take(self, held: Sequence[OffloadedPages | None]) -> bool:
        """Bring back what :meth:`_put` kept; there are pages for it. False: it is lost."""
        if all(part.prepare(self) for part in self.parts):
            pairs = zip(self.offloaded() or (), held, strict=True)
            found = [part.tier.take(each, part.pages) for part, each in pairs if part is not None and each is not None]
            if all(part.filled(self, 0) for part in self.parts) and all(found):
                return True
        else:
            self._drop(held)
        for part in self.parts:
            part.close(self)
        return False

    def _drop(self, held: Sequence[OffloadedPages | None]) -> None:
        tiers = [self.manager.tier, *(group.tier for group in self.manager.groups)]
        for tier, each in zip(tiers, held, strict=False):  # fewer where room ended
            if tier is not None and each is not None:
                tier.drop(each)
