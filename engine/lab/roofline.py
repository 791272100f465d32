"""The roofline of the loaded model on this machine (Williams et al. 2009): its limits, and how far it is from them.

A forward reads bytes and multiplies numbers. How many operations it does for each byte, its intensity, decides which of
the two ceilings holds it: below their ridge memory, above it arithmetic. Ceilings are measured here, not looked up.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import torch

from engine.bench.cache.traces import words_of
from engine.bench.client import EngineClient, whole_steps
from engine.cache.policies import KEEP_ALL, PagePolicy, QuestPolicy, keys_read
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind
from engine.devices import traits
from engine.lab.experiment import GREEDY, LabError
from engine.lab.run import device_of, machine
from engine.layers.linear.base import Linear
from engine.loading.model import LoadedModel
from engine.loading.speed import flops_per_row
from engine.memory.arithmetic import GPU_WIDTH, WIDTH, best_rate, measure_products
from engine.memory.bandwidth import fresh_bandwidth, last_level_bytes
from engine.memory.estimate import kv_bytes_per_token
from engine.models.base import CausalLM
from engine.options import EngineOptions
from engine.paths import version
from engine.protocol import OptionSpec, Sampling, Value, keys
from engine.protocol.lab import Axis, Ceiling, LabRoofline, Plot, RoofPoint, Series
from engine.sizes import figure, human
from engine.telemetry.processor import OtherPrograms

PROMPT, LEAST_PROMPT, ANSWER = 512, 32, 32
"""Tokens of what is measured."""
MANY = 8
"""Answers that are measured together."""
BATCHES, DRAFTS = (1, 2, 4, 8), (1, 3, 7)
"""Answers together, and draft tokens verified in one pass, of the points that are computed."""
ROUNDS = 3
PROMPT_SECONDS = 15.0
"""What the prompts of answers together may take in a round; they are shorter where the machine is slow."""
PACKED_ROWS = 512
"""Of a product with packed weights that is measured: as many as a step reads of a prompt."""
BUSY = 0.25
"""Share of the processor that other programs may take without a word."""


class Ceilings(NamedTuple):
    """``memory`` and ``cache`` in bytes a second, ``dense`` and ``packed`` in operations a second; 0: there is none.

    ``cache`` is of a buffer as large as what a token reads, where the processor's caches hold that.
    """

    memory: float
    cache: float
    dense: float
    packed: float


class Work(NamedTuple):
    """What one forward does: bytes that it reads of weights and of what is kept, operations, and tokens it gives."""

    weights: float
    kept: float
    operations: float
    tokens: float = 1.0

    @property
    def bytes(self) -> float:
        return self.weights + self.kept

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes


@dataclass(frozen=True)
class Settings:
    """What the work of a forward depends on. ``weights`` are bytes that one row reads of them."""

    model: LoadedModel
    lm: CausalLM
    weights: float
    experts: float
    """Bytes of all experts."""
    kind: KVKind
    policy: PagePolicy = KEEP_ALL

    def decode(self, context: int, answers: int = 1, drafts: int = 0) -> Work:
        """One pass that gives each answer a token after ``context`` of them, and ``drafts`` more where all hold."""
        rows = answers * (1 + drafts)
        stop = context + 1
        seen = keys_read(self.policy, stop, self.model.sparse)
        kept = answers * (self._kept(min(seen, stop)) + drafts * self._kept(1))
        attention = rows * _attention(self.lm, seen)
        products = flops_per_row(self.lm) + _head(self.lm)
        return Work(self._weights(rows), kept, rows * products + attention, float(rows))

    def prompt(self, rows: int, before: int = 0) -> Work:
        """One pass over ``rows`` of a prompt, of which ``before`` were read already; only its last needs the head."""
        attention = sum(_attention(self.lm, before + row + 1) for row in range(rows))
        operations = rows * flops_per_row(self.lm) + _head(self.lm) + attention
        return Work(self._weights(rows), self._kept(before + rows), operations, float(rows))

    def _weights(self, rows: int) -> float:
        """More rows ask more experts: as many as there are if each asks at random."""
        moe = self.lm.config.moe
        if moe is None:
            return self.weights
        one = moe.experts_per_token / moe.num_experts
        return self.weights + self.experts * ((1 - (1 - one) ** rows) - one)

    def _kept(self, tokens: float) -> float:
        """Bytes of keys and values of so many tokens that one row reads, and of its answer's state."""
        config, dtype = self.lm.config, self.lm.kv_dtype
        recent = min(tokens, self.kind.residual)  # in 16 bits
        found = (tokens - recent) * kv_bytes_per_token(config, dtype, self.kind, in_window=False)
        found += recent * kv_bytes_per_token(config, dtype, in_window=False)
        widths = [window for window in config.arena_windows if window is not None]
        if widths:
            found += min(tokens, max(widths)) * kv_bytes_per_token(config, dtype, self.kind, in_window=True)
        states = self.model.stores[0].states if self.model.stores else None
        return found + (states.page_bytes if states is not None else 0)


