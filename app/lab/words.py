"""Texts of the Lab's pages. Pure functions, no widgets."""

from __future__ import annotations

import contextlib
import datetime

from app.lab.pictures.words import LETTERS
from app.language import figure, known, locale, tr
from app.panel import verdicts
from app.panel.effects import TONES, EffectLine, amount
from app.panel.verdicts import busy_or_quiet, capital, headline_of, times
from app.settings.engine import device_title
from app.words import hardware
from engine.protocol import Effect, Metric, compared
from engine.protocol.lab import LabIndex, LabPage, LabProgress, LabResult, LabText, PaperFigure

GAP = "  "
"""Between an experiment's number and its title."""
NO_LAB = tr("This engine has no experiments.")
LOOKING = tr("Looking at the experiments and at what was found before…")
INTRODUCTION = tr(
    "Each experiment shows what one technique buys on this machine: predict, run, and compare with the paper it "
    "comes from. A token is a word or a piece of one; a pair is one run of each side. Pictures of experiments that "
    "were not run yet are drawings."
)
STOPPED = tr("Stopped: nothing of this run was kept.")
STOPPING = tr("Stopping…")
BUSY = tr("An answer is being written, which would disturb the figures. Run this when it is finished.")
MEASURING = tr("A measurement of the panel is running. Run this when that is finished.")
LOADING = tr("A model is being loaded. Run this when it is there.")
TAKEN = tr("The Lab is measuring. Wait until it has finished.")
LATER = tr("The Lab is measuring. What you asked of the engine is done when it has finished.")
COMPARING = tr("A comparison is running.")
ELSEWHERE = tr("Another experiment is running.")
RUNNING = tr("It is running now.")
STARTING = tr("Loading the model…")
PAPER_ALIKE, PAPER_OTHER = tr("As in the paper"), tr("Not as in the paper")
PAPER_WHY = tr("Why the figures differ")
SAMPLE = tr("The first answer, as the model wrote it: here it only matters whether the sides wrote the same.")
EVERY_SIDE = tr("The same picture for all sides")
AGAINST, AGAINST_A = tr("B against A"), tr("the others are compared with A")
TURN = tr("Left and Right go from side to side.")
ENTER, ESCAPE = tr("Run (Enter)"), tr("Stop (Esc)")
TRY = tr("These runs don't count for your prediction.")
NO_SWITCH = tr("The engine is not ready yet. Try again when it has started.")
NO_VERDICT = tr("Run, but without a verdict: its times could not be told apart.")
USED_ALREADY = tr("Your chats use it already.")


def run(page: LabPage, done: bool, brought: str) -> str:
    """The button that runs it; ``brought``: the model that Kvasir brings for it, "" for another."""
    time = minutes(page.seconds)
    if brought and done:
        return tr("Run again with {model}, {time}", model=brought, time=time)
    if brought:
        return tr("Run with {model}, {time}", model=brought, time=time)
    return tr("Run again, {time}", time=time) if done else tr("Run, {time}", time=time)


def minutes(seconds: int) -> str:
    """Format a duration, such as "about 30 s", "about 3 min"."""
    return tr("about {n} s", n=seconds) if seconds < 100 else tr("about {n} min", n=round(seconds / 60))


def heading(page: LabPage) -> str:
    return f"{page.number}{GAP}{known(page.title)}"


def lettered(at: int, side: str) -> str:
    """The name of a side after the letter that it has in figures."""
    return f"{LETTERS[at]}  {known(side)}"


def where(index: LabIndex) -> str:
    return tr("With {model} on {device}.", model=index.model, device=hardware(device_title(index.device)))


def memory(name: str) -> str:
    """Before a run with a model of the person's."""
    return tr(
        "It runs with {name} as it is loaded; no chat is answered meanwhile. It takes longer than with the bundled "
        "model.",
        name=name,
    )


def refusal(page: LabPage) -> str:
    return f"{known(page.refused)} {known(page.instead)}".strip()


