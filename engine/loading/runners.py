"""Runners over arenas of their own: a test pass once a model is read, readers of texts, and what its layers do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from engine.base.devices import traits
from engine.base.errors import CheckpointError
from engine.cache.policies import PagePolicy
from engine.cache.pool import pages_for
from engine.cache.stores.kinds import KVKind
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.linear import native
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.triton import resident
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.numerics import LEAST_BITS, Numerics
from engine.compute.models.arenas import SIXTEEN_BITS, new_store
from engine.compute.models.base import CausalLM
from engine.compute.native.library import find
from engine.compute.runner.perplexity import Reader, Readers, ReadersFactory, reader
from engine.compute.runner.recorders import CudaRecorder, EarlyRecorder, GraphRecorder, TapeRecorder
from engine.compute.runner.runner import RunnableModel, Runner
from engine.formats.load import Checkpoint


def prove(runner: Runner, checkpoint: Checkpoint) -> None:
    """Compute one token, since no header tells whether the weights are damaged. Raises CheckpointError if they are."""
    logits = runner.forward([SequenceRows([0], 0, [1], want_logits=1)]).logits
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            f"{checkpoint.path.name} computes values that are not numbers: its weights are damaged, or too large for "
            "the dtype. Download the model again, or choose float32."
        )


def fallbacks(model: CausalLM, name: str) -> Iterator[str]:
    """A sentence for each fast path that declined, with the number of layers concerned, and where resident products are
    switched on for each reason there are none.

    Where it is Kvasir's native code another one says what the way taken instead allows.
    """
    layers: dict[tuple[str, str, str], list[Linear]] = {}
    for _, linear in model.linears():
        for declined in linear.declined:
            layers.setdefault((declined.path, declined.reason, linear.path), []).append(linear)
    for (path, reason, used), concerned in layers.items():
        text = f"{len(concerned)} layers of {name} use {used}: {path} declined ({reason})."
        if path == native.PATH:
            text += f" They allow at most {1 / one_row_seconds(concerned, model.dtype):.1f} tokens a second here."
        yield text
    if model.numerics.resident:
        reasons = Counter(reason for _, reason in resident_reasons(model) if reason is not None)
        for reason, count in reasons.items():
            yield f"{count} layers of {name} have no resident products ({reason})."


def resident_reasons(model: CausalLM) -> Iterator[tuple[PlaneLinear, str | None]]:
    """The layers with 4-bit weights in planes, without experts, each with the reason it has no resident product; None
    where it has one, or has not been tried."""
    for name, linear in model.linears():
        if isinstance(linear, PlaneLinear) and ".experts." not in name:
            yield linear, resident.known_reason(linear)


def one_row_seconds(linears: Sequence[Linear], dtype: torch.dtype) -> float:
    """Seconds that products of one row with all of these take on this CPU, measured with one layer of each size."""
    sizes = Counter((linear.kind, linear.in_features, linear.out_features) for linear in linears)
    one_of = {(linear.kind, linear.in_features, linear.out_features): linear for linear in linears}
    seconds = 0.0
    for size, count in sizes.items():
        x = torch.zeros(1, one_of[size].in_features, dtype=dtype)
        one_of[size].forward(x)  # takes its buffers
        started = time.perf_counter()
        one_of[size].forward(x)
        seconds += count * (time.perf_counter() - started)
    return seconds


def quantises_activations(model: CausalLM) -> bool:
    """Return True if any product of the model quantises its activations."""
    return model.numerics.quantises and any(linear.path == native.PATH for _, linear in model.linears())


def flops_per_row(model: CausalLM, packed: bool | None = None) -> float:
    """Floating-point operations of the linear layers for one row of a prompt: without the head, which reads the last
    row alone, and the experts that the row does not ask. ``packed``: of layers with packed weights alone, or of the
    others; None: of all."""
    moe, found = model.config.moe, 0.0
    for name, linear in model.linears():
        share = moe.experts_per_token / moe.num_experts if moe is not None and ".experts." in name else 1.0
        counts = name != "head" and packed in (None, linear.kind != "dense")
        found += share * 2 * linear.in_features * linear.out_features * counts
    return found


def _bits(model: CausalLM) -> str:
    """The bits of activations in words."""
    numerics = model.numerics
    refined = numerics.refines and numerics.activations == LEAST_BITS
    some = refined and any(getattr(linear, "refined", None) is not None for _, linear in model.linears())
    return "8- and 16-bit" if some else f"{numerics.activations}-bit"


def new_runner(
    model: CausalLM,
    pages: int,
    device: torch.device,
    kind: KVKind = SIXTEEN_BITS,
    recent_pages: int | None = None,
    context: int = 0,
    switches: Numerics | None = None,
    state_slots: int | None = None,
    window_pages: int | None = None,
) -> Runner:
    """A runner with its own arenas; ``pages``, ``recent_pages`` and ``window_pages`` (None: the same number) include
    page 0.

    ``state_slots`` are for the layers with states and include slot 0; None: as :meth:`StateRun.alone` needs for one
    sequence.

    With a ``context``, the longest sequence in tokens, its steps are captured, as the model's
    own live switches say or those that are given.
    """
    sizes = recent_pages, state_slots or 2, model.dtype, window_pages
    store = new_store(model.config, pages, model.kv_dtype, device, kind, *sizes)
    switches = switches or model.numerics
    recorder: GraphRecorder | None = None
    if context and traits(device).kernels:
        recorder = CudaRecorder(device)
    elif context and device.type == "cpu" and find().library is not None:
        recorder = TapeRecorder()
    if recorder is not None:
        recorder = EarlyRecorder(recorder, device, switches)
    attention = AttentionDispatcher(model.numerics)
    return Runner(cast(RunnableModel, model), store, attention, device, None, context, recorder, switches)


def readers_of(model: CausalLM, device: torch.device, kind: KVKind) -> ReadersFactory:
    """Readers as requests use the model, and exact ones: over 16-bit arenas, no activation quantised."""

    def exact(length: int) -> Reader:
        read = reader(new_runner(model, pages_for(length) + 1, device))

        def unquantised(tokens: Sequence[int], start: int) -> Tensor:
            with model.numerics.exact():
                return read(tokens, start)

        return unquantised

    def readers(policy: PagePolicy) -> Readers:
        def present(length: int) -> Reader:
            return reader(new_runner(model, pages_for(length) + 1, device, kind), policy)

        bits = f", {_bits(model)} activations" if quantises_activations(model) else ""
        return Readers(exact, present, f"{kind.title}, {policy.title}{bits}")

    return readers
