"""Quantising the linear layers of a 16- or 32-bit checkpoint while it is loaded, module by module.

``nf4``: blocks of 64 along the flattened ``[N, K]``, the nearest value of a table of 16 times the block's largest
magnitude (Dettmers et al. 2023, QLoRA, appendix E; the same numbers as bitsandbytes'). ``int4``: 4-bit codes with a
scale and a zero-point for each group of 64 input features. ``int8``: a scale for each row (Dettmers et al. 2022,
LLM.int8, without its outlier columns). What is packed so goes on as if a file had held it (layouts.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.affine import PER_WORD, AffineColumns, pack_codes
from engine.compute.layers.linear.base import Linear, Target
from engine.formats.quantised.layouts import (
    AffineLayout,
    Layout,
    PackedModule,
    RowsLayout,
    RowsPart,
    TableLayout,
    TablePart,
)

Method = str
"""The name of a :class:`Packer`."""
STAY = ("lm_head", "output", "gate", "router", "shared_expert_gate", "ffn_gate_inp")
"""Last parts of the names of modules that are left alone: the head, as in bitsandbytes, and what chooses experts."""
BLOCK = 64
"""Weights to a magnitude of nf4."""
GROUPS = (64, 32, 16, 8)
"""Input features to a scale of int4: the first that divides K."""
SHRUNK = (1.0, 0.92, 0.84)
"""Shares of a group's span that int4's codes may cover; the one with the least squared error is taken. Against 1.0
alone that lowers the error of normal weights in groups of 64 by 5 %, and six more shares by 3 % more."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
CHUNK = 1 << 18
"""Weights in float32 at a time, so that their temporaries are small compared with any model."""

Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


class Module(NamedTuple):
    """A module to be quantised; ``weight()`` gives the file's ``[N, K]``, not to be written to."""

    name: str
    out_features: int
    in_features: int
    weight: Callable[[], Tensor]


Fetch = Callable[[Module, Shapes, Callable[[], Tensors]], Tensors]
"""Gives a module's tensors: what was kept of an earlier load, or those that the last argument makes."""


class AffinePart(NamedTuple):
    """An :class:`engine.compute.layers.linear.affine.AffineWeights`."""

    in_features: int
    out_features: int
    group: int
    words: Tensor
    scales: Tensor
    zeros: Tensor
    order: None = None

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(self.words[:, start:stop], self.scales[:, start:stop], self.zeros[:, start:stop])


class Quantiser:
    """Packs modules by ``method``. The arithmetic is done on ``device``, results come to the CPU.

    ``tick()`` is called every few million weights; it may raise to stop. ``fetch`` is asked for each module's tensors.
    Modules whose last part is in ``stay`` are left alone.
    """

    def __init__(
        self,
        method: Method,
        device: torch.device,
        tick: Callable[[], None] = lambda: None,
        fetch: Fetch = lambda module, shapes, make: make(),
        stay: Sequence[str] = STAY,
    ) -> None:
        self.method, self.device = method, device
        self._tick, self._fetch, self._stay = tick, fetch, stay

    def packed(self, module: Module) -> PackedModule | None:
        """The module's layout and the function that quantises it, or None where it stays as it is."""
        if module.name.rpartition(".")[2] in self._stay or group_size(module.in_features) is None:
            return None
        return PackedModule(PACKERS[self.method].layout(module), lambda: self._read(module))

    def layer(self, modules: Sequence[Module], bias: Tensor | None, target: Target, planning: bool) -> Linear | None:
        """One layer of the modules (on device "meta" to plan with); None where they do not all become alike."""
        kinds = [kind for module in modules if (kind := self.packed(module)) is not None]
        if len(kinds) < len(modules) or any(kind.layout != kinds[0].layout for kind in kinds):
            return None
        if planning:
            return kinds[0].layout.planned(sum(module.out_features for module in modules), bias, target)
        return kinds[0].layout.built([kind.read() for kind in kinds], bias, target)

    def _read(self, module: Module) -> Any:
        packer = PACKERS[self.method]
        return packer.part(module, self._fetch(module, packer.shapes(module), lambda: self._quantised(module)))

    def _quantised(self, module: Module) -> Tensors:
        packer = PACKERS[self.method]
        out = {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in packer.shapes(module).items()}
        weight = module.weight()
        for start, stop in _chunks(module):
            self._tick()
            packer.put(weight[start:stop].to(self.device).float(), start, out)
        check_finite(module.name, out[packer.scales], packer.title)
        return out


