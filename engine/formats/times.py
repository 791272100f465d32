"""Seconds of a load by what they were spent on: quantising, packing into a layer's own layout, or copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.base import Linear
from engine.formats.quantised.quantise import Fetch, Module, Shapes, Tensors
from engine.formats.quantised.repacked import Kept


class LoadTimes:
    """Seconds by what they were for: ``seconds`` adds up to the whole. Reading a file's pages counts where it happens.

    "copying" is around the load: all that is nothing else, such as dense weights, norms and the token table.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __str__(self) -> str:
        return ", ".join(f"{what} {seconds:.2f} s" for what, seconds in self.seconds.items())

    def fetching(self, kept: Kept | None) -> Fetch:
        """Make the function that gives the quantised tensors, with its time counted; ``kept`` None keeps none."""

        def fetch(module: Module, shapes: Shapes, make: Callable[[], Tensors]) -> Tensors:
            making = self.of("quantising")(make)
            if kept is None:
                return making()
            with self.of("reading kept weights" if kept.read else "keeping weights"):
                return kept.fetch(module, shapes, making)

        return fetch

    def timed(self, source: WeightSource) -> WeightSource:
        """``source`` with the time of its packed layers counted."""
        return cast(WeightSource, _TimedSource(source, self))

    def packed(self, make: Callable[[], Sequence[Linear]]) -> Sequence[Linear]:
        """``make()``, whose time is counted as packing where a layer has another layout than its file."""
        before, start = self._total(), time.perf_counter()
        layers = make()
        if not all(layer.as_in_file for layer in layers):
            self._count("packing", time.perf_counter() - start - (self._total() - before))
        return layers

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Counts a block's seconds, less those that blocks inside it count."""
        before, start = self._total(), time.perf_counter()
        try:
            yield
        finally:
            self._count(what, time.perf_counter() - start - (self._total() - before))

    def _total(self) -> float:
        return sum(self.seconds.values())

    def _count(self, what: str, seconds: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds


class _TimedSource:
    """A :class:`WeightSource` that hands everything on."""

    def __init__(self, source: WeightSource, times: LoadTimes) -> None:
        self._source, self._times = source, times

    def linear(self, *arguments: Any) -> Linear:
        return self._times.packed(lambda: [self._source.linear(*arguments)])[0]

    def head(self, *arguments: Any) -> Linear:
        return self._times.packed(lambda: [self._source.head(*arguments)])[0]

    def experts(self, *arguments: Any) -> Sequence[Linear]:
        return self._times.packed(lambda: self._source.experts(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
