"""A prefix tree over pages whose content is remembered, and a tier that can be small, lossy or absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.prefix.radix import PrefixTree
from engine.cache.types import DraftKVLengths, Inserted, Key, OffloadedPages, page_keys

Text = tuple[int, ...]
"""Of one letter a page: its sixteen tokens are all that letter, but for ``shown``."""


def tokens(text: Sequence[int]) -> list[int]:
    return [letter for letter in text for _ in range(PAGE_SIZE)]


def keys(text: Sequence[int]) -> list[Key]:
    return page_keys(tokens(text))


@dataclass(eq=False)
class Kept:
    content: list[object]
    place: str = "host"


class FakeTier:
    """Keeps at most so many pages; what is oldest goes first."""

    def __init__(self, content: dict[int, object], room: int, loses: bool = False) -> None:
        self.content, self.room, self.loses = content, room, loses
        self.dropped: Callable[[OffloadedPages], None] = lambda held: None
        self.kept: dict[Kept, None] = {}

    @property
    def used(self) -> int:
        return sum(len(kept.content) for kept in self.kept)

    def put(self, pages: Sequence[int], keep: bool = False) -> Kept | None:
        if len(pages) > self.room:
            return None
        while self.used + len(pages) > self.room:
            oldest = next(iter(self.kept))
            del self.kept[oldest]
            self.dropped(oldest)
        kept = Kept([self.content[page] for page in pages])
        self.kept[kept] = None
        return kept

    def split(self, held: OffloadedPages, pages: int) -> tuple[Kept, Kept]:
        assert isinstance(held, Kept)
        parts = Kept(held.content[:pages], held.place), Kept(held.content[pages:], held.place)
        if held in self.kept:
            self.kept = {each: None for old in self.kept for each in (parts[::-1] if old is held else (old,))}
        return parts

    def take(self, held: OffloadedPages, pages: Sequence[int]) -> bool:
        assert isinstance(held, Kept)
        assert held.place == "disk" or held in self.kept, "taken twice, or never put"
        self.kept.pop(held, None)
        if self.loses:
            return False
        self.content.update(zip(pages, held.content, strict=True))
        return True

    def drop(self, held: OffloadedPages) -> None:
        assert isinstance(held, Kept)
        assert held.place == "disk" or held in self.kept, "dropped twice, or never put"
        self.kept.pop(held, None)


class Library:
    """A tree, and what each page holds: the text up to its end."""

    def __init__(self, pages: int = 200, host: int | None = None, loses: bool = False) -> None:
        self.pool = PagePool(pages)
        self.content: dict[int, object] = {}
        self.tier = FakeTier(self.content, host, loses) if host is not None else None
        self.time = 0.0
        self.tree = PrefixTree(self.pool, self.clock, self.tier)
        self.owners = 0

    def clock(self) -> float:
        self.time += 1.0
        return self.time

    def write(self, text: Text, namespace: str = "") -> tuple[str, list[int]]:
        """Fresh pages with the text, and who holds them."""
        self.owners += 1
        owner = f"owner {self.owners}"
        pages = self.pool.allocate(len(text), owner)
        for i, page in enumerate(pages):
            self.content[page] = (namespace, text[: i + 1])
        return owner, pages

    def insert(self, text: Text, namespace: str = "", drafted: int = 0, chat: str = "") -> Inserted:
        """Keep a text that somebody computed and then let go of."""
        owner, pages = self.write(text, namespace)
        inserted = self.tree.insert(namespace, keys(text), pages, DraftKVLengths(drafted), chat)
        self.pool.release_all(owner)
        self.check()
        return inserted

    def adopt(self, text: Text, namespace: str = "") -> None:
        """Know of a text on the disk."""

        def held(first: int, stop: int) -> Kept:
            return Kept([(namespace, text[: i + 1]) for i in range(first, stop)], "disk")

        self.tree.adopt(namespace, keys(text), held)
        self.check()

    def found(self, text: Text, namespace: str = "") -> int:
        """Pages on the device, whose content is proved."""
        match = self.tree.match(namespace, keys(text))
        self.check()
        for i, page in enumerate(match.pages):
            assert self.content[page] == (namespace, text[: i + 1]), "a page holds another text"
        return len(match.pages)

    def check(self) -> None:
        self.pool.check()
        self.tree.check()
        if self.tier is not None:
            held = {node.held for node in self.tree.nodes() if node.held is not None and node.held.place == "host"}
            assert held == set(self.tier.kept), "the tier keeps what nobody knows of, or the other way round"
            for node in self.tree.nodes():
                if node.held is not None:
                    assert isinstance(node.held, Kept)
                    assert len(node.held.content) == len(node.keys)