def check_finite(name: str, scales: Tensor, title: str) -> None:
    """Raises :class:`CheckpointError`: a span that is not finite hides among codes, and a token's pass may miss it."""
    if not bool(torch.isfinite(scales).all()):
        raise CheckpointError(
            f"{name} holds values that are not numbers, or too large for {title}: its weights are damaged. "
            "Download the model again."
        )


def group_size(in_features: int) -> int | None:
    """Input features to a group of int4, which also tells whether a module's rows are worth packing at all."""
    return next((size for size in GROUPS if in_features % size == 0), None)


class Packer(ABC):
    """One way to quantise a module."""

    title: str
    """Name for people: "int4, groups of 64"."""
    scales: str
    """The name of the tensor that shows weights which are not numbers."""

    @abstractmethod
    def layout(self, module: Module) -> Layout:
        """Layout of the quantised module."""

    @abstractmethod
    def shapes(self, module: Module) -> Shapes:
        """The tensors that it becomes."""

    @abstractmethod
    def put(self, rows: Tensor, start: int, out: Tensors) -> None:
        """Pack the rows ``[n, K]`` float32 from output feature ``start`` on, a multiple of 64, into ``out``."""

    @abstractmethod
    def part(self, module: Module, found: Tensors) -> Any:
        """The tensors as what the layout's layer is filled with."""


