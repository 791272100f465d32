"""Split of a sequence into tokens that are packed and recent ones: functions of a row's index alone.

The row at index t reads the packed keys [0, B(t)) and the recent ones [B(t), t], where B(t) = 32 floor(max(0, t + 1 -
R) / 32) and R is `KVKind.residual`. B depends on t and R alone, so chunking, drafts and rollbacks change no row's keys.
R is at least the 64 rows of a draft tree, so every packed token was committed before the rows of the step.
"""

from __future__ import annotations

import numpy as np

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import CHANNEL_GROUP


def packed_until(index: int, residual: int) -> int:
    """B(t): how many tokens of its sequence the row at this index reads packed. -1, before the first row, gives 0."""
    return CHANNEL_GROUP * (max(0, index + 1 - residual) // CHANNEL_GROUP)


def last_before(packed: int, residual: int) -> int:
    """The most tokens of a text of which no more than the first ``packed`` are packed."""
    return packed // CHANNEL_GROUP * CHANNEL_GROUP + residual + CHANNEL_GROUP - 1


def packed_until_rows(index: np.ndarray, residual: int) -> np.ndarray:
    """`packed_until` of each index [T] int64."""
    packed: np.ndarray = CHANNEL_GROUP * (np.maximum(0, index + 1 - residual) // CHANNEL_GROUP)
    return packed


def recent_span(num_computed: int, rows: int, residual: int) -> tuple[int, int]:
    """Pages [first, stop) of a sequence's table that must name recent pages in a step of ``rows`` rows.

    ``num_computed`` tokens are committed and stored, the rows come after them. Entries before ``first`` are never
    read again, whatever of the rows is kept: their pages can be freed and the entries be 0. With ``rows`` 0 this is
    what a sequence holds between two steps, and what a swap or a kept prefix must carry.
    """
    return packed_until(num_computed - 1, residual) // PAGE_SIZE, pages_for(num_computed + rows)


def to_pack(start: int, rows: int, residual: int) -> range:
    """Tokens that a step packs when it writes the rows [start, start + rows): whole groups, perhaps none."""
    return range(packed_until(start - 1, residual), packed_until(start + rows - 1, residual))
