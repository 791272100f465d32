"""The LoRA adapters of one loaded model: what they add is put around its linear layers, and taken away again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from engine.compute.layers.linear.adapted import Adapted, LowRank, StepAdapters
from engine.compute.layers.numerics import Numerics


class Site(NamedTuple):
    """Layer that computes a linear module of the checkpoint: the output features ``[start, stop)`` of the layer that a
    block has under the name of an ``attribute``."""

    block: Any
    attribute: str
    start: int
    stop: int
    in_features: int


class Factors(NamedTuple):
    """An adapter's matrices for one module: ``down [r, in_features]`` and ``up [out_features, r]``, scaled."""

    down: Tensor
    up: Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter in memory. Its ``number`` is never another's; ``fingerprint`` is that of its files' contents.

    ``rank`` is the largest of its modules, ``bytes`` what its weights take on the device, ``base`` the model that it
    was trained for, as its file has it.
    """

    number: int
    name: str
    path: str
    fingerprint: str
    rank: int
    modules: int
    bytes: int
    base: str = ""


class ModelAdapters:
    """Adapters loaded into a model. Where none is loaded, the model's layers are what they were without this."""

    def __init__(self, numerics: Numerics) -> None:
        self.loaded: tuple[Adapter, ...] = ()
        """Replaced and never changed, so that any thread may read it."""
        self.step = StepAdapters()
        self._numerics = numerics
        self._last = 0
        self._wrapped: dict[tuple[int, str], tuple[Any, Adapted]] = {}

    def find(self, name: str) -> Adapter | None:
        return next((adapter for adapter in self.loaded if adapter.name == name), None)

    def new_number(self) -> int:
        """One that no adapter of the model had."""
        self._last += 1
        return self._last

    def attach(self, adapter: Adapter, parts: Sequence[tuple[Site, Factors]]) -> None:
        """Put the parts of an adapter, of a new name, around the layers of their sites."""
        for site, factors in parts:
            around = self._around(site)
            own = around.parts.get(adapter.number, ())
            around.parts[adapter.number] = (*own, LowRank(factors.down, factors.up, site.start, site.stop))
        self.loaded = (*self.loaded, adapter)

    def detach(self, adapter: Adapter) -> None:
        """Drop an adapter; a layer that has none left is its own again."""
        for key, (block, around) in list(self._wrapped.items()):
            around.parts.pop(adapter.number, None)
            if not around.parts:
                setattr(block, key[1], around.base)
                del self._wrapped[key]
        self.loaded = tuple(other for other in self.loaded if other is not adapter)

    def _around(self, site: Site) -> Adapted:
        key = id(site.block), site.attribute
        if key not in self._wrapped:
            around = Adapted(getattr(site.block, site.attribute), self.step, self._numerics)
            setattr(site.block, site.attribute, around)
            self._wrapped[key] = site.block, around
        return self._wrapped[key][1]


def parts_of(sites: Mapping[str, Site], factors: Mapping[str, Factors]) -> list[tuple[Site, Factors]]:
    """The factors of modules with where these are computed."""
    return [(sites[name], each) for name, each in factors.items()]
