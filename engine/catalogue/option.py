"""One switch: its name, its values, when a change takes effect, how exact it is, what it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.protocol import Exactness, Measure, Metric, NumberRange, Value

Capability = str
"""What a switch or a value of one may need of the model or the machine: a key of
:data:`engine.catalogue.exclusions.MISSING`."""
_SWITCH_WORDS = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


class OptionError(ValueError):
    """A value or a combination that the engine refuses; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a choice: its key, its name in the window, what it needs; its exactness and metric, if its own.

    ``explains`` is for the help, a sentence or two about this value; ``also`` are names of the technique in it.
    """

    key: str
    title: str
    needs: tuple[Capability, ...] = ()
    exactness: Exactness | None = None
    metric: Metric | None = None
    explains: str = ""
    also: tuple[str, ...] = ()


class Relevance(NamedTuple):
    """Conditions under which a switch means something: another is at one of these values, the machine and the model are
    capable of that, and not all these others are at one of these values."""

    of: tuple[str, tuple[Value, ...]] = ("", ())
    capabilities: tuple[Capability, ...] = ()
    unless: tuple[tuple[str, tuple[Value, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One optimisation switch.

    ``helps``, ``costs``, ``source`` (paths in the repository) and ``also`` (other names that people search for) are for
    the help, docs/optimisations.md, and for the text that the bundled guide learns from.
    """

    key: str
    title: str
    group: str
    default: Value
    scope: Literal["request", "engine"] = "engine"
    applies: Literal["live", "next request", "cache", "reload"]
    exactness: Exactness = "lossless"
    explains: str
    measure: Measure
    helps: str
    costs: str
    source: tuple[str, ...]
    also: tuple[str, ...] = ()
    common: bool = False
    """It is one of the few that most people set: the panel shows it before all others."""
    reference: str = ""
    choices: tuple[Choice, ...] = ()
    range: NumberRange = field(default_factory=NumberRange)
    needs: tuple[Capability, ...] = ()
    relevant: Relevance = field(default_factory=Relevance)
    on_change: Literal["", "stop sharing", "resize saved chats"] = ""
    """Action of the engine besides reading the new value: let no running answer share pages with others any more, or
    make the files of saved chats fit into their new size."""

    @property
    def kind(self) -> Literal["bool", "choice", "int", "float"]:
        """The shape of the value, which follows from the default."""
        if self.choices:
            return "choice"
        if isinstance(self.default, bool):
            return "bool"
        return "int" if isinstance(self.default, int) else "float"

    def exactness_of(self, value: Value) -> Exactness:
        """Exactness of the option at a value: the choice's own, else the option's."""
        return next((choice.exactness for choice in self.choices if choice.key == value), None) or self.exactness

    def metric_of(self, value: Value) -> Metric:
        """Metric that shows the option at a value: the choice's own, else the option's."""
        return next((choice.metric for choice in self.choices if choice.key == value), None) or self.measure.metric

    def parse(self, value: Value) -> Value:
        """``value`` as this option's own type. Raises :class:`OptionError` with a sentence otherwise."""
        match self.kind:
            case "bool":
                parsed = value if isinstance(value, bool) else _SWITCH_WORDS.get(str(value).lower())
                if parsed is None:
                    raise OptionError(f"{self.key} is a switch: set it to on or off, not {value!r:.60}.")
                return parsed
            case "choice":
                known = [choice.key for choice in self.choices]
                if value not in known:
                    raise OptionError(f"{self.key} knows no value {value!r:.60}: choose one of {', '.join(known)}.")
                return str(value)
        return self._parse_number(value)

    def _parse_number(self, value: Value) -> int | float:
        try:
            number = float(value)
        except ValueError:
            raise OptionError(f"{self.key} is a number: {value!r:.60} is not.") from None
        except OverflowError:  # an integer may be larger than any float
            number = math.inf if value > 0 else -math.inf  # type: ignore[operator]
        whole = self.kind == "int"
        odd = whole and math.isfinite(number) and not number.is_integer()
        if isinstance(value, bool) or math.isnan(number) or odd:
            raise OptionError(f"{self.key} is a {'whole ' if whole else ''}number: {value!r:.60} is not.")
        low, high = self.range.minimum, self.range.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise OptionError(f"{self.key} lies between {low:g} and {high:g}: {number:g} does not.")
        return int(number) if whole else number
