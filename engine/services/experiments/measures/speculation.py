"""``kvasir bench --speculation``: every draft method of the model, each answer compared with the same one without.

Plain and speculative answers take turns on the same prompts, so that a drift of the machine cancels in their ratios.
From the acceptance and the costs of the steps the formula predicts a speed-up, shown next to the measured one.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from itertools import chain

import msgspec

from engine.protocol import OptionSpec, keys
from engine.services.client import Answer, EngineClient, EngineError
from engine.services.experiments.measures.steps import costs, decoding, held, own_steps, predicted
from engine.services.experiments.measures.timing import spread
from engine.services.experiments.measures.verify import measure_verify
from engine.services.experiments.pairs import turns
from engine.services.experiments.reports.speculation import OverheadRow, SpeculationFigures, TextFigures, WayRow
from engine.services.experiments.reports.tables import say
from engine.services.experiments.sides import Switched
from engine.services.experiments.workloads.drafting import AHEAD, OFF, Method, Writing
from engine.services.experiments.workloads.texts import SHORTEST, Prompt, Text, texts

TOKENS = 64
BATCHES = (1, 8)
_EXACT_TOKENS = 32


def measure_speculation(client: EngineClient, rounds: int, tokens: int = TOKENS) -> SpeculationFigures:
    """All methods on all texts with the model that ``client`` has loaded."""
    model = client.model
    found, absent = ways(client.state()[keys.SPECULATION], [proposer.name for proposer in model.drafting.proposers])
    if model.card.draft_refused:
        absent.append(f"draft model: {model.card.draft_refused}")
    kinds = [text for text in (_answerable(client, each, absent) for each in texts(model, tokens)) if text.prompts]
    plain, *sides = (Writing(client, kinds, method) for method in (OFF, *found))
    draw = random.Random(1)
    for number, place in turns(1 + len(sides), 1 + rounds, draw):  # the first is a warm-up
        side = (plain, *sides)[place]
        say(f"round {number} of {rounds}: {side.method.title}" if number else f"warming up: {side.method.title}")
        side.run()
    steps = [step for answer in _all(plain) for step in decoding(answer.steps)]
    figures = [_text(text, plain, sides) for text in kinds]
    overhead = _overheads(client, kinds, figures, found, rounds, draw)
    figures = _exact(client, kinds, figures, found, absent)
    say("checking by itself")
    return SpeculationFigures(
        model=model.card.name,
        draft=model.card.draft,
        device=model.device.type,
        dtype=str(model.model.dtype).removeprefix("torch.") if model.model is not None else "",
        rounds=rounds,
        plain_step_ms=1000 * _median([step.cost for step in steps]),
        texts=figures,
        verify=measure_verify(model, rounds),
        overhead=overhead,
        absent=absent,
    )


def ways(spec: OptionSpec, proposers: Sequence[str]) -> tuple[list[Method], list[str]]:
    """Every proposer at a fixed and an adaptive length, then the engine's own choice; and why others cannot draft."""
    found, absent = [], []
    for name, title in spec.titles.items():
        if name in spec.disabled_choices:
            absent.append(f"{title}: {spec.disabled_choices[name]}")
        elif name in proposers:
            found += [Method(name, f"{title}, {AHEAD} ahead"), Method(name, f"{title}, adaptive", ahead=0)]
        elif name == "auto":
            auto = Method(name, title, ahead=0)
    return [*found, auto], absent


def _answerable(client: EngineClient, text: Text, absent: list[str]) -> Text:
    """The text without the prompts that the model answers in fewer than :data:`SHORTEST` tokens."""
    kept = [prompt for prompt in text.prompts if len(client.answer(*prompt, OFF.switches).ids) >= SHORTEST]
    if (short := len(text.prompts) - len(kept)) > 0:
        absent.append(
            f"{text.title}: {short} of {len(text.prompts)} prompts are answered in fewer than {SHORTEST} tokens"
        )
    return text._replace(prompts=kept)


def _all(side: Writing) -> list[Answer]:
    """The answers of all runs but the warm-up."""
    return [answer for run in side.runs[1:] for answer in chain(*run.values())]


def _text(text: Text, plain: Writing, sides: Sequence[Writing]) -> TextFigures:
    tokens = sum(len(answer.ids) for answer in plain.answers[text.key])
    rows = [_row(text.key, side, plain) for side in sides]
    return TextFigures(text.key, text.title, len(text.prompts), tokens, rows)


