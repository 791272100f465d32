"""Hands a family its weights, module by module, after comparing every tensor with what the configuration implies.

The same family code runs twice: planning, when only the headers have been read and layers are built of tensors without
storage (which checks every name and shape, and gives the resident size), and loading.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.embedding import StoredEmbedding, TokenTable
from engine.compute.layers.linear import choose, ggml
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.linear.triton.experts import stacked
from engine.compute.layers.numerics import Numerics
from engine.config.model import Quantisation
from engine.formats.mapped import stays_mapped
from engine.formats.quantised.layouts import PackedModule, ggml_layer
from engine.formats.quantised.quantisation import FORMATS
from engine.formats.quantised.quantise import Module, Quantiser
from engine.formats.quantised.repacked import StoredTensor
from engine.formats.quantised.stacked import StackedExperts
from engine.formats.safetensors import TensorFiles
from engine.formats.tensors import FLOATING, Tensors

CPU = torch.device("cpu")
Packing = Literal["4bit", "4bit_torch", "16bit"]
"""Storage of packed weights: packed for the fastest kernel, packed without Kvasir's own kernel, or unpacked."""
MARKS = ("qweight", "weight_packed", "weight.quant_map", "SCB")
"""A tensor that only a packed module has."""
HEAD = "lm_head"
"""The module of the output head."""
HeadInFile = tuple[tuple[str, ...], Callable[[], Tensor]]
COMPANIONS = (
    ".qzeros", ".scales", ".g_idx",
    ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx",
    ".SCB", ".weight_format", "_proj_scales",
    ".weight_scale_inv", ".weight_global_scale", ".weight_scale_2", ".input_scale", ".input_global_scale",
    ".activation_scale", ".k_scale", ".v_scale",
)  # fmt: skip
"""Ends of the names of tensors that say how to unpack another one."""


class _Module(NamedTuple):
    """One linear module of the file, already checked. ``packed`` is None where it is dense."""

    name: str
    out_features: int
    packed: PackedModule | None
    bias: bool


class LoadSettings(NamedTuple):
    """Settings for making layers of a file. On device "meta" they are only planned, as they would be on ``computing``.

    ``on_module(bytes)`` is called after each module with the size of the tensors just used; it may raise. ``quantiser``
    packs modules that are dense in a file without packed ones, ``head_quantiser`` an output head that is dense.
    ``tables_in_file``: on a processor, token tables stay there where nothing reads them whole.
    """

    device: torch.device
    dtype: torch.dtype
    weights: Packing
    numerics: Numerics
    on_module: Callable[[int], None] = lambda size: None
    quantiser: Quantiser | None = None
    computing: torch.device = CPU
    head_quantiser: Quantiser | None = None
    tables_in_file: bool = False


class Source(ABC):
    """Base of the :class:`engine.compute.layers.interface.WeightSource` of every format."""

    def __init__(self, entries: Mapping[str, StoredTensor], settings: LoadSettings) -> None:
        self._entries = entries
        self.asked = set[str]()
        """The tensors that were read or planned so far, or the modules that they are of."""
        self.device, self.dtype, self.weights, self.numerics = settings[:4]
        self._on_module, self._quantiser, self._head_quantiser = (
            settings.on_module,
            settings.quantiser,
            settings.head_quantiser,
        )
        self._planning = self.device.type == "meta"
        device = settings.computing if self._planning else self.device
        self._target = Target(self.dtype, device, self.numerics, native=self.weights == "4bit")
        self._tables_in_file = settings.tables_in_file and stays_mapped(device)

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
        if isinstance(table, ggml.GgmlEmbedding):
            return choose.tied_head(table, self._target)
        tied = table if isinstance(table, Tensor | StoredEmbedding) else None
        if self._head_quantiser is not None:
            whole = tied.whole() if isinstance(tied, StoredEmbedding) else tied
            quantised = self._quantised_head(self._head_quantiser, whole, rows, columns)
            if quantised is not None:
                return quantised
        if tied is not None:
            head = Dense(tied.read_in() if isinstance(tied, StoredEmbedding) else tied, None, self.numerics)
            head.tied = True
            return head
        return self.linear("", (HEAD,), [rows], columns, False)

    def _quantised_head(self, quantiser: Quantiser, table: Tensor | None, rows: int, columns: int) -> Linear | None:
        """The head out of its 16- or 32-bit weight, or of a copy of the token table; None where there is no such."""
        found = self._head_in_file(rows, columns) if table is None else ((), lambda: table)
        if found is None:
            return None
        names, weight = found
        # Its kernel serves it where all other weights are unpacked, too.
        target = self._target._replace(native=self.weights != "4bit_torch")
        layer = quantiser.layer([Module(HEAD, rows, columns, weight)], None, target, self._planning)
        if layer is not None:
            self._used(*names)
        return layer

    @abstractmethod
    def _head_in_file(self, rows: int, columns: int) -> HeadInFile | None:
        """The output head's tensors by their names, and what gives its weight as the file has it.

        None where it is packed there, or has a bias.
        """

    @abstractmethod
    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        """One layer of the modules ``prefix + name``, fused along their output features, which are ``sizes``."""

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _used(self, *names: str) -> None:
        self.asked.update(names)
        self._on_module(sum(self._entries[name].size for name in names))


