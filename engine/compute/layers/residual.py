"""The residual stream of a forward, to which blocks add what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from engine.compute.layers.linear.base import Linear, Surroundings

if TYPE_CHECKING:
    from engine.compute.layers.activation import Gated
    from engine.compute.layers.interface import Norm


class ResidualStream:
    """``[T, hidden_size]``. The last addition waits for the norm that reads the sum: a GPU does both by one kernel."""

    __slots__ = ("_added", "_scale", "_x")

    def __init__(self, x: Tensor) -> None:
        """``x`` will be changed."""
        self._x, self._scale = x, 1.0
        self._added: Tensor | None = None

    def add(self, added: Tensor, scale: float = 1.0) -> None:
        """Add ``scale * added``."""
        self.value()
        self._added, self._scale = added, scale

    def normed(self, norm: Norm) -> Tensor:
        """The norm of the stream, a new tensor."""
        if self._added is None:
            return norm.forward(self._x)
        added, self._added = self._added, None
        return norm.forward_added(self._x, added, self._scale)

    def multiplied(self, norm: Norm, linear: Linear, gated: Gated | None = None) -> Tensor:
        """``linear`` of the norm of the stream, and the gating after it: one kernel where the layer has one."""
        if self._added is None:
            found = norm.forward_within(self._x, linear, "" if gated is None else gated.kind)
            if found is not None:
                return found
        x = self.normed(norm)
        return linear(x) if gated is None else gated.of(linear, x)

    def products(self, norm: Norm) -> Callable[[Linear], Tensor]:
        """Function that gives a layer's product of the norm of the stream, by one kernel where the layer has one; the
        norm is made once for all others. The stream must not change meanwhile."""
        x = self._x if self._added is None else None
        made: list[Tensor] = []

        def times(linear: Linear) -> Tensor:
            found = None if x is None or made else norm.forward_within(x, linear)
            if found is not None:
                return found
            if not made:
                made.append(self.normed(norm))
            return linear(made[0])

        return times

    def add_product(self, linear: Linear, x: Tensor, scale: float = 1.0) -> None:
        """Add ``scale`` times what ``linear`` makes of x, by its own kernel where it has one that adds."""
        stream = self.value()
        if not stream.is_cuda or linear.forward_within(x, Surroundings(stream=stream, by=scale)) is None:
            self.add(linear(x), scale)

    def parts(self) -> tuple[Tensor, Tensor | None, float]:
        """The stream without its last addition, that addition if one waits, and how many times it is to be added."""
        return self._x, self._added, self._scale

    def replace(self, x: Tensor) -> None:
        """Have ``x``, to which all was added, in the place of the stream."""
        self._x, self._added = x, None

    def renewed(self, norm: Norm) -> Tensor:
        """The norm of the stream, which takes its place (layers that normalise after their blocks)."""
        self._x = self.normed(norm)
        return self._x

    def multiply(self, factor: Tensor) -> None:
        """Multiply all that was added so far."""
        self.value().mul_(factor)

    def value(self) -> Tensor:
        """The stream itself: later additions change it."""
        if self._added is not None:
            add_scaled(self._x, self._added, self._scale)
            self._added = None
        return self._x


def add_scaled(x: Tensor, added: Tensor, scale: float) -> None:
    """``x += scale * added``, the product rounded first."""
    x += added if scale == 1 else added * scale
