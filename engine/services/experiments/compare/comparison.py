"""Compare: the same prompts in columns of any settings, models and quantisations, side by side.

Each column has an engine of its own where memory allows, so that runs of all columns alternate, in an order drawn by
lot; else each is loaded in its turn, which is said. Prose and code are measured apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from engine.cache.technique import policy_of
from engine.catalogue.metrics import FIRST_TOKEN, PER_STEP, SPEED
from engine.compute.runner.perplexity import ReaderFactory, score, scored
from engine.decoding.telemetry.pairs import LEAST
from engine.library.paths import ModelNotFound
from engine.protocol import Metric
from engine.protocol.lab import ColumnQuality, KindFigures, LabCompared, LabText
from engine.services.answers.continuing import common
from engine.services.client import EngineError
from engine.services.experiments.compare.columns import ColumnEngine, ComparedPrompt, ComparisonRequest
from engine.services.experiments.experiment import Lab, LabError, RunEvent
from engine.services.experiments.machine import taken_on
from engine.services.experiments.pairs import Measured, Pairs
from engine.services.experiments.same_text import NEAR_TIE, apart, gap_of
from engine.services.experiments.workloads.texts import plain

MEMORY = Metric(title="weights and KV cache", unit="bytes", lower_is_better=True, counted=True)
ACCEPTED = Metric(title="draft tokens accepted", unit="%", counted=True)
JOULES = Metric(title="energy a token", unit="J", lower_is_better=True)
MEASURED = (
    Measured("speed", SPEED),
    Measured("first", FIRST_TOKEN),
    Measured("memory", MEMORY),
    Measured("per_step", PER_STEP),
    Measured("accepted", ACCEPTED),
)
KINDS = {"talk": "prose", "code": "code"}
"""Of the built-in prompts, and what they are called."""
PROMPTS = 2
"""Of each kind."""
RELOADED_ROUNDS = 3
"""Rounds where each run takes a load."""


def compare(request: ComparisonRequest, show: Callable[[RunEvent], object]) -> LabCompared:
    """Run the comparison, telling its progress. Raises :class:`LabError`."""
    if len(request.columns) < 2:
        raise LabError("A comparison needs at least two columns.")
    sides = [ColumnEngine(request, each) for each in request.columns]
    try:
        together = _together(sides)
        kinds = [_measured(request, sides, *each, show) for each in _kinds(sides[0], request)]
        quality, absent = _quality(request, sides, together)
        return LabCompared(
            columns=list(request.columns),
            models=[side.name for side in sides],
            seed=request.seed,
            **taken_on(sides[0].client),
            kinds=kinds,
            quality=quality,
            lossless=[side.promises(sides[0]) for side in sides[1:]],
            taken=f"Each column answered every prompt in {request.tokens} tokens, once to warm up and then in rounds "
            "in random order; medians over rounds, prose and code apart. Every prompt is read from its "
            "first token, whatever the prefix cache is set to; the speed leaves the prompt out."
            + ("" if together else _in_turn(min(len(kind.figures[0].runs[0]) for kind in kinds))),
            absent=[*absent, *_unlike_tokens(sides)],
        )
    except (EngineError, ModelNotFound) as error:
        raise LabError(str(error)) from error
    finally:
        for side in sides:
            side.close()


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
            yield kind, [prompt for prompt in request.prompts if prompt.kind == kind]
        return
    words = plain(first.client.model)
    for key, kind in KINDS.items():
        yield kind, [ComparedPrompt(text, kind, plain=key == "code") for text in words[key][:PROMPTS]]


def _measured(
    request: ComparisonRequest,
    sides: Sequence[ColumnEngine],
    kind: str,
    prompts: Sequence[ComparedPrompt],
    show: Callable[[RunEvent], object],
) -> KindFigures:
    read = [side.encoded(prompts) for side in sides]
    energy = (Measured("joules", JOULES),) if all(side.tells_energy for side in sides) else ()
    rounds = request.pairs or (RELOADED_ROUNDS if sides[0].alone else 0)
    pairs = Pairs(Lab(sides[0].client, request.seed, rounds, request.seconds), kind, (*MEASURED, *energy))
    for progress in pairs.run([partial(side.run, kind, ids) for side, ids in zip(sides, read, strict=True)]):
        show(progress)
    places = range(len(prompts))
    return KindFigures(
        kind=kind,
        prompts=[prompt.text for prompt in prompts],
        figures=pairs.figures(),
        texts=[[_text(sides[0], side, kind, place, read[0][place]) for side in sides[1:]] for place in places],
    )


def _text(first: ColumnEngine, side: ColumnEngine, kind: str, place: int, prompt: Sequence[int]) -> LabText:
    """Describe how a column's answer to a prompt differs from the first one's, and how near the scores were."""
    one, two = first.answers[kind][place].ids, side.answers[kind][place].ids
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
    request: ComparisonRequest, sides: Sequence[ColumnEngine], together: bool
) -> tuple[list[ColumnQuality | None], list[str]]:
    """Perplexity and KL divergence of each column after the first, on the user's text; reasons where there are none."""
    none: list[ColumnQuality | None] = [None] * (len(sides) - 1)
    if not request.text:
        return none, ["Perplexity and KL: no text was given to score."]
    if not together:
        return none, ["Perplexity and KL: the models do not fit side by side."]
    found, absent = none, []
    first = sides[0]
    for place, side in enumerate(sides[1:]):
        name = side.column.name
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
