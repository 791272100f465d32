"""Whether low rank and outliers pay for their bits (GEAR): ``python tests/engine/cache/measure_gear.py [MODEL]``.

Kang et al. 2024 (arXiv 2403.05527) pack keys and values to few bits, keep the largest and smallest numbers of each
vector apart, and add what is left back in low rank. Here each of that is computed on top of KIVI's groups of 32, in
blocks of tokens as a paged cache could keep them, and compared by bits of a number: the error of what attention gives,
and KL(exact || approximate) of the next token, on the texts of ``kvasir bench --cost``. Nothing is packed: numbers are
rounded to what their codes stand for. ``--scaled FACTOR`` multiplies two of a key's pairs of channels, as models have
them whose keys have outliers, and divides those of queries.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import CHANNEL_GROUP, PackedKV, value_group
from engine.compute.attention.interface import AttnSpec
from engine.compute.batch import Batch
from engine.compute.layers.hadamard import Hadamard
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.perplexity import Reader, Scores, reader, score
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner
from engine.services.client import EngineClient
from engine.services.experiments.measures.cost import EVALUATION, held_out_texts

MODEL = Path(__file__).parents[3] / "assets" / "demo" / "kvasir-guide"
LENGTH = 2048
SCALED_PAIRS = (3, 17)
RESIDUAL = 128
"""Recent tokens that KIVI keeps unpacked."""
HALF = 16
"""Bits of a scale, of a minimum and of a number kept apart; its place in the vector takes half as many."""


class Rounded(NamedTuple):
    """What codes stand for, and the bits of a number with all that belongs to it."""

    numbers: Tensor
    bits: float


Rounding = Callable[[Tensor], Rounded]


class Way(NamedTuple):
    """Keys and values [T, H, d] rounded in blocks of so many tokens, but for the ``residual`` last ones and a rest."""

    title: str
    keys: Rounding
    values: Rounding
    block: int = 1
    residual: int = 0
    mixed: bool = False


def along_channels(x: Tensor, bits: int) -> Rounded:
    """Groups of 32 channels of a token share a scale and a minimum."""
    group = value_group(x.shape[-1])
    return Rounded(_rounded(x.unflatten(-1, (-1, group)), bits, -1).flatten(-2), bits + 2 * HALF / group)


def along_tokens(x: Tensor, bits: int) -> Rounded:
    """32 tokens share a channel's."""
    rounded = _rounded(x.unflatten(0, (-1, CHANNEL_GROUP)), bits, 1)
    return Rounded(rounded.flatten(0, 1), bits + 2 * HALF / CHANNEL_GROUP)


def _rounded(x: Tensor, bits: int, axis: int) -> Tensor:
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    scale, low = ((high - low) / (2**bits - 1)).half().float(), low.half().float()
    codes = ((x - low) / torch.where(scale == 0, 1.0, scale)).round().clamp(0, 2**bits - 1)
    return codes * scale + low


def gear(x: Tensor, rounding: Callable[[Tensor, int], Rounded], bits: int, block: int, rank: int, outliers: int,
         factor_bits: int = HALF) -> Rounded:  # fmt: skip
    """``outliers`` of each vector are kept apart: of a channel's numbers in a block, or of a token's where those share
    a scale. What then is left of each head's block [block, d] is approximated by the best matrix of that rank, whose
    factors have 16 bits, or 8 and a scale for each column (not counted)."""
    blocks = x.unflatten(0, (-1, block))
    axis = 1 if rounding is along_tokens else 3
    middle = blocks.mean(axis, keepdim=True)
    places = (blocks - middle).abs().topk(outliers, dim=axis).indices
    apart = torch.zeros_like(blocks, dtype=torch.bool).scatter_(axis, places, value=True)
    rounded, cost = rounding(torch.where(apart, middle, blocks).flatten(0, 1), bits)
    numbers = rounded.unflatten(0, (-1, block))
    if rank:
        u, s, v = torch.linalg.svd((blocks - numbers).masked_fill(apart, 0).transpose(1, 2), full_matrices=False)
        root = s[..., :rank].sqrt()
        left, right = u[..., :rank] * root[..., None, :], v[..., :rank, :] * root[..., None]
        left, right = (_factor(part, axis, factor_bits) for part, axis in ((left, -2), (right, -1)))
        numbers = numbers + (left @ right).transpose(1, 2)
        cost += rank * factor_bits * (1 / block + 1 / x.shape[-1])
    cost += outliers * HALF * 1.5 / blocks.shape[axis]
    return Rounded(torch.where(apart, blocks.half().float(), numbers).flatten(0, 1), cost)


def _factor(x: Tensor, axis: int, bits: int) -> Tensor:
    if bits == HALF:
        return x.half().float()
    scale = x.abs().amax(axis, keepdim=True) / (2 ** (bits - 1) - 1)
    return (x / torch.where(scale == 0, 1.0, scale)).round() * scale