def status(sides: list[str], progress: LabProgress | None) -> str:
    """Status of a run of these sides."""
    if progress is None:
        return STARTING
    side = known(sides[progress.side]) if 0 <= progress.side < len(sides) else ""
    return doing(progress) + (f": {side}" if side else "")


def doing(progress: LabProgress) -> str:
    """Describe the step, such as "Run 11", "Run 11, running longer because this computer is busy", "Warming up"."""
    return capital(step(progress))


def step(progress: LabProgress) -> str:
    """The same inside a sentence."""
    run = tr("run {n}", n=progress.run) if progress.run else ""
    return ", ".join(filter(None, [run, known(progress.sentence)])) or tr("running")


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
    said = known(page.choices[choice])
    if not compared.decided(effect):
        return EffectLine(_undecided(said, effect, result.others), "mute")
    measured = times(effect.ratio)
    if place(effect.low, page.bounds) != place(effect.high, page.bounds):
        low, high = times(effect.low), times(effect.high)
        measured = tr("{measured} (from {low} to {high})", measured=measured, low=low, high=high)
    if place(effect.ratio, page.bounds) == choice:
        right = tr("You said “{choice}”, and this computer measured {measured}: right.", choice=said, measured=measured)
        return EffectLine(right, "right")
    other = tr("You said “{choice}”; this computer measured {measured}.", choice=said, measured=measured)
    return EffectLine(other, "mute")


def _undecided(said: str, effect: Effect, others: float | None) -> str:
    """The prediction, and why a run without a verdict neither bears it out nor refutes it."""
    low, high = times(effect.low), times(effect.high)
    if not compared.wide(effect):
        return tr(
            "You said “{choice}”; this computer measured no clear difference (from {low} to {high} times).",
            choice=said,
            low=low,
            high=high,
        )
    if others is not None and compared.is_busy(others):
        return tr(
            "You said “{choice}”. This run cannot tell: other programs took {percent:.0f}\u00a0% of the processor. Run "
            "it again when this computer is quiet.",
            choice=said,
            percent=100 * others,
        )
    if effect.verdict == "few":
        return tr(
            "You said “{choice}”. This run cannot tell: too few pairs were run. Run it again to be sure.", choice=said
        )
    return tr(
        "You said “{choice}”. This run cannot tell: it measured from {low} to {high} times. Run it again to be sure.",
        choice=said,
        low=low,
        high=high,
    )


def quiet(result: LabResult) -> EffectLine:
    """The mark for a quiet or a busy computer; empty where nothing was timed."""
    said = busy_or_quiet(result.others)
    return EffectLine(f"● {said}" if said else "", "warn" if compared.is_busy(result.others) else "good")


def below(result: LabResult) -> str:
    """On a card, below the headline: what has noise, and whether the computer was busy."""
    second = known(result.second)
    return f"{second} {tr('The computer was busy.')}" if second and compared.is_busy(result.others) else second


def value(number: float, metric: Metric) -> str:
    """One figure with its unit."""
    if metric.counted and metric.unit not in ("bytes", "%") and float(number).is_integer():
        return figure(number, ",.0f") + (f" {known(metric.unit)}" if metric.unit else "")
    if metric.unit == "%":  # in the Lab a figure in % is one, and no share
        return f"{number:.0f} %"
    if metric.unit in ("bytes", "ms"):
        small = metric.unit == "ms" and 0 < number < 10
        return f"{figure(number, '.2f')} ms" if small else amount(number, metric.unit)  # not shown
    digits = figure(number, ",.0f" if abs(number) >= 1000 else ".3g")
    return digits + (f" {known(metric.unit)}" if metric.unit else "")


def verdict(effect: Effect) -> EffectLine:
    """The ratio with its range, or that there is none."""
    told = effect.ratio is not None or effect.verdict == "none"
    return EffectLine(verdicts.verdict(effect), TONES[effect.verdict] if told else "caption")


