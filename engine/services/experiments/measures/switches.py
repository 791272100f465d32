"""Every switch of the catalogue on and off, side by side: the same prompts, the same seed, in turn.

In addition to speed, each switch is measured by what it is for: the figure that the window compares it by, and for
chunked prefill the longest wait of a running answer while another prompt is read.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import msgspec

from engine.catalogue import BY_KEY
from engine.catalogue.metrics import FIRST_TOKEN, PER_STEP, SPEED
from engine.decoding.speculation.technique import drafting
from engine.decoding.telemetry.pairs import estimate
from engine.loading.model import LoadModel
from engine.protocol import ChatMessage, Metric, OptionSpec, Run, Sampling, StructuredOutput, Value, keys
from engine.protocol.compared import amount
from engine.services.answers.compare import run_of
from engine.services.answers.structured import compiled
from engine.services.client import Answer, EngineClient
from engine.services.experiments.measures.timing import PeakMemory, anonymous_bytes, timed
from engine.services.experiments.pairs import turns
from engine.services.experiments.reports.tables import MB, say, show_absent, show_table
from engine.services.experiments.sides import greedy

SCHEMA = StructuredOutput(
    "json_schema",
    '{"type": "object", "required": ["answer", "confidence", "follow_up_question"], "additionalProperties": false, '
    '"properties": {"answer": {"type": "string", "maxLength": 60}, "confidence": {"enum": ["low", "high"]}, '
    '"follow_up_question": {"type": "string", "maxLength": 60}}}',
)
"""What answers are held to that show the tokens a schema forces."""


class SwitchRow(msgspec.Struct, frozen=True):
    """One switch: medians before (values[0]) and after (values[1]); ``ratio`` of decoding speed by rounds, and the
    interval around it.

    ``same`` says whether every answer had the same tokens both ways; ``shown`` is the switch's own figure.
    """

    key: str
    title: str
    values: tuple[Value, Value]
    speed: tuple[float, float]
    first_ms: tuple[float, float]
    ratio: float
    same: bool
    shown: str
    interval: tuple[float, float] = (0.0, 0.0)


class BundledFigures(msgspec.Struct, frozen=True):
    """The model that ships with the program: seconds and bytes."""

    name: str
    load_seconds: float
    peak: int
    rest: int
    switches: list[SwitchRow]
    absent: list[str] = []
    """What could not be measured with this model, and why."""

    def show(self) -> None:
        show_table(
            f"{self.name}: loaded in {self.load_seconds:.2f} s, {self.rest / MB:.0f} MB at rest, "
            f"{self.peak / MB:.0f} MB at peak",
            "switch | values | tokens/s | ratio (range) | first token, ms | text | its own figure",
            (
                f"{row.title} | {_word(row.values[0])} → {_word(row.values[1])} | "
                f"{row.speed[0]:.0f} → {row.speed[1]:.0f} | "
                f"{row.ratio:.2f} ({row.interval[0]:.2f} to {row.interval[1]:.2f}) | "
                f"{row.first_ms[0]:.0f} → {row.first_ms[1]:.0f} | {'same' if row.same else 'differs'} | {row.shown}"
                for row in self.switches
            ),
        )
        show_absent(self.absent)


def _word(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def measure_bundled(load: LoadModel, questions: Sequence[str], *, tokens: int, rounds: int) -> BundledFigures:
    """Load time, memory and every switch of a model, on the answers to ``questions``."""
    say(f"loading {load.path}")
    bare = anonymous_bytes()
    with EngineClient() as client:
        with PeakMemory() as memory, timed() as loading:
            card, _ = client.load(*load)
        rest = anonymous_bytes()
        encode = client.model.encode_prompt
        prompts = [encode([ChatMessage.of("user", question)]) for question in questions]
        length = min(1024, card.context - 128)
        long_prompt = [token for _ in range(length) for token in prompts[0]][:length]
        rows, absent = measure_switches(client, prompts, long_prompt, tokens=tokens, rounds=rounds)
    return BundledFigures(card.name, loading.seconds, memory.peak - bare, rest - bare, rows, absent)


def measure_switches(
    client: EngineClient, prompts: Sequence[list[int]], long_prompt: list[int], *, tokens: int, rounds: int
) -> tuple[list[SwitchRow], list[str]]:
    """One row for each pair of values that can be compared with the model that ``client`` has loaded.

    And the switches that nothing of this model can show, with the reason.
    """
    sampling = greedy(tokens)
    state = client.state()
    rows, absent = [], []
    found = drafters()
    for entry in BY_KEY.values():
        kinds = found.get(entry.key)
        if kinds is not None and not _drafter(entry.key, state[keys.SPECULATION]):
            absent.append(f"{entry.title}: {state[keys.SPECULATION].disabled_choices[kinds[0]]}")
            continue
        if entry.measure.compare and not state[entry.key].measure.compare:
            absent.append(f"{entry.title}: {state[entry.key].disabled_reason}")
        for before, after in _pairs(state[entry.key]):
            say(f"{entry.title}: {before} against {after}")
            rows.append(_measure(client, state[entry.key], (before, after), prompts, long_prompt, sampling, rounds))
    return rows, absent


def drafters() -> dict[str, list[str]]:
    """Switches of speculation, and the draft methods that can show their effect; the first that the model has is used.

    Those that show the most come first, so that the rows are of few methods.
    """
    found: dict[str, list[str]] = {}
    for each in sorted(drafting(), key=lambda each: -len(each.shows)):
        for key in each.shows:
            found.setdefault(key, []).append(each.name)
    return found


def _drafter(key: str, speculation: OptionSpec) -> str:
    """The draft method that shows the switch ``key`` with the loaded model; an empty string where there is none."""
    return next((kind for kind in drafters()[key] if kind not in speculation.disabled_choices), "")


def _pairs(spec: OptionSpec) -> list[tuple[Value, Value]]:
    """The declared comparison, and the first choice against every other that can apply."""
    if not spec.measure.compare:
        return []
    before, after = spec.measure.compare
    if spec.kind == "choice" and spec.applies != "reload" and spec.default == spec.choices[0].key == before:
        return [(before, each.key) for each in spec.choices[1:] if not each.disabled_reason]
    return [(before, after)]


class _Side:
    """A switch at one value. For each round: its speed, and in ``stalls`` the longest wait for a token, seconds."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.answers: list[Answer] = []
        self.runs: list[Run] = []
        self.stalls: list[float] = []
        self.speeds: list[float] = []

    def median(self, figure: str) -> float:
        """Of one of the figures of a :class:`Run`."""
        return statistics.median(getattr(run, figure) for run in self.runs)


