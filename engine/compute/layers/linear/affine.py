"""Group-affine 4-bit weights in their plain form, which every packed layout is made from.

``W[n, k] = scale[group of k, n] * (code[k, n] - zero[group of k, n])`` with codes and zeros in 0..15. GPTQ is read
into this form (engine/formats/quantised/groups.py), and so are AWQ and compressed-tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape

CHUNK = 1024
"""Output features handled at a time while packing, so that no layer is ever held unpacked."""
PER_WORD = 8


class AffineColumns(NamedTuple):
    """Some output features.

    ``words [K / 8, n]`` int32 hold the codes of eight consecutive input features of the file, the first one lowest.
    ``scales`` (floating) and ``zeros`` (uint8) are ``[K / group, n]``, for groups of features in the module's order.
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor


class AffineWeights(Protocol):
    """A packed module of a checkpoint. Taken in ``order`` (None: the file's own), its groups are contiguous."""

    in_features: int
    out_features: int
    group: int
    order: Tensor | None
    """int64 [K]: place i belongs to the file's input feature order[i]."""

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``."""


def chunks(parts: Sequence[AffineWeights], step: int = CHUNK) -> Iterator[tuple[int, AffineColumns]]:
    """The output features of ``parts`` (equal in K, group, order), ``step`` at a time, each after its first index."""
    total = sum(part.out_features for part in parts)
    for start in range(0, total, step):
        found, base = [], 0
        for part in parts:
            low, high = max(start - base, 0), min(start + step - base, part.out_features)
            if low < high:
                found.append(part.columns(low, high))
            base += part.out_features
        yield (
            start,
            found[0] if len(found) == 1 else AffineColumns(*(torch.cat(t, 1) for t in zip(*found, strict=True))),
        )


def surveyed(parts: Sequence[AffineWeights]) -> LinearShape:
    """The shape of the layer of ``parts``, of which only their contents tell some: see :class:`LinearShape`."""
    first = parts[0]
    return LinearShape(
        "int4",
        first.in_features,
        sum(part.out_features for part in parts),
        group=first.group,
        scales=scales_dtype(parts),
        symmetric=is_symmetric(parts, 8),
        ordered=first.order is not None,
    )


class _Columns(Protocol):
    out_features: int

    def columns(self, start: int, stop: int) -> AffineColumns: ...


def scales_dtype(parts: Sequence[_Columns]) -> torch.dtype:
    """The one dtype of all scales; float32 where they differ."""
    found = {part.columns(0, 1).scales.dtype for part in parts}
    return found.pop() if len(found) == 1 else torch.float32


def is_symmetric(parts: Sequence[_Columns], middle: int) -> bool:
    """Return True if every zero-point is ``middle``; no more is read than it takes to know."""
    return all(
        bool((part.columns(start, min(start + CHUNK, part.out_features)).zeros == middle).all())
        for part in parts
        for start in range(0, part.out_features, CHUNK)
    )


def unpack_words(words: Tensor, order: Tensor | None) -> Tensor:
    """``words [K / 8, n]`` -> codes ``[K, n]`` uint8 in ``order``."""
    codes = torch.empty(words.shape[0], PER_WORD, words.shape[1], dtype=torch.uint8, device=words.device)
    for place in range(PER_WORD):
        codes[:, place] = (words >> 4 * place) & 15
    codes = codes.view(-1, words.shape[1])
    return codes if order is None else codes[order]


def pack_codes(codes: Tensor) -> Tensor:
    """The inverse of :func:`unpack_words`: ``codes [K, n]`` uint8 -> words ``[K / 8, n]`` int32."""
    eights = codes.view(-1, PER_WORD, codes.shape[1])
    words = torch.zeros(eights.shape[0], codes.shape[1], dtype=torch.int32, device=codes.device)
    for place in range(PER_WORD):
        words |= eights[:, place].to(torch.int32) << 4 * place
    return words


def dequantise(columns: AffineColumns, group: int, order: Tensor | None) -> Tensor:
    """The reference: ``W^T [K, n]`` float32 by the definition, with the file's order of input features."""
    scales = columns.scales.float().repeat_interleave(group, 0)
    zeros = columns.zeros.float().repeat_interleave(group, 0)
    weight = (unpack_words(columns.words, order).float() - zeros) * scales
    return weight if order is None else weight[order.argsort()]