class CheckpointSource(Source):
    """The source of a folder of safetensors."""

    def __init__(self, files: TensorFiles, quantisation: Quantisation | None, settings: LoadSettings) -> None:
        super().__init__(files.entries, settings)
        self.files, self.quantisation = files, quantisation
        self._tensors = Tensors(files, quantisation.method if quantisation is not None else "")
        self._names = sorted(files.entries)

    # --- what families ask for ---------------------------------------------------------------------------------

    def vector(self, name: str, size: int) -> Tensor:
        tensor = self._floating(name, (size,))
        self._used(name)
        return tensor.to(self.device, self.dtype, copy=True)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self._tensors.shape(name)
        alike = [size for size in found if size != 1] == [size for size in shape if size != 1]
        tensor = self._floating(name, found if alike else shape)
        self._used(name)
        return tensor.to(self.device, torch.float32, copy=True).view(shape)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        tensor = self._floating(name, (rows, columns))
        table: Tensor | TokenTable
        if self._tables_in_file and self.files.stays(name):
            stored = self._empty(rows, columns) if self._planning else self.files.in_file(name)
            table = StoredEmbedding(stored, self.dtype, self.device)
        else:
            table = tensor.to(self.device, self.dtype, copy=True)
        self._used(name)
        return table

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        return self._linear(self._modules(prefix, names, sizes, in_features, bias), in_features)

    def _head_in_file(self, rows: int, columns: int) -> HeadInFile | None:
        if self._packed(HEAD, rows, columns) is not None or self._tensors.has(f"{HEAD}.bias"):
            return None
        name = f"{HEAD}.weight"
        self._floating(name, (rows, columns))
        return (name,), functools.partial(self.files.view, name)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        modules = self._modules("", [prefix], [rows], columns, False)
        weight = self._dense(modules, columns)
        self._used_modules(modules)
        return weight

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        found = StackedExperts.find(self._tensors, prefix, names)
        if found is None:
            modules = (self._modules(f"{prefix}{expert}.", names, sizes, in_features, bias) for expert in range(count))
            return stacked(self._experts(modules, in_features), count, self._target)
        tensors = StackedExperts(self._tensors, found, count, sizes, in_features, bias)
        return stacked(self._stacked_experts(tensors, count), count, self._target)

    # --- layers ------------------------------------------------------------------------------------------------

    def _linear(self, modules: list[_Module], in_features: int) -> Linear:
        layer = self._layer(modules, in_features)
        self._used_modules(modules)
        return layer

    def _experts(self, experts: Iterator[list[_Module]], in_features: int) -> Iterator[Linear]:
        """A layer for each; while planning those that are alike share one, because there may be thousands."""
        layer: Linear | None = None
        before: list[Any] | None = None
        for modules in experts:
            self.asked.update(module.name for module in modules)
            kind = [(module.out_features, module.packed and module.packed.layout, module.bias) for module in modules]
            if layer is None or not (self._planning and kind == before):
                layer = self._linear(modules, in_features)
            yield layer
            before = kind

    def _stacked_experts(self, tensors: StackedExperts, count: int) -> Iterator[Linear]:
        """A layer for each expert out of the tensors of all; likewise."""
        self.asked.update(tensors.names())
        if self._planning:
            yield from [self._stacked(tensors, 0)] * count
            return
        share = sum(self.files.entries[name].size for name in tensors.names()) // count
        for expert in range(count):
            yield self._stacked(tensors, expert)
            self._on_module(share)

    def _layer(self, modules: list[_Module], in_features: int) -> Linear:
        """One layer of the modules where their formats and groups agree, side by side otherwise."""
        kinds = [module.packed for module in modules]
        if self.weights == "16bit" or not any(kinds):
            return Dense(self._dense(modules, in_features), self._bias(modules), self.numerics)
        first = kinds[0]
        if first is None or any(kind is None or kind.layout != first.layout for kind in kinds):
            return self._apart(modules, in_features)
        if self._planning:
            total = sum(module.out_features for module in modules)
            return first.layout.planned(total, self._bias(modules), self._target)
        parts = [kind.read() for kind in kinds if kind is not None]
        if not first.layout.fuses(parts):
            return self._apart(modules, in_features)
        return first.layout.built(parts, self._bias(modules), self._target)

    def _stacked(self, stacked: StackedExperts, expert: int) -> Linear:
        """The layer of one expert out of a tensor of all."""
        bias = self._empty(stacked.out_features) if stacked.bias else None
        if bias is not None and not self._planning:
            bias.copy_(stacked.bias_of(expert))
        if stacked.packed and self.weights != "16bit":
            part = stacked.planned() if self._planning else stacked.weights(expert)
            return ggml_layer([part], bias, self._target, self._planning)
        if self._quantiser is not None and not stacked.packed and self.weights != "16bit":
            view, sizes = functools.partial(stacked.dense, expert), (stacked.out_features, stacked.in_features)
            module = Module(f"{stacked.name}.{expert}", *sizes, view)
            quantised = self._quantiser.layer([module], bias, self._target, self._planning)
            if quantised is not None:
                return quantised
        weight = self._empty(stacked.out_features, stacked.in_features)
        if not self._planning and stacked.packed:
            ggml.write_dense(stacked.weights(expert), weight)
        elif not self._planning:
            weight.copy_(stacked.dense(expert))
        return Dense(weight, bias, self.numerics)

    def _apart(self, modules: list[_Module], in_features: int) -> Linear:
        layers = [self._layer([module], in_features) for module in modules]
        return layers[0] if len(layers) == 1 else Concatenated(layers)

    def _dense(self, modules: list[_Module], in_features: int) -> Tensor:
        weight = self._empty(sum(module.out_features for module in modules), in_features)
        if self._planning:
            return weight
        for module, rows in zip(modules, weight.split([module.out_features for module in modules]), strict=True):
            if module.packed is not None:
                module.packed.layout.write(module.packed.read(), rows)
            else:
                rows.copy_(self.files.view(f"{module.name}.weight"))
        return weight

    def _bias(self, modules: list[_Module]) -> Tensor | None:
        """The fused bias; zeros that a packer wrote for modules without one are dropped."""
        total = sum(module.out_features for module in modules)
        if self._planning:
            return self._empty(total) if any(module.bias for module in modules) else None
        bias = torch.zeros(total, dtype=self.dtype, device=self.device)
        for module, part in zip(modules, bias.split([module.out_features for module in modules]), strict=True):
            if module.bias:
                part.copy_(self.files.view(f"{module.name}.bias"))
        return bias if bool(bias.any()) else None

    # --- checks ------------------------------------------------------------------------------------------------

    def _modules(
        self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[_Module]:
        return [self._module(prefix + name, size, in_features, bias) for name, size in zip(names, sizes, strict=True)]

    def _module(self, name: str, out_features: int, in_features: int, bias: bool) -> _Module:
        packed = self._packed(name, out_features, in_features)
        if packed is None:
            self._floating(f"{name}.weight", (out_features, in_features))
            if self._quantiser is not None:
                view = functools.partial(self.files.view, f"{name}.weight")
                packed = self._quantiser.packed(Module(name, out_features, in_features, view))
        if bias or self._tensors.has(f"{name}.bias"):
            self._floating(f"{name}.bias", (out_features,))
            bias = True
        return _Module(name, out_features, packed, bias)

    def _packed(self, name: str, out_features: int, in_features: int) -> PackedModule | None:
        how = self.quantisation
        if how is not None and (packed := FORMATS[how.method].packed) is not None:
            return packed(self._tensors, how, name, out_features, in_features)
        if any(self._tensors.has(f"{name}.{mark}") for mark in MARKS):
            raise CheckpointError(
                f"{name} is packed, but config.json has no quantization_config that says how. Download the model again."
            )
        return None

    def _floating(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._tensors.check(name, shape, FLOATING)
        return self._empty(*shape) if self._planning else self.files.view(name)

    def _tensors_of(self, module: str) -> Iterator[str]:
        """The tensors whose names begin with the module's: neighbours among the sorted names."""
        at = bisect_left(self._names, f"{module}.")
        while at < len(self._names) and self._names[at].startswith(f"{module}."):
            yield self._names[at]
            at += 1

    def _used_modules(self, modules: list[_Module]) -> None:
        self.asked.update(module.name for module in modules)
        if not self._planning:
            self._used(*(name for module in modules for name in self._tensors_of(module.name)))


def count_parameters(files: TensorFiles, quantisation: Quantisation | None) -> int:
    """Number of the model's parameters that the tensors hold, by their headers."""
    if quantisation is None:
        return sum(entry.numel for entry in files.entries.values())
    return sum(_parameters(files, name, quantisation.bits) for name in files.entries)


def _parameters(files: TensorFiles, name: str, bits: int) -> int:
    entry, module = files.entries[name], name.rpartition(".")[0]
    if name.endswith(COMPANIONS) or ".weight." in name:
        return 0
    if name.endswith("_blocks"):
        return entry.numel * 8 // bits
    if entry.dtype == torch.uint8 and name.endswith((".weight_packed", ".weight")):
        return 8 // bits * entry.numel
    if name.endswith((".qweight", ".weight_packed")):
        zeros = files.entries.get(f"{module}.qzeros")
        if zeros is not None and entry.shape[-1:] > (0,) and len(zeros.shape) == len(entry.shape) == 2:
            # GPTQ modules may differ in bits; in AWQ both tensors are packed along N, so this is 32 there.
            stated = zeros.shape[1] * 32 // entry.shape[1]
            bits = stated if stated in range(1, 9) else bits
        return entry.numel * 32 // bits
    return 2 * entry.size if f"{name}.quant_map" in files.entries else entry.numel
