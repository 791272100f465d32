"""The optimisations, one declarative entry each.

The panel, the command line, the wire, ``kvasir bench`` and the documentation are all built from this list. An entry
says what a switch is called, what it may be set to, when a change takes effect, how exact it is, and what must hold
for it to apply; :mod:`engine.catalogue.exclusions` says what goes together. Nothing else in the program repeats any of
that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from engine.catalogue import exclusions
from engine.catalogue.cache import CACHE
from engine.catalogue.exclusions import conflict, idle, missing  # noqa: F401 - all of the catalogue is had here
from engine.catalogue.kv_kinds import KV_KINDS
from engine.catalogue.numerics import NUMERICS
from engine.catalogue.option import Capability, Choice, Option, OptionError, Relevance  # noqa: F401
from engine.catalogue.scheduling import SCHEDULING
from engine.catalogue.speculation import speculation
from engine.catalogue.technique import Technique
from engine.catalogue.weights import WEIGHTS
from engine.protocol import ChoiceSpec, Measure, OptionMeasurement, OptionSpec, Value, keys

BY_KEY: dict[str, Option] = {}
"""The entries, in the order of :mod:`engine.protocol.keys`."""
TECHNIQUES: list[Technique] = []
"""Those registered, in the order in which they are shown."""
_BY_VALUE: dict[tuple[str, Value], Technique] = {}
T = TypeVar("T", bound=Technique)
_OWN = (*CACHE, *KV_KINDS, *SCHEDULING, *WEIGHTS, *NUMERICS)
_ORDER = [value for name, value in vars(keys).items() if name.isupper()]


def register(*techniques: Technique) -> None:
    """Add techniques: panel, command line, wire and documentation show them with the others.

    Raises ValueError for a second one of a switch and a name.
    """
    for each in techniques:
        if (each.switch, each.name) in _BY_VALUE:
            raise ValueError(f"{each.name} is registered already")
        _BY_VALUE[each.switch, each.name] = each
        TECHNIQUES.append(each)
    rebuild()


def record(kind: type[T], value: Value) -> T:
    """The technique of a ``kind`` that is this value of its switch. Raises KeyError for one that is not registered."""
    found = _BY_VALUE[kind.switch, value]
    assert isinstance(found, kind)
    return found


def records(kind: type[T]) -> list[T]:
    """The registered techniques of a kind."""
    return [each for each in TECHNIQUES if isinstance(each, kind)]


def rebuild() -> None:
    """Make the entries and the rules of what goes together anew from :data:`TECHNIQUES`."""
    _BY_VALUE.clear()
    _BY_VALUE.update({(each.switch, each.name): each for each in TECHNIQUES})
    entries = [*_OWN, *speculation(TECHNIQUES), *(entry for each in TECHNIQUES for entry in each.options)]
    BY_KEY.clear()
    BY_KEY.update({entry.key: _with_techniques(entry) for entry in sorted(entries, key=_place)})
    exclusions.fill(TECHNIQUES)


def _place(entry: Option) -> int:
    return _ORDER.index(entry.key) if entry.key in _ORDER else len(_ORDER)


def _with_techniques(entry: Option) -> Option:
    """The entry with those techniques that are values of it, and their papers."""
    mine = [each for each in TECHNIQUES if each.switch == entry.key]
    papers = filter(None, (entry.reference, *(each.paper for each in mine)))
    switch, values = entry.relevant.of
    users = (each.name for each in TECHNIQUES if each.switch == switch and entry.key in each.uses)
    return replace(
        entry,
        choices=(*entry.choices, *(each.choice for each in mine)),
        reference="; ".join(papers),
        relevant=entry.relevant._replace(of=(switch, (*values, *users))),
    )


def option(key: str) -> Option:
    """The entry called ``key``. Raises :class:`OptionError` naming the known ones."""
    try:
        return BY_KEY[key]
    except KeyError:
        raise OptionError(f"There is no optimisation called {key!r}: the known ones are {', '.join(BY_KEY)}.") from None


def defaults() -> dict[str, Value]:
    """Every key with its default value."""
    return {entry.key: entry.default for entry in BY_KEY.values()}


def validated(
    changes: Mapping[str, Value], current: Mapping[str, Value], capabilities: Collection[Capability]
) -> dict[str, Value]:
    """``current`` with ``changes`` applied, every value of its own type.

    Raises :class:`OptionError` with one sentence when a key is unknown, a value does not fit, a capability is missing,
    or two values exclude each other. A value equal to the present one is never refused.
    """
    values = dict(current)
    for key, raw in changes.items():
        entry = option(key)
        value = entry.parse(raw)
        if value != values[key] and (reason := _unavailable(entry, value, capabilities)):
            raise OptionError(reason)
        values[key] = value
    if reason := conflict(values):
        raise OptionError(reason)
    return values


def state(
    values: Mapping[str, Value], capabilities: Collection[Capability], found: Mapping[str, OptionMeasurement] = {}
) -> list[OptionSpec]:
    """The catalogue as it stands: every entry with its value and why it, or a choice of it, cannot apply now.

    ``found``: what was measured about some with the loaded model.
    """
    return [_spec(entry, values, capabilities, found.get(entry.key, OptionMeasurement())) for entry in BY_KEY.values()]


def _spec(
    entry: Option, values: Mapping[str, Value], capabilities: Collection[Capability], found: OptionMeasurement
) -> OptionSpec:
    choices = [
        ChoiceSpec(key=each.key, title=each.title, disabled_reason=_why_not(entry, each.key, values, capabilities))
        for each in entry.choices
    ]
    refused = {choice.key for choice in choices if choice.disabled_reason}
    compare = tuple(value for value in entry.measure.compare if value not in refused)
    metric, both = entry.metric_of(values[entry.key]), compare if len(compare) == 2 else ()
    reason = missing(entry.needs, capabilities)
    if entry.kind == "bool":
        reason = reason or _why_not(entry, not values[entry.key], values, capabilities)
    return OptionSpec(
        key=entry.key,
        title=entry.title,
        group=entry.group,
        kind=entry.kind,
        default=entry.default,
        value=values[entry.key],
        scope=entry.scope,
        applies=entry.applies,
        exactness=entry.exactness_of(values[entry.key]),
        explains=entry.explains,
        measure=Measure(entry.measure.shows, metric, both, entry.measure.lab),
        reference=entry.reference,
        choices=choices,
        range=entry.range,
        disabled_reason=reason,
        of=entry.relevant.of[0],
        of_values=list(entry.relevant.of[1]),
        hidden=_pointless(entry, values, capabilities),
        found=found,
        common=entry.common,
    )


def _pointless(entry: Option, values: Mapping[str, Value], capabilities: Collection[Capability]) -> bool:
    """Return True if ``entry`` means nothing on this machine, or with the other values."""
    if entry.relevant.unless and all(values[key] in others for key, others in entry.relevant.unless):
        return True
    return "model" in capabilities and not set(entry.relevant.capabilities) <= set(capabilities)


def _why_not(entry: Option, value: Value, values: Mapping[str, Value], capabilities: Collection[Capability]) -> str:
    """Reason that ``entry`` cannot be set to ``value`` while the others keep their values, or an empty string."""
    return _unavailable(entry, value, capabilities) or conflict({**values, entry.key: value})


def _unavailable(entry: Option, value: Value, capabilities: Collection[Capability]) -> str:
    of_choice = next((choice.needs for choice in entry.choices if choice.key == value), ())
    return missing((*entry.needs, *of_choice), capabilities)


rebuild()
