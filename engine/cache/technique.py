"""The records of techniques of the cache: kinds of keys and values, and page policies, with what makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import catalogue
from engine.catalogue.technique import Technique
from engine.protocol import Value, keys

if TYPE_CHECKING:
    from engine.cache.policies import PagePolicy
    from engine.cache.stores.arenas import Arenas
    from engine.cache.stores.store import KVStore


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


@dataclass(frozen=True, kw_only=True)
class PolicyTechnique(Technique):
    """A value of the switch "page_policy", which is also its policy's name.

    ``make`` makes the policy of a request from the values of all switches and the length of its prompt, None where
    there is none; it raises ValueError for settings that it cannot have. ``ranks``: rows choose pages by bounds of
    their keys. ``tokens`` is the switch that says how many tokens rows see, ``sees`` words for that many.
    """

    make: Callable[[Mapping[str, Value], int | None], PagePolicy]
    ranks: bool = False
    tokens: str = ""
    sees: str = ""
    switch: str = keys.PAGE_POLICY


def kv_kinds() -> list[KVTechnique]:
    """The registered kinds of KV cache."""
    return catalogue.techniques(KVTechnique)


def policy_of(values: Mapping[str, Value], prompt_length: int | None = None) -> PagePolicy:
    """The page policy that ``values`` of all switches choose; see `PolicyTechnique.make`."""
    return catalogue.technique(PolicyTechnique, values[keys.PAGE_POLICY]).make(values, prompt_length)