def title(metric: Metric) -> str:
    return capital(known(metric.title))


def named(metric: Metric) -> str:
    """Above the figures of all sides."""
    return tr("{figure} (lower is better)", figure=title(metric)) if metric.lower_is_better else title(metric)


def chosen(page: LabPage, result: LabResult) -> str:
    """The settings that were other than usual, "" for none: "Users 6"; with what one was cut to."""
    titles = {each.key: known(each.title) for each in page.adjustable}
    return ", ".join(f"{titles.get(key, key)} {_chosen(result, key)}" for key in result.chosen)


def _chosen(result: LabResult, key: str) -> str:
    """One of the settings, and the number that was used where the model or its memory allowed less."""
    chosen, used = result.chosen[key], result.settings.get(key)
    if isinstance(used, int) and used != chosen:
        return tr("{chosen:,} (cut to {used:,})", chosen=chosen, used=used)
    return figure(chosen)


def otherwise(chosen: str) -> str:
    """Below the headline of a run with other settings than usual."""
    return tr(
        "With other sizes than usual ({chosen}), so it does not answer the question above and cannot be compared with "
        "other results.",
        chosen=chosen,
    )


def text_verdict(text: LabText, sides: list[str]) -> EffectLine:
    if text.same:
        return EffectLine(known(text.sentence), "good")
    said = [known(text.sentence)]
    if text.near_tie:
        said.append(tr("Both scores were within {apart:.4f} of each other there: a near-tie.", apart=1e-4))
    if len(sides) == len(text.texts) > 2:
        at = differing(text)
        said.append(tr("The first side that differs is {letter}, {side}.", letter=LETTERS[at], side=known(sides[at])))
    return EffectLine(" ".join(said), "warn")


def written(text: LabText, sides: list[str]) -> list[tuple[str, str]]:
    """Each side with its text; empty for an older result, which does not tell whose its texts are."""
    return list(zip(sides, text.texts, strict=True)) if len(sides) == len(text.texts) else []


def differing(text: LabText) -> int:
    """The place of the first side whose text is another than the first one's."""
    return next((at for at, each in enumerate(text.texts) if each != text.texts[0]), 1)


def taken(result: LabResult) -> str:
    """Description of the measurement: how the numbers were taken, with what, where and when."""
    settings = ", ".join(f"{key} {told}" for key, told in result.settings.items())
    where = tr(
        "{model} on {device} ({machine}), Kvasir {version}, {when}, seed {seed}",
        model=result.model,
        device=device_title(result.device),
        machine=hardware(result.machine),
        version=result.version,
        when=when(result),
        seed=result.seed,
    )
    return f"{known(result.taken)}\n{where}" + (f"; {settings}" if settings else "") + "."


def when(result: LabResult) -> str:
    with contextlib.suppress(ValueError):
        date = datetime.datetime.fromisoformat(result.date)
        month = locale().monthName(date.month)
        time = date.strftime("%H:%M")
        return tr("{day} {month} {year}, {time}", day=date.day, month=month, year=date.year, time=time)
    return result.date


def source(paper: PaperFigure) -> str:
    return f"{paper.paper}, {paper.figure}"


def found(result: LabResult, index: LabIndex | None) -> str:
    """The headline, with the model where it is not the usual one."""
    usual, headline = index is None or result.model == index.model, headline_of(result)
    return headline if usual else f"{headline} ({result.model})"


def file_name(result: LabResult) -> str:
    """Name of an exported result's file, without the suffix that tells its kind."""
    return f"kvasir-lab-{result.name}-{result.date[:10]}"


def unwritten(error: OSError) -> str:
    return tr("The file could not be written ({why}). Choose another folder.", why=error.strerror or error)


def saved(path: str) -> str:
    return tr("Saved as {path}.", path=path)


def used(titles: list[str]) -> str:
    return tr("Your chats use it from now on: {settings}.", settings=", ".join(titles))
