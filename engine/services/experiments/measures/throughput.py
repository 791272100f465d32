"""This engine alone on one shape: reading a prompt, and writing for several listeners at once, held against the memory.

Decoding reads all weights and every listener's keys and values once a step. How close a step comes to the time that the
measured bandwidth needs for those bytes says how much is left to gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from engine.decoding.telemetry.records import StepRecord
from engine.loading.memory.bandwidth import measure_bandwidth
from engine.loading.memory.nvml import Meter
from engine.protocol import keys
from engine.services.client import EngineClient, whole_steps
from engine.services.experiments.measures.timing import timed
from engine.services.experiments.reports.tables import GB, MB, say, show_line, show_table
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.shapes import Shape, gptq_folder

BATCHES = (1, 8, 32)
CPU_BATCHES = (1, 4)
"""Beyond a few rows a CPU computes rather than waits for memory: 32 listeners take minutes and show no more."""
SHORT_PROMPT = 64
"""Tokens of a prompt where only decoding is measured."""


class BatchRow(msgspec.Struct, frozen=True):
    """Decoding for ``batch`` listeners: medians over the steps in which all of them wrote one token each.

    Tokens a second of all together, milliseconds of a step and of the host's part in it, bytes read for each token, and
    the share of the measured bandwidth that reading them took. ``joules`` is what the GPU took for each token of these
    runs, their short prompts included; 0 where its driver does not say.
    """

    batch: int
    tokens_per_second: float
    step_ms: float
    host_ms: float
    bytes_per_token: float
    bandwidth_share: float
    steps: int
    joules: float = 0.0


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

    def show(self) -> None:
        energy = any(row.joules for row in self.batches)
        peak = f", {self.device_peak / GB:.1f} GB on the GPU at peak" if self.device_peak else ""
        show_table(
            f"{self.shape}, int4 in groups of {self.group}, random weights, {self.dtype} on {self.device}: "
            f"loaded in {self.load_seconds:.1f} s, weights {self.weights / GB:.2f} GB{peak}; prompt of "
            f"{self.prompt_tokens}: {self.prefill:.0f} tok/s; memory reads {self.bandwidth / GB:.0f} GB/s",
            "listeners | decode, tok/s | step, ms | of it host, ms | read per token, MB | of the bandwidth"
            + " | J/token" * energy,
            (
                f"{row.batch} | {row.tokens_per_second:.1f} | {row.step_ms:.2f} | {row.host_ms:.2f} | "
                f"{row.bytes_per_token / MB:.1f} | {row.bandwidth_share:.0%}" + f" | {row.joules:.3f}" * energy
                for row in self.batches
            ),
        )
        show_line(f"linear layers: {', '.join(self.paths)}")
        for notice in self.notices:
            show_line(notice)


def measure_shape(
    shape: Shape, root: Path, *, rounds: int, batches: Sequence[int], decode_tokens: int, prompt_tokens: int = 512
) -> ShapeFigures:
    """Load the shape and measure it, ``rounds`` times after a warm-up. Raises EngineError where it cannot be served."""
    say(f"making {shape.name}")
    folder = gptq_folder(shape, root)
    say(f"loading {shape.name}")
    with EngineClient() as client:
        client.set(keys.ACTIVATIONS, "8bit")  # what random weights bear says nothing about a model
        with timed() as load:
            card, _ = client.load(str(folder))
        device, model = client.model.device, client.model.model
        assert model is not None
        bandwidth = measure_bandwidth(device)
        prompt, first = shape.prompt(prompt_tokens), greedy(2)
        read = [client.answer(prompt, first, PLAIN).timings.ttft_ms / 1000 for _ in range(rounds + 1)][1:]
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
            prefill=prompt_tokens / statistics.median(read),
            batches=rows,
            paths=sorted({linear.path for _, linear in model.linears()}),
            notices=notices,
        )


def _decode(
    client: EngineClient, shape: Shape, batch: int, tokens: int, rounds: int, bandwidth: float
) -> BatchRow | None:
    """Measure decoding; None when the listeners never all wrote in the same step."""
    prompts = [shape.prompt(SHORT_PROMPT, 31 * number) for number in range(batch)]
    sampling = greedy(tokens)
    client.together(prompts, sampling, PLAIN)
    steps: list[StepRecord] = []
    meter = Meter(client.model.device)
    before = meter.read()
    for _ in range(rounds):
        steps += whole_steps(client.together(prompts, sampling, PLAIN)[0].steps, batch)
    after = meter.read()
    if not steps:
        return None
    spent = (after.joules or 0.0) - (before.joules or 0.0) if before is not None and after is not None else 0.0
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
        joules=spent / (rounds * batch * tokens),
    )
