"""Duration of a model's forward, measured with its first layers, whose weights are made up.

The layers are loaded as always, for the same kernels, out of made-up tensors of the types and shapes in the file: a
model whose headers alone are here can be timed, and a large one without reading it.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from engine.base import devices
from engine.cache.pool import pages_for
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.layers.embedding import TokenTable
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.formats.gguf.container import GGUFFile, GgufTensorInfo
from engine.formats.gguf.types import FLOATING
from engine.formats.load import LAYER, Checkpoint
from engine.formats.safetensors import TensorFiles, TensorInfo
from engine.formats.source import Packing
from engine.loading.memory.bandwidth import last_level_bytes
from engine.loading.memory.probe import free_bytes
from engine.loading.runners import new_runner

PROMPT = 128
"""Tokens of the prompt whose reading is timed."""
_SMALL = 1 << 16
"""Bytes; what is no larger may say how to read something else, and is taken from the file."""
_PERIOD = 1_000_003
"""Made-up values repeat after this number: a prime, so that no two rows of a matrix are alike."""
_ROUNDS, _SECONDS = 4, 0.4
"""Steps of one row are timed for so long, and this often at least; the fastest counts, as other programs make it no
faster."""
_MOST = 512 << 20
"""Bytes of layers that are made up at most."""


class Trial(NamedTuple):
    """``step``: seconds of a forward of one row; ``row``: of each row of a long prompt."""

    step: float
    row: float


def trial(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, packing: Packing, numerics: Numerics
) -> Trial:
    """Time the model's forwards on ``device``. Raises what a load raises, and MemoryError where there is no room."""
    checkpoint = replace(checkpoint, tables_in_file=False)  # rows are made up, too
    planned = checkpoint.planned(dtype, packing, device)
    sizes = [_size(planned, layer) for layer in range(planned.num_layers)]
    count = _enough(planned, sizes)
    layers = planned.layers[:count]
    held = sum(layer.storage_size() + sum(each.storage_size() for _, each in layer.linears()) for layer in layers)
    if held + planned.head.storage_size() + planned.embedding.storage_size() > free_bytes(device) / 2:
        raise MemoryError(f"There is no room to try {count} layers of {checkpoint.path.name}.")
    made_up = replace(checkpoint, files=_made_up(checkpoint))
    with torch.inference_mode():
        source = _FirstLayers(
            made_up.source(device, dtype, packing, numerics),
            made_up.source(torch.device("meta"), dtype, packing, numerics, computing=device),
            count,
        )
        model: CausalLM = family(checkpoint.config.architecture).Model(checkpoint.config, cast(WeightSource, source))
        share = sum(sizes) / sum(sizes[:count])
        return _timed(model, device, count, share)


def _size(model: CausalLM, layer: int) -> int:
    return model.bytes_read_per_step() - model.bytes_read_per_step(frozenset({layer}))


def _enough(model: CausalLM, sizes: Sequence[int]) -> int:
    """The number of first layers that have all kinds of them, and more weights than the processor's caches hold."""
    kinds = [
        (type(layer), tuple((name, linear.kind, linear.path) for name, linear in layer.linears()))
        for layer in model.layers
    ]
    every = 1 + max(kinds.index(kind) for kind in set(kinds))
    held = list(itertools.accumulate(sizes))
    wanted = min(2 * last_level_bytes(), _MOST)
    return max(every, next((count for count, size in enumerate(held, 1) if size >= wanted), len(held)))


def _timed(model: CausalLM, device: torch.device, count: int, share: float) -> Trial:
    runner = new_runner(model, pages_for(PROMPT + 64) + 1, device)
    vocabulary, layers = model.config.vocab_size, (0, count)
    pages = list(range(1, pages_for(PROMPT + 64) + 1))
    more = [pages] * (runner.kv.num_groups - 1)
    whole = count == model.num_layers
    tokens = [5 + 7919 * index % (vocabulary - 5) for index in range(PROMPT + 64)]

    def forward(start: int, rows: int) -> None:
        states = StateRun.alone(rows, start) if model.config.recurrent is not None else ()
        asked = SequenceRows(tokens[start : start + rows], start, pages, int(whole), None, more, states=states)
        runner.forward([asked], layers=None if whole else layers)

    row = _fastest(lambda: forward(0, PROMPT), device, 2, 0.0) / PROMPT
    places = itertools.cycle(range(PROMPT, len(tokens)))
    step = _fastest(lambda: forward(next(places), 1), device)
    if whole:
        return Trial(step, row)
    state = torch.zeros(1, model.config.hidden_size, dtype=model.dtype, device=device)
    head = _fastest(lambda: runner.logits(state), device)
    return Trial(step * share + head, row * share)


