"""Hands a family its weights out of a GGUF file, as :class:`engine.checkpoints.source.CheckpointSource` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.gguf.architectures import Architecture
from engine.checkpoints.gguf.container import Entry, GGUFFile
from engine.checkpoints.gguf.names import Names
from engine.checkpoints.gguf.types import FLOATING, TYPES
from engine.checkpoints.source import Packing
from engine.layers.embedding import TokenTable
from engine.layers.linear import ggml
from engine.layers.linear.base import Linear
from engine.layers.linear.dense import Concatenated, Dense
from engine.layers.linear.ggml_blocks import BLOCKS
from engine.layers.numerics import Numerics
from engine.models.base import ModelConfig

MISMATCH = "The file contradicts itself: download the model again."


class _Module(NamedTuple):
    """One linear module of the file, already checked. ``heads``: by how many its rows are interleaved; 0 if not."""

    name: str
    out_features: int
    type: int
    heads: int
    bias: bool


class GGUFSource:
    """A :class:`engine.models.base.WeightSource`. On device "meta" it plans."""

    def __init__(
        self,
        files: GGUFFile,
        config: ModelConfig,
        architecture: Architecture,
        device: torch.device,
        dtype: torch.dtype,
        weights: Packing,
        numerics: Numerics,
        on_module: Callable[[int], None] = lambda size: None,
    ) -> None:
        """``on_module(bytes)`` is called after each module with the size of the tensors just used; it may raise."""
        self.files, self.weights = files, weights
        self.numerics, self.device, self.dtype = numerics, device, dtype
        self._names, self._norm_offset = Names(architecture.names), architecture.norm_offset
        heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
        self._heads = heads if architecture.interleaved else {}
        self._on_module = on_module
        self._planning, self._native = device.type == "meta", weights == "4bit"

    # --- what families ask for ---------------------------------------------------------------------------------

    def vector(self, name: str, size: int) -> Tensor:
        offset = self._norm_offset if name.endswith("norm.weight") else 0.0
        name = self._names.tensor(name)
        self._check(name, (size,), floating=True)
        vector = self._empty(size) if self._planning else self._vector(name, 0, offset)
        self._used(name)
        return vector

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        name = self._names.tensor(name)
        entry = self._check(name, (rows, columns))
        table: Tensor | TokenTable
        if self._unpacked(entry.type):
            table = self._empty(rows, columns)
            if not self._planning:
                self._write(name, 0, table)
        else:
            table = ggml.GgmlEmbedding(self._packed(name, 0), self.dtype, self.device)
        self._used(name)
        return table

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
        if isinstance(table, ggml.GgmlEmbedding):
            return table.head(self.numerics, self._native)
        if isinstance(table, Tensor):
            return Dense(table, None, self.numerics)
        return self.linear("", ("lm_head",), [rows], columns, False)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        modules = [
            self._module(prefix + name, self._heads.get(name, 0), size, in_features, bias)
            for name, size in zip(names, sizes, strict=True)
        ]
        runs = groupby(modules, key=lambda module: self._unpacked(module.type))
        layers = [self._layer(list(run), in_features) for _, run in runs]
        self._used(*(name for module in modules for name in self._tensors(module)))
        return layers[0] if len(layers) == 1 else Concatenated(layers)

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[Linear]:
        raise CheckpointError(
            "This GGUF model has experts, which Kvasir reads from safetensors only. Choose that version of the model."
        )

    # --- building ----------------------------------------------------------------------------------------------

    def _layer(self, modules: list[_Module], in_features: int) -> Linear:
        """One layer of modules that are all to be dense, or all packed."""
        bias = self._bias(modules)
        if self._unpacked(modules[0].type):
            return Dense(self._dense(modules, in_features), bias, self.numerics)
        parts = [self._packed(f"{module.name}.weight", module.heads) for module in modules]
        return ggml.build(parts, bias, self.dtype, self.device, self.numerics, self._native)

    def _dense(self, modules: list[_Module], in_features: int) -> Tensor:
        weight = self._empty(sum(module.out_features for module in modules), in_features)
        if not self._planning:
            for module, rows in zip(modules, weight.split([module.out_features for module in modules]), strict=True):
                self._write(f"{module.name}.weight", module.heads, rows)
        return weight

    def _bias(self, modules: list[_Module]) -> Tensor | None:
        """The fused bias, zero for modules without one."""
        if not any(module.bias for module in modules):
            return None
        if self._planning:
            return self._empty(sum(module.out_features for module in modules))
        parts = [
            self._vector(f"{module.name}.bias", module.heads)
            if module.bias
            else self._empty(module.out_features).zero_()
            for module in modules
        ]
        return torch.cat(parts)

    def _vector(self, name: str, heads: int, offset: float = 0.0) -> Tensor:
        """``offset`` is what the file's values have too much."""
        stored = half_split(self.files.floating(name), heads)
        return (stored.float() - offset if offset else stored).to(self.device, self.dtype, copy=True)

    def _packed(self, name: str, heads: int) -> ggml.GgmlWeights:
        entry = self.files.entries[name]
        rows, in_features = entry.shape
        if self._planning:
            size = (rows, entry.size // rows)
            return ggml.GgmlWeights(entry.type, torch.empty(size, dtype=torch.uint8, device="meta"), in_features)
        return ggml.GgmlWeights(entry.type, half_split(self.files.packed(name), heads), in_features)

    def _write(self, name: str, heads: int, out: Tensor) -> None:
        """Write a matrix into ``out [rows, columns]``."""
        if self.files.entries[name].type in FLOATING:
            out.copy_(half_split(self.files.floating(name), heads))
        else:
            ggml.write_dense(self._packed(name, heads), out)

    def _unpacked(self, kind: int) -> bool:
        return self.weights == "16bit" or kind in FLOATING

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    # --- checks ------------------------------------------------------------------------------------------------

    def _module(self, module: str, heads: int, out_features: int, in_features: int, bias: bool) -> _Module:
        name = self._names.module(module)
        entry = self._check(f"{name}.weight", (out_features, in_features))
        if bias or f"{name}.bias" in self.files.entries:
            self._check(f"{name}.bias", (out_features,), floating=True)
            bias = True
        return _Module(name, out_features, entry.type, heads, bias)

    def _check(self, name: str, shape: tuple[int, ...], floating: bool = False) -> Entry:
        entry = self.files.entries.get(name)
        if entry is None:
            raise CheckpointError(f"The weights lack the tensor {name}. {MISMATCH}")
        if entry.shape != shape:
            raise CheckpointError(
                f"{name} has the shape {list(entry.shape)} where the metadata implies {list(shape)}. {MISMATCH}"
            )
        readable = [TYPES[kind].name for kind in (FLOATING if floating else (*FLOATING, *BLOCKS))]
        if TYPES[entry.type].name not in readable:
            raise CheckpointError(
                f"{name} is stored as {TYPES[entry.type].name}, and Kvasir reads {', '.join(readable)} there. "
                "Choose another version of the model."
            )
        return entry

    def _tensors(self, module: _Module) -> Iterator[str]:
        yield f"{module.name}.weight"
        if module.bias:
            yield f"{module.name}.bias"

    def _used(self, *names: str) -> None:
        self._on_module(sum(self.files.entries[name].size for name in names))


def half_split(rows: Tensor, heads: int) -> Tensor:
    """Rows of q or k as ggml's rotation of neighbours has them -> as the rotation of halves has them.

    ``rows [heads * head_dim, ...]``, weights or whole packed rows of them; ``heads`` 0 leaves them.
    """
    if not heads:
        return rows
    return rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
