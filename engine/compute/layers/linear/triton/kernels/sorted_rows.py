"""Rows sorted by the expert that they ask, for the kernels that multiply each by its expert's weights.

An entry is one choice: number ``CHOICES * t + j`` is choice j of row t. ``entries [n]`` int32 are the numbers of all,
by expert and then by number. ``tiles [tiles, 4]`` int32 cut that list into runs of one expert each and at most MB
entries: the expert (-1: no run), and the places in the list where the run begins and ends (0, 0). Program (i, j)
computes run j.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sorted_rows(tiles, entries, MB: tl.constexpr, CHOICES: tl.constexpr):
    """Expert of this program's run, the places ``[MB]`` of its entries, their rows of x, and the mask of real entries.

    The row of any other entry is 0. ``CHOICES`` 0: x has a row for each place in the list.
    """
    at = tiles + tl.program_id(1) * 4
    expert = tl.load(at)
    place = tl.load(at + 1) + tl.arange(0, MB)
    used = place < tl.load(at + 2)
    if CHOICES > 0:
        row = tl.load(entries + place, mask=used, other=0) // CHOICES
    else:
        row = tl.where(used, place, 0)
    return expert, place, row, used