class NF4Packer(Packer):
    title, scales = "NF4", "absmax"

    def layout(self, module: Module) -> Layout:
        whole = module.out_features * module.in_features % BLOCK == 0
        table = tuple(torch.tensor(NF4).tolist())
        return TableLayout(module.in_features, BLOCK, table, None, "" if whole else module.name)

    def shapes(self, module: Module) -> Shapes:
        weights = module.out_features * module.in_features
        return {"codes": (torch.uint8, (weights // 2,)), "absmax": (torch.float32, (-(-weights // BLOCK),))}

    def put(self, rows: Tensor, start: int, out: Tensors) -> None:
        first = start * rows.shape[1]
        codes, largest = to_nf4(rows.view(-1))
        out["codes"][first // 2 : first // 2 + len(codes)] = codes
        out["absmax"][first // BLOCK : first // BLOCK + len(largest)] = largest

    def part(self, module: Module, found: Tensors) -> TablePart:
        return TablePart(module.out_features, found["codes"], torch.tensor(NF4), found["absmax"])


class Int8Packer(Packer):
    title, scales = "int8", "largest"

    def layout(self, module: Module) -> Layout:
        return RowsLayout(module.in_features)

    def shapes(self, module: Module) -> Shapes:
        rows, columns = module.out_features, module.in_features
        return {"codes": (torch.int8, (rows, columns)), "largest": (torch.float32, (rows,))}

    def put(self, rows: Tensor, start: int, out: Tensors) -> None:
        stop = start + len(rows)
        out["codes"][start:stop], out["largest"][start:stop] = to_int8(rows)

    def part(self, module: Module, found: Tensors) -> RowsPart:
        return RowsPart(module.out_features, found["codes"], found["largest"])


class Int4Packer(Packer):
    title, scales = "int4, groups of 64", "scales"

    def layout(self, module: Module) -> Layout:
        return AffineLayout(module.in_features, self._group(module), torch.float16, symmetric=False)

    def shapes(self, module: Module) -> Shapes:
        rows, columns = module.out_features, module.in_features
        groups = (columns // self._group(module), rows)
        words = (torch.int32, (columns // PER_WORD, rows))
        return {"words": words, "scales": (torch.float16, groups), "zeros": (torch.uint8, groups)}

    def put(self, rows: Tensor, start: int, out: Tensors) -> None:
        codes, scales, zeros = to_int4(rows, rows.shape[1] // out["scales"].shape[0])
        place = slice(start, start + rows.shape[0])
        out["words"][:, place] = pack_codes(codes.t().contiguous())
        out["scales"][:, place], out["zeros"][:, place] = scales.t(), zeros.t()

    def part(self, module: Module, found: Tensors) -> AffinePart:
        sizes = (module.in_features, module.out_features, self._group(module))
        return AffinePart(*sizes, found["words"], found["scales"], found["zeros"])

    @staticmethod
    def _group(module: Module) -> int:
        group = group_size(module.in_features)
        assert group is not None, "see Quantiser.packed()"
        return group


PACKERS: dict[Method, Packer] = {"nf4": NF4Packer(), "int4": Int4Packer(), "int8": Int8Packer()}
"""Packers by the value of "quantise" in the options of a load; a new one is added here."""


def to_nf4(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Flat float32 weights, an even number -> bytes of two codes (the first in the high nibble), float32 magnitudes.

    Only the last block may be short. Counting the bounds below a weight is what torch.bucketize does, in a third of
    its time.
    """
    rest = -len(weights) % BLOCK
    blocks = torch.nn.functional.pad(weights, (0, rest)).view(-1, BLOCK)
    largest = blocks.abs().amax(1)
    scaled = blocks * (1.0 / largest.clamp(min=1e-38))[:, None]
    table = torch.tensor(NF4)
    codes = torch.zeros(scaled.shape, dtype=torch.uint8, device=weights.device)
    above = torch.empty(scaled.shape, dtype=torch.bool, device=weights.device)
    for bound in ((table[:-1] + table[1:]) / 2).tolist():
        torch.gt(scaled, bound, out=above)
        codes += above.view(torch.uint8)
    flat = codes.view(-1)[: len(weights)]
    return flat[::2] << 4 | flat[1::2], largest


def to_int4(weights: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """``weights [n, K]`` float32 -> codes ``[n, K]`` uint8; scales float16 and zero-points uint8, ``[n, K / group]``.

    A span holds 0 always, so that a weight of 0 stays 0. Of :data:`SHRUNK` each group takes what suits it best.
    """
    grouped = weights.view(weights.shape[0], -1, group)
    low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
    best: tuple[Tensor, Tensor, Tensor] | None = None
    for share in SHRUNK:
        # The scale is rounded before the codes are chosen, so they make up for its rounding.
        scale = ((high - low) * (share / 15)).half().float()
        zero = (-low * share * _inverse(scale)).round().clamp(0, 15)
        codes = _codes(grouped, scale, zero)
        error = codes.sub_(zero[..., None]).mul_(scale[..., None]).sub_(grouped).square_().sum(2)
        if best is None:
            best = error, scale, zero
        else:
            better = error < best[0]
            new = (error, scale, zero)
            best = tuple(torch.where(better, a, b) for a, b in zip(new, best, strict=True))  # type: ignore[assignment]
    assert best is not None
    _, scale, zero = best
    return _codes(grouped, scale, zero).to(torch.uint8).view(weights.shape), scale.half(), zero.to(torch.uint8)


def to_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """``rows [n, K]`` float32 -> codes int8 alike, and the rows' largest magnitudes ``[n]`` float32."""
    largest = rows.abs().amax(1)
    factor = torch.where(largest == 0, 0.0, 127.0 / largest)
    return (rows * factor[:, None]).round_().to(torch.int8), largest


def _codes(grouped: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Codes 0..15 as float32."""
    return (grouped * _inverse(scale)[..., None]).round_().add_(zero[..., None]).clamp_(0, 15)


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale, 0 where the scale is 0 (a group of zeros)."""
    return torch.where(scale == 0, 0.0, 1.0 / scale)


def _chunks(module: Module) -> Iterator[tuple[int, int]]:
    """Rows of about :data:`CHUNK` weights; each starts with a whole block, since K is a multiple of 8."""
    step = max(BLOCK, CHUNK // module.in_features // BLOCK * BLOCK)
    for start in range(0, module.out_features, step):
        yield start, min(start + step, module.out_features)
