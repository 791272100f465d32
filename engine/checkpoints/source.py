"""Hands a family its weights, module by module, after comparing every tensor with what the configuration implies.

The same family code runs twice: planning, when only the headers have been read and layers are built of tensors without
storage (which checks every name and shape, and gives the resident size), and loading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.gptq import GPTQWeights, planned_group
from engine.checkpoints.safetensors import TensorFiles
from engine.layers.linear import int4
from engine.layers.linear.affine import PER_WORD
from engine.layers.linear.base import Linear
from engine.layers.linear.dense import Concatenated, Dense
from engine.layers.numerics import Numerics
from engine.models.base import Quantisation

FLOATING = (torch.float32, torch.float16, torch.bfloat16)
Packing = Literal["4bit", "4bit_torch", "16bit"]
"""How 4-bit weights are held: packed for the fastest kernel, packed without Kvasir's own kernel, or unpacked."""
MISMATCH = "The configuration does not belong to these weights: download the model again."


class _Module(NamedTuple):
    """One linear module of the file, already checked."""

    name: str
    out_features: int
    packed: bool
    bias: bool


class CheckpointSource:
    """A :class:`engine.models.base.WeightSource`. On device "meta" it plans."""

    def __init__(
        self,
        files: TensorFiles,
        quantisation: Quantisation | None,
        device: torch.device,
        dtype: torch.dtype,
        weights: Packing,
        numerics: Numerics,
        on_module: Callable[[int], None] = lambda size: None,
    ) -> None:
        """``on_module(bytes)`` is called after each module with the size of the tensors just used; it may raise."""
        self.files, self.quantisation, self.weights = files, quantisation, weights
        self.numerics, self.device, self.dtype = numerics, device, dtype
        self._on_module = on_module
        self._planning = device.type == "meta"

    # --- what families ask for ---------------------------------------------------------------------------------

    def vector(self, name: str, size: int) -> Tensor:
        tensor = self._floating(name, (size,))
        self._used(name)
        return tensor.to(self.device, self.dtype, copy=True)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        tensor = self._floating(name, (rows, columns)).to(self.device, self.dtype, copy=True)
        self._used(name)
        return tensor

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        if table is not None:
            return Dense(table, None, self.numerics)
        return self.linear("", ("lm_head",), [rows], columns, False)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        modules = [
            self._module(prefix + name, size, in_features, bias) for name, size in zip(names, sizes, strict=True)
        ]
        layer = self._planned(modules, in_features) if self._planning else self._loaded(modules, in_features)
        self._used(*(name for module in modules for name in self.files.entries if name.startswith(f"{module.name}.")))
        return layer

    # --- planning ----------------------------------------------------------------------------------------------

    def _planned(self, modules: list[_Module], in_features: int) -> Linear:
        total = sum(module.out_features for module in modules)
        bias = self._empty(total) if any(module.bias for module in modules) else None
        if self.weights == "16bit" or not any(module.packed for module in modules):
            return Dense(self._empty(total, in_features), bias, self.numerics)
        if not all(module.packed for module in modules):
            return Concatenated([self._planned([module], in_features) for module in modules])
        assert self.quantisation is not None
        group = planned_group(in_features, self.quantisation.group_size)
        scales = self._scales_dtype(modules)
        layer, _ = int4.empty(
            in_features,
            total,
            group,
            scales,
            self.dtype,
            self.device,
            self.numerics,
            native=self.weights == "4bit",
            symmetric=self.quantisation.symmetric,
        )
        layer.bias = bias
        if self.quantisation.act_order:
            layer.order = torch.empty(in_features, dtype=torch.int32, device=self.device)
        return layer

    def _scales_dtype(self, modules: list[_Module]) -> torch.dtype:
        """The one dtype of the modules' scales; float32 where they differ."""
        found = {self.files.entries[f"{module.name}.scales"].dtype for module in modules}
        return found.pop() if len(found) == 1 else torch.float32

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    # --- loading -----------------------------------------------------------------------------------------------

    def _loaded(self, modules: list[_Module], in_features: int) -> Linear:
        if self.weights == "16bit" or not any(module.packed for module in modules):
            return Dense(self._dense(modules, in_features), self._bias(modules), self.numerics)
        if not all(module.packed for module in modules):
            return Concatenated([self._loaded([module], in_features) for module in modules])
        parts = [self._gptq(module) for module in modules]
        if not all(_fusable(part, parts[0]) for part in parts):
            return Concatenated([self._loaded([module], in_features) for module in modules])
        native = self.weights == "4bit"
        return int4.build(parts, self._bias(modules), self.dtype, self.device, self.numerics, native)

    def _dense(self, modules: list[_Module], in_features: int) -> Tensor:
        weight = self._empty(sum(module.out_features for module in modules), in_features)
        start = 0
        for module in modules:
            rows = weight[start : start + module.out_features]
            if module.packed:
                int4.write_dense(self._gptq(module), rows)
            else:
                rows.copy_(self.files.view(f"{module.name}.weight"))
            start += module.out_features
        return weight

    def _bias(self, modules: list[_Module]) -> Tensor | None:
        """The fused bias; zeros that a packer wrote for modules without one are dropped."""
        bias = torch.zeros(sum(module.out_features for module in modules), dtype=self.dtype, device=self.device)
        start = 0
        for module in modules:
            if module.bias:
                bias[start : start + module.out_features] = self.files.view(f"{module.name}.bias")
            start += module.out_features
        return bias if bool(bias.any()) else None

    def _gptq(self, module: _Module) -> GPTQWeights:
        assert self.quantisation is not None
        name = module.name
        qweight, qzeros, scales = (self.files.view(f"{name}.{part}") for part in ("qweight", "qzeros", "scales"))
        g_idx = self.files.view(f"{name}.g_idx") if f"{name}.g_idx" in self.files.entries else None
        return GPTQWeights(
            name, qweight, qzeros, scales, g_idx, self.quantisation.group_size, self.quantisation.zero_offset
        )

    # --- checks ------------------------------------------------------------------------------------------------

    def _module(self, name: str, out_features: int, in_features: int, bias: bool) -> _Module:
        packed = f"{name}.qweight" in self.files.entries
        if packed:
            self._check_packed(name, out_features, in_features)
        else:
            self._floating(f"{name}.weight", (out_features, in_features))
        if bias or f"{name}.bias" in self.files.entries:
            self._floating(f"{name}.bias", (out_features,))
            bias = True
        return _Module(name, out_features, packed, bias)

    def _check_packed(self, name: str, out_features: int, in_features: int) -> None:
        if self.quantisation is None:
            raise CheckpointError(
                f"{name} is packed, but config.json has no quantization_config that says how. Download the model again."
            )
        if in_features % PER_WORD or out_features % PER_WORD:
            raise CheckpointError(f"{name} of {out_features} x {in_features} cannot be packed in 4 bits. {MISMATCH}")
        size = self.quantisation.group_size if self.quantisation.group_size > 0 else in_features
        groups = -(-in_features // size)
        self._check(f"{name}.qweight", (in_features // PER_WORD, out_features), (torch.int32,))
        self._check(f"{name}.qzeros", (groups, out_features // PER_WORD), (torch.int32,))
        self._check(f"{name}.scales", (groups, out_features), FLOATING)
        if f"{name}.g_idx" in self.files.entries:
            self._check(f"{name}.g_idx", (in_features,), (torch.int32, torch.int64))

    def _floating(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._check(name, shape, FLOATING)
        return self._empty(*shape) if self._planning else self.files.view(name)

    def _check(self, name: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
        entry = self.files.entries.get(name)
        if entry is None:
            raise CheckpointError(f"The weights lack the tensor {name}. {MISMATCH}")
        if entry.shape != shape:
            raise CheckpointError(
                f"{name} has the shape {list(entry.shape)} where the configuration implies {list(shape)}. {MISMATCH}"
            )
        if entry.dtype not in dtypes:
            known = ", ".join(map(_title, dtypes))
            raise CheckpointError(
                f"{name} is stored as {_title(entry.dtype)}, and Kvasir reads {known} there. "
                "Choose another version of the model."
            )

    def _used(self, *names: str) -> None:
        self._on_module(sum(self.files.entries[name].size for name in names))


def _fusable(a: GPTQWeights, b: GPTQWeights) -> bool:
    if a.group != b.group or (a.order is None) != (b.order is None):
        return False
    return a.order is None or b.order is None or torch.equal(a.order, b.order)


def _title(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
