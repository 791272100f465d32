"""The kinds of cache that a person can choose: how many bits a key and a value take, what stays as it was, and what
makes their arenas. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine import catalogue
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.catalogue.technique import Technique
from engine.protocol import keys

if TYPE_CHECKING:
    import torch

    from engine.cache.stores.store import DenseKVStore, KVStore
    from engine.config.attention import HeadShape
    from engine.config.model import ModelConfig

LEAST_RESIDUAL = 64
"""Recent tokens that a kind keeps unpacked at the least: more than the rows of any draft tree, so that no draft token
is packed before it has been verified."""


@dataclass(frozen=True, kw_only=True)
class KVTechnique(Technique):
    """A value of the switch "kv_kind": a kind of KV cache.

    ``bits`` are those that an element may have, the last by default; of several, keys and values choose their own.
    ``scales`` gives the further bits of an element of a key and of a value for their share of scales, by the channels
    of a head. ``store`` makes arenas. ``residual`` is the number of recent tokens that are not packed.
    """

    bits: tuple[int, ...]
    store: Callable[[Arenas], KVStore]
    scales: Callable[[int], tuple[float, float]] = lambda width: (0, 0)
    residual: int = 0
    switch: str = keys.KV_KIND

    @property
    def mixes(self) -> bool:
        """True if keys may be mixed before they are packed (`engine.compute.layers.hadamard`)."""
        return keys.KV_HADAMARD in self.uses

    @property
    def widths(self) -> list[tuple[int, int]]:
        """The bits of keys and of values that may go together."""
        return [(key, value) for key in self.bits for value in self.bits]


def kv_kinds() -> list[KVTechnique]:
    """The registered kinds of KV cache."""
    return catalogue.records(KVTechnique)


@dataclass(frozen=True, slots=True)
class KVKind:
    """``key_bits``, ``value_bits`` and ``residual`` may be chosen where the kind has several; 0: the kind's own."""

    name: str = "16bit"
    key_bits: int = 0
    value_bits: int = 0
    residual: int = 0
    bounds: bool = False
    """True if bounds of each page's keys are kept too, by which rows may choose pages; "16bit" only."""
    windowed: bool = False
    """True if layers with a sliding window keep the tokens in it alone (`engine.cache.groups.window`)."""
    hadamard: bool = False
    """True if keys are mixed before they are packed (`engine.compute.layers.hadamard`); few kinds gain by that."""

    def __post_init__(self) -> None:
        if self.bounds and self.name != "16bit":
            raise ValueError("pages are ranked by keys of 16 bits")
        technique = self.technique
        if self.hadamard and not technique.mixes:
            raise ValueError(f"keys of kind {self.name} are not mixed")
        chosen, bits = len(technique.bits) > 1, technique.bits[-1]
        for field, own in (("key_bits", bits), ("value_bits", bits), ("residual", technique.residual)):
            if not chosen or not getattr(self, field):
                object.__setattr__(self, field, own)
        if not {self.key_bits, self.value_bits} <= {*technique.bits}:
            known = " or ".join(map(str, sorted(technique.bits)))
            raise ValueError(f"{technique.label} packs to {known} bits, not to {self.key_bits} and {self.value_bits}")
        if technique.residual and (self.residual < LEAST_RESIDUAL or self.residual % CHANNEL_GROUP):
            raise ValueError(
                f"{technique.label} keeps {LEAST_RESIDUAL} recent tokens or more, in groups of {CHANNEL_GROUP}"
            )

    @property
    def technique(self) -> KVTechnique:
        """The record of the kind."""
        return catalogue.record(KVTechnique, self.name)

    @property
    def title(self) -> str:
        """Name for people: "16-bit", "int8 with rotated keys", "KIVI 2-bit", "KIVI 4-bit keys, 2-bit values"."""
        name = self.technique.label
        if len(self.technique.bits) == 1:
            return name + " with rotated keys" * self.hadamard
        if self.key_bits == self.value_bits:
            return f"{name} {self.key_bits}-bit"
        return f"{name} {self.key_bits}-bit keys, {self.value_bits}-bit values"

    def key_element_bits(self, width: int) -> float:
        """Bits of one element of a key of ``width`` channels, its share of scale and minimum included."""
        return self.key_bits + self.technique.scales(width)[0]

    def value_element_bits(self, width: int) -> float:
        """Bits of one element of a value of ``width`` channels, its share of scale and minimum included."""
        return self.value_bits + self.technique.scales(width)[1]

    def bits_per_element(self, width: int) -> float:
        """The mean over keys and values, each of ``width`` channels; recent tokens (16 bits) are not counted."""
        return (self.key_element_bits(width) + self.value_element_bits(width)) / 2


class Arenas(NamedTuple):
    """Parameters of a store. ``pages`` and ``recent_pages`` each count a page 0; ``layers`` are those of the cache
    that it has."""

    config: ModelConfig
    kind: KVKind
    pages: int
    recent_pages: int
    dtype: torch.dtype
    device: torch.device
    layers: Sequence[int]
    beside: DenseKVStore | None = None
    """Has the recent tokens of all layers; None: each store has those of its own."""

    @property
    def shape(self) -> tuple[tuple[HeadShape, ...], int]:
        """Each layer's heads of keys and values, and the pages."""
        shapes = self.config.arena_shapes
        return tuple(shapes[layer] for layer in self.layers), self.pages
