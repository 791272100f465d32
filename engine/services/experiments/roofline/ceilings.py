"""The ceilings of this machine: how fast it reads and multiplies, measured and not looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import torch

from engine.base.devices import traits
from engine.base.sizes import human
from engine.compute.layers.linear.base import Linear
from engine.compute.models.base import CausalLM
from engine.loading.memory.arithmetic import GPU_WIDTH, WIDTH, best_rate, measure_products
from engine.loading.memory.bandwidth import fresh_bandwidth, last_level_bytes
from engine.protocol.lab import Ceiling
from engine.services.experiments.roofline.work import ForwardWork, WorkSettings, largest_packed

MIXED = 0.05
"""Share of the time of all products from which on a kind of them is named."""
PACKED_ROWS = 512
"""Of a product with packed weights that is measured: as many as a step reads of a prompt."""


class Rates(NamedTuple):
    """``memory`` and ``cache`` in bytes a second, ``dense`` and ``packed`` in operations a second; 0: there is none.

    ``cache`` is of a buffer as large as what a token reads, where the processor's caches hold half of that or more.
    """

    memory: float
    cache: float
    dense: float
    packed: float


def measure_rates(settings: WorkSettings, read: float) -> Rates:
    """About a second. ``read``: bytes that a token of one answer reads."""
    device, lm = settings.model.device, settings.lm
    packed = largest_packed(lm)
    cached = not traits(device).gpu and read < cached_bytes()
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
    """Roofline of a machine: a forward waits for its bytes or for its operations, whichever takes longer."""

    def __init__(self, rates: Rates, settings: WorkSettings, read: float) -> None:
        """``read`` as in :func:`measure_rates`."""
        lm, packed = settings.lm, largest_packed(settings.lm)
        dtype = str(lm.dtype).removeprefix("torch.")
        width = GPU_WIDTH if traits(settings.model.device).gpu else WIDTH
        shape = f"{packed.in_features} x {packed.out_features}" if packed is not None else ""
        self._ceilings = {
            "memory": Ceiling(
                name="memory",
                value=rates.memory,
                unit="bytes",
                taken="Read bandwidth: the fastest of several sums over a buffer larger than the caches.",
            ),
            "cache": Ceiling(
                name="processor's cache",
                value=rates.cache,
                unit="bytes",
                taken=f"Read bandwidth of {human(int(read))}, of which the processor's caches hold half or more.",
            ),
            "dense": Ceiling(
                name=f"products in {dtype}",
                value=rates.dense,
                unit="operations",
                taken=f"The fastest of several products of {width:,} x {width:,} matrices.",
            ),
            "packed": Ceiling(
                name="packed products",
                value=rates.packed,
                unit="operations",
                taken=f"The fastest of several products of {PACKED_ROWS} rows with the largest layer ({shape}).",
            ),
        }

    @property
    def ceilings(self) -> list[Ceiling]:
        """List the ceilings that there are."""
        return [each for each in self._ceilings.values() if each.value]

    def reads(self, work: ForwardWork) -> Ceiling:
        """The one that holds for its bytes."""
        (name,) = self._reading(work)
        return self._ceilings[name]

    def products(self, work: ForwardWork) -> Ceiling:
        """The one that holds for its operations: that on which most of their time goes."""
        seconds = self._multiplying(work)
        return self._ceilings[max(seconds, key=seconds.__getitem__)]

    def binds(self, work: ForwardWork) -> str:
        """Name the ceiling that it waits for; where both kinds of products take their time, both."""
        reading, seconds = sum(self._reading(work).values()), self._multiplying(work)
        multiplying = sum(seconds.values())
        if reading > multiplying:
            return self.reads(work).name
        if min(seconds.values()) > MIXED * multiplying and len(seconds) > 1:
            return " and ".join(self._ceilings[key].name for key in seconds)
        return self.products(work).name

    def over(self, work: ForwardWork) -> float:
        """Operations a second that are possible."""
        return work.operations / max(sum(self._reading(work).values()), sum(self._multiplying(work).values()))

    def raise_to(self, passes: Iterable[tuple[str, ForwardWork, float]]) -> None:
        """Passes that were faster than a ceiling show that it is higher: it was disturbed when measured.

        Of each pass its name, its work and its seconds; the fastest counts.
        """
        most = dict.fromkeys(self._ceilings, (1.0, ""))
        for name, work, seconds in passes:
            for parts in (self._reading(work), self._multiplying(work)):
                times = sum(parts.values()) / seconds
                most.update({key: max(most[key], (times, name)) for key in parts})
        for key, (times, name) in most.items():
            if times > 1:
                said, ceiling = f"a pass of {name} was {percent(times - 1, 1)} faster, and counts.", self._ceilings[key]
                self._ceilings[key] = msgspec.structs.replace(ceiling, value=times * ceiling.value, raised=said)

    def _reading(self, work: ForwardWork) -> dict[str, float]:
        """Its seconds at the ceiling for its bytes."""
        key = "cache" if self._ceilings["cache"].value and work.bytes < cached_bytes() else "memory"
        return {key: work.bytes / self._ceilings[key].value}

    def _multiplying(self, work: ForwardWork) -> dict[str, float]:
        """Its seconds at each ceiling for operations."""
        operations = {"packed": work.packed, "dense": work.dense}
        return {key: count / self._ceilings[key].value for key, count in operations.items() if count}


def cached_bytes() -> int:
    """Bytes that are read faster than from memory: caches still hold a part of what is nearly twice as large."""
    return 2 * last_level_bytes()


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"