def settings_of(model: LoadedModel) -> Settings:
    """The loaded model as it is set now. Raises :class:`LabError` for one of another kind of loader's."""
    lm = model.model
    if lm is None:
        raise LabError("This model does not say what it reads and computes. Load one from a folder or a file.")
    experts = sum(linear.storage_size() for name, linear in lm.linears() if ".experts." in name)
    return Settings(model, lm, float(model.weight_bytes), float(experts), model.kind)


def _head(lm: CausalLM) -> float:
    return 2.0 * lm.head.in_features * lm.head.out_features


def _attention(lm: CausalLM, keys_seen: float) -> float:
    """Operations of one row's scores and weighted sums over so many keys: a multiplication and an addition each."""
    config = lm.config
    found = 0.0
    for layer in config.attending:
        window = config.windows[layer]
        seen = keys_seen if window is None else min(keys_seen, window)
        if config.latent is not None:  # absorbed: scores over latents and their rotated part, sums over latents
            found += 2 * config.num_heads * (2 * config.latent.rank + config.latent.rope) * seen
        else:
            found += 4 * config.num_heads * config.heads_of(layer).width * seen
    return found


# --- ceilings ------------------------------------------------------------------------------------------------------


def measure_ceilings(settings: Settings, read: float) -> Ceilings:
    """About a second. ``read``: bytes that a token of one answer reads."""
    device, lm = settings.model.device, settings.lm
    packed = _packed(lm)
    cached = not traits(device).gpu and read < last_level_bytes()
    return Ceilings(
        memory=fresh_bandwidth(device),
        cache=fresh_bandwidth(device, int(read)) if cached else 0.0,
        dense=measure_products(device, lm.dtype),
        packed=_measure_packed(packed, lm, device) if packed is not None else 0.0,
    )


def _packed(lm: CausalLM) -> Linear | None:
    """The largest of the layers with packed weights."""
    found = [linear for _, linear in lm.linears() if linear.kind != "dense"]
    return max(found, key=lambda linear: linear.in_features * linear.out_features, default=None)


def _measure_packed(linear: Linear, lm: CausalLM, device: torch.device) -> float:
    x = torch.ones(PACKED_ROWS, linear.in_features, dtype=lm.dtype, device=device)
    operations = 2.0 * PACKED_ROWS * linear.in_features * linear.out_features
    return best_rate(device, operations, lambda: linear.forward(x))


def _named(found: Ceilings, settings: Settings, read: float) -> dict[str, Ceiling]:
    """Those that there are, by the fields of :class:`Ceilings`."""
    lm, packed = settings.lm, _packed(settings.lm)
    dtype = str(lm.dtype).removeprefix("torch.")
    shape = f"{packed.in_features} x {packed.out_features}" if packed is not None else ""
    width = GPU_WIDTH if traits(settings.model.device).gpu else WIDTH
    told = {
        "memory": ("memory", "Read bandwidth: the fastest of several sums over a buffer larger than the caches."),
        "cache": ("cache", f"Read bandwidth of {human(int(read))}, which the processor's caches hold."),
        "dense": (f"products in {dtype}", f"The fastest of several products of {width:,} x {width:,} matrices."),
        "packed": (
            "packed products",
            f"The fastest of several products of {PACKED_ROWS} rows with the model's largest layer ({shape}).",
        ),
    }
    values = found._asdict()
    return {
        field: Ceiling(name=name, value=values[field], taken=taken)
        for field, (name, taken) in told.items()
        if values[field]
    }


