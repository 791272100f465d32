"""The values of switches that the person chose: which are in force, which are to be set, and which have to wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.protocol import OptionSpec, Set, Value


class Withheld(NamedTuple):
    """A wish that cannot be in force now. ``reason`` is the engine's sentence."""

    spec: OptionSpec
    value: Value
    reason: str


class Switches:
    """Keeps each choice until the person chooses otherwise, or the engine refuses it at the moment of choosing."""

    def __init__(self) -> None:
        self.wanted: dict[str, Value] = {}
        self._before: dict[str, Value | None] = {}
        """Choices that the engine has not confirmed yet, with what was wanted before; None for the default."""
        self._undone: dict[str, Value | None] = {}
        """Choices that :meth:`refuse` took back, None for the default."""
        self._tried: set[str] = set()
        """Keys that this model was given already: a value that it refused is not set again and again."""
        self._held: dict[str, str] = {}
        """Choices that are not set unless they are chosen again, and why."""

    def want(self, values: Mapping[str, object]) -> None:
        """Values from a file: what can be no value of any switch is left out."""
        self.wanted = {key: value for key, value in values.items() if _possible(value)}  # type: ignore[misc]

    def choose(self, key: str, value: Value, catalogue: Sequence[OptionSpec]) -> None:
        """The person's choice, of which the engine is being told."""
        self._before.setdefault(key, self.wanted.get(key))
        self._held.pop(key, None)
        self._undone.pop(key, None)
        self._tried.discard(key)
        self.wanted[key] = value
        if any(spec.key == key and spec.default == value for spec in catalogue):
            del self.wanted[key]

    def confirm(self, catalogue: Sequence[OptionSpec]) -> None:
        """Choices that are in force now need no way back, and those that were taken back were not refused after all."""
        for spec in catalogue:
            now = None if spec.value == spec.default else spec.value
            if spec.key in self._undone and self._undone[spec.key] == now:
                self._want(spec.key, self._undone.pop(spec.key))
            if spec.key in self._before and spec.value == self.wanted.get(spec.key, spec.default):
                del self._before[spec.key]

    def refuse(self) -> None:
        """The engine refused something: what was wanted before the choices that it did not confirm is wanted again."""
        for key, value in self._before.items():
            self._undone[key] = self.wanted.get(key)
            self._want(key, value)
        self._before.clear()

    def try_again(self) -> None:
        """Another model may take what the last one refused."""
        self._tried.clear()

    def hold_back(self, reason: str) -> None:
        """Set nothing of what is wanted now unless it is chosen again; it stays wanted."""
        self._held = dict.fromkeys(self.wanted, reason)

    def missing(self, catalogue: Sequence[OptionSpec], before_load: bool = False) -> Iterator[Set]:
        """Messages that set the engine's options; ``before_load`` only those that decide what a load makes.

        What a model can do is known after its load: before it the engine takes any value.
        """
        for spec in catalogue:
            wanted = self.wanted.get(spec.key, spec.value)
            why = "" if before_load else reason(spec, wanted)
            if wanted == spec.value or spec.key in self._tried or spec.key in self._held or why:
                continue
            if not before_load or spec.applies in ("reload", "cache"):
                self._tried.add(spec.key)
                yield Set(key=spec.key, value=wanted)

    def withheld(self, catalogue: Sequence[OptionSpec]) -> list[Withheld]:
        """The wishes that cannot be in force, each with its reason."""
        found = []
        for spec in catalogue:
            wanted = self.wanted.get(spec.key, spec.value)
            why = self._held.get(spec.key) or reason(spec, wanted)
            if wanted != spec.value and why:
                found.append(Withheld(spec, wanted, why))
        return found

    def _want(self, key: str, value: Value | None) -> None:
        """None for the default."""
        if value is None:
            self.wanted.pop(key, None)
        else:
            self.wanted[key] = value


def reason(spec: OptionSpec, value: Value) -> str:
    """Reason the option cannot have that value now, "" if it can."""
    if value == spec.default:
        return ""
    return spec.disabled_reason or spec.disabled_choices.get(str(value), "")


def _possible(value: object) -> bool:
    return isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value))
