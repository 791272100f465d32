"""Texts of the Lab's pages. Pure functions, no widgets."""

from __future__ import annotations

import contextlib
import datetime

from app.lab.pictures.words import LETTERS
from app.panel.effects import TONES, EffectLine, amount
from app.settings.page import device_title
from engine.protocol import Effect, Metric, compared
from engine.protocol.lab import LabIndex, LabPage, LabProgress, LabResult, LabText, PaperFigure

NO_LAB = "This engine has no experiments."
LOOKING = "Looking at the experiments and at what was found before…"
INTRODUCTION = (
    "Each experiment shows what one technique buys on this machine: predict, run, and compare with the paper it "
    "comes from. A token is a word or a piece of one; a pair is one run of each side. Pictures of experiments that "
    "were not run yet are drawings."
)
STOPPED = "Stopped: nothing of this run was kept."
STOPPING = "Stopping…"
BUSY = "An answer is being written, which would disturb the figures. Run this when it is finished."
MEASURING = "A measurement of the panel is running. Run this when that is finished."
LOADING = "A model is being loaded. Run this when it is there."
TAKEN = "The Lab is measuring. Wait until it has finished."
LATER = "The Lab is measuring. What you asked of the engine is done when it has finished."
COMPARING = "A comparison is running."
ELSEWHERE = "Another experiment is running."
RUNNING = "It is running now."
STARTING = "Loading the model…"
PAPER_ALIKE, PAPER_OTHER, PAPER_WHY = "As in the paper", "Not as in the paper", "Why the figures differ"
SAMPLE = "The first answer, as the model wrote it: here it only matters whether the sides wrote the same."
EVERY_SIDE = "The same picture for all sides"
AGAINST, AGAINST_A = "B against A", "the others are compared with A"
TURN, ENTER, ESCAPE = "Left and Right go from side to side.", "Run (Enter)", "Stop (Esc)"
TRY = "These runs don't count for your prediction."
NO_SWITCH = "The engine is not ready yet. Try again when it has started."
NO_VERDICT = "Run, but without a verdict: its times could not be told apart."
USED_ALREADY = "Your chats use it already."


def run(page: LabPage, done: bool, brought: str) -> str:
    """The button that runs it; ``brought``: the model that Kvasir brings for it, "" for another."""
    return f"Run{' again' if done else ''}{f' with {brought}' if brought else ''}, {minutes(page.seconds)}"


def minutes(seconds: int) -> str:
    """Format a duration, such as "about 30 s", "about 3 min"."""
    return f"about {seconds} s" if seconds < 100 else f"about {round(seconds / 60)} min"


def heading(page: LabPage) -> str:
    return f"{page.number}  {page.title}"


def lettered(at: int, side: str) -> str:
    """The name of a side after the letter that it has in figures."""
    return f"{LETTERS[at]}  {side}"


def where(index: LabIndex) -> str:
    return f"With {index.model} on {device_title(index.device)}."


def memory(name: str) -> str:
    """Before a run with a model of the person's."""
    return (
        f"It runs with {name} as it is loaded; no chat is answered meanwhile. It takes longer than with the bundled "
        "model."
    )


def refusal(page: LabPage) -> str:
    return f"{page.refused} {page.instead}".strip()


def status(sides: list[str], progress: LabProgress | None) -> str:
    """Status of a run of these sides."""
    if progress is None:
        return STARTING
    side = sides[progress.side] if 0 <= progress.side < len(sides) else ""
    return doing(progress) + (f": {side}" if side else "")


def doing(progress: LabProgress) -> str:
    """Describe the step, such as "Run 11", "Run 11, running longer because this computer is busy", "Warming up"."""
    said = ", ".join(filter(None, [f"run {progress.run}" if progress.run else "", progress.sentence])) or "running"
    return f"{said[0].upper()}{said[1:]}"


def note_role(note: str) -> str:
    """Role of the note on how a run ended."""
    return "caption" if note == STOPPED else "bad"


def clear(result: LabResult) -> bool:
    """True if the question of the experiment has a verdict."""
    return result.answer is not None and compared.decided(result.answer)


def place(ratio: float, bounds: list[float]) -> int:
    """The place of the choice that a ratio bears out: the first bound that it stays below, else the last choice."""
    return next((at for at, bound in enumerate(bounds) if ratio < bound), len(bounds))


def prediction(page: LabPage, choice: int, result: LabResult) -> EffectLine:
    """Outcome of the prediction; ``choice`` is -1 if there was none. Only clear measurements are held against it."""
    effect = result.answer
    if choice < 0 or effect is None or effect.ratio is None or result.chosen:
        return EffectLine("", "caption")
    said = f"You said “{page.choices[choice]}”"
    if not compared.decided(effect):
        return EffectLine(f"{said}{_undecided(effect, result.others)}", "mute")
    measured = compared.times(effect.ratio)
    low, high = place(effect.low, page.bounds), place(effect.high, page.bounds)
    between = f" (from {compared.times(effect.low)} to {compared.times(effect.high)})" if low != high else ""
    if place(effect.ratio, page.bounds) == choice:
        return EffectLine(f"{said}, and this computer measured {measured}{between}: right.", "right")
    return EffectLine(f"{said}; this computer measured {measured}{between}.", "mute")


