"""The packed layout of 4-bit weights: blocks of 64 output features, 32 bytes for each input feature.

Byte j of row k of block b holds the codes ``W[64 b + columns[j], k]`` (low nibble) and ``W[64 b + columns[32 + j], k]``
(high nibble). With the right ``columns`` this is what torch's CPU int4 operator reads, so that one resident copy serves
that operator for few rows and dequantisation for many.
"""

from __future__ import annotations

import functools
import math
import threading

import torch
from torch import Tensor

from engine.base.devices import traits

BLOCK = 64
_NIBBLES = 0x0F0F0F0F
IDENTITY = tuple(range(BLOCK))


def pack_words(words: Tensor, columns: tuple[int, ...]) -> Tensor:
    """``words [K / 8, 64 B]`` int32 of eight codes along K (the first lowest) -> ``[B, K, 32]`` uint8.

    Codes are paired in whole words, those of even input features and those of odd ones; only then bytes are moved.
    """
    blocks = words.view(words.shape[0], -1, BLOCK)
    if columns != IDENTITY:
        blocks = blocks[:, :, list(columns)]
    low, high = blocks.split(BLOCK // 2, -1)
    pairs = torch.empty(2, *low.shape, dtype=torch.int32)
    torch.bitwise_or(low & _NIBBLES, (high & _NIBBLES) << 4, out=pairs[0])
    torch.bitwise_or((low >> 4) & _NIBBLES, high & ~_NIBBLES, out=pairs[1])
    # [even or odd, K / 8, B, 32, 4] -> [B, K / 8, 4, even or odd, 32]
    return pairs.view(torch.uint8).view(*pairs.shape, 4).permute(2, 1, 4, 0, 3).reshape(blocks.shape[1], -1, BLOCK // 2)


@functools.cache
def operator_columns() -> tuple[int, ...] | None:
    """Output feature that each nibble holds in the layout of torch's CPU operator on this processor.

    It differs with the processor's vector width, so it is read off packed probes; None when a packed random matrix
    does not agree with :func:`pack_words` after all.
    """
    if not hasattr(torch, "_convert_weight_to_int4pack_for_cpu"):
        return None
    feature = torch.arange(BLOCK, dtype=torch.int32)
    found = torch.zeros(BLOCK, dtype=torch.int32)
    for shift in (0, 4):
        probe = ((feature >> shift) & 15)[:, None].expand(BLOCK, 32).contiguous()
        packed = torch._convert_weight_to_int4pack_for_cpu(probe, 1).flatten()[:32].int()
        found += torch.cat((packed & 15, packed >> 4)) << shift
    columns = tuple(found.tolist())
    if sorted(columns) != list(IDENTITY):
        return None
    random = torch.randint(0, 16, (2 * BLOCK, 96), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    theirs = torch._convert_weight_to_int4pack_for_cpu(random, 1).flatten()
    places = random.t().reshape(-1, 8, 2 * BLOCK) << 4 * torch.arange(8, dtype=torch.int32)[:, None]
    ours = pack_words(places.sum(1, dtype=torch.int32), columns).flatten()
    return columns if torch.equal(theirs, ours) else None


class _Scratch(threading.local):
    """Buffers that dequantisation reuses from call to call, one set a thread.

    A CUDA graph has buffers of its own: it goes on to write where it was captured, when a larger one took the place.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        if _capturing(device):
            return torch.empty(shape, dtype=dtype, device=device)
        size, key = math.prod(shape), (name, dtype, device)
        held = self._held.get(key)
        if held is None or held.numel() < size:
            # An ordinary tensor even when first taken inside inference mode: later callers may be outside it.
            with torch.inference_mode(False):
                held = self._held[key] = torch.empty(size, dtype=dtype, device=device)
        return held[:size].view(shape)


scratch = _Scratch()


def _capturing(device: torch.device) -> bool:
    return traits(device).kernels and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def unpack_blocks(packed: Tensor, offset: int, out: Tensor) -> None:
    """``packed [B, K, 32]`` -> codes minus ``offset`` as floating ``out [K, 64 B]``, its columns in *stored* order.

    Stored order is all low nibbles of a row, then all high ones, each block by block: so whole words are moved, split
    and converted, and only results are put in their natural order (:func:`natural`).
    """
    blocks, rows = packed.shape[:2]
    words = scratch.take("words", (rows, blocks, BLOCK // 2), torch.uint8, packed.device)
    words.view(torch.int64).copy_(packed.view(torch.int64).permute(1, 0, 2))
    nibbles = scratch.take("nibbles", (rows, 2, blocks * BLOCK // 2), torch.uint8, packed.device)
    source, split = words.view(torch.int32).view(rows, -1), nibbles.view(torch.int32)
    torch.bitwise_and(source, _NIBBLES, out=split[:, 0])
    torch.bitwise_right_shift(source, 4, out=split[:, 1])
    split[:, 1].bitwise_and_(_NIBBLES)
    signed = nibbles.view(torch.int8)
    if offset:
        signed.sub_(offset)
    out.copy_(signed.view(rows, -1))


def natural(x: Tensor, columns: tuple[int, ...]) -> Tensor:
    """``x [rows, 64 B]`` with columns in stored order -> the same in the order of the output features."""
    rows = x.shape[0]
    blocks = x.view(rows, 2, -1, BLOCK // 2).transpose(1, 2).reshape(rows, -1, BLOCK)
    if columns != IDENTITY:
        blocks = blocks[:, :, torch.tensor(columns).argsort().tolist()]
    return blocks.reshape(rows, -1)


def stored(x: Tensor, columns: tuple[int, ...]) -> Tensor:
    """The inverse of :func:`natural`."""
    rows = x.shape[0]
    blocks = x.reshape(rows, -1, BLOCK)
    if columns != IDENTITY:
        blocks = blocks[:, :, list(columns)]
    return blocks.view(rows, -1, 2, BLOCK // 2).transpose(1, 2).reshape(rows, -1)
