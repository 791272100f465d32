"""transformers' own speculation on the same models: assisted generation with the draft, and prompt lookup.

Its models are float32 with the very weights that the packed files stand for. Each answer is held against a plain one of
transformers itself, so that only ratios come out of it: one program's speed is not compared with another's here.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import psutil
import torch

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.services.experiments.measures.timing import Spread, spread
from engine.services.experiments.reports.tables import say, show_absent, show_table
from engine.services.experiments.workloads.texts import Prompt, Text

PROMPTS = 2
"""Prompts of each text; few, because transformers is slow."""
LOOKUP = 4
"""Draft tokens that prompt lookup proposes at a time."""


class AssistedRow(msgspec.Struct, frozen=True):
    """transformers with speculation over that without: tokens a second after the first ones, greedy, float32."""

    text: str
    title: str
    speedup: Spread
    equal: int
    answers: int


class AssistedFigures(msgspec.Struct, frozen=True):
    """``absent`` says what was left out, and why."""

    rows: list[AssistedRow]
    absent: list[str]

    def show(self) -> None:
        if self.rows:
            show_table(
                "transformers with speculation, compared with itself without",
                "draft method | text | speed-up (quarters) | same answers",
                (f"{row.title} | {row.text} | {row.speedup} | {row.equal}/{row.answers}" for row in self.rows),
            )
        show_absent(self.absent)


class _Clock:
    """A streamer: when the first tokens of an answer came, and how many they were."""

    def __init__(self) -> None:
        self.prompted, self.first, self.tokens = False, 0.0, 0

    def put(self, value: Any) -> None:
        if not self.prompted:
            self.prompted = True
        elif not self.tokens:
            self.first, self.tokens = time.perf_counter(), value.numel()

    def end(self) -> None: ...


def measure_assisted(target: Checkpoint | None, draft_path: str, texts: Sequence[Text], rounds: int) -> AssistedFigures:
    """Both ways on two prompts of each greedy text, as far as transformers can hold the models."""
    name = "transformers' assisted generation and prompt lookup"
    greedy = [text for text in texts if text.greedy]
    checkpoints = [] if target is None else [target]
    if draft_path:
        checkpoints.append(open_checkpoint(draft_path))
    reason = _refused(checkpoints) if target is not None else "the model is not a folder that transformers reads"
    if reason or not greedy:
        return AssistedFigures([], [f"{name}: {reason or 'no text to write'}"])
    from transformers.utils import logging

    say("reading the models into transformers")
    logging.set_verbosity_error()  # it warns about arguments that it passes to itself
    try:
        model, *draft = map(dequantised, checkpoints)
    except (CheckpointError, RuntimeError, ValueError, KeyError) as error:
        return AssistedFigures([], [f"{name}: transformers cannot hold this model ({error})"])
    ways: dict[str, dict[str, Any]] = {"assisted": {"assistant_model": draft[0]}} if draft else {}
    ways["lookup"] = {"prompt_lookup_num_tokens": LOOKUP}
    absent = [] if draft else ["transformers' assisted generation: no draft model was given"]
    rows = []
    for text in greedy:
        for title, options in ways.items():
            say(f"{text.title}: transformers, {title}")
            rows.append(_row(model, text, title, options, rounds))
    return AssistedFigures(rows, absent)


def _refused(checkpoints: Sequence[Checkpoint]) -> str:
    """Reason transformers cannot run these checkpoints; "" if it can."""
    if importlib.util.find_spec("transformers") is None:
        return "the package transformers is not installed"
    if not all((checkpoint.path / "config.json").is_file() for checkpoint in checkpoints):
        return "the model is not a folder that transformers reads"
    needed = 4 * sum(checkpoint.parameters for checkpoint in checkpoints)
    if needed > 0.8 * psutil.virtual_memory().available:
        return f"{needed / 1e9:.0f} GB of float32 weights do not fit into memory"
    return ""


def dequantised(checkpoint: Checkpoint) -> Any:
    """The model of transformers in float32, with the weights that this checkpoint's packed ones stand for."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(checkpoint.path)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    source = replace(checkpoint, tables_in_file=False).source(torch.device("cpu"), torch.float32, "16bit", Numerics())
    tables = {id(model.get_input_embeddings().weight)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(source.vector(name, len(parameter)))
            elif id(parameter) in tables:
                parameter.copy_(cast(torch.Tensor, source.embedding(name, *parameter.shape)))
            else:
                parameter.copy_(source.matrix(name.removesuffix(".weight"), *parameter.shape))
    model.generation_config = GenerationConfig(
        eos_token_id=model.generation_config.eos_token_id, pad_token_id=model.generation_config.pad_token_id or 0
    )
    return model.eval()


def _row(model: Any, text: Text, title: str, options: dict[str, Any], rounds: int) -> AssistedRow:
    """Plain and assisted generation in turn, after one of each."""
    ratios, equal = [], 0
    for round in range(rounds + 1):
        for prompt in text.prompts[:PROMPTS]:
            plain, plain_speed = _generate(model, prompt, {})
            drafted, speed = _generate(model, prompt, options)
            if round:
                ratios.append(speed / plain_speed)
                equal += plain == drafted
    return AssistedRow(text.title, f"transformers, {title}", spread(ratios), equal, len(ratios))


def _generate(model: Any, prompt: Prompt, options: dict[str, Any]) -> tuple[list[int], float]:
    """One greedy answer and its tokens a second; with ``ignore_eos`` it has ``max_tokens`` tokens."""
    ids, clock = torch.tensor([prompt.ids]), _Clock()
    if prompt.sampling.ignore_eos:
        options = {**options, "eos_token_id": None}
    limits = {"do_sample": False, "max_new_tokens": prompt.sampling.max_tokens}
    with torch.inference_mode():
        written = model.generate(ids, attention_mask=torch.ones_like(ids), streamer=clock, **limits, **options)
    ended = time.perf_counter()
    answer = written[0, ids.shape[1] :].tolist()
    return answer, (len(answer) - clock.tokens) / (ended - clock.first)
