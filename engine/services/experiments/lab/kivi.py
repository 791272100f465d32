"""A KV cache of few bits (KIVI): how much more text the same memory holds, and whether the model still finds things."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch
from msgspec import structs
from torch import Tensor

from engine.cache.policies import KEEP_ALL
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.codecs import unpack_slots
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.compute.layers.hadamard import Hadamard
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import refuses
from engine.compute.runner.perplexity import Scores, chunks, reader, score, scored
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner, readers_of
from engine.protocol import Metric, OptionSpec, keys
from engine.protocol.lab import Axis, Heat, LabFigure, LabPage, Plot, Series
from engine.services.client import Answer
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side, once
from engine.services.experiments.same_text import AS_THEY_MAY, same_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.workloads import finding
from engine.services.experiments.workloads.conversations import affordable, bytes_of, rounds

LONGEST, LEAST_TEXT = 3072, 2048
SHORTEST = 640
"""Tokens of a text that a slow model gets."""
ANSWER = 16
SCORED = 2048
SHOWN = 64
"""Tokens in the picture."""
GIGABYTE = 10**9
KINDS = (
    ("16 bits", KVKind()),
    ("8 bits", KVKind("int8")),
    ("4 bits", KVKind("int4")),
    ("4 bits, keys rotated", KVKind("int4", hadamard=True)),
    ("KIVI, 2 bits", KVKind("kivi")),
)
SIZE = "channel (size of the key)"
OFF = "channel (how far it is off, as a share of its usual size)"
FITS = Measured("fits", Metric(title="tokens of such a text in 1 GB", counted=True))
FOUND = Measured("found", Metric(title="codes found again", unit="%"))
SPEED = Measured("speed", Metric(title="tokens a second"))
PERPLEXITY = Metric(title="perplexity", lower_is_better=True)
RESIDUAL = KVKind("kivi").residual


class Kivi:
    """Every round has a text of its own, in which as many numbers are hidden as there are depths."""

    page = LabPage(
        name="kivi",
        number=4,
        title="A KV cache of two bits (KIVI)",
        group="Memory",
        keys=[keys.KV_KIND, keys.KV_HADAMARD],
        problem="Of every token that it has read a model keeps keys and values, and in a long chat they take more "
        "memory than the model itself. Kept in fewer bits they take less, and KIVI gives each channel of the keys a "
        "scale of its own, so that the few that are many times larger than the rest do not drown them.",
        question="With 2 bits for a number instead of 16, how much more text fits into the same memory?",
        choices=["as much", "2 times as much", "4 times as much", "8 times as much"],
        bounds=[1.4, 3.0, 6.0],
        lesson="Keys have a few channels that are much larger than the others: give each channel its own scale, and a "
        "few bits are enough.",
        fails="In a short chat the last 128 tokens, which stay in 16 bits, are most of the text, and unpacking is work "
        "that a small model on a processor does not win back.",
        sides=[title for title, _ in KINDS],
        seconds=40,
        use={keys.KV_KIND: "kivi"},
        brings=finding.MODEL,
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        refusal = finding.refuses(model, LEAST_TEXT)
        if refusal is not None or model.model is None:
            return refusal
        reasons = (refuses(model.model.config, kind) for _, kind in KINDS)
        return next((Refusal(reason, finding.INSTEAD) for reason in reasons if reason), None)

    def run(self, lab: Lab) -> Run:
        length = affordable(lab, finding.room(lab.model, LONGEST), SHORTEST, reads=len(KINDS) * rounds(lab))
        some = finding.text_for(lab.model, length, f"{lab.seed} shown").ids
        pictures, largest = _pictures(lab.model, some)
        sides = [_CacheKindSide(lab, kind, length) for _, kind in KINDS]
        pairs = Pairs(lab, self.page.name, (FITS, FOUND, SPEED))
        with lab.switched({keys.KV_KIND: "16bit", keys.KV_HADAMARD: True}):
            yield from pairs.run([side.run for side in sides], lambda side: pictures[side])
        scores = [_scored(lab.model, kind, some[:SCORED]) for _, kind in KINDS[1:]]
        fits, found, speed = pairs.figures()
        figures = [fits, _pooled(found), speed, once(PERPLEXITY, [scores[0].exact, *(each.present for each in scores)])]
        _, four, rotated, two = (each.divergence for each in scores)
        shares = [statistics.mean(runs) for runs in found.runs]
        asked = len(finding.DEPTHS) * len(found.runs[0])
        unfit = finding.unfit(shares[0])
        recent = RESIDUAL + CHANNEL_GROUP - 1
        return Found(
            headline=headline(fits.effects[-1], "more tokens of text in 1 GB", "fewer tokens of text in 1 GB")
            + f" {unfit or finding.shares(shares[0], shares[-1], ('16 bits', 'KIVI'))}",
            figures=figures,
            second=timed(speed.effects[-1], "as fast with KIVI", "as slow with KIVI", lab.pairs),
            others=pairs.others,
            text=same_text([side.answers for side in sides], lab, differ=AS_THEY_MAY),
            taken=f"In each text of {length:,} tokens {len(finding.DEPTHS)} codes are hidden, from its beginning to "
            f"its end, and each is asked for: {asked} questions a side. Tokens in 1 GB are counted from what the cache "
            "of such a text takes, its recent tokens included; perplexity is over "
            f"{scores[0].tokens:,} tokens of one text.",
            same=[f"2 bits, groups of {CHANNEL_GROUP}, the last {RESIDUAL} tokens in 16 bits", "something to be found"],
            other=[
                f"a model of {lab.model.card.parameters / 1e6:,.1f} million weights, where the paper's have billions",
                f"texts of {length:,} tokens, one answer at a time",
                *finding.made_large(lab.model),
            ],
            why=[
                f"A number takes {sides[0].bits:.0f} bits, {sides[2].bits:.1f} with 4 bits and its share of the "
                f"scales, and {sides[-1].bits:.1f} in KIVI's pages: {sides[0].bits / sides[-1].bits:.1f} times less. "
                f"The recent tokens, up to {recent} of {length:,}, take as much as before.",
                f"The largest channel of the keys in the picture is {largest:.0f} times as large as the middle one. "
                f"What the model says next differs by {four:.4f} nats with 4 bits, by {rotated:.4f} with rotated keys, "
                f"and by {two:.4f} with KIVI's 2 bits.",
                f"Of the codes {shares[0]:.0f} % were found with 16 bits, {shares[2]:.0f} % with 4, {shares[3]:.0f} % "
                f"with rotated keys and {shares[-1]:.0f} % with KIVI.",
                *([unfit] if unfit else []),
            ],
            settings={"text": length, "codes": len(finding.DEPTHS), "answer": ANSWER, "scored": scores[0].tokens + 1},
            pictures=list(pictures),
            plots=[
                Plot(
                    title="What is lost for the memory that is won",
                    x=Axis(title="tokens of such a text in 1 GB"),
                    y=Axis(title="KL against 16 bits", unit="nats", log=True),
                    series=[
                        Series(name=title, points=[(runs[0], each.divergence)])
                        for (title, _), runs, each in zip(KINDS[1:], figures[0].runs[1:], scores, strict=True)
                    ],
                    note=f"{length:,} tokens",
                )
            ],
            lesson=unfit or finding.lost(shares[0], shares[-1], "KIVI"),
        )


def _pooled(found: LabFigure) -> LabFigure:
    """Replace the median text's shares by those of all texts together, which have as many codes each."""
    first, *others = (statistics.mean(runs) for runs in found.runs)
    effects = [
        structs.replace(effect, before=first, after=other) for effect, other in zip(found.effects, others, strict=True)
    ]
    return structs.replace(found, effects=effects)