def _raised(named: dict[str, Ceiling], reads: str, products: str, measured: Sequence[Measured]) -> None:
    """A pass that was faster than a ceiling shows that the ceiling is at least as high: it was disturbed when measured.

    ``reads`` and ``products`` are those that hold for what was measured.
    """
    for field in (reads, products):
        rates = [(_rate(each, bytes_read=field == reads), each.name) for each in measured]
        most, name = max(rates)
        ceiling = named[field]
        if most > ceiling.value:
            faster = f" A pass of {name} was {_percent(most - ceiling.value, ceiling.value)} faster, and counts."
            named[field] = msgspec.structs.replace(ceiling, value=most, taken=ceiling.taken + faster)


def _rate(each: Measured, *, bytes_read: bool) -> float:
    """Bytes, or operations, a second of the fastest pass."""
    return (each.work.bytes if bytes_read else each.work.operations) / min(each.passes)


# --- what is measured ----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """Seconds of each pass, and the work in it."""

    name: str
    setting: str
    passes: list[float]
    work: Work

    def rate(self, seconds: float) -> float:
        """Operations a second."""
        return self.work.operations / seconds


def measure(client: EngineClient, settings: Settings) -> list[Measured]:
    """One answer, several together, and a prompt; nothing is drafted. Raises EngineError."""
    model = client.model
    length = length_of(model)
    plain: dict[str, Value] = {keys.SPECULATION: "off"}
    sampling: Sampling = msgspec.structs.replace(GREEDY, max_tokens=ANSWER)
    words = words_of(model, 77)
    client.answer(words.some(length), sampling, plain)  # compiles, and takes its buffers
    reading: dict[tuple[int, int], list[float]] = {}
    alone: list[float] = []
    for _ in range(ROUNDS):
        steps = client.answer(words.some(length), sampling, plain).steps
        alone += [step.duration for step in whole_steps(steps, 1)]
        before = 0
        for step in steps:
            if step.prefill_rows and not step.decode_rows:
                reading.setdefault((step.prefill_rows, -before), []).append(step.duration)
                before += step.prefill_rows
    (rows, before), chunks = max(reading.items())
    share = int(PROMPT_SECONDS * rows / statistics.median(chunks) / MANY)
    room = model.pages * PAGE_SIZE // MANY - ANSWER - PAGE_SIZE
    shorter = max(LEAST_PROMPT, min(length, share, room))
    together: list[float] = []
    for _ in range(ROUNDS):
        found = client.together([words.some(shorter) for _ in range(MANY)], sampling, plain)
        together += [step.duration for step in whole_steps(found[0].steps, MANY)]
    measured = [
        Measured("one answer", f"after {context_of(length):,} tokens", alone, settings.decode(context_of(length))),
        Measured("a prompt", f"{rows:,} tokens in a pass", chunks, settings.prompt(rows, -before)),
    ]
    if together:  # a pool that is too small for all of them never writes them side by side
        each = f"after {context_of(shorter):,} tokens each"
        measured.insert(1, Measured(f"{MANY} answers", each, together, settings.decode(context_of(shorter), MANY)))
    return measured