def _fastest(
    act: Callable[[], object], device: torch.device, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> float:
    act()
    best, spent = math.inf, 0.0
    while rounds > 0 or spent < seconds:
        began = time.perf_counter()
        act()
        devices.synchronize(device)
        took = time.perf_counter() - began
        best, spent, rounds = min(best, took), spent + took, rounds - 1
    return best


class _FirstLayers:
    """Hands out the weights of the first layers, and of all that is in no layer; the other layers are only planned."""

    def __init__(self, real: WeightSource, planned: WeightSource, count: int) -> None:
        self._real, self._planned, self._count = real, planned, count
        self.numerics, self.device, self.dtype = real.numerics, real.device, real.dtype

    def linear(self, prefix: str, *asked: Any) -> Linear:
        return self._of(prefix or asked[0][0]).linear(prefix, *asked)

    def experts(self, prefix: str, *asked: Any) -> Sequence[Linear]:
        return self._of(prefix).experts(prefix, *asked)

    def vector(self, name: str, size: int) -> Tensor:
        return self._of(name).vector(name, size)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._of(name).array(name, shape)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return self._of(prefix).matrix(prefix, rows, columns)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        return self._of(name).embedding(name, rows, columns)

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
        return self._real.head(table, rows, columns)

    def _of(self, name: str) -> WeightSource:
        layer = LAYER.match(name)
        return self._planned if layer is not None and int(layer[1]) >= self._count else self._real


def _made_up(checkpoint: Checkpoint) -> Any:
    """The checkpoint's files, but for what their large tensors hold."""
    files: Any = checkpoint.files
    return _MadeUpGGUF(files) if isinstance(files, GGUFFile) else _MadeUpTensors(files)


class _MadeUpTensors(TensorFiles):
    def __init__(self, files: TensorFiles) -> None:
        super().__init__(files.entries)
        self._files = files

    def view(self, name: str) -> Tensor:
        entry = self.entries[name]
        if name.endswith(".g_idx") and not bool((found := self._files.view(name)).any()):  # of a hollow file
            packed = self.entries[f"{name.removesuffix('g_idx')}scales"]
            return torch.arange(entry.numel, dtype=found.dtype) // (entry.numel // packed.shape[0])
        if name.endswith(".g_idx") or entry.size <= _SMALL:
            return self._files.view(name)
        return _numbers(self.dtype(name), entry.numel).view(entry.shape)

    def dtype(self, name: str) -> torch.dtype:
        return self._files.dtype(name)

    def map(self, entry: TensorInfo) -> Tensor:
        return _numbers(entry.dtype, entry.numel).view(entry.shape)


class _MadeUpGGUF(GGUFFile):
    def __init__(self, files: GGUFFile) -> None:
        super().__init__(files.path, files.metadata, files.entries)

    def _bytes(self, entry: GgufTensorInfo) -> Tensor:
        dtype = FLOATING.get(entry.type, torch.uint8)
        return _numbers(dtype, entry.size // dtype.itemsize).view(torch.uint8)


def _numbers(dtype: torch.dtype, count: int) -> Tensor:
    """``count`` values: small floating ones, or integers none of whose bytes make a large number of a scale."""
    if not dtype.is_floating_point:
        count *= dtype.itemsize
    values = _period(dtype).repeat(-(-count // _PERIOD))[:count]
    return values if dtype.is_floating_point else values.view(dtype)


@functools.cache
def _period(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.empty(_PERIOD).normal_(0, 0.02, generator=generator).to(dtype)
    return torch.randint(0, 256, (_PERIOD,), dtype=torch.uint8, generator=generator) & 0x37