def _measure(
    client: EngineClient,
    spec: OptionSpec,
    values: tuple[Value, Value],
    prompts: Sequence[list[int]],
    long_prompt: list[int],
    sampling: Sampling,
    rounds: int,
) -> SwitchRow:
    before, after = sides = [_Side(value) for value in values]
    grammar = None
    if spec.key == keys.FORCED_TOKENS:
        grammar, sampling = compiled(client.model, SCHEMA), greedy(sampling.max_tokens or 0, ends=True)
    for _, place in turns(2, rounds, random.Random()):
        side = sides[place]
        overrides = _apply(client, spec, side.value)
        client.answer(prompts[0], sampling, overrides, grammar=grammar)  # warm-up: caches, buckets, draft length
        answers = [client.answer(prompt, sampling, overrides, grammar=grammar) for prompt in prompts]
        side.answers.extend(answers)
        side.runs += [
            run_of(side.value, len(each.ids), each.timings, each.usage, each.steps, client.model) for each in answers
        ]
        side.speeds.append(statistics.median(answer.timings.tokens_per_second for answer in answers))
        if spec.key == keys.CHUNKED_PREFILL:
            side.stalls.append(max(client.interrupted([prompts[0]], long_prompt, sampling)[0].gaps))
    client.set(spec.key, spec.value)
    gain = estimate(before.speeds, after.speeds)
    return SwitchRow(
        spec.key,
        spec.title,
        values,
        (before.median("tokens_per_second"), after.median("tokens_per_second")),
        (before.median("ttft_ms"), after.median("ttft_ms")),
        gain.ratio or 0.0,
        all(a.ids == b.ids for a, b in zip(before.answers, after.answers, strict=True)),
        _shown(BY_KEY[spec.key].metric_of(after.value), before, after),
        (gain.low, gain.high),
    )


def _apply(client: EngineClient, spec: OptionSpec, value: Value) -> dict[str, Value]:
    """Set an engine-wide switch now; a switch of each answer becomes an override of the request."""
    if spec.scope == "engine":
        client.set(spec.key, value)
        return {}
    overrides: dict[str, Value] = {spec.key: value}
    if spec.key in drafters():
        overrides[keys.SPECULATION] = _drafter(spec.key, client.state()[keys.SPECULATION])
    return overrides


def _shown(metric: Metric, before: _Side, after: _Side) -> str:
    """Format the switch's own figure before and after, if no other column has it, and the share of drafts that held."""
    if after.stalls:
        first, second = statistics.median(before.stalls), statistics.median(after.stalls)
        return f"longest wait {first * 1000:.0f} -> {second * 1000:.0f} ms"
    metric = PER_STEP if metric.figure in ("", SPEED.figure, FIRST_TOKEN.figure) else metric
    values = [side.median(metric.figure) for side in (before, after)]
    told = " -> ".join(f"{each:.0%}" if metric.unit == "%" else amount(each, metric) for each in values)
    proposed, accepted = (sum(getattr(each.timings, n) for each in after.answers) for n in ("proposed", "accepted"))
    return f"{metric.title} {told}" + (f", accepted {accepted / proposed:.0%}" if proposed else "")