def length_of(model: LoadedModel) -> int:
    """Tokens of the prompts that are measured."""
    return max(LEAST_PROMPT, min(PROMPT, model.card.context // 4))


def context_of(prompt: int) -> int:
    """Tokens before the middle one of an answer."""
    return prompt + ANSWER // 2


# --- what is computed ----------------------------------------------------------------------------------------------


class Computed(NamedTuple):
    name: str
    keys: dict[str, Value]
    work: Work
    packed: bool
    """Whether products are with packed weights."""


def compute(settings: Settings, context: int, switches: Mapping[str, OptionSpec]) -> list[Computed]:
    """Where each switch would move one answer, and what comes of several answers or drafts."""
    is_packed = _packed(settings.lm) is not None
    found = [
        Computed(f"{count} together" if count > 1 else "one, as set", {}, settings.decode(context, count), is_packed)
        for count in BATCHES
    ]
    found += _of_weights(settings, context, switches)
    for name in _values(switches, keys.KV_KIND):
        options = EngineOptions()
        options.values.update({key: spec.value for key, spec in switches.items()})
        options.values[keys.KV_KIND] = name
        other = replace(settings, kind=options.kv_kind)
        found.append(Computed(f"KV {options.kv_kind.title}", {keys.KV_KIND: name}, other.decode(context), is_packed))
    found += [
        Computed(
            f"{count} drafts checked", {keys.DRAFT_LENGTH: count}, settings.decode(context, drafts=count), is_packed
        )
        for count in DRAFTS
    ]
    quest, budget = "quest" in _values(switches, keys.PAGE_POLICY), int(switches[keys.QUEST_TOKENS].value)
    if quest and budget < context:
        other = replace(settings, policy=QuestPolicy(budget, 0))
        found.append(
            Computed(f"QUEST, {budget:,} tokens", {keys.PAGE_POLICY: "quest"}, other.decode(context), is_packed)
        )
    return found


def _values(switches: Mapping[str, OptionSpec], key: str) -> list[str]:
    """The values that a choice could have now and has not."""
    spec = switches[key]
    if spec.disabled_reason or spec.hidden:
        return []
    return [choice for choice in spec.choices if choice not in spec.disabled_choices and choice != spec.value]


def _of_weights(settings: Settings, context: int, switches: Mapping[str, OptionSpec]) -> list[Computed]:
    """The model planned with its weights held the other way."""
    checkpoint, lm = settings.model.checkpoint, settings.lm
    found = []
    for name in _values(switches, keys.WEIGHTS) if checkpoint is not None else ():
        assert checkpoint is not None
        planned = checkpoint.planned(lm.dtype, "16bit" if name == "16bit" else "4bit", settings.model.device)
        other = replace(
            settings,
            weights=float(planned.bytes_read_per_step()),
            experts=float(sum(each.storage_size() for title, each in planned.linears() if ".experts." in title)),
        )
        title = "16-bit weights" if name == "16bit" else "packed weights"
        found.append(Computed(title, {keys.WEIGHTS: name}, other.decode(context), name != "16bit"))
    return found


# --- the whole -----------------------------------------------------------------------------------------------------


def roofline(client: EngineClient, ceilings: Ceilings | None = None) -> LabRoofline:
    """Measure and compute it, in some seconds with the bundled model; ``ceilings`` None: they are measured.

    Raises :class:`LabError`, EngineError.
    """
    settings, switches = settings_of(client.model), client.state()
    context = context_of(length_of(client.model))
    one = settings.decode(context)
    programs = OtherPrograms()
    before = ceilings or measure_ceilings(settings, one.bytes)
    measured = measure(client, settings)
    after = ceilings or measure_ceilings(settings, one.bytes)
    named = _named(Ceilings(*map(max, before, after)), settings, one.bytes)
    reads, products = "cache" if "cache" in named else "memory", "packed" if "packed" in named else "dense"
    _raised(named, reads, products, measured)
    memory, arithmetic = named[reads], named[products]
    points = [_measured_point(each, memory.value, arithmetic.value) for each in measured]
    for each in compute(settings, context, switches):
        way = named[reads if each.work.bytes < last_level_bytes() else "memory"]
        points.append(_computed_point(each, way.value, named[products if each.packed else "dense"].value))
    made = LabRoofline(
        model=client.model.card.name,
        device=device_of(client),
        machine=machine(),
        version=version(),
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        context=context,
        weights=one.weights,
        kept=one.kept,
        operations=one.operations,
        limit=min(memory.value / one.bytes, arithmetic.value / one.operations),
        memory=memory,
        arithmetic=arithmetic,
        ceilings=list(named.values()),
        points=points,
        plot=_plot(list(named.values()), points),
        sentences=[],
    )
    return msgspec.structs.replace(made, sentences=[*_sentences(made), *_noise(made, programs.share())])


def _measured_point(each: Measured, reads: float, products: float) -> RoofPoint:
    work, slow, fast = each.work, max(each.passes), min(each.passes)
    if len(each.passes) > 1:
        slow = statistics.quantiles(each.passes, n=4)[2]
    seconds = statistics.median(each.passes)
    return RoofPoint(
        name=each.name,
        measured=True,
        intensity=work.intensity,
        operations=each.rate(seconds),
        low=each.rate(max(slow, seconds)),
        high=each.rate(fast),
        tokens=work.tokens / seconds,
        setting=f"measured, {each.setting}: the median of {len(each.passes)} passes",
        roof=min(products, reads * work.intensity),
    )


def _computed_point(each: Computed, reads: float, products: float) -> RoofPoint:
    work = each.work
    roof = min(products, reads * work.intensity)
    assumes = ", if all of them are accepted" if keys.DRAFT_LENGTH in each.keys else ""
    return RoofPoint(
        name=each.name,
        measured=False,
        intensity=work.intensity,
        operations=roof,
        low=roof,
        high=roof,
        tokens=work.tokens * roof / work.operations,
        setting=f"computed, the most that the ceilings allow{assumes}",
        keys=each.keys,
        roof=roof,
    )


def _plot(ceilings: Sequence[Ceiling], points: Sequence[RoofPoint]) -> Plot:
    """Each pair of a way to read and a way to multiply is a roof; each point is a series of its own."""
    reads = [each for each in ceilings if each.name in ("memory", "cache")]
    products = [each for each in ceilings if each not in reads]
    low = min(each.intensity for each in points) / 2
    ridges = [top.value / read.value for top in products for read in reads]
    high = 2 * max(*ridges, *(each.intensity for each in points))
    roofs = [
        Series(
            name=f"{read.name}, {top.name}",
            points=[(low, low * read.value), (top.value / read.value, top.value), (high, top.value)],
        )
        for read in reads
        for top in products
    ]
    shown = [
        Series(
            name=f"{each.name} ({'measured' if each.measured else 'computed'})",
            points=[(each.intensity, each.operations)],
            low=[each.low] if each.measured else [],
            high=[each.high] if each.measured else [],
        )
        for each in points
    ]
    return Plot(
        title="Roofline",
        x=Axis(title="Intensity", unit="operations a byte", log=True),
        y=Axis(title="Speed", unit="operations a second", log=True),
        series=[*roofs, *shown],
        note="Ceilings are the fastest of several runs on this machine. Measured points are medians, and their ranges "
        "reach from the slower quarter to the fastest pass. Computed points stand on the roof: no more is possible.",
    )


def _sentences(made: LabRoofline) -> list[str]:
    measured = {each.name: each for each in made.points if each.measured}
    one, prompt, many = measured["one answer"], measured["a prompt"], measured.get(f"{MANY} answers")
    ridge = made.arithmetic.value / made.memory.value
    what = "this memory" if made.memory.name == "memory" else "the processor's cache"
    bound = f"what {what} allows" if one.intensity < ridge else "what this machine's arithmetic allows"
    said = [
        f"One answer stands at {_percent(one.operations, one.roof)} of {bound}, its fastest pass at "
        f"{_percent(one.high, one.roof)}: {figure(one.tokens)} tokens a second of at most {figure(made.limit)}.",
        f"Each of its tokens reads {human(int(made.weights + made.kept))}: {human(int(made.weights))} of weights and "
        f"{human(int(made.kept))} of keys and values. Nobody can pass {figure(made.limit)} tokens a second with these "
        "settings and one token a pass.",
    ]
    if many is not None:
        said.append(
            f"{MANY} answers together reach {figure(many.tokens)} tokens a second, {many.tokens / one.tokens:.1f} "
            f"times one: weights are read once for all of them, so that a byte serves {many.intensity:.1f} operations "
            f"instead of {one.intensity:.1f}."
        )
    side = "arithmetic limits it" if prompt.intensity > ridge else "memory limits it"
    said.append(
        f"A prompt is read at {figure(prompt.tokens)} tokens a second, {_percent(prompt.operations, prompt.roof)} of "
        f"what is possible: with {prompt.intensity:,.0f} operations a byte {side}, as the two meet at {ridge:,.1f}."
    )
    switches = [each for each in made.points if each.keys and keys.DRAFT_LENGTH not in each.keys]
    best = max(switches, key=lambda each: each.tokens, default=None)
    if best is not None and best.tokens > 1.05 * made.limit:
        moved = f"{best.name} would move that limit most: to {figure(best.tokens)} tokens a second (computed)."
        said.append(f"Of the switches of weights and cache, {moved}")
    elif best is not None:
        drafts = [each.tokens for each in made.points if keys.DRAFT_LENGTH in each.keys]
        can = "; drafts can" if max(drafts, default=0.0) > 1.05 * made.limit else ""
        said.append(f"No switch of weights or cache would move that limit by more than 5 % (computed){can}.")
    return said


def _noise(made: LabRoofline, others: float) -> list[str]:
    """What casts doubt on the figures."""
    said = [
        f"The ceiling of {each.name} was measured too low: a{each.taken.rpartition('. A')[2]}"
        for each in made.ceilings
        if each.taken.endswith("counts.")
    ]
    if others > BUSY:
        said.append(f"This computer was busy: other programs took {100 * others:.0f} % of its processor meanwhile.")
    return said


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"