def _undecided(effect: Effect, others: float | None) -> str:
    """After a prediction: why a run without a verdict neither bears it out nor refutes it."""
    low, high = compared.times(effect.low), compared.times(effect.high)
    if not compared.wide(effect):
        return f"; this computer measured no clear difference (from {low} to {high} times)."
    if others is not None and compared.is_busy(others):
        taken = f"other programs took {100 * others:.0f}\u00a0% of the processor"
        return f". This run cannot tell: {taken}. Run it again when this computer is quiet."
    if effect.verdict == "few":
        return ". This run cannot tell: too few pairs were run. Run it again to be sure."
    return f". This run cannot tell: it measured from {low} to {high} times. Run it again to be sure."


def quiet(result: LabResult) -> EffectLine:
    """The mark for a quiet or a busy computer; empty where nothing was timed."""
    said = compared.busy_or_quiet(result.others)
    return EffectLine(f"● {said}" if said else "", "warn" if compared.is_busy(result.others) else "good")


def below(result: LabResult) -> str:
    """On a card, below the headline: what has noise, and whether the computer was busy."""
    busy = compared.is_busy(result.others)
    return f"{result.second} The computer was busy." if result.second and busy else result.second


def value(number: float, metric: Metric) -> str:
    """One figure with its unit."""
    if metric.counted and metric.unit not in ("bytes", "%") and float(number).is_integer():
        return f"{number:,.0f}" + (f" {metric.unit}" if metric.unit else "")
    if metric.unit == "%":  # in the Lab a figure in % is one, and no share
        return f"{number:.0f} %"
    if metric.unit in ("bytes", "ms"):
        small = metric.unit == "ms" and 0 < number < 10
        return f"{number:.2f} ms" if small else amount(number, metric.unit)
    digits = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return digits + (f" {metric.unit}" if metric.unit else "")


def verdict(effect: Effect) -> EffectLine:
    """The ratio with its range, or that there is none."""
    known = effect.ratio is not None or effect.verdict == "none"
    return EffectLine(compared.verdict(effect), TONES[effect.verdict] if known else "caption")


def title(metric: Metric) -> str:
    return f"{metric.title[:1].upper()}{metric.title[1:]}"


def named(metric: Metric) -> str:
    """Above the figures of all sides."""
    return f"{title(metric)} (lower is better)" if metric.lower_is_better else title(metric)


def chosen(page: LabPage, result: LabResult) -> str:
    """The settings that were other than usual, "" for none: "Users 6"; with what one was cut to."""
    titles = {each.key: each.title for each in page.adjustable}
    each = (f"{titles.get(key, key)} {value:,}{result.cut(key)}" for key, value in result.chosen.items())
    return ", ".join(each)


def otherwise(chosen: str) -> str:
    """Below the headline of a run with other settings than usual."""
    return (
        f"With other sizes than usual ({chosen}), so it does not answer the question above and cannot be compared with "
        "other results."
    )


def text_verdict(text: LabText, sides: list[str]) -> EffectLine:
    if text.same:
        return EffectLine(text.sentence, "good")
    tie = " Both scores were within 0.0001 of each other there: a near-tie." if text.near_tie else ""
    at = differing(text)
    which = f" The first side that differs is {LETTERS[at]}, {sides[at]}." if len(sides) == len(text.texts) > 2 else ""
    return EffectLine(f"{text.sentence}{tie}{which}", "warn")


def written(text: LabText, sides: list[str]) -> list[tuple[str, str]]:
    """Each side with its text; empty for an older result, which does not tell whose its texts are."""
    return list(zip(sides, text.texts, strict=True)) if len(sides) == len(text.texts) else []


def differing(text: LabText) -> int:
    """The place of the first side whose text is another than the first one's."""
    return next((at for at, each in enumerate(text.texts) if each != text.texts[0]), 1)


def taken(result: LabResult) -> str:
    """Description of the measurement: how the numbers were taken, with what, where and when."""
    settings = ", ".join(f"{key} {told}" for key, told in result.settings.items())
    return (
        f"{result.taken}\n{result.model} on {device_title(result.device)} ({result.machine}), Kvasir {result.version}, "
        f"{when(result)}, seed {result.seed}" + (f"; {settings}" if settings else "") + "."
    )


def when(result: LabResult) -> str:
    with contextlib.suppress(ValueError):
        return datetime.datetime.fromisoformat(result.date).strftime("%d %B %Y, %H:%M").lstrip("0")
    return result.date


def source(paper: PaperFigure) -> str:
    return f"{paper.paper}, {paper.figure}"


def found(result: LabResult, index: LabIndex | None) -> str:
    """The headline, with the model where it is not the usual one."""
    usual, headline = index is None or result.model == index.model, compared.headline_of(result)
    return headline if usual else f"{headline} ({result.model})"


def file_name(result: LabResult) -> str:
    """Name of an exported result's file, without the suffix that tells its kind."""
    return f"kvasir-lab-{result.name}-{result.date[:10]}"


def unwritten(error: OSError) -> str:
    return f"The file could not be written ({error.strerror or error}). Choose another folder."


def saved(path: str) -> str:
    return f"Saved as {path}."


def used(titles: list[str]) -> str:
    return f"Your chats use it from now on: {', '.join(titles)}."
