"""The one interface of all linear layers, whatever their weights are packed as, and what a kernel is chosen by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.numerics import Numerics


class Declined(NamedTuple):
    """A fast path that does not serve a layer, and why (a short phrase for people)."""

    path: str
    reason: str


class Surroundings(NamedTuple):
    """Parts of a layer before and after a product, for a kernel that computes them with it."""

    norm: Tensor | None = None
    """Weights [K] of the norm of x, ..."""
    eps: float = 0.0
    """... and what is added to its mean square."""
    gating: str = ""
    """Function of the gates, the first half of the output features; what it gives is multiplied by the other half."""
    stream: Tensor | None = None
    """``[T, N]``, to which the result is added in place ..."""
    by: float = 1.0
    """... so many times."""


class Linear(ABC):
    """``y = x W^T + b`` with ``W [out_features, in_features]``.

    ``kind`` names the storage ("dense", "int4"), ``path`` the fast path chosen, ``declined`` those tried before it.
    """

    in_features: int
    out_features: int
    kind: str
    path: str
    declined: list[Declined]
    as_in_file: bool = False
    """True if the weights are held as the file has them, so that loading is copying."""
    float32_is_free: bool = False
    """True if :meth:`forward_float32` takes no longer than :meth:`forward`."""
    tied: bool = False
    """True if the weights are the token table's own, which holds the memory."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """``x [T, in_features]`` in the model's dtype -> ``[T, out_features]`` in the same."""

    @abstractmethod
    def forward_float32(self, x: Tensor) -> Tensor:
        """Same as :meth:`forward`, with a float32 result that was never rounded to less (for logits)."""

    def forward_within(self, x: Tensor, around: Surroundings) -> Tensor | None:
        """What :meth:`forward` gives, with what surrounds it, by one kernel: the stream where it has been added to
        that, else a new tensor. None: :meth:`declines_within` has a reason, and nothing was done."""
        return None

    def declines_within(self, x: Tensor, around: Surroundings) -> str | None:
        """Reason there is no such kernel for ``x [T, in_features]``; None where there is one."""
        return "products of this kind are kernels of their own"

    @abstractmethod
    def storage_size(self) -> int:
        """Bytes that this layer holds, all of which one forward reads."""

    @abstractmethod
    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """A new dense ``W [out_features, in_features]``; for tests, the 16-bit switch and measurements."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)


class Target(NamedTuple):
    """Traits that layers are made for: ``dtype`` is the model's. ``native`` admits Kvasir's own kernels."""

    dtype: torch.dtype
    device: torch.device
    numerics: Numerics
    native: bool = True


class Nested(NamedTuple):
    """Packing of the blocks' magnitudes themselves: ``table[absmax] * nested_absmax[block // size] + offset``."""

    size: int
    offset: float


@dataclass(frozen=True)
class LinearShape:
    """Traits of a packed layer by which its kernel is chosen, and its tensors' sizes. ``kind`` names its paths."""

    kind: str
    in_features: int
    out_features: int
    bits: int = 4
    group: int = 1
    """Input features to a scale (the last group may be shorter), or weights to a magnitude of a table's."""
    scales: torch.dtype = torch.float32
    symmetric: bool = False
    """Every zero-point is the middle of the codes, so that none is held."""
    ordered: bool = False
    """Groups are not runs of input features."""
    even: bool = True
    """Every group has as many input features."""
    table: tuple[float, ...] = ()
    nested: Nested | None = None
    block_type: int = 0
    """ggml's number of a type of blocks."""

    @property
    def groups(self) -> int:
        return -(-self.in_features // self.group)

    def new_order(self, device: torch.device) -> Tensor | None:
        """Room for a number of each input feature, int32 [K]; None where groups are runs of them."""
        return torch.empty(self.in_features, dtype=torch.int32, device=device) if self.ordered else None


class PackedLinear(Linear):
    """A layer that is made with its tensors allocated, on device "meta" to plan with, and filled afterwards."""

    held: ClassVar[tuple[str, ...]]
    """The attributes that hold tensors (or None), besides the bias."""
    order: Tensor | None = None
    """int [K]: place i of a packed row belongs to input feature order[i]; None: each to its own."""

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        """``device`` is where the tensors are; the target's is where the layer is to compute."""
        self.in_features, self.out_features = shape.in_features, shape.out_features
        self.dtype, self.device, self.numerics = target.dtype, device, target.numerics
        self.declined = []
        self.bias: Tensor | None = None

    @abstractmethod
    def fill(self, parts: Sequence[Any]) -> None:
        """Take over packed modules, fused along their output features; they agree in everything but those."""

    def write(self, out: Tensor) -> None:
        """Write ``W [out_features, in_features]`` into ``out``, rounded once to its dtype."""
        out.copy_(self.dequantised(out.dtype))

    def ordered(self, x: Tensor) -> Tensor:
        """``x [T, K]`` in the packed order of input features, contiguous."""
        return x.contiguous() if self.order is None else x.index_select(1, self.order)

    def storage_size(self) -> int:
        tensors = [getattr(self, name) for name in (*self.held, "bias")]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


Maker = Callable[[LinearShape, Target, torch.device], PackedLinear]
"""Makes a layer, not yet filled: ``make(shape, target, device)``."""
Declines = Callable[[LinearShape, Target], str | None]
"""Reason a path does not serve a layer; None when it does."""


def _serves(shape: LinearShape, target: Target) -> None:
    return None


@dataclass(frozen=True)
class Path:
    """One way to compute a kind of layers.

    It is passed over in silence for another type of ``device``, and where it is Kvasir's ``own`` and those are not
    admitted; elsewhere ``declines`` is asked.
    """

    name: str
    make: Maker
    declines: Declines = _serves
    device: str = ""
    own: bool = False
