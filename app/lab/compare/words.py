"""Texts of the comparison's page. Pure functions, no widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.lab.words import LETTERS, STOPPED, STOPPING, step
from app.language import known, tr
from app.panel.controls import value_title
from app.panel.titles import in_two
from app.panel.verdicts import capital
from app.settings.engine import device_title
from app.words import hardware
from engine.protocol import OptionSpec, RemoteModel, Value
from engine.protocol.compared import is_fault
from engine.protocol.lab import LabCompared, LabProgress, LabText

INTRODUCTION = tr("Every column answers the same prompts in random order, after a warm-up. Column A is the baseline.")
BASELINE, AS_IT_IS = tr("baseline"), tr("nothing changed")
NO_COMPARE = tr("This engine cannot compare.")
STARTING = tr("Loading the models…")
NO_PROMPTS = tr("This chat has no prompt yet.")
NO_CATALOGUE = tr("The engine has not told its switches yet.")
ALL_SET = tr("All switches are set.")
QUANTISE = tr("Packs a model that comes in 16 or 32 bits a weight while it is loaded.")
SERVERS_LATER = tr("Other servers: from column B on")
FIRST_HERE = tr("Column A is the baseline. Choose a model of this machine for it.")
__all__ = ["LETTERS", "STOPPED", "STOPPING"]


def no_file(path: str) -> str:
    return tr("There is no file {path}. Choose one.", path=path) if path else tr("Choose a file of prompts.")


def not_saved(error: OSError) -> str:
    return tr("The file could not be written: {why}. Choose another place.", why=error.strerror or error)


def column_name(
    model: str, quantise: str, values: Mapping[str, Value], specs: Mapping[str, OptionSpec], first: bool
) -> str:
    """Name of a column that was given none: what is changed in it. ``quantise`` "": off; ``first``: of the baseline."""
    parts = [model, quantise, *(setting(specs[key], value) for key, value in values.items())]
    return ", ".join(filter(None, parts)) or (BASELINE if first else AS_IT_IS)


def model(title: str, remote: RemoteModel | None) -> str:
    """Name of a column's model, with its server where it is another one's."""
    return title if remote is None else tr("{model} on {server}", model=remote.model, server=remote.server)


def server(name: str, models: int) -> str:
    """Heading of another server's models."""
    return name if models else tr("{server}: no models told", server=name)


def setting(spec: OptionSpec, value: Value) -> str:
    """Describe a switch with its value, such as "KV cache precision 8-bit"."""
    return f"{in_two(known(spec.title))[0]} {in_two(value_title(spec, value))[0]}"


def unlike(names: Sequence[str]) -> list[str]:
    """The names, those that come again with their column's letter."""
    return [
        f"{name} ({LETTERS[at]})" if name in names[:at] else name for at, name in enumerate(names)
    ]  # the letter of a place is no other's


def first_value(spec: OptionSpec) -> Value:
    """Value of a switch when it is added: one that is not its default, so that there is a difference."""
    if spec.kind == "bool":
        return not spec.default
    others = [value for value in (*spec.measure.compare, *spec.titles) if value != spec.default]
    return others[0] if others else spec.default


def progress(told: LabProgress, names: Sequence[str]) -> str:
    """Describe the progress, such as "Prose, run 3: int8"."""
    side = f": {names[told.side]}" if 0 <= told.side < len(names) else ""
    return f"{capital(known(told.name))}, {step(told)}{side}"


def text_tone(told: LabCompared, place: int, text: LabText) -> str:
    """``place`` counts the columns from the one after the first. A server's text is no proof of anything."""
    if told.columns[place + 1].remote is not None:
        return "caption"
    return "good" if text.same else "bad" if is_fault(told, place, text) else "warn"


def about_column(told: LabCompared, place: int, specs: Mapping[str, OptionSpec]) -> str:
    """Under a column's name: its model, and what it is set to."""
    column = told.columns[place]
    quantised = [tr("{kind} at load", kind=column.quantise)] if column.quantise != "none" else []
    values = [setting(specs[key], value) if key in specs else f"{key} {value}" for key, value in column.set.items()]
    return ", ".join([told.models[place], *quantised, *values])


def about(told: LabCompared) -> str:
    day, _, time = told.date.partition("T")
    seed = tr("seed {seed}", seed=told.seed)
    version, machine = f"Kvasir {told.version}", hardware(told.machine)  # not shown
    return " · ".join((f"{day} {time[:5]}", device_title(told.device), machine, version, seed))
