"""A technique: a value of a switch, with all that is said of it alone.

The record of each stands in the folder of what it describes, and ``engine.loading.techniques`` lists them all. The
catalogue takes what is registered and knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.catalogue.exclusions import Exclusion, Idle, ShapeExclusion
from engine.catalogue.option import Capability, Choice, Option


@dataclass(frozen=True, kw_only=True)
class Technique:
    """``choice`` is its value of the switch called ``switch``, which its class names, and whose reference gains
    ``paper``.

    ``options`` are switches of its own, and ``uses`` further ones that mean something with it.
    ``missing`` has the sentence for each capability of a model that it needs and brings into the catalogue.
    ``label`` is its short name in legends and lists, ``noun`` the name inside a sentence.
    ``shows`` are switches whose effect ``kvasir bench`` can show by it.
    """

    choice: Choice
    switch: str = ""
    label: str = ""
    noun: str = ""
    paper: str = ""
    options: tuple[Option, ...] = ()
    uses: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    missing: Mapping[Capability, str] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    idle: tuple[Idle, ...] = ()
    shapes: tuple[ShapeExclusion, ...] = ()

    @property
    def name(self) -> str:
        return self.choice.key
