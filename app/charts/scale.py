"""From values to places on an axis, linear or logarithmic, and which values to name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

LARGEST = 1e30
"""Values beyond it, as well as those that are no number, have no place."""
STEPS = 4
"""Steps between round values on an upright axis, at most."""
DECADES = 6


def nice_ceiling(value: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is at least ``value``; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


class Scale(NamedTuple):
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 at ``low``, 1 at ``high``, beyond them outside. ``value`` must have a place: :meth:`has`."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def has(self, value: float) -> bool:
        """True if the value is a number that this axis can show: zero has no logarithm."""
        return placeable(value, self.log)

    def ticks(self, about: int = STEPS) -> list[float]:
        """Round values from ``low`` to ``high``, rising; on a linear axis at most one more than ``about``."""
        return self._decades() if self.log else self._steps(about)

    def _steps(self, about: int) -> list[float]:
        step = nice_ceiling((self.high - self.low) / about)
        first, last = math.ceil(self.low / step - 1e-6), math.floor(self.high / step + 1e-6)
        return [number * step for number in range(first, last + 1)]

    def _decades(self) -> list[float]:
        low, high = math.log10(self.low), math.log10(self.high)
        powers = range(math.floor(low), math.ceil(high) + 1)
        inside = [10.0**power for power in powers if low - 1e-6 <= power <= high + 1e-6]
        if len(inside) > 2:
            return inside[:: -(-len(inside) // DECADES)]
        finer = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        return [value for value in finer if self.low * (1 - 1e-6) <= value <= self.high * (1 + 1e-6)]


def placeable(value: float, log: bool) -> bool:
    return abs(value) < LARGEST and (value > 1 / LARGEST if log else True)


def fitting(values: Iterable[float], log: bool, *, tight: bool = False, floor: bool = False) -> Scale:
    """A scale that holds all values that have a place on it.

    ``tight``: it ends at the outermost ones instead of at round values. ``floor``: a linear one has zero on it; without
    it, where zero is not far from the values or all of them are alike.
    """
    known = [value for value in values if placeable(value, log)]
    low, high = min(known, default=1.0 if log else 0.0), max(known, default=10.0 if log else 1.0)
    if log:
        if tight and high > low * 1.01:
            return Scale(low, high, True)
        low, high = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
        return Scale(low, high if high > low else 10 * low, True)
    flat = high - low < 1e-9 * max(abs(low), abs(high), 1e-9)
    if tight:
        room = abs(low) / 2 or 0.5
        return Scale(low - room, high + room) if flat else Scale(low, high)
    if floor or flat or 0 <= low <= (high - low) * 2:
        low, high = min(0.0, low), max(0.0, high)
    if high - low < 1e-18:
        low, high = 0.0, 1.0
    step = nice_ceiling((high - low) / STEPS)
    return Scale(math.floor(low / step + 1e-6) * step, math.ceil(high / step - 1e-6) * step)
