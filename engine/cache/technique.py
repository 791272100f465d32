"""The record of a page policy, and the policy that switches choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import catalogue
from engine.catalogue.technique import Technique
from engine.protocol import Value, keys

if TYPE_CHECKING:
    from engine.cache.policies import PagePolicy
    from engine.cache.stores.kinds import Arenas
    from engine.cache.stores.store import KVStore


@dataclass(frozen=True, kw_only=True)
class PolicyTechnique(Technique):
    """A value of the switch "page_policy", which is also its policy's name.

    ``make`` makes the policy of a request from the values of all switches and the length of its prompt, None where
    there is none; it raises ValueError for settings that it cannot have. ``store`` makes arenas for one whose rows
    choose pages, with the bounds of their keys. ``tokens`` is the switch that says how many tokens rows see, ``sees``
    words for that many.
    """

    make: Callable[[Mapping[str, Value], int | None], PagePolicy]
    store: Callable[[Arenas], KVStore] | None = None
    tokens: str = ""
    sees: str = ""
    switch: str = keys.PAGE_POLICY


def policy_of(values: Mapping[str, Value], prompt_length: int | None = None) -> PagePolicy:
    """The page policy that ``values`` of all switches choose; see `PolicyTechnique.make`."""
    return catalogue.record(PolicyTechnique, values[keys.PAGE_POLICY]).make(values, prompt_length)