class _CacheKindSide:
    """One side: every code of a text is asked for with one kind of cache, one after the other."""

    def __init__(self, lab: Lab, kind: KVKind, length: int) -> None:
        self._lab, self._kind, self._length = lab, kind, length
        self._turn = 0
        self.bits = 0.0
        """Of a number in the pages."""
        self.answers: list[Answer] = []

    def run(self) -> Side:
        text = finding.text_for(self._lab.model, self._length, f"{self._lab.seed} {self._turn}")
        self._turn += 1
        if self._kind.technique.mixes:
            self._lab.client.set(keys.KV_HADAMARD, self._kind.hadamard)
        self._lab.client.set(keys.KV_KIND, self._kind.name)
        self.answers = finding.ask_for_all(self._lab, text, ANSWER)
        steps = [step.duration for step in finding.written(self.answers)]
        model = self._lab.model
        store = model.stores[0]
        assert model.model is not None
        self.bits = 8 * store.bytes_per_token() / model.model.config.cached_elements
        return {
            FITS.key: GIGABYTE * len(text.ids) / bytes_of(store, len(text.ids)),
            FOUND.key: finding.found(text, self.answers),
            SPEED.key: 1 / statistics.median(steps),
        }


def _keys(model: LoadedModel, kind: KVKind, ids: Sequence[int]) -> Tensor:
    """Keys [SHOWN, d] of the first tokens, of one head in the middle layer, read back from a cache."""
    assert model.model is not None
    tokens = ids[: SHOWN + RESIDUAL + CHANNEL_GROUP]
    runner = new_runner(model.model, pages_for(len(tokens)) + 1, model.device, kind)
    read = reader(runner)
    for start, rows in chunks(tokens, model.card.vocabulary):
        read(rows, start)
    view = runner.kv.view(runner.kv.layers // 2)
    found, _ = unpack_slots(view, torch.arange(PAGE_SIZE, PAGE_SIZE + SHOWN, device=model.device), torch.float32)
    if runner.kv.hadamard:  # which is its own inverse
        found = Hadamard(found.shape[-1], model.device, Numerics())(found)
    return found[:, 0].float().cpu()


def _pictures(model: LoadedModel, ids: Sequence[int]) -> tuple[list[Heat], float]:
    """Draw how large keys are and how far each kind puts them off; and return the largest channel by the middle one."""
    exact, *others = (_keys(model, kind, ids) for _, kind in KINDS)
    sizes = exact.abs().mean(0)
    largest = float(sizes.max() / sizes.median())
    off = [(other - exact).abs() / sizes.clamp(min=1e-6) for other in others]
    return [_heat(exact.abs() / exact.abs().max(), SIZE), *(_heat(each, OFF) for each in off)], largest


def _heat(values: Tensor, across: str) -> Heat:
    """[tokens, channels], a row a token."""
    shown = [round(value, 3) for value in values.clamp(max=1).flatten().tolist()]
    return Heat(columns=values.shape[1], values=shown, across=across, down="token")


def _scored(model: LoadedModel, kind: KVKind, ids: Sequence[int]) -> Scores:
    """The text as a cache of this kind lets the model see it, against 16 bits."""
    assert model.model is not None
    exact, present = (readers_of(model.model, model.device, each)(KEEP_ALL) for each in (KVKind(), kind))
    return scored(score(ids, exact.exact, present.present, model.card.vocabulary, kind.title))
