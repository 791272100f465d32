"""Switches as the engine declares them, of flat fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.protocol import ChoiceSpec, Measure, Metric, NumberRange, OptionMeasurement, OptionSpec, Value


def spec_of(
    *,
    shows: str = "token rate",
    metric: Metric = Metric(),
    compare: Sequence[Value] = (),
    lab: str = "",
    choices: Sequence[str] = (),
    choice_titles: Sequence[str] = (),
    disabled_choices: Mapping[str, str] = {},
    minimum: float | None = None,
    maximum: float | None = None,
    zero_means: str = "",
    found: str = "",
    finding: str = "",
    **fields: object,
) -> OptionSpec:
    """The record of these; choices without titles are called by their keys."""
    made = [
        ChoiceSpec(key=key, title=title, disabled_reason=disabled_choices.get(key, ""))
        for key, title in zip(choices, choice_titles or choices, strict=True)
    ]
    return OptionSpec(
        measure=Measure(shows, metric, tuple(compare), lab),
        choices=made,
        range=NumberRange(minimum, maximum, zero_means),
        found=OptionMeasurement(found, finding),
        **fields,  # type: ignore[arg-type]
    )


def refusing(spec: OptionSpec, reasons: Mapping[str, str]) -> OptionSpec:
    """The switch with these choices disabled."""
    made = [msgspec.structs.replace(each, disabled_reason=reasons.get(each.key, "")) for each in spec.choices]
    return msgspec.structs.replace(spec, choices=made)
