"""Memory layout of a layer's keys and values, and the slots that a step's rows are written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

PLAIN_KINDS = ("dense", "latent", "wide")
"""The kinds of `PackedKV` whose elements are numbers as they are."""
PACKED_KINDS = ("int8", "fp8", "int4", "kivi")
"""Kinds whose elements are codes (`engine.cache.stores.codecs`)."""
BYTE_KINDS = ("int8", "fp8")
"""Kinds of a byte an element, with a scale for each token and head."""
CHANNEL_GROUP = 32
"""Tokens (two pages) that share a scale where keys are packed along channels, kind "kivi"."""


PageTables = Sequence[Sequence[Sequence[int]]]
"""The pages of sequence s in layer group g: `tables[g][s]`."""


class PackedKV(NamedTuple):
    """Arenas of one layer: k [pages * 16, H_kv, *] and v [pages * 16, H_kv, *], numbers or codes by kind.

    "dense": numbers as written, each contiguous. "latent": v is the first d_v columns of k. "wide": both are views
    whose last dimension is contiguous, and what follows each head's values in memory is finite and may be read along
    with them, up to d_k columns.

    "int8": k int8 [slots, H_kv, d], k_meta float16 [slots, H_kv]; a number is code * scale. v alike.

    "fp8": the same, and a code's bits are those of a float8_e4m3fn (1, 4 and 3 bits; up to 448).

    "int4": k uint8 [slots, H_kv, d / 2], k_meta float16 [slots, H_kv, d / G, 2], the scale and the minimum of G
    neighbouring channels; a number is code * scale + minimum. v alike. G is `value_group(d)`.

    "kivi": k uint8 [slots, H_kv, d * k_bits / 8] in groups of 32 tokens, which are two pages that follow each other in
    a sequence, the first of an even index. k_meta float16 [pages, H_kv, d] holds the scale of each channel at the
    even page and its minimum at the odd one. v as in "int4", with v_bits. A sequence's last tokens are not in these
    arenas but in `recent`, dense, under the pages of the batch's group 1.

    `bounds` [pages, H_kv, 2 * d], where a store keeps them: of each channel the least of a page's 16 keys, then, after
    all of these, the greatest (engine/cache/techniques/quest/store.py).

    Codes of b bits: a head's d channels are 8 / b planes, one after the other, and byte j holds channel j of every
    plane, the first plane in its lowest bits.
    """

    k: Tensor
    v: Tensor
    kind: str = "dense"
    k_meta: Tensor | None = None
    v_meta: Tensor | None = None
    k_bits: int = 16
    v_bits: int = 16
    recent: PackedKV | None = None
    bounds: Tensor | None = None

    @property
    def granule(self) -> int:
        """Reads start at a multiple of this many tokens: the size of the groups whose keys share scales, else 1."""
        return CHANNEL_GROUP if self.kind == "kivi" else 1

    @property
    def kv_heads(self) -> int:
        return self.k.shape[1]

    @property
    def k_dim(self) -> int:
        """Elements of a head's key."""
        return self.k.shape[2] * (8 // self.k_bits if self.k_bits < 8 else 1)

    @property
    def v_dim(self) -> int:
        """Elements of a head's value."""
        return self.v.shape[2] * (8 // self.v_bits if self.v_bits < 8 else 1)


class Flush(NamedTuple):
    """Tokens whose full-precision keys and values a step packs: whole groups of 32, in the order of their sequences."""

    recent_slots: Tensor  # [N] int64, where they are in the arenas of group 1
    pages: Tensor  # [N / 16] int64, where they go ...
    slots: Tensor | None = None  # ... and where in layers with a window, if those have arenas of their own


class Placement(NamedTuple):
    """Slots and pages that the rows of a step are written to."""

    slots: Tensor
    """[G, T] int64 for each layer group: page * 16 + index % 16."""
    first_slot: Sequence[int]
    """[G]: >= 0 promises that the slots of a group are consecutive from there."""
    flush: Flush | None = None
    pages: Tensor | None = None
    """[N] int64, each page of group 0 that the rows write once, for stores that look at whole pages."""


def value_group(width: int) -> int:
    """Channels that share a scale where a token's numbers are packed along them: the widest of 32, 16, 8 that fits."""
    return next(group for group in (32, 16, 8, 4, 2, 1) if width % group == 0)