def _row(key: str, side: Writing, plain: Writing) -> WayRow:
    """Each answer of a method is paired with the plain one to its prompt in the same round."""
    mine, beside = ([answer for run in each.runs[1:] for answer in run[key]] for each in (side, plain))
    steps = side.steps(key, plain, first=1)
    drafting = [step for step in steps if step.depths]
    known, judged = costs(steps), held(steps)
    own, others = ([answer.timings.tokens_per_second for answer in answers] for answers in (mine, beside))
    return WayRow(
        proposer=side.method.name,
        title=side.method.title,
        speed=statistics.median(own),
        plain=statistics.median(others),
        speedup=spread([one / other for one, other in zip(own, others, strict=True)]),
        accepted=[kept / made for kept, made in zip(judged.accepted, judged.proposed, strict=True)],
        acceptance=judged.share,
        tokens_per_step=sum(step.tokens for step in steps) / max(1, len(steps)),
        drafting=len(drafting) / max(1, len(steps)),
        draft_pass=known.draft_pass,
        passes=_median([step.passes for step in drafting]),
        verify_step=_median([step.cost - step.draft_cost for step in drafting]),
        verify_rows=_median([step.rows for step in drafting]),
        predicted=predicted(steps, known),
        equal=sum(one.ids == other.ids for one, other in zip(mine, beside, strict=True)),
        answers=len(mine),
    )


def _exact(
    client: EngineClient,
    kinds: Sequence[Text],
    figures: list[TextFigures],
    found: Sequence[Method],
    absent: list[str],
) -> list[TextFigures]:
    """Every method once more, drawn with keyed noise in batch-invariant arithmetic, where nothing may differ."""
    say("the same text, in batch-invariant arithmetic")
    try:
        with Switched(client, {keys.BATCH_INVARIANT: True}):
            return [_exact_text(client, *each, found) for each in zip(kinds, figures, strict=True)]
    except EngineError as error:
        absent.append(f"the same text in batch-invariant arithmetic: {error}")
        return figures


def _exact_text(client: EngineClient, text: Text, measured: TextFigures, found: Sequence[Method]) -> TextFigures:
    prompts = []
    for prompt in text.prompts:
        most = min(_EXACT_TOKENS, prompt.sampling.max_tokens or _EXACT_TOKENS)
        drawn = msgspec.structs.replace(prompt.sampling, temperature=0.7, top_p=0.95, seed=7, max_tokens=most)
        prompts.append(Prompt(prompt.ids, drawn))
    plain, *others = ([client.answer(*each, method.switches).ids for each in prompts] for method in (OFF, *found))
    rows = [
        msgspec.structs.replace(
            row, exact=sum(one == other for one, other in zip(plain, ids, strict=True)), exact_answers=len(plain)
        )
        for row, ids in zip(measured.rows, others, strict=True)
    ]
    return msgspec.structs.replace(measured, rows=rows)


def _overheads(
    client: EngineClient,
    kinds: Sequence[Text],
    figures: Sequence[TextFigures],
    found: Sequence[Method],
    rounds: int,
    draw: random.Random,
) -> list[OverheadRow]:
    """The engine's own choice compared with none, on the text where even the best fixed length gains least."""
    if not kinds:
        return []
    fixed = [place for place, method in enumerate(found) if method.ahead]
    gains = [max((text.rows[place].speedup.median for place in fixed), default=1.0) for text in figures]
    best, text = min(zip(gains, kinds, strict=True), key=lambda pair: pair[0])
    return [_overhead(client, text, best, batch, rounds, draw) for batch in BATCHES]


def _overhead(
    client: EngineClient, text: Text, best: float, batch: int, rounds: int, draw: random.Random
) -> OverheadRow:
    say(f"what automatic drafting costs on {text.title}, {batch} at once")
    prompts = [text.prompts[number % len(text.prompts)].ids for number in range(batch)]
    methods = (OFF, Method("auto", "auto"))
    speeds: tuple[list[float], list[float]] = ([], [])
    drafted: list[bool] = []
    for number, place in turns(2, 4 * rounds + 1, draw):
        answers = client.together(prompts, text.prompts[0].sampling, methods[place].switches)
        steps = own_steps(answers[0].steps)
        if number:  # the first is a warm-up
            speeds[place].append(sum(step.generated for step in steps) / sum(step.duration for step in steps))
            drafted += [step.rows.verify > 0 for step in steps if place]
    plain, auto = speeds
    return OverheadRow(
        batch=batch,
        text=text.title,
        best=best,
        speed=statistics.median(auto),
        plain=statistics.median(plain),
        ratio=spread([own / other for own, other in zip(auto, plain, strict=True)]),
        drafting=sum(drafted) / len(drafted),
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
