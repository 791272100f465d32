"""What one switch is: its name, its values, when a change takes effect, how exact it is, what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.protocol import Exactness, Value

Capability = Literal[
    "model",
    "draft model",
    "packed weights",
    "native kernel",
    "sliding window",
    "page bounds",
    "packed cache",
    "several layers",
    "medusa heads",
    "eagle head",
    "mtp layers",
]
"""What a switch may need before it can apply."""

MISSING: Mapping[Capability, str] = {
    "model": "Load a model first.",
    "draft model": "Needs a draft model: load one beside the model.",
    "several layers": "This model has too few layers to guess with some of them.",
    "medusa heads": "This model has no Medusa heads: kvasir train-heads makes them, or load theirs beside the model.",
    "eagle head": "This model has no EAGLE head: kvasir train-heads makes one, or load one beside the model.",
    "mtp layers": "This checkpoint brings no layers that predict further tokens.",
    "packed weights": "This model's weights are not packed: each has 16 or 32 bits.",
    "sliding window": "This model's positions or its cache allow no window.",
    "page bounds": "This model's cache keeps no bounds of its pages, by which they could be ranked.",
    "packed cache": "This model's keys and values cannot be packed: its heads share latents, or have an odd width.",
    "native kernel": "Kvasir's own kernel does not serve this device: kvasir doctor says why.",
}


class OptionError(ValueError):
    """A value or a combination that the engine refuses; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a choice: its key, its name in the window, what it needs, and its exactness where it has its own."""

    key: str
    title: str
    needs: tuple[Capability, ...] = ()
    exactness: Exactness | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One optimisation switch; ``compare`` holds the two values that "measure" replays (off, on).

    ``of`` is the key and the value of another, without which it means nothing.
    """

    key: str
    title: str
    group: str
    default: Value
    scope: Literal["request", "engine"]
    applies: Literal["live", "next request", "cache", "reload"]
    exactness: Exactness
    explains: str
    shows: str
    reference: str = ""
    choices: tuple[Choice, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    zero_means: str = ""
    needs: tuple[Capability, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    compare: tuple[Value, ...] = ()
    of: tuple[str, Value] = ("", "")

    @property
    def kind(self) -> Literal["bool", "choice", "int", "float"]:
        """The shape of the value, which follows from the default."""
        if self.choices:
            return "choice"
        if isinstance(self.default, bool):
            return "bool"
        return "int" if isinstance(self.default, int) else "float"

    def exactness_of(self, value: Value) -> Exactness:
        """How exact the option is at a value."""
        own = next((choice.exactness for choice in self.choices if choice.key == value), None)
        return own or self.exactness

    def parse(self, value: Value) -> Value:
        """``value`` as this option's own type. Raises :class:`OptionError` with a sentence otherwise."""
        match self.kind:
            case "bool":
                return self._parse_bool(value)
            case "choice":
                return self._parse_choice(value)
            case _:
                return self._parse_number(value)

    def _parse_bool(self, value: Value) -> bool:
        words = {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }
        parsed = value if isinstance(value, bool) else words.get(str(value).lower())
        if parsed is None:
            raise OptionError(f"{self.key} is a switch: set it to on or off, not {value!r}.")
        return parsed

    def _parse_choice(self, value: Value) -> str:
        keys = [choice.key for choice in self.choices]
        if value not in keys:
            raise OptionError(f"{self.key} knows no value {value!r}: choose one of {', '.join(keys)}.")
        return str(value)

    def _parse_number(self, value: Value) -> int | float:
        try:
            number = float(value)
        except ValueError:
            raise OptionError(f"{self.key} is a number: {value!r} is not.") from None
        whole = self.kind == "int"
        if isinstance(value, bool) or not number == number or (whole and not number.is_integer()):
            raise OptionError(f"{self.key} is a {'whole ' if whole else ''}number: {value!r} is not.")
        low, high = self.minimum, self.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise OptionError(f"{self.key} lies between {low:g} and {high:g}: {number:g} does not.")
        return int(number) if whole else number


@dataclass(frozen=True, slots=True)
class Conflict:
    """This option at ``value`` excludes another ``key`` at any of ``others``."""

    value: Value
    key: str
    others: tuple[Value, ...]
    reason: str
