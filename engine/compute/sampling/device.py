"""Sampling on a GPU: two or three kernels, one copy to the device and one back, whatever the rows ask for.

The parameters of the rows are one table of 64-bit words, and the kernels read nothing else of the host: they may be
captured in a CUDA graph, and the table sent along with other things. Rows that the kernels do not serve (penalties,
bias, DRY, typical-p, constrained output), and the few that they leave (kernels.py), are for the caller to draw.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.base.devices import traits
from engine.compute.batch import power_of_two
from engine.compute.native.proof import machine_declines, tried
from engine.compute.native.triton_launch import Variants
from engine.compute.sampling import noise
from engine.compute.sampling.draw import Draw, kind_of
from engine.compute.sampling.params import SamplingParams

WORDS = 6
"""Words of 64 bits in a row of the table: key (two halves), kind, top-k, then float64: temperature, top-p,
log(min-p)."""
OTHER = 3
"""The kind of a row that is not drawn here."""
LARGEST_VOCABULARY = 1 << 19
_KINDS = {"greedy": 0, "whole": 1, "truncated": 2, "typical": OTHER}
_ROW = struct.Struct("=iiqqddd")
_NO_ROW = np.frombuffer(_ROW.pack(0, 0, OTHER, 0, 1.0, 1.0, -math.inf), dtype=np.int64)

_variants = Variants()

Reference = Callable[[Tensor, Sequence[Draw]], list[int]]


class Cut(NamedTuple):
    """Tokens of a block, how many of them are listed for truncation at most, and rows that share a program."""

    block: int
    keep: int = 32
    rows: int = 1


class FilledRows(NamedTuple):
    """Number of rows of a table that are drawn here, and whether any is truncated."""

    served: int
    truncates: bool


def fill_rows(table: np.ndarray, draws: Sequence[Draw], vocabulary: int) -> FilledRows:
    """Write the parameters of the draws to ``table [N, WORDS]`` int64, contiguous; rows beyond them draw nothing."""
    served, truncates = 0, False
    for row, draw in enumerate(draws):
        params = draw.params
        kind = _kind(params) if draw.constraint is None else OTHER
        if kind == OTHER:
            table[row] = _NO_ROW
            continue
        served += 1
        truncates |= kind == _KINDS["truncated"]
        _ROW.pack_into(
            table.data, row * _ROW.size, *noise.key(*draw.key), kind, min(params.top_k, vocabulary),
            1.0 if params.greedy else params.temperature, params.top_p,
            math.log(params.min_p) if params.min_p > 0.0 else -math.inf,
        )  # fmt: skip
    table[len(draws) :] = _NO_ROW
    return FilledRows(served, truncates)


def _kind(params: SamplingParams) -> int:
    if not params.plain or (params.typical_p < 1.0 and not params.greedy):
        return OTHER
    return _KINDS[kind_of(params)]


def cut_for(vocabulary: int) -> Cut:
    """At most 128 blocks: about as many as a GPU has processors, and lists that one program can hold. An estimate."""
    return Cut(max(64, power_of_two(vocabulary) // 128))


def launch(logits: Tensor, table: Tensor, out: Tensor, count: int, truncates: bool) -> None:
    """The tokens of the first ``count`` rows of logits [L, V] to ``out [2, N]`` int64; 1 under those not known.

    ``table [N, WORDS]`` is as :func:`fill_rows` made it. A token that is not known is 0, so that what follows on the
    device has a token at least. ``truncates`` false promises that no row is truncated.
    """
    from engine.compute.sampling import kernels

    if logits.stride(1) != 1:
        logits = logits.contiguous()
    vocabulary, capacity = logits.shape[1], out.shape[1]
    block, keep, rows = cut_for(vocabulary)
    blocks = -(-vocabulary // block)
    parts = power_of_two(blocks)
    # In words of 64 bits, each piece at an address that 16 divides.
    each = count * blocks + count * blocks % 2
    lists = count * blocks * keep if truncates else 0
    sizes = (each, each, each, lists, lists, count + count % 2)
    scratch = torch.empty(sum(sizes), dtype=torch.int64, device=logits.device).split(sizes)
    best, total, mass = (scratch[place].view(torch.float64) for place in (0, 1, 4))
    mark, left = (scratch[place].view(torch.int32) for place in (2, 5))
    listed, chosen = scratch[3], scratch[4]
    programs = -(-count // rows)
    shape = {"KEEP": keep, "ROWS": rows}
    # Logits may begin at any row of larger ones, the rest is aligned.
    key: tuple[Hashable, ...] = logits.dtype, logits.data_ptr() % 16 == 0, parts, block, keep, rows, truncates
    _variants.launch(
        kernels.scan, key, (programs, blocks, 1),
        (logits, table, best, mark, total, listed, mass, count, vocabulary, logits.stride(0)),
        lambda: {"BLOCK": block, **shape, "TRUNCATES": truncates, "num_warps": min(16, max(4, block // 128))},
    )  # fmt: skip
    if truncates:
        _variants.launch(
            kernels.truncate, key, (programs, 1, 1),
            (table, best, mark, total, listed, mass, chosen, left, count, vocabulary, blocks),
            lambda: {"PARTS": parts, **shape, "num_warps": min(16, max(4, parts * keep // 256))},
        )  # fmt: skip
    _variants.launch(
        kernels.pick, key, (programs, 1, 1),
        (table, best, mark, chosen, left, out, count, blocks, capacity),
        lambda: {"PARTS": parts, **shape, "TRUNCATES": truncates, "CHUNK": 128, "num_warps": 4},
    )  # fmt: skip


def rehearse(dtype: torch.dtype, vocabulary: int, device: torch.device) -> None:
    """Launch every variant that such logits need, for a row that draws nothing: to have them compiled."""
    rows = RowBuffers(1, device)
    fill_rows(rows.host, (), vocabulary)
    rows.send()
    for truncates in (False, True):
        launch(torch.zeros(1, vocabulary, dtype=dtype, device=device), rows.table, rows.out, 1, truncates)


class RowBuffers:
    """A table of parameters on both sides, and room for the tokens: static, for up to ``capacity`` rows."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        pinned = traits(device).pinned
        self._host_memory = torch.zeros(capacity, WORDS, dtype=torch.int64, pin_memory=pinned)
        self.table = self._host_memory if device.type == "cpu" else torch.zeros_like(self._host_memory, device=device)
        self.host = self._host_memory.numpy()
        self.out = torch.zeros(2, capacity, dtype=torch.int64, device=device)

    def send(self) -> None:
        """The caller reads the tokens before it fills the table again, so that this copy has been made by then."""
        if self.table is not self._host_memory:
            self.table.copy_(self._host_memory, non_blocking=True)


