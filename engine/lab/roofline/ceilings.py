"""The ceilings of this machine: how fast it reads and multiplies, measured and not looked up."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import torch

from engine.devices import traits
from engine.lab.roofline.work import Settings, Work, largest_packed
from engine.layers.linear.base import Linear
from engine.memory.arithmetic import GPU_WIDTH, WIDTH, best_rate, measure_products
from engine.memory.bandwidth import fresh_bandwidth, last_level_bytes
from engine.models.base import CausalLM
from engine.protocol.lab import Ceiling
from engine.sizes import human

PACKED_ROWS = 512
"""Of a product with packed weights that is measured: as many as a step reads of a prompt."""


class Rates(NamedTuple):
    """``memory`` and ``cache`` in bytes a second, ``dense`` and ``packed`` in operations a second; 0: there is none.

    ``cache`` is of a buffer as large as what a token reads, where the processor's caches hold that.
    """

    memory: float
    cache: float
    dense: float
    packed: float


def measure_rates(settings: Settings, read: float) -> Rates:
    """About a second. ``read``: bytes that a token of one answer reads."""
    device, lm = settings.model.device, settings.lm
    packed = largest_packed(lm)
    cached = not traits(device).gpu and read < last_level_bytes()
    return Rates(
        memory=fresh_bandwidth(device),
        cache=fresh_bandwidth(device, int(read)) if cached else 0.0,
        dense=measure_products(device, lm.dtype),
        packed=_measure_packed(packed, lm, device) if packed is not None else 0.0,
    )


def _measure_packed(linear: Linear, lm: CausalLM, device: torch.device) -> float:
    x = torch.ones(PACKED_ROWS, linear.in_features, dtype=lm.dtype, device=device)
    operations = 2.0 * PACKED_ROWS * linear.in_features * linear.out_features
    return best_rate(device, operations, lambda: linear.forward(x))


class Roof:
    """What the ceilings allow: a forward waits for its bytes or for its operations, whichever takes longer."""

    def __init__(self, rates: Rates, settings: Settings, read: float) -> None:
        """``read`` as in :func:`measure_rates`."""
        lm, packed = settings.lm, largest_packed(settings.lm)
        dtype = str(lm.dtype).removeprefix("torch.")
        width = GPU_WIDTH if traits(settings.model.device).gpu else WIDTH
        self.memory = Ceiling(
            name="memory",
            value=rates.memory,
            unit="bytes",
            taken="Read bandwidth: the fastest of several sums over a buffer larger than the caches.",
        )
        self.cache = Ceiling(
            name="cache",
            value=rates.cache,
            unit="bytes",
            taken=f"Read bandwidth of {human(int(read))}, which the processor's caches hold.",
        )
        self.dense = Ceiling(
            name=f"products in {dtype}",
            value=rates.dense,
            unit="operations",
            taken=f"The fastest of several products of {width:,} x {width:,} matrices.",
        )
        shape = f"{packed.in_features} x {packed.out_features}" if packed is not None else ""
        self.packed = Ceiling(
            name="packed products",
            value=rates.packed,
            unit="operations",
            taken=f"The fastest of several products of {PACKED_ROWS} rows with the model's largest layer ({shape}).",
        )

    @property
    def ceilings(self) -> list[Ceiling]:
        """Those that there are."""
        return [each for each in (self.memory, self.cache, self.dense, self.packed) if each.value]

    def reads(self, work: Work) -> Ceiling:
        """The one that holds for its bytes."""
        return self.cache if self.cache.value and work.bytes < last_level_bytes() else self.memory

    def products(self, work: Work) -> Ceiling:
        """The one that holds for its operations."""
        return self.packed if work.packed else self.dense

    def over(self, work: Work) -> float:
        """Operations a second that are possible."""
        return min(self.products(work).value, self.reads(work).value * work.intensity)

    def raise_to(self, work: Work, seconds: float, name: str) -> None:
        """A pass that was faster than a ceiling shows that it is at least as high: it was disturbed when measured."""
        self._raise(self.reads(work), work.bytes / seconds, name)
        self._raise(self.products(work), work.operations / seconds, name)

    def _raise(self, ceiling: Ceiling, rate: float, name: str) -> None:
        if rate <= ceiling.value:
            return
        said = f"a pass of {name} was {percent(rate - ceiling.value, ceiling.value)} faster, and counts."
        field = next(field for field in Rates._fields if getattr(self, field) is ceiling)
        setattr(self, field, msgspec.structs.replace(ceiling, value=rate, raised=said))


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"
