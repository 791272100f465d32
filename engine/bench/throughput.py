"""This engine alone on one shape: reading a prompt, and writing for several listeners at once, held against the memory.

Decoding reads all weights and every listener's keys and values once a step. How close a step comes to the time that the
measured bandwidth needs for those bytes says how much is left to gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from engine.bench.client import EngineClient
from engine.bench.folders import gptq_folder
from engine.bench.measure import timed
from engine.bench.shapes import Shape
from engine.catalogue import keys
from engine.memory.bandwidth import measure_bandwidth
from engine.protocol import Sampling
from engine.telemetry.records import StepRecord

BATCHES = (1, 8, 32)
CPU_BATCHES = (1, 4)
"""Beyond a few rows a CPU computes rather than waits for memory: 32 listeners take minutes and show no more."""
SHORT_PROMPT = 64
"""Tokens of a prompt where only decoding is measured."""


class BatchRow(msgspec.Struct, frozen=True):
    """Decoding for ``batch`` listeners: medians over the steps in which all of them wrote one token each.

    Tokens a second of all together, milliseconds of a step and of the host's part in it, bytes read for each token, and
    the share of the measured bandwidth that reading them took.
    """

    batch: int
    tokens_per_second: float
    step_ms: float
    host_ms: float
    bytes_per_token: float
    bandwidth_share: float
    steps: int


class ShapeFigures(msgspec.Struct, frozen=True):
    """One shape on one device. Sizes are bytes, ``bandwidth`` bytes a second, ``prefill`` prompt tokens a second.

    ``device_peak`` is the most that torch ever held on a GPU (0 on a CPU). ``paths`` names the kernels of the linear
    layers, ``notices`` why better ones declined.
    """

    shape: str
    group: int
    device: str
    dtype: str
    load_seconds: float
    weights: int
    device_peak: int
    bandwidth: float
    prompt_tokens: int
    prefill: float
    batches: list[BatchRow]
    paths: list[str]
    notices: list[str]


def measure_shape(
    shape: Shape,
    root: Path,
    *,
    rounds: int = 5,
    batches: Sequence[int] = BATCHES,
    prompt_tokens: int = 512,
    decode_tokens: int = 128,
    say: Callable[[str], None] = lambda line: None,
) -> ShapeFigures:
    """Load the shape and measure it, ``rounds`` times after a warm-up. Raises EngineError where it cannot be served."""
    say(f"making {shape.name}")
    folder = gptq_folder(shape, root)
    say(f"loading {shape.name}")
    with EngineClient() as client:
        with timed() as load:
            card, _ = client.load(str(folder))
        loaded = client.engine.loaded
        assert loaded is not None
        assert loaded.model is not None
        device, model = loaded.device, loaded.model
        bandwidth = measure_bandwidth(device)
        prefill = _prefill(client, _prompt(shape, prompt_tokens), rounds)
        rows, notices = [], list(card.notices)
        for batch in batches:
            say(f"decoding for {batch}")
            row = _decode(client, shape, batch, decode_tokens, rounds, bandwidth)
            if row is None:
                notices.append(f"{batch} listeners never wrote together: their keys and values do not fit into memory.")
            else:
                rows.append(row)
        return ShapeFigures(
            shape=shape.name,
            group=shape.group,
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
            dtype=str(model.dtype).removeprefix("torch."),
            load_seconds=load.seconds,
            weights=model.storage_size(),
            device_peak=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
            bandwidth=bandwidth,
            prompt_tokens=prompt_tokens,
            prefill=prompt_tokens / prefill,
            batches=rows,
            paths=sorted({linear.path for _, linear in model.linears()}),
            notices=notices,
        )


def _prompt(shape: Shape, tokens: int, first: int = 0) -> list[int]:
    return [5 + (first + index * 7919) % (shape.vocabulary - 5) for index in range(tokens)]


def _prefill(client: EngineClient, prompt: list[int], rounds: int) -> float:
    """Median seconds from arrival to the first token."""
    sampling = Sampling(temperature=0.0, max_tokens=2, ignore_eos=True, seed=0)
    answers = [client.answer(prompt, sampling, {keys.SPECULATION: "off"}) for _ in range(rounds + 1)]
    return statistics.median(answer.timings.ttft_ms for answer in answers[1:]) / 1000


def _decode(
    client: EngineClient, shape: Shape, batch: int, tokens: int, rounds: int, bandwidth: float
) -> BatchRow | None:
    """Measure decoding; None when the listeners never all wrote in the same step."""
    prompts = [_prompt(shape, SHORT_PROMPT, 31 * number) for number in range(batch)]
    sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, seed=0)
    client.together(prompts, sampling, {keys.SPECULATION: "off"})
    steps: list[StepRecord] = []
    for _ in range(rounds):
        steps += _whole(client.together(prompts, sampling, {keys.SPECULATION: "off"})[0].steps, batch)
    if not steps:
        return None
    duration = statistics.median(step.duration for step in steps)
    read = statistics.median(step.bytes_read for step in steps)
    return BatchRow(
        batch=batch,
        tokens_per_second=batch / duration,
        step_ms=1000 * duration,
        host_ms=1000 * statistics.median(step.host_seconds for step in steps),
        bytes_per_token=read / batch,
        bandwidth_share=read / duration / bandwidth,
        steps=len(steps),
    )


def _whole(steps: Sequence[StepRecord], batch: int) -> list[StepRecord]:
    """The steps that did nothing but write one token for every listener."""
    return [step for step in steps if step.prefill_rows == 0 and step.decode_rows == step.generated == batch]
