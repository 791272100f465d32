"""Text of a sequence as the cache knows it: what of it is computed, in which pages, and what tells it from others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from engine.cache.policies import KEEP_ALL, PagePolicy
from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.types import Key, page_keys


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
    fork_of: CachedText | None = None
    marks: Sequence[int] = ()
    wholes: Sequence[tuple[int, int]] = ()


class CachedText:
    """The first ``num_computed`` of ``tokens`` have keys and values, in ``pages`` of the ``pool``.

    The first ``shared`` pages are the tree's, a page that no row will read again is 0. ``parts`` are those of cache
    groups (`engine.cache.groups`), ``longest_chunk`` the most rows of it that one step may read. The other fields are
    those of :class:`NewSequence`.
    """

    __slots__ = (
        "__weakref__",
        "_keys",
        "chat",
        "fork_of",
        "longest_chunk",
        "marks",
        "namespace",
        "num_computed",
        "owner",
        "pages",
        "parts",
        "policy",
        "pool",
        "prompt_length",
        "shared",
        "tokens",
        "wholes",
    )
    parts: tuple[Any, ...]

    def __init__(self, sequence: NewSequence, pool: PagePool, most_rows: int) -> None:
        self.owner, self.tokens, self.policy, self.namespace, self.chat, self.fork_of, self.marks, self.wholes = (
            sequence
        )
        self.pool, self.prompt_length = pool, len(self.tokens)
        self.longest_chunk = min(self.policy.longest_chunk, most_rows)
        self.num_computed = self.shared = 0
        self.pages: list[int] = []
        self._keys: list[Key] = []

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

    def must_copy(self) -> bool:
        """Return True if others refer to the page that the next row is written to."""
        at = self.num_computed // PAGE_SIZE
        return at < len(self.pages) and self.pool.refs(self.pages[at]) > 1
