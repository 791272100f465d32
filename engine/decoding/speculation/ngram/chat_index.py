"""An index for drafting from the texts of other chats: a ring buffer of their latest tokens, searched by hash chains.

Source: He et al. 2024, REST, which keeps a datastore alongside the model; hash chains over a window are those of LZ77
coders (RFC 1951, section 4). All memory is allocated up front: 16 bytes per token. A text that was not fed again within
the last ``limit`` tokens is overwritten.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence

LIMIT = 200_000
LEAST = 3
"""The shortest match that counts: fewer equal tokens in another chat's text are coincidence."""
LONGEST = 8
"""The longest match: more tokens than this are not compared."""
_LOOKS = 32
_CHATS = 256
_END = -1


class ChatIndex:
    """Finds where the last tokens of a text occur in the texts fed: the longest match, and of equal ones the latest."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._buckets = 1 << max(4, (limit // 2).bit_length())
        self._ring = array("i", [_END]) * limit
        self._before = array("q", [-1]) * limit  # the place before with the same last tokens
        self._latest = array("q", [-1]) * self._buckets
        self._written = 0
        self._fed: OrderedDict[Hashable, tuple[int, int, int]] = OrderedDict()  # (tokens, their hash, when)

    def feed(self, chat: Hashable, tokens: Sequence[int]) -> None:
        """Add a text. Where a chat continues the text that was fed before, only the new tokens are added."""
        known, value, written = self._fed.pop(chat, (0, 0, 0))
        overwritten = self._written - written > self.limit - known
        if overwritten or known > len(tokens) or hash(tuple(tokens[:known])) != value:
            known = 0
        # A few tokens before the rest, so that what joins them is found too.
        start = max(0, known - LONGEST, len(tokens) - self.limit + 1)
        if len(tokens) > known:
            self._put(_END)
            for place in range(start, len(tokens)):
                self._put(tokens[place])
                if place - start >= LEAST - 1:
                    self._enter(tokens[place - LEAST + 1 : place + 1])
        self._fed[chat] = len(tokens), hash(tuple(tokens)), self._written
        while len(self._fed) > _CHATS:
            self._fed.popitem(last=False)

    def lookup(self, tokens: Sequence[int], count: int, more_than: int = 0) -> tuple[int, ...]:
        """Up to ``count`` tokens that followed the longest match of the text's end, if longer than ``more_than``."""
        best, most = -1, max(more_than, LEAST - 1)
        if most >= LONGEST or len(tokens) < LEAST:
            return ()
        for place in self._places(tokens[-LEAST:]):
            length = self._alike(place, tokens)
            if length > most and self._at(place + 1) != _END:
                best, most = place, length
            if most == LONGEST:
                break
        found: list[int] = []
        while best >= 0 and len(found) < count:
            best += 1
            token = self._at(best)
            if token == _END:
                break
            found.append(token)
        return tuple(found)

    def _put(self, token: int) -> None:
        self._ring[self._written % self.limit] = token
        self._before[self._written % self.limit] = -1
        self._written += 1

    def _enter(self, last: Sequence[int]) -> None:
        bucket = hash(tuple(last)) % self._buckets
        place = self._written - 1
        self._before[place % self.limit] = self._latest[bucket]
        self._latest[bucket] = place

    def _places(self, last: Sequence[int]) -> Iterator[int]:
        """Places with the same hash of the last tokens, latest first."""
        place = self._latest[hash(tuple(last)) % self._buckets]
        for _ in range(_LOOKS):
            if place < 0 or place < self._written - self.limit:
                return
            yield place
            place = self._before[place % self.limit]

    def _alike(self, place: int, tokens: Sequence[int]) -> int:
        """The number of tokens, ending at ``place``, that equal the last ones of ``tokens``; at most ``LONGEST``."""
        length = 0
        most = min(LONGEST, len(tokens))
        while length < most and self._at(place - length) == tokens[-1 - length]:
            length += 1
        return length

    def _at(self, place: int) -> int:
        """The token at ``place``; ``_END`` where nothing was written or it has been overwritten."""
        if self._written - self.limit <= place < self._written and place >= 0:
            return self._ring[place % self.limit]
        return _END
