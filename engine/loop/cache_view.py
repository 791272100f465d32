"""A snapshot of the cache in compact arrays, and the messages that show it.

The engine thread makes the views (:class:`engine.loop.commands.Inspect`); turning them into messages is pure and may
happen anywhere. A view shares no memory with the engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from engine.cache.pool import PAGE_SIZE
from engine.protocol import PAGE_STATES, PageDescribed, PageMap, PageOwner, PageState, RadixTree, TreeNode

MOST_NODES = 300
"""Nodes of the prefix tree that are shown."""
MOST_OWNERS = 65_534
"""An owner takes two bytes; 0 means no owner."""
SHOWN_TOKENS = 48
"""Tokens of a node or a page whose text is shown."""

STATE: dict[PageState, int] = {state: number for number, state in enumerate(PAGE_STATES)}

Reads = Callable[[Sequence[int]], str]
"""Token ids to text."""


class PagesSnapshot(NamedTuple):
    """Every page that can be handed out, in order: place i is page i + 1 of the pool.

    states uint8 [pages] holds indices of PAGE_STATES; owners uint16 [pages] 0 for no owner, else 1 + the place in
    ``legend``, whose ``id`` is the engine's name of a request. ``swapped`` counts further pages in host memory,
    ``saved`` those in files. ``filled`` uint8 [pages]: the tokens in pages of answers, 0 for others.
    """

    states: np.ndarray
    owners: np.ndarray
    legend: tuple[PageOwner, ...] = ()
    swapped: int = 0
    saved: int = 0
    filled: np.ndarray = np.zeros(0, np.uint8)


class PageView(NamedTuple):
    """One page, still without its text and the id of the question; ``tokens`` are those that it holds."""

    described: PageDescribed
    tokens: tuple[int, ...] = ()


class TreeSnapshot(NamedTuple):
    """Nodes in any order, still without their texts; ``heads`` are the first tokens of each by its id."""

    nodes: tuple[TreeNode, ...]
    heads: Mapping[int, Sequence[int]]


class Holding(NamedTuple):
    """Pages that one owner reads, in the order of its sequence; an ``owner`` with two empty names is unknown."""

    owner: PageOwner
    pages: Sequence[int]
    state: PageState = "private"


def view(
    refs: Sequence[int],
    holdings: Sequence[Holding],
    kept: Sequence[Holding] = (),
    gone: Sequence[int] = (),
    swapped: int = 0,
    saved: int = 0,
) -> PagesSnapshot:
    """A view made from the ledger's reference counts [pages of the pool, page 0 included] and the owners' pages.

    A held page has the state that its holder gives, or "shared" where several answers hold it. ``kept`` are the prefix
    tree's pages, "cached" or "locked", with the chat that filled them; they keep this state where answers hold them
    too. ``gone`` are free pages that the tree evicted. Pages with references but without a known holder are "private"
    and have no owner.
    """
    counts = np.asarray(refs, dtype=np.int64)
    states = np.where(counts > 0, STATE["private"], STATE["free"]).astype(np.uint8)
    states[np.asarray(gone, dtype=np.int64)] = STATE["evicted"]
    owners = np.zeros(len(counts), dtype=np.uint16)
    readers = np.zeros(len(counts), dtype=np.int64)
    legend: dict[PageOwner, int] = {}

    def number(owner: PageOwner) -> int:
        if owner == PageOwner(chat="", id="") or (owner not in legend and len(legend) >= MOST_OWNERS):
            return 0
        return legend.setdefault(owner, len(legend) + 1)

    for owner, pages, state in holdings:
        place = np.unique(np.asarray(pages, dtype=np.int64))
        states[place] = STATE[state]
        readers[place] += 1
        owners[place] = np.where(owners[place] == 0, number(owner), owners[place])
    states[readers > 1] = STATE["shared"]
    for owner, pages, state in kept:
        place = np.asarray(pages, dtype=np.int64)
        states[place], owners[place] = STATE[state], number(owner)
    return PagesSnapshot(states[1:], owners[1:], tuple(legend), swapped, saved)


def page_map(seen: PagesSnapshot, name: Callable[[str], str] = str) -> PageMap:
    """The message; ``name`` turns the engine's name of a request into its client's."""
    return PageMap(
        total=len(seen.states),
        states=zlib.compress(seen.states.astype(np.uint8).tobytes(), 1),
        owners=zlib.compress(seen.owners.astype("<u2").tobytes(), 1),
        legend=[PageOwner(chat=owner.chat, id=name(owner.id)) for owner in seen.legend],
        page_tokens=PAGE_SIZE,
        swapped=seen.swapped,
        saved=seen.saved,
    )


def radix_tree(seen: TreeSnapshot, reads: Reads, most: int = MOST_NODES) -> RadixTree:
    """The message: the nodes used last and all that lead to them, parents before children, else in the view's order.

    A parent is used whenever its child is, so that the last used nodes nearly make a tree by themselves. Using a node
    does not change its place in the list, so that a person who looks at the tree finds it again.
    """
    by_id = {node.id: node for node in seen.nodes}
    shown: dict[int, TreeNode] = {}
    for node in sorted(seen.nodes, key=lambda node: (node.idle_seconds, node.id)):
        path = _path(node, by_id, shown)
        if len(shown) + len(path) <= most:
            shown.update((step.id, step) for step in path)
    ordered: dict[int, TreeNode] = {}
    for node in seen.nodes:
        if node.id in shown:
            ordered.update((step.id, step) for step in _path(node, by_id, ordered))
    return RadixTree(
        nodes=[
            structs.replace(
                node,
                parent=node.parent if node.parent in by_id else -1,
                text=reads(seen.heads[node.id][:SHOWN_TOKENS]),
            )
            for node in ordered.values()
        ],
        total_nodes=len(seen.nodes),
        total_tokens=sum(node.tokens for node in seen.nodes),
    )


def _path(node: TreeNode, by_id: Mapping[int, TreeNode], known: Mapping[int, TreeNode]) -> list[TreeNode]:
    """The node and its ancestors that are not in ``known``, from the top down."""
    path: list[TreeNode] = []
    above: TreeNode | None = node
    while above is not None and above.id not in known:
        path.append(above)
        above = by_id.get(above.parent)
    return path[::-1]


def page_described(id: str, seen: PageView, reads: Reads) -> PageDescribed:
    """The answer to :class:`engine.protocol.DescribePage` ``id``."""
    last = seen.described.first + max(0, len(seen.tokens) - 1)
    return structs.replace(seen.described, id=id, last=last, text=reads(seen.tokens))
