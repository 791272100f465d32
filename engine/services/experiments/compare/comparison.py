"""Compare: the same prompts in columns of any settings, models and quantisations, side by side.

Each column has an engine of its own where memory allows, so that runs of all columns alternate, in an order drawn by
lot; else each is loaded in its turn, which is said. Prose and code are measured apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import structs

from engine.cache.technique import policy_of
from engine.catalogue.metrics import FIRST_TOKEN, PER_STEP, SPEED
from engine.compute.runner.perplexity import ReaderFactory, score, scored
from engine.decoding.telemetry.pairs import LEAST
from engine.library.paths import ModelNotFound
from engine.protocol import Metric
from engine.protocol.lab import Column, ColumnQuality, KindFigures, LabCompared, LabFigure, LabText
from engine.services.answers.continuing import common
from engine.services.client import EngineError
from engine.services.experiments.compare.columns import ColumnEngine, ComparedPrompt, ComparisonRequest
from engine.services.experiments.compare.remote import TAKEN, UNPROVED, RemoteColumn
from engine.services.experiments.experiment import Lab, LabError, RunEvent
from engine.services.experiments.machine import taken_on
from engine.services.experiments.pairs import Measured, Pairs
from engine.services.experiments.same_text import NEAR_TIE, apart, gap_of
from engine.services.experiments.workloads.texts import plain

_Side: TypeAlias = ColumnEngine | RemoteColumn
MEMORY = Metric(title="weights and KV cache", unit="bytes", lower_is_better=True, counted=True)
ACCEPTED = Metric(title="draft tokens accepted", unit="%", counted=True)
JOULES = Metric(title="energy a token", unit="J", lower_is_better=True)
TOTAL = Metric(title="time of an answer", unit="ms", lower_is_better=True)
CACHED = Metric(title="prompt tokens from the cache", counted=True)
MEASURED = (
    Measured("speed", SPEED),
    Measured("first", FIRST_TOKEN),
    Measured("memory", MEMORY),
    Measured("per_step", PER_STEP),
    Measured("accepted", ACCEPTED),
)
ELSEWHERE = (Measured("total", TOTAL), Measured("cached", CACHED))
"""What is measured besides where another server has a column, as it can be seen from here."""
KINDS = {"talk": "prose", "code": "code"}
"""Of the built-in prompts, and what they are called."""
PROMPTS = 2
"""Of each kind."""
RELOADED_ROUNDS = 3
"""Rounds where each run takes a load."""


def compare(request: ComparisonRequest, show: Callable[[RunEvent], object]) -> LabCompared:
    """Run the comparison, telling its progress. Raises :class:`LabError`."""
    _check(request.columns)
    first = ColumnEngine(request, request.columns[0])
    sides = [first, *(_side(request, each) for each in request.columns[1:])]
    here = [side for side in sides if isinstance(side, ColumnEngine)]
    try:
        together = _together(here)
        kinds = [_measured(request, first, sides, *each, show) for each in _kinds(first, request)]
        quality, absent = _quality(request, first, sides, together)
        return LabCompared(
            columns=list(request.columns),
            models=[side.name for side in sides],
            seed=request.seed,
            **taken_on(first.client),
            kinds=kinds,
            quality=quality,
            lossless=[isinstance(side, ColumnEngine) and side.promises(first) for side in sides[1:]],
            taken=f"Each column answered every prompt in {'at most ' if request.elsewhere else ''}{request.tokens} "
            "tokens, once to warm up and then in rounds "
            "in random order; medians over rounds, prose and code apart. Every prompt is read from its "
            "first token, whatever the prefix cache is set to; the speed leaves the prompt out."
            + (TAKEN if request.elsewhere else "")
            + ("" if together else _in_turn(min(len(kind.figures[0].runs[0]) for kind in kinds))),
            absent=[
                *(UNPROVED.format(side.column.name) for side in sides if isinstance(side, RemoteColumn)),
                *absent,
                *_unlike_tokens(here),
            ],
        )
    except (EngineError, ModelNotFound) as error:
        raise LabError(str(error)) from error
    finally:
        for side in sides:
            side.close()


def _check(columns: Sequence[Column]) -> None:
    """Raises LabError for columns that cannot be compared."""
    if len(columns) < 2:
        raise LabError("A comparison needs at least two columns.")
    if columns[0].remote is not None:
        raise LabError("The first column is the baseline, a model of this machine. Give the other server's after it.")
    for column in columns:
        if column.remote is not None and (column.model or column.draft or column.set or column.quantise != "none"):
            raise LabError(f"{column.name} runs on another server, which has its own settings. Leave them out.")


def _side(request: ComparisonRequest, column: Column) -> _Side:
    return ColumnEngine(request, column) if column.remote is None else RemoteColumn(request, column, column.remote)


def _in_turn(rounds: int) -> str:
    """``rounds``: those that were run, of the kind of text that has the fewest."""
    few = ", too few for a verdict" if rounds < LEAST else ""
    return (
        " The models do not fit side by side: each was loaded again for every run, answered once shortly and was then "
        f"measured, in {rounds} round{'s' * (rounds > 1)}{few}."
    )


def _unlike_tokens(sides: Sequence[ColumnEngine]) -> list[str]:
    """Say how long the tokens are of each column with another vocabulary than the first: per-token figures differ."""
    first, *others = sides
    return [
        f"Figures of {side.column.name} count the tokens of another vocabulary: {side.token_length:.1f} characters "
        f"each in these answers, those of {first.column.name} {first.token_length:.1f}."
        for side in others
        if not _same_tokens(first, side)
    ]


def _together(sides: Sequence[ColumnEngine]) -> bool:
    """Open all columns; True if all fit at once, else each closes the others when it runs. Raises EngineError for one
    that never fits."""
    try:
        for side in sides:
            side.open()
        return True
    except EngineError:
        for side in sides:
            side.alone = [other for other in sides if other is not side]
        for side in sides:
            side.open()
        return False


def _kinds(first: ColumnEngine, request: ComparisonRequest) -> Iterator[tuple[str, list[ComparedPrompt]]]:
    """Kinds of text with their prompts."""
    if request.prompts:
        for kind in dict.fromkeys(prompt.kind for prompt in request.prompts):
            prompts = [prompt for prompt in request.prompts if prompt.kind == kind]
            yield kind, [structs.replace(prompt, plain=False) for prompt in prompts] if request.elsewhere else prompts
        return
    words = plain(first.client.model)
    for key, kind in KINDS.items():
        plainly = key == "code" and not request.elsewhere
        yield kind, [ComparedPrompt(text, kind, plain=plainly) for text in words[key][:PROMPTS]]


def _measured(
    request: ComparisonRequest,
    first: ColumnEngine,
    sides: Sequence[_Side],
    kind: str,
    prompts: Sequence[ComparedPrompt],
    show: Callable[[RunEvent], object],
) -> KindFigures:
    read = first.encoded(prompts)
    energy = all(side.tells_energy for side in sides if isinstance(side, ColumnEngine))
    measured = [*MEASURED, *(ELSEWHERE if request.elsewhere else ()), *([Measured("joules", JOULES)] if energy else [])]
    rounds = request.pairs or (RELOADED_ROUNDS if first.alone else 0)
    pairs = Pairs(Lab(first.client, request.seed, rounds, request.seconds), kind, measured)
    for progress in pairs.run([side.asking(kind, prompts) for side in sides]):
        show(progress)
    figures = zip(measured, pairs.figures(), strict=True)
    return KindFigures(
        kind=kind,
        prompts=[prompt.text for prompt in prompts],
        figures=[_remarked(sides, each.key, figure) if request.elsewhere else figure for each, figure in figures],
        texts=[[_text(first, side, kind, place, ids) for side in sides[1:]] for place, ids in enumerate(read)],
    )


def _remarked(sides: Sequence[_Side], key: str, figure: LabFigure) -> LabFigure:
    """The figure with what is to be said of the values of other servers."""
    remarks = [
        side.remark(key, runs) if isinstance(side, RemoteColumn) else ""
        for side, runs in zip(sides, figure.runs, strict=True)
    ]
    return structs.replace(figure, remarks=remarks)


def _text(first: ColumnEngine, side: _Side, kind: str, place: int, prompt: Sequence[int]) -> LabText:
    """Describe how a column's answer to a prompt differs from the first one's, and how near the scores were."""
    one = first.answers[kind][place].ids
    if isinstance(side, RemoteColumn):
        return side.compared(kind, place, first.text(one), len(one))
    two = side.answers[kind][place].ids
    texts_of = [first.text(one), side.text(two)]
    alike = _same_tokens(first, side)
    if one == two if alike else texts_of[0] == texts_of[1]:
        return LabText(same=True, tokens=len(one), sentence=f"Identical, {len(one)} tokens.", texts=texts_of)
    if not alike:
        return LabText(same=False, tokens=len(one), sentence="Another text, in other tokens.", texts=texts_of)
    at = common(one, two)
    gap = math.inf
    if first.name == side.name and at < min(len(one), len(two)):
        gap = gap_of(first.client.model, [*prompt, *one[:at]], one[at], two[at])
    sentence = f"Differs from token {at + 1} on.{apart(gap)}"
    return LabText(same=False, tokens=len(one), at=at, sentence=sentence, near_tie=gap < NEAR_TIE, texts=texts_of)


def _same_tokens(first: ColumnEngine, side: ColumnEngine) -> bool:
    """Return True if token ids mean the same in both."""
    assert first.tokenizer is not None
    assert side.tokenizer is not None
    return first.tokenizer.difference(side.tokenizer) == ""


def _quality(
    request: ComparisonRequest, first: ColumnEngine, sides: Sequence[_Side], together: bool
) -> tuple[list[ColumnQuality | None], list[str]]:
    """Perplexity and KL divergence of each column after the first, on the user's text; reasons where there are none."""
    none: list[ColumnQuality | None] = [None] * (len(sides) - 1)
    if not request.text:
        return none, ["Perplexity and KL: no text was given to score."]
    if not together:
        return none, ["Perplexity and KL: the models do not fit side by side."]
    found, absent = none, []
    for place, side in enumerate(sides[1:]):
        name = side.column.name
        if isinstance(side, RemoteColumn):
            absent.append(f"Perplexity and KL of {name}: another server gives no scores of a text.")
            continue
        if not _same_tokens(first, side) or first.client.model.card.vocabulary != side.client.model.card.vocabulary:
            absent.append(f"Perplexity and KL of {name}: its model has another vocabulary.")
            continue
        exact, present = (_reader(each) for each in (first, side))
        if exact is None or present is None:
            absent.append(f"Perplexity and KL of {name}: its model cannot score a text.")
            continue
        loaded = first.client.model
        assert loaded.files is not None
        ids = loaded.files.tokenizer.encode(request.text)[: min(loaded.card.context, side.client.model.card.context)]
        try:
            scores = scored(score(ids, exact, present, loaded.card.vocabulary, name))
        except ValueError as error:
            absent.append(f"Perplexity and KL of {name}: {error}")
            continue
        found[place] = ColumnQuality(
            first=scores.exact,
            perplexity=scores.present,
            kl=scores.divergence,
            same_top=scores.same_top,
            tokens=scores.tokens,
        )
    return found, absent


def _reader(side: ColumnEngine) -> ReaderFactory | None:
    """Reads as requests of this column do."""
    loaded = side.client.model
    if loaded.readers is None:
        return None
    values = {key: spec.value for key, spec in side.client.state().items()} | side.column.set
    # Rows that choose pages do so from the first on, as where the cost of that is measured elsewhere.
    return loaded.readers(policy_of(values, 1)).present
