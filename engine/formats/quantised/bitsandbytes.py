"""bitsandbytes' packings: NF4 and FP4 with plain or nested magnitudes, and the rows of LLM.int8.

4 bits: ``weight [ceil(N K / 2), 1]`` bytes of two codes, the first in the high nibble (stored as any dtype);
``weight.absmax [blocks]`` float32, or uint8 with ``weight.nested_absmax`` and ``weight.nested_quant_map``;
``weight.quant_map [16]``; ``weight.quant_state.bitsandbytes__nf4`` (or ``__fp4``), the bytes of a JSON object.
8 bits: ``weight int8 [N, K]``, ``SCB float32 [N]``, ``weight_format`` (0: rows). See QuantState in its functional.py.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.base import Nested
from engine.config.model import Quantisation
from engine.formats.quantised.layouts import PackedModule, RowsLayout, RowsPart, TableLayout, TablePart
from engine.formats.tensors import MISMATCH, Tensors

BLOCKS = tuple(32 << power for power in range(8))
STORAGE = (torch.uint8, torch.int8, torch.float16, torch.bfloat16, torch.float32)
_STATE_BYTES = 4096


def packed(
    tensors: Tensors, quantisation: Quantisation, name: str, out_features: int, in_features: int
) -> PackedModule | None:
    """The module, checked against the headers and its small JSON object; None where it is not packed.

    Whether 4 or 8 bits, the tensors show, whatever the configuration says of the rest.
    """
    if tensors.has(f"{name}.SCB"):
        return _rows(tensors, name, out_features, in_features)
    for table in ("nf4", "fp4"):
        if tensors.has(f"{name}.weight.quant_state.bitsandbytes__{table}"):
            return _table(tensors, name, table, out_features, in_features)
    return None


def _rows(tensors: Tensors, name: str, out_features: int, in_features: int) -> PackedModule:
    weight, largest, layout = f"{name}.weight", f"{name}.SCB", f"{name}.weight_format"
    tensors.check(weight, (out_features, in_features), (torch.int8,), packed=True)
    tensors.check(largest, (out_features,), (torch.float32,), packed=True)
    if tensors.has(layout) and any(tensors.small(layout, 8)):
        raise CheckpointError(
            f"{layout} names an arrangement for one kind of GPU, and Kvasir reads plain rows. "
            "Choose another version of the model."
        )
    return PackedModule(
        RowsLayout(in_features), lambda: RowsPart(out_features, tensors.view(weight), tensors.view(largest))
    )


def _table(tensors: Tensors, name: str, table: str, out_features: int, in_features: int) -> PackedModule:
    weight = f"{name}.weight"
    state = _QuantState(tensors, f"{weight}.quant_state.bitsandbytes__{table}")
    count = out_features * in_features
    state.expect("quant_type", table)
    state.expect("shape", [out_features, in_features])
    block = state.integer("blocksize", BLOCKS)
    blocks = -(-count // block)
    _check_bytes(tensors, weight, (count + 1) // 2)
    tensors.check(f"{weight}.quant_map", (16,), (torch.float32,), packed=True)
    values = torch.frombuffer(bytearray(tensors.small(f"{weight}.quant_map", 64)), dtype=torch.float32).tolist()
    nested = None
    if tensors.has(f"{weight}.nested_absmax"):
        nested = Nested(state.integer("nested_blocksize", range(1, 1 << 16)), state.number("nested_offset"))
        tensors.check(f"{weight}.nested_absmax", (-(-blocks // nested.size),), (torch.float32,), packed=True)
        tensors.check(f"{weight}.nested_quant_map", (256,), (torch.float32,), packed=True)
    tensors.check(f"{weight}.absmax", (blocks,), (torch.float32 if nested is None else torch.uint8,), packed=True)
    alone = "" if nested is None and count % block == 0 else name

    def read() -> TablePart:
        outer: tuple[Tensor | None, Tensor | None] = (None, None)
        if nested is not None:
            outer = (tensors.view(f"{weight}.nested_absmax"), tensors.view(f"{weight}.nested_quant_map"))
        plain = tensors.view(weight).flatten().view(torch.uint8)
        quant_map, absmax = tensors.view(f"{weight}.quant_map"), tensors.view(f"{weight}.absmax")
        return TablePart(out_features, plain, quant_map, absmax, *outer)

    return PackedModule(TableLayout(in_features, block, tuple(values), nested, alone), read)


def _check_bytes(tensors: Tensors, name: str, size: int) -> None:
    """A tensor of any of :data:`STORAGE` that holds ``size`` bytes of codes."""
    shape = tensors.shape(name)
    dtype = tensors.dtype(name)
    width = dtype.itemsize
    if size % width == 0 and shape == (size // width,):
        tensors.check(name, shape, STORAGE, packed=True)
    else:
        tensors.check(name, (-(-size // width), 1), STORAGE, packed=True)
        if size % width:
            raise CheckpointError(f"{name} of {size:,} bytes cannot be stored as {dtype}. {MISMATCH}")


class _QuantState:
    """The JSON object of one module, every value checked."""

    def __init__(self, tensors: Tensors, name: str) -> None:
        self.name = name
        raw = tensors.small(name, _STATE_BYTES)
        try:
            self.values: Any = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{name} is not a JSON object. Download the model again.") from error
        if not isinstance(self.values, dict):
            raise CheckpointError(f"{name} is not a JSON object. Download the model again.")

    def expect(self, key: str, value: Any) -> None:
        found = self.values.get(key)
        if found != value:
            raise CheckpointError(f'{self.name} says "{key}" is {found!r} where {value!r} is due. {MISMATCH}')

    def integer(self, key: str, known: tuple[int, ...] | range) -> int:
        found = self.values.get(key)
        if type(found) is not int or found not in known:
            raise self._wrong(key, found)
        return found

    def number(self, key: str) -> float:
        found = self.values.get(key)
        if type(found) not in (int, float) or abs(found) > 3e38 or not math.isfinite(found):
            raise self._wrong(key, found)
        return float(found)

    def _wrong(self, key: str, found: Any) -> CheckpointError:
        return CheckpointError(f'{self.name} says "{key}" is {found!r}, which cannot be. Download the model again.')