class Pending(NamedTuple):
    """Tokens that were drawn on a GPU and are on their way."""

    tokens: Tensor
    """[n] int64 on the device; 0 where the token is not known."""
    answer: Tensor
    """Same as `RowBuffers.out`, in pinned memory ..."""
    copied: torch.cuda.Event
    """... once this has happened."""

    def read(self) -> list[int | None]:
        """Same as :func:`draw`; waits for the device."""
        self.copied.synchronize()
        tokens, unknown = self.answer.tolist()
        count = self.tokens.shape[0]
        return [None if flag else token for token, flag in zip(tokens[:count], unknown, strict=False)]


class DrawsAhead:
    """Draws on a GPU without waiting for it, in two tables by turns: for steps that are launched before the last one's
    tokens are read."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        """``capacity``: the most rows of a step."""
        self._rows = [RowBuffers(capacity, device) for _ in range(2)]
        self._answers = [torch.zeros_like(rows.out, device="cpu").pin_memory() for rows in self._rows]
        self._turn = 0

    def draws(self, params: SamplingParams) -> bool:
        """Return True if rows with these settings are drawn here."""
        return _kind(params) != OTHER

    def launch(self, logits: Tensor, draws: Sequence[Draw]) -> Pending:
        """Draw a token of each row of logits [n, V]. What the launch before the last drew must have been read."""
        rows, answer = self._rows[self._turn], self._answers[self._turn]
        self._turn = 1 - self._turn
        filled = fill_rows(rows.host, draws, logits.shape[1])
        rows.send()
        launch(logits, rows.table, rows.out, len(draws), filled.truncates)
        answer.copy_(rows.out, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return Pending(rows.out[0, : len(draws)], answer, copied)


@functools.lru_cache(maxsize=16)
def buffers(capacity: int, device: torch.device) -> RowBuffers:
    return RowBuffers(capacity, device)


def draw(logits: Tensor, draws: Sequence[Draw]) -> list[int | None] | None:
    """The token of each row of logits [L, V], or None for a row to be drawn otherwise; None where all are such.

    The largest score of a row with a token is a finite number. One copy to the device and one back.
    """
    count = len(draws)
    rows = buffers(power_of_two(count), logits.device)
    served, truncates = fill_rows(rows.host, draws, logits.shape[1])
    if not served:
        return None
    rows.send()
    launch(logits, rows.table, rows.out, count, truncates)
    tokens, unknown = rows.out.tolist()
    return [None if flag else token for token, flag in zip(tokens[:count], unknown, strict=False)]


@functools.cache
def declines(dtype: torch.dtype, vocabulary: int, device: torch.device, reference: Reference) -> str | None:
    """Reason logits of this kind are not drawn by the kernels, which must first agree with ``reference`` on the device.

    Raises only torch.OutOfMemoryError, see :func:`engine.compute.native.proof.failure`.
    """
    reason = machine_declines(torch.bfloat16 if dtype == torch.float32 else dtype, device)
    if reason is not None:
        return reason
    if vocabulary > LARGEST_VOCABULARY:
        return f"it draws from at most {LARGEST_VOCABULARY:,} tokens, and the model has {vocabulary:,}"
    return tried(("sampling", dtype, vocabulary), device, lambda: compare(dtype, vocabulary, device, reference))


def compare(dtype: torch.dtype, vocabulary: int, device: torch.device, reference: Reference) -> str | None:
    """Same as :func:`declines`, of the kernels alone and without the guard."""
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0}, {}, {"temperature": 0.6}, {"temperature": 0.6, "top_p": 0.9}, {"top_k": 20},
        {"temperature": 0.7, "top_k": 40, "top_p": 0.95}, {"min_p": 0.05, "temperature": 1.3}, {"top_p": 0.0},
        {"top_k": 9, "top_p": 0.6, "min_p": 0.1},
    ]  # fmt: skip
    draws = [Draw(SamplingParams(seed=row, **each), row, range(7 * row)) for row, each in enumerate(settings)]
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(len(draws) + 1, vocabulary, generator=generator) * 2.0).to(dtype)
    # A few tokens stand out, as in a text.
    logits[:, :: max(1, vocabulary // 12)] += 9.0
    logits[-1, vocabulary // 2] = torch.nan
    logits = logits.to(device)
    for some in (draws, draws[:3]):
        expected: list[int | None] = [*reference(logits[: len(some)], some)]
        found = draw(logits[: len(some)], some) or []
        if vocabulary < 4096:  # lists of a small vocabulary may be too short for what survives
            expected = [None if token is None else right for token, right in zip(found, expected, strict=True)]
        if found != expected:
            return "its tokens do not agree with the definition here"
        if draw(logits[-1:], some[-1:]) != [None]:
            return "it does not see scores that are not numbers"
    return None
