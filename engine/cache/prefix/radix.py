"""The prefix tree: which pages hold which text, so that a text that begins alike is not read again.

RadixAttention (Zheng et al. 2023, arXiv 2312.07104). An edge is a run of whole pages; two texts
share the pages of their common beginning. Keys of different namespaces (cache kind, page policy, arithmetic) never
meet. Pages that no sequence reads are given up when room is needed, leaves first, those used longest ago before
others; a tier below (host memory, files) may keep what they held. It knows page numbers and tokens, no tensors.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable, Iterator, Sequence

from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.types import (
    TREE,
    DraftKVLengths,
    Inserted,
    Key,
    Match,
    Node,
    OffloadedPages,
    Tier,
    common,
    leading,
    tokens_of,
)


class PrefixTree:
    """Owns one reference to each of its pages in the pool. Not thread-safe."""

    def __init__(self, pool: PagePool, clock: Callable[[], float] = time.monotonic, tier: Tier | None = None) -> None:
        self.pool, self.tier, self._clock = pool, tier, clock
        self.roots: dict[Hashable, Node] = {}
        self.version = 0  # changes with every page that comes or goes
        self.pages = self.evictable = self.evicted = 0
        self.gone: set[int] = set()  # pages given up, until they are used again: only shown
        self.freed: Callable[[Sequence[int]], None] = lambda pages: None  # called before pages are given up
        self._ids = 0
        self._order = 0
        self._leaves: list[tuple[int, int, Node]] = []  # a heap with stale entries, see _offer
        self._most_entries = 64
        self._holders: dict[OffloadedPages, Node] = {}
        if tier is not None:
            tier.dropped = self._lost

    # --- looking up ----------------------------------------------------------------------------------------------

    def matched(self, namespace: Hashable, keys: Sequence[Key]) -> int:
        """Number of leading ``keys`` whose pages the tree has, in any tier. Changes nothing."""
        node = self.roots.get(namespace)
        count = 0
        while node is not None and count < len(keys):
            node = node.children.get(keys[count])
            if node is not None:
                shared = common(node.keys, keys, count)
                count += shared
                if shared < len(node.keys):
                    break
        return count

    def pages_of(self, namespace: Hashable, keys: Sequence[Key]) -> list[int]:
        """Page numbers of the leading ``keys`` that the tree has, 0 for each in a tier below. Changes nothing."""
        node, pages = self.roots.get(namespace), list[int]()
        while node is not None and len(pages) < len(keys):
            node = node.children.get(keys[len(pages)])
            if node is not None:
                shared = common(node.keys, keys, len(pages))
                pages += node.pages[:shared] or [0] * shared
                if shared < len(node.keys):
                    break
        return pages

    def match(self, namespace: Hashable, keys: Sequence[Key], tail: Sequence[int] = ()) -> Match:
        """The longest beginning of a text: its whole pages, then ``tail`` tokens that fill no page or are not asked.

        A node is split where the text leaves it. The nodes count as used now.
        """
        node = self._root(namespace)
        pages: list[int] = []
        held: list[Node] = []
        drafted = DraftKVLengths()
        count = held_pages = 0
        while count < len(keys):
            child = node.children.get(keys[count])
            if child is None:
                break
            shared = common(child.keys, keys, count)
            if child.held is None:
                if shared < len(child.keys):
                    child = self._split(child, shared)
                drafted = leading(child, drafted, len(pages))
                pages += child.pages
            else:
                held.append(child)
                held_pages += shared
            self._touch(child)
            count += shared
            node = child
            if child.held is not None and shared < len(child.keys):
                break
        last = held[0].parent if held else node
        assert last is not None
        partial = None if held else self._partial(node, keys, count, tail)
        return Match(last, pages, drafted, held, held_pages, partial)

    def _partial(self, node: Node, keys: Sequence[Key], count: int, tail: Sequence[int]) -> tuple[Node, int] | None:
        """The child page that shares the most of what follows; a few children are looked at, no more."""
        wanted = tokens_of(keys[count]) if count < len(keys) else list(tail[:PAGE_SIZE])
        best: tuple[Node, int] | None = None
        for _, child in zip(range(64), node.children.values(), strict=False):
            if child.held is not None or not wanted:
                continue
            n = common(tokens_of(child.keys[0]), wanted)
            if n and (best is None or n > best[1]):
                best = child, n
        if best is not None:
            self._touch(best[0])
        return best

    # --- locks ---------------------------------------------------------------------------------------------------

    def lock(self, node: Node) -> None:
        """A sequence reads the node's pages and those before them."""
        for each in node.path():
            if each.locks == 0 and each.held is None:
                self.evictable -= len(each.pages)
            each.locks += 1

    def unlock(self, node: Node) -> None:
        """It reads them no more."""
        for each in node.path():
            each.locks -= 1
            if each.locks == 0 and each.held is None:
                self.evictable += len(each.pages)
                self._offer(each)

    # --- coming and going ----------------------------------------------------------------------------------------

    def insert(
        self,
        namespace: Hashable,
        keys: Sequence[Key],
        pages: Sequence[int],
        drafted: DraftKVLengths = DraftKVLengths(),
        chat: str = "",
    ) -> Inserted:
        """Keep these pages of a text from its beginning on; ``drafted`` says how far other arenas have their part.

        The tree takes a reference of its own to pages that are new to it.
        """
        node = self._root(namespace)
        kept: list[int] = []
        while len(kept) < len(keys):
            at = len(kept)
            child = node.children.get(keys[at])
            if child is None:
                flags = bytearray(drafted.flags((i + 1) * PAGE_SIZE) for i in range(at, len(keys)))
                child = self._new(node, list(keys[at:]), list(pages[at : len(keys)]), flags)
                self._account(child)
            else:
                shared = common(child.keys, keys, at)
                if shared < len(child.keys):
                    child = self._split(child, shared)
                if child.held is not None:
                    child.drafted = bytearray(shared)
                    self._bring(child, list(pages[at : at + shared]))
                for i in range(shared):
                    if child.pages[i] == pages[at + i]:
                        child.drafted[i] |= drafted.flags((at + i + 1) * PAGE_SIZE)
            child.chat = chat or child.chat
            self._touch(child)
            kept += child.pages
            node = child
        return Inserted(node, kept)

    def adopt(self, namespace: Hashable, keys: Sequence[Key], held: Callable[[int, int], OffloadedPages]) -> None:
        """Know of a text that a tier holds: ``held(first, stop)`` are those of its pages that the tree lacks."""
        node, at = self._root(namespace), 0
        while at < len(keys):
            child = node.children.get(keys[at])
            if child is None:
                node = self._new(node, list(keys[at:]), [], bytearray(len(keys) - at))
                self._hold(node, held(at, len(keys)))
                self._touch(node)
                return
            shared = common(child.keys, keys, at)
            at += shared
            node = self._split(child, shared) if shared < len(child.keys) and at < len(keys) else child

    def restore(self, node: Node, pages: list[int]) -> bool:
        """Bring a held node, whose parent is on the device, into these pages, of which the tree takes a reference.

        False where the tier has lost it: the node is gone then, and what follows it.
        """
        held = node.held
        assert held is not None
        assert self.tier is not None
        self._let_go(node)
        if not self.tier.take(held, pages):
            self._remove(node)
            return False
        self._bring(node, pages)
        self._touch(node)
        return True

    def trim(self, node: Node, pages: int) -> Node:
        """Split a held node so that it ends after ``pages`` pages; returns its first part."""
        return self._split(node, pages) if pages < len(node.keys) else node

    def evict(self, pages: int) -> int:
        """Evict at least ``pages`` pages that no sequence reads, or all of those; returns the number evicted."""
        freed = 0
        while freed < pages and self._leaves:
            order, _, node = heapq.heappop(self._leaves)
            if order != node.order or not self._is_leaf(node):
                continue
            if len(node.pages) > pages - freed:
                self._split(node, len(node.pages) - (pages - freed))
            freed += len(node.pages)
            self._give_up(node)
        self.evicted += freed
        return freed

    def forget(self, chat: str) -> None:
        """Drop, in every tier, the nodes that this chat read last, except those that are in use or have children."""
        for node in reversed(list(self.nodes())):
            if node.chat != chat:
                continue
            if node.locks or node.children:  # it is theirs now, and goes with the last of them
                node.chat = next((child.chat for child in node.children.values()), "")
                continue
            parent = node.parent
            assert parent is not None
            self._free(node)
            self._remove(node)
            self._offer(parent)

    def _give_up(self, node: Node) -> None:
        """A leaf of the device loses its pages; a tier below may keep what they held."""
        parent = node.parent
        assert parent is not None
        held = self.tier.put(node.pages) if self.tier is not None else None
        self.gone.update(node.pages)
        self._free(node)
        self.version += 1
        if held is not None:
            self._hold(node, held)
        else:
            self._remove(node)
        self._offer(parent)

    def _free(self, node: Node) -> None:
        self.freed(node.pages)
        self.pool.release(node.pages, TREE)
        self.pages -= len(node.pages)
        self.evictable -= len(node.pages)
        node.pages = []

    def _bring(self, node: Node, pages: list[int]) -> None:
        """A node is on the device from now on."""
        held = self._let_go(node)
        if held is not None and self.tier is not None:
            self.tier.drop(held)
        node.pages = pages
        self._account(node)

    def _account(self, node: Node) -> None:
        self.pool.retain(node.pages, TREE)
        self.pages += len(node.pages)
        self.evictable += len(node.pages) if node.locks == 0 else 0
        self.version += 1

    def _hold(self, node: Node, held: OffloadedPages) -> None:
        node.held = held
        self._holders[held] = node
        self.version += 1

    def _let_go(self, node: Node) -> OffloadedPages | None:
        held, node.held = node.held, None
        if held is not None:
            del self._holders[held]
        return held

    def _lost(self, held: OffloadedPages) -> None:
        """The tier gave up what a node held: the node goes, and what follows it."""
        node = self._holders.get(held)
        if node is not None:
            self._let_go(node)
            self._remove(node)

    def _remove(self, node: Node) -> None:
        """Forget a node without pages and all below it, which have none either."""
        stack = [node]
        while stack:
            each = stack.pop()
            stack.extend(each.children.values())
            each.children = {}
            held = self._let_go(each)
            if held is not None and self.tier is not None:
                self.tier.drop(held)
        if node.parent is not None and node.parent.children.get(node.keys[0]) is node:
            del node.parent.children[node.keys[0]]
        self.version += 1

    def _split(self, node: Node, pages: int) -> Node:
        """Split a node after ``pages`` pages: a new parent takes the first part. Returns that parent."""
        parent = node.parent
        assert parent is not None
        assert 0 < pages < len(node.keys)
        first = self._new(parent, node.keys[:pages], node.pages[:pages], node.drafted[:pages])
        first.locks, first.hits, first.chat = node.locks, node.hits, node.chat
        first.order, first.used_at = node.order, node.used_at
        held = self._let_go(node)
        if held is not None and self.tier is not None:
            parts = self.tier.split(held, pages)
            self._hold(first, parts[0])
            self._hold(node, parts[1])
        node.parent = first
        node.keys, node.pages, node.drafted = node.keys[pages:], node.pages[pages:], node.drafted[pages:]
        first.children[node.keys[0]] = node
        return first

    # --- order ---------------------------------------------------------------------------------------------------

    def _touch(self, node: Node) -> None:
        self._order += 1
        node.order, node.used_at = self._order, self._clock()
        self._offer(node)

    def _offer(self, node: Node) -> None:
        """Put a node that may be evicted into the heap; older entries of it are stale by their order."""
        if not self._is_leaf(node):
            return
        heapq.heappush(self._leaves, (node.order, node.id, node))
        if len(self._leaves) > self._most_entries:
            leaves = {each.id: each for _, _, each in self._leaves if self._is_leaf(each)}
            self._leaves = [(each.order, each.id, each) for each in leaves.values()]
            heapq.heapify(self._leaves)
            self._most_entries = 64 + 4 * len(self._leaves)

    @staticmethod
    def _is_leaf(node: Node) -> bool:
        """Return True if the node can be evicted from the device: it holds pages there, is neither a root nor locked,
        and its children are all in a tier below."""
        return (
            node.parent is not None
            and node.locks == 0
            and bool(node.pages)
            and all(child.held is not None for child in node.children.values())
        )

    def _root(self, namespace: Hashable) -> Node:
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Node(0, None, [], [], bytearray())
        return root

    def _new(self, parent: Node, keys: list[Key], pages: list[int], drafted: bytearray) -> Node:
        self._ids += 1
        node = Node(self._ids, parent, keys, pages, drafted)
        parent.children[keys[0]] = node
        return node

    # --- looking at it -------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, parents before children, and children in the order in which they came."""
        stack = list(reversed(self.roots.values()))
        while stack:
            node = stack.pop()
            if node.parent is not None:
                yield node
            stack.extend(reversed(node.children.values()))

    def check(self) -> None:
        """Prove that the tree's books agree with themselves and with the ledger. Raises AssertionError."""
        pages: list[int] = []
        evictable = 0
        heap = {(order, id) for order, id, _ in self._leaves}
        for node in self.nodes():
            parent = node.parent
            assert parent is not None
            assert node.keys, "a node is empty"
            assert parent.children.get(node.keys[0]) is node, "a child is not where its key says"
            assert len(node.drafted) == len(node.keys)
            assert (node.held is None) == (len(node.pages) == len(node.keys)), "a node is neither here nor there"
            assert node.held is None or not node.pages
            assert parent.held is None or node.held is not None, "below a held node one is on the device"
            assert node.locks >= sum(child.locks for child in node.children.values()), "locks do not add up"
            assert node.locks == 0 or node.held is None, "a held node is locked"
            assert not self._is_leaf(node) or (node.order, node.id) in heap, "a leaf cannot be found for eviction"
            pages += node.pages
            evictable += len(node.pages) if node.locks == 0 else 0
        held = {node.held: node for node in self.nodes() if node.held is not None}
        assert held == self._holders, "what is held is not known"
        assert len(set(pages)) == len(pages), "a page is in two nodes"
        assert sorted(pages) == sorted(self.pool.owned_by(TREE)), "the tree and the ledger disagree"
        assert (len(pages), evictable) == (self.pages, self.evictable), "pages are counted wrongly"
