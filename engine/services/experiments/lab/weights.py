"""Quantised weights: the loaded model with its linear layers in 16, 8 and 4 bits, side by side in memory."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import torch

from engine.base.errors import is_out_of_memory
from engine.cache.policies import KEEP_ALL
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.runner.perplexity import reader
from engine.decoding.telemetry.pairs import LEAST
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.memory.probe import free_bytes, probe
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner, readers_of
from engine.protocol import Metric, OptionSpec, keys
from engine.protocol.lab import Amounts, Axis, LabPage, LabPicture, LabProgress, LabText, Plot, Series
from engine.services.answers.continuing import common
from engine.services.experiments.experiment import Found, Lab, LabError, Refusal, Run
from engine.services.experiments.measures.cost import packed
from engine.services.experiments.pairs import Measured, Pairs, Side, once
from engine.services.experiments.reports.tables import MB
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.workloads.conversations import (
    asked,
    conversation,
    losses,
    reading_speed,
    too_short,
    unread,
)
from engine.services.quantise.quality import CONTEXT, tokens_per_second

SIDES = ("", "int8", "int4")
"""How linear layers are quantised."""
PACKED_BITS = 6
"""Layers that have fewer bits a weight are the side in 4 bits as they are."""
PIECE, PIECES = 512, 8
"""Tokens of a text that is scored, and texts."""
ANSWER = 48
"""Tokens of the answer whose text is shown."""
LEAST_CONTEXT = 128
ROOM = 1.8
"""Bytes a weight of the copies in 8 and in 4 bits, scales included."""
WEIGHTS = Measured("weights", Metric(title="weights", unit="MB", lower_is_better=True, counted=True))
SPEED = Measured("speed", Metric(title="speed", unit="tokens/s"))
LOSS = Metric(title="perplexity", lower_is_better=True)


class Weights:
    """All sides are copies of the loaded model, so that their runs can take turns; the engine serves none of them."""

    page = LabPage(
        name="weights",
        number=2,
        title="Weights in 4 bits",
        group="The basics",
        keys=[keys.WEIGHTS],
        problem="For every token all of a model's weights are read from memory, at two bytes each as models are "
        "published. Quantisation rounds groups of weights to 8 or 4 bits with a scale for each group, so that a larger "
        "model fits and fewer bytes are read.",
        question="How many times less memory do the weights take with 4 bits for each weight of the layers?",
        choices=["no less", "2 times", "4 times", "8 times"],
        bounds=[1.4, 2.8, 5.6],
        lesson="Layers in 4 bits take about a quarter of the memory, for a little quality: larger models fit, and "
        "there is less to read for each token.",
        fails="Small models lose more quality than large ones, long prompts gain little speed, and what stays in 16 "
        "bits (the token table, often the output head) weighs all the more. A "
        "model of 16 bits is packed only where the settings quantise it on load, or a column of Compare does.",
        sides=["16 bits", "8 bits", "4 bits"],
        seconds=30,
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        instead = "Take the bundled model."
        name, built = model.card.name, model.model
        if built is None or model.files is None:
            return Refusal(f"The layers of {name} cannot be copied.", instead)
        if built.config.moe is not None:
            return Refusal(f"{name} is a mixture of experts, whose experts are packed together.", instead)
        if (refusal := too_short(model, LEAST_CONTEXT, "its quality is measured on")) is not None:
            return refusal
        text = kv_bytes_per_token(model.files.checkpoint.config, built.dtype)
        texts = text * (len(SIDES) * pages_for(_served_tokens(model)) * PAGE_SIZE + PIECE)
        needed, free = (built.dtype.itemsize + ROOM) * model.card.parameters + texts, free_bytes(model.device)
        if needed > 0.8 * free:
            why = f"Copies of {name} in 16, 8 and 4 bits take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free."
            return Refusal(why, f"Load a smaller model. {instead}")
        return unread(model)

    def run(self, lab: Lab) -> Run:
        loaded, rate = lab.model, reading_speed(lab)
        assert loaded.model is not None
        draw = lab.random
        length = min(PIECE, loaded.card.context)
        count = max(1, min(PIECES, int(lab.budget / 2 * rate / (len(SIDES) * length))))
        texts = [conversation(loaded, length, draw) for _ in range(count)]
        prompt = asked(loaded, 1, draw)[-_served_tokens(loaded) // 2 :]
        sides: list[_Copy] = []
        for place, method in enumerate(SIDES):
            yield LabProgress(name=self.page.name, done=place, total=len(SIDES), side=place, sentence="reading texts")
            try:
                sides.append(_Copy(loaded, method, texts, prompt))
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                why = f"There is not enough memory for the copy of {loaded.card.name} in {self.page.sides[place]}."
                raise LabError(f"{why} Close other programs, or load a smaller model.") from error
            yield LabPicture(name=self.page.name, side=place, picture=_amounts(sides, self.page, loaded))
        started = time.monotonic()
        for side in sides:
            side.run()
        slow = time.monotonic() - started
        most = lab.pairs or (0 if slow * LEAST <= lab.budget else max(1, int(lab.budget / slow)))
        pairs = Pairs(lab._replace(pairs=most), self.page.name, (SPEED, WEIGHTS))  # until speed is settled
        yield from pairs.run([side.run for side in sides])
        rates, counted = pairs.figures()
        quality = once(LOSS, [side.loss for side in sides])
        figures = [counted, rates, quality]
        weights, speed, loss = (figure.effects[-1] for figure in figures)
        read = loaded.card.parameters
        stays = (sides[0].bytes - 2 * sides[0].weights) / MB
        return Found(
            headline=headline(
                weights, "less memory for the weights in 4 bits", "more memory for the weights in 4 bits"
            ),
            second=timed(speed, "as many tokens a second in 4 bits", "fewer tokens a second in 4 bits", lab.pairs),
            others=pairs.others,
            figures=figures,
            text=_texts(sides, loaded),
            taken=f"The loaded model, whose linear layers are unpacked and quantised again ({sides[1].how}; "
            f"{sides[2].how}); the output head stays. Bytes are counted, two for each number that is not quantised. "
            f"Perplexity: {count} conversations of {length} tokens that training did not see. Speed: one answer at a "
            "time, greedy.",
            same=["linear layers in 4 bits, groups with a scale each"],
            other=[
                f"{loaded.card.name} has {read / 1e6:,.0f} million parameters",
                sides[2].provenance,
            ],
            why=[
                f"{100 * sides[0].weights / read:.0f} % of the parameters are in the layers that are quantised; the "
                f"others take {stays:,.1f} MB on every side.",
                f"Perplexity is {loss.before:.2f} in 16 bits, {figures[2].effects[0].after:.2f} in 8 and "
                f"{loss.after:.2f} in 4.",
                f"What is not quantised is computed in {_dtype(loaded.model)} here.",
            ],
            settings={"length": length, "texts": count, "prompt": len(prompt)},
            pictures=[_amounts(sides, self.page, loaded)] * len(sides),
            plots=[
                Plot(
                    title="Quality",
                    x=Axis(title="bits of a weight"),
                    y=Axis(title="perplexity"),
                    series=[Series(name=loaded.card.name, points=[(float(p), s.loss) for p, s in enumerate(sides)])],
                    bars=True,
                    categories=self.page.sides,
                    note=f"{count} conversations of {length} tokens",
                )
            ],
        )


class _Copy:
    """One side. ``weights``: how many are quantised, ``bytes``: of all, at two for each number that is not."""

    def __init__(self, loaded: LoadedModel, method: str, texts: list[list[int]], prompt: list[int]) -> None:
        assert loaded.model is not None
        source = loaded.model
        layers = {id(linear): _requantised(source, name, linear, method) for name, linear in source.linears()}
        model: CausalLM = _with_layers(source, layers)
        quantised = [linear for _, linear in model.linears() if linear is not source.head]
        if [id(linear) for _, linear in model.linears()] != [id(linear) for linear in layers.values()]:
            raise LabError(f"The layers of {loaded.card.name} cannot be exchanged. Take the bundled model.")
        self.weights = sum(linear.in_features * linear.out_features for linear in quantised)
        small = sum(linear.storage_size() for linear in quantised if linear.kind != "dense")
        self.bytes = small + 2 * (model.storage_size() - small) // source.dtype.itemsize
        self.how = ", ".join(sorted({f"{linear.kind} by {linear.path}" for linear in quantised}))
        kept = all(layers[id(linear)] is linear for _, linear in source.linears())
        self.provenance = (
            "its 4 bits are the file's own, and the other sides are made of them: nothing more can be lost"
            if kept
            else "its weights were rounded one by one, without the paper's calibration"
        )
        pages = pages_for(_served_tokens(loaded)) + 1
        self._served = dataclasses.replace(loaded, model=model, runner=new_runner(model, pages, loaded.device))
        vocabulary = loaded.card.vocabulary
        score = readers_of(model, loaded.device, loaded.kind)(KEEP_ALL)
        nll = [torch.cat(list(losses(score.present(len(ids)), ids, vocabulary))) for ids in texts]
        self.loss = math.exp(float(torch.cat(nll).mean()))
        self.ids = _greedy(self._served, prompt)

    def run(self) -> Side:
        return {
            WEIGHTS.key: self.bytes / MB,
            SPEED.key: tokens_per_second(self._served),
        }


def _served_tokens(model: LoadedModel) -> int:
    """The most that a copy holds at once, of the answer whose text is shown and of the one whose speed is measured."""
    return min(model.card.context, CONTEXT)


def _requantised(model: CausalLM, name: str, linear: Linear, method: str) -> Linear:
    """The layer in 16 bits for "", else as ``method`` packs it; the head stays, and what is in 4 bits already."""
    weights = linear.in_features * linear.out_features
    if linear is model.head or (method == "int4" and 8 * linear.storage_size() < PACKED_BITS * weights):
        return linear
    if method and (layer := packed(model, name, linear, method)) is not None:
        return layer
    return Dense(linear.dequantised(model.dtype), getattr(linear, "bias", None), model.numerics)


def _with_layers(thing: Any, layers: Mapping[int, Linear]) -> Any:
    """A copy of a model, or of a part of one, with other layers in the places of those by whose id they are given.

    Whatever else computes with nothing of a layer is shared: norms' weights, tables, compiled code.
    """
    if id(thing) in layers:
        return layers[id(thing)]
    if type(thing) in (list, tuple):
        return type(thing)(_with_layers(each, layers) for each in thing)
    parts = type(thing).__module__.startswith(("engine.compute.layers.", "engine.compute.models.")) and hasattr(
        thing, "__dict__"
    )
    if not parts or isinstance(thing, Linear | Numerics):
        return thing
    copied = copy.copy(thing)
    vars(copied).update({name: _with_layers(part, layers) for name, part in vars(thing).items()})
    return copied


def _greedy(served: LoadedModel, prompt: list[int]) -> list[int]:
    """The likeliest tokens, to the end of the answer or :data:`ANSWER`."""
    read, ids = reader(served.runner), list(prompt)
    logits = read(ids, 0)
    while len(ids) < len(prompt) + ANSWER and (token := int(logits[-1].argmax())) not in served.card.eos_ids:
        logits = read([token], len(ids))
        ids.append(token)
    return ids[len(prompt) :]


def _texts(sides: list[_Copy], loaded: LoadedModel) -> LabText:
    """Collect the texts of all sides, and the first token at which another one than the first differs."""
    assert loaded.files is not None
    first = sides[0].ids
    at = min(common(first, side.ids) for side in sides[1:])
    same = all(side.ids == first for side in sides)
    sentence = (
        f"All wrote the same {len(first)} tokens; rounding changes a model, so that another text may differ."
        if same
        else f"The texts differ from token {at + 1} on, as they may: rounding changes a model."
    )
    texts = [loaded.files.tokenizer.decode(side.ids) for side in sides]
    return LabText(same=same, tokens=len(first), sentence=sentence, at=-1 if same else at, texts=texts)


def _amounts(sides: list[_Copy], page: LabPage, loaded: LoadedModel) -> Amounts:
    limit = probe(loaded.device).total_bytes
    return Amounts(names=page.sides[: len(sides)], amounts=[float(side.bytes) for side in sides], limit=float(limit))


def _dtype(model: CausalLM) -> str:
    return str(model.dtype).removeprefix("torch.")