def ways() -> list[Way]:
    by_token = partial(along_channels, bits=4)
    found = [Way("int4", by_token, by_token), Way("int4, rotated keys", by_token, by_token, mixed=True)]
    for bits in ((4, 4), (3, 3), (4, 2), (2, 2)):
        roundings = partial(along_tokens, bits=bits[0]), partial(along_channels, bits=bits[1])
        found.append(Way(f"KIVI, {bits[0]} and {bits[1]} bits", *roundings, CHANNEL_GROUP, RESIDUAL))
    for bits_each, block, rank, outliers, factor_bits in (
        (2, 128, 1, 0, 16), (2, 128, 2, 0, 8), (2, 128, 2, 0, 16), (2, 128, 4, 0, 8), (2, 128, 4, 0, 16),
        (2, 32, 1, 0, 16), (2, 512, 4, 0, 16), (2, 128, 0, 1, 16), (2, 128, 0, 2, 16), (2, 128, 2, 1, 16),
        (4, 128, 2, 0, 16), (4, 128, 0, 1, 16),
    ):  # fmt: skip
        both = (along_tokens, along_channels)
        same = {"bits": bits_each, "block": block, "rank": rank, "outliers": outliers, "factor_bits": factor_bits}
        title = f"{bits_each} bits, rank {rank} of {block} tokens in {factor_bits} bits, {outliers} apart"
        keys, values = (cast(Rounding, partial(gear, rounding=rounding, **same)) for rounding in both)
        found.append(Way(title, keys, values, block, RESIDUAL))
    return found


class Approximate:
    """Attention of one sequence whose pages follow each other, each row over what it would find rounded and the rest as
    it is (`engine.compute.attention.interface.ModelAttention`)."""

    uncaptured = ""

    def __init__(self, way: Way, factor: float) -> None:
        self.way, self.factor, self.bits = way, factor, 0.0
        self.error = self.size = 0.0
        """Sums of squares: of what attention's results are off by, and of the results."""

    def attend(self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, *_: Any, **__: Any) -> tuple[Tensor, None]:
        rows, length, repeat = batch.host.T, batch.host.kv_len[0], q.shape[1] // kv.kv_heads
        k, v = (part[PAGE_SIZE : PAGE_SIZE + length].float() for part in (kv.k, kv.v))
        scale = torch.ones(k.shape[-1]).index_fill(0, self._scaled(k.shape[-1]), self.factor)
        queries, k = q[:rows].float() / scale, k * scale
        index, key = torch.arange(length - rows, length), torch.arange(length)
        seen = key <= index[:, None]
        stop = (index + 1 - self.way.residual).clamp(min=0) // self.way.block * self.way.block
        whole, packed = int(stop.max()), key < stop[:, None]
        scores = self._scores(queries, k, repeat) * spec.scale
        exact = self._mean(scores.masked_fill(~seen, -math.inf).softmax(-1), v, repeat)
        near = v
        if whole:
            mix = Hadamard(k.shape[-1], k.device, Numerics()) if self.way.mixed else torch.nn.Identity()
            (keys, key_bits), (values, value_bits) = self.way.keys(mix(k[:whole])), self.way.values(v[:whole])
            self.bits = (key_bits + value_bits) / 2
            keys, near = (pad(part, (0, 0, 0, 0, 0, length - whole)) for part in (keys, values))
            scores = torch.where(packed, self._scores(mix(queries), keys, repeat) * spec.scale, scores)
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        out = self._mean(weights * packed, near, repeat) + self._mean(weights * ~packed, v, repeat)
        self.error += float((out - exact).square().sum())
        self.size += float(exact.square().sum())
        return out.to(q.dtype), None

    def shares_keys(self, _: object) -> bool:
        return False

    def _scaled(self, width: int) -> Tensor:
        return torch.tensor([pair + half for pair in SCALED_PAIRS for half in (0, width // 2)])

    def _scores(self, q: Tensor, k: Tensor, repeat: int) -> Tensor:
        return torch.einsum("thd,shd->hts", q, k.repeat_interleave(repeat, 1))

    def _mean(self, weights: Tensor, v: Tensor, repeat: int) -> Tensor:
        return torch.einsum("hts,shd->thd", weights, v.repeat_interleave(repeat, 1))


def measure(loaded: LoadedModel, ids: Sequence[int], way: Way, factor: float) -> tuple[Scores, Approximate]:
    attention, model = Approximate(way, factor), loaded.model
    assert model is not None

    def read(length: int, approximate: bool) -> Reader:
        runner = new_runner(model, pages_for(length) + 1, loaded.device)
        if approximate:
            runner.attention = attention
        return reader(runner)

    work = score(ids, partial(read, approximate=False), partial(read, approximate=True), loaded.card.vocabulary, "")
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, attention


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(MODEL))
    parser.add_argument("--scaled", type=float, default=1.0, metavar="FACTOR")
    options = parser.parse_args()
    client = EngineClient()
    client.load(options.model)
    for title, ids in held_out_texts(client.model, EVALUATION):
        print(f"{title}: {min(LENGTH, len(ids)):,} tokens")
        for way in ways():
            scores, attention = measure(client.model, ids[:LENGTH], way, options.scaled)
            error = math.sqrt(attention.error / attention.size)
            print(f"| {way.title} | {attention.bits:.2f} | {error:.3f} | {scores.divergence:.4f} |", flush=True)


if __name__ == "__main__":
    main()
