"""The types of the prefix tree: keys of pages, nodes, the tiers below the device; and runs of states."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from engine.cache.pool import PAGE_SIZE

TREE = "prefix tree"
"""The tree's name in the ledger."""
T = TypeVar("T")
Key = bytes
"""The tokens of one page. Bytes remember their hash, so that a second look-up costs no second hashing."""


def page_keys(tokens: Sequence[int], start: int = 0) -> list[Key]:
    """The keys of the whole pages of a text, from page ``start`` on."""
    whole = len(tokens) // PAGE_SIZE * PAGE_SIZE
    data = array("i", tokens[start * PAGE_SIZE : whole]).tobytes()
    size = PAGE_SIZE * array("i").itemsize
    return [data[i : i + size] for i in range(0, len(data), size)]


def tokens_of(key: Key) -> list[int]:
    """The tokens of a key."""
    return array("i", key).tolist()


class Content(Protocol):
    """Content of pages, in every arena."""

    def copy_page(self, src: int, dst: int) -> None:
        """Copy one page."""


class OffloadedPages(Protocol):
    """Pages kept in a tier below, in order."""

    @property
    def place(self) -> str:
        """Name of the tier: "host" or "disk"."""


class Tier(Protocol):
    """Keeps what pages held when the device has no room for them."""

    dropped: Callable[[OffloadedPages], None]
    """Called when the tier gives something up of its own accord."""

    def size(self, pages: int) -> tuple[int, int]:
        """Bytes of ``pages`` pages, and those that they take here."""

    def put(self, pages: Sequence[int], keep: bool = False) -> OffloadedPages | None:
        """Keep the content of the pages; None where there is no room. ``keep``: it is never given up."""

    def split(self, held: OffloadedPages, pages: int) -> tuple[OffloadedPages, OffloadedPages]:
        """Split into two, the first with ``pages`` pages."""

    def take(self, held: OffloadedPages, pages: Sequence[int]) -> bool:
        """Bring the content back into pages of the device and forget it; False: it is lost."""

    def drop(self, held: OffloadedPages) -> None:
        """Forget the content."""


class StateRun(NamedTuple):
    """``rows`` rows of a sequence that follow each other, as layers with states see them
    (`engine.cache.stores.states`).

    They go on from the state in slot ``source`` (0: the beginning of a text), and the state after them is written to
    slot ``target``; 0: it is not, because the rows are draft tokens.
    """

    rows: int
    source: int
    target: int

    @classmethod
    def alone(cls, rows: int, start: int, slot: int = 1) -> tuple[StateRun]:
        """The run of a sequence that nobody shares and nothing is drafted for, from place ``start`` on, with its
        state always in one slot."""
        return (cls(rows, slot if start else 0, slot),)


class DraftKVLengths(NamedTuple):
    """The number of leading tokens of a text that the drafters' arenas hold: that of a draft ``model``, and that of a
    ``head`` that reads the target's states."""

    model: int = 0
    head: int = 0

    def at_most(self, tokens: int) -> DraftKVLengths:
        return DraftKVLengths(min(self.model, tokens), min(self.head, tokens))

    def flags(self, tokens: int) -> int:
        """Bits that say which arenas hold the first ``tokens`` tokens: 1 for ``model``, 2 for ``head``."""
        return (self.model >= tokens) | (self.head >= tokens) << 1


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """A run of pages after those of its parent: in the device's ``pages``, or ``held`` by a tier below.

    Below a held node all are held. ``locks`` counts the sequences that read it or what follows it. ``drafted[i]`` are
    :meth:`DraftKVLengths.flags`: which other arenas hold page i too.
    """

    id: int
    parent: Node | None
    keys: list[Key]
    pages: list[int]
    drafted: bytearray
    children: dict[Key, Node] = field(default_factory=dict)
    held: OffloadedPages | None = None
    locks: int = 0
    hits: int = 0
    order: int = 0
    used_at: float = 0.0
    chat: str = ""

    def path(self) -> Iterator[Node]:
        """This node and those above it, without the root."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    @property
    def depth(self) -> int:
        """Tokens from the root to the end of this node."""
        return sum(len(node.keys) for node in self.path()) * PAGE_SIZE


class Match(NamedTuple):
    """Longest match of a text in the tree. ``node`` ends with the last of ``pages``.

    ``held`` are the nodes that follow in a tier below, in order, the last of them perhaps longer than the match.
    ``partial``: a child of ``node`` and the number of the text's next tokens that its first page begins with.
    """

    node: Node
    pages: list[int]
    drafted: DraftKVLengths
    held: list[Node]
    held_pages: int
    partial: tuple[Node, int] | None


class Inserted(NamedTuple):
    """``pages`` are the tree's pages of the text: where they differ from those given, the given ones are duplicates."""

    node: Node
    pages: list[int]


def common(keys: Sequence[T], text: Sequence[T], at: int = 0) -> int:
    """Number of first keys (or tokens) that agree with the text from its place ``at`` on."""
    n = min(len(keys), len(text) - at)
    if keys[:n] == text[at : at + n]:
        return n
    return next(i for i in range(n) if keys[i] != text[at + i])


def leading(node: Node, drafted: DraftKVLengths, before: int) -> DraftKVLengths:
    """Tokens from the beginning of the text that other arenas have, after another node, the text's page ``before``."""

    def after(known: int, bit: int) -> int:
        if known < before * PAGE_SIZE:
            return known
        missing = next((i for i, flags in enumerate(node.drafted) if not flags & bit), len(node.drafted))
        return (before + missing) * PAGE_SIZE

    return DraftKVLengths(after(drafted.model, 1), after(drafted.head, 2))
