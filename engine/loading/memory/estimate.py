"""Estimate of whether a model fits, and of the pages that its cache gets, out of what is free now."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.compute.batch import ROW_CLASSES
from engine.compute.layers.latent_forms import EXPANDED_BYTES
from engine.config.model import ModelConfig
from engine.protocol import Fit

DEFAULT_FRACTION = 0.85
"""Share of the free memory that a load may take when nothing was said."""
SEQUENCES = 8
"""The cache never gets more than this number of full contexts, however much memory there is."""
LEAST_TOKENS = 256
"""A cache that holds less is refused (or the model's whole context, where that is shorter)."""
EXPERT_HIDDEN = 6
"""Rows of the hidden size in addition to an expert's own: those routed to it and its result, in the model's dtype; the
sum over experts and what one adds to it, in float32."""
RECENT_SEQUENCES = 32
"""Room for the recent tokens of this number of running answers is wished for, where the cache keeps those apart..."""
RECENT_SHARE = 0.25
"""... but at most this share of what is left for the cache, while one answer's still have room."""
RECENT_ROWS = 64
"""Rows of a step that one answer's recent tokens have room for at the least."""
WINDOW_SEQUENCES = 32
"""Windows that room is wished for, where layers with a sliding window keep no more: those of running answers, and of
texts that ended..."""
WINDOW_SHARE = 0.25
"""... but at most this share of what is left for the cache, unless the other layers have all that they can use, while
one answer has room for its own."""
WINDOW_ROWS = 256
"""Rows of a step that one answer's window has room for besides, at the least."""
STATE_SLOTS = 64
"""States that room is wished for, where a model has some: those of running answers, and snapshots of texts..."""
STATE_SHARE = 0.25
"""... but at most this share of what is left for the cache, while one answer has room for its own and a snapshot."""
LEAST_STATES = 4
FLOAT_ROWS = 64
"""Sampling makes its float32 copy of the logits in blocks of fewer rows than this."""
SCRATCH_BYTES = 64 << 20
"""Buffers whose size does not follow the model's: 64 MB of dequantised weights for products of many rows, and the
workspace of operators (32 MB of cuBLAS on Hopper)."""


GPU_SCRATCH_BYTES = 32 << 20
"""Bytes of such buffers that a GPU takes besides: for the widest products it dequantises blocks of 64 MB."""
GRAPHS = 16
"""Captured shapes that are counted on."""
GRAPH_BYTES = 8 << 20
"""Bytes of the nodes of one graph. An estimate, to be measured on a GPU."""


class OutOfMemory(Exception):  # noqa: N818 - an outcome that a person is told about
    """The model does not fit; the message says what it takes, what is free and what to do; ``fit`` has the numbers."""

    def __init__(self, message: str, fit: Fit) -> None:
        super().__init__(message)
        self.fit = fit


class MemoryPlan(NamedTuple):
    """``pages`` counts page 0, which holds nothing; ``context`` is the longest sequence that fits, in tokens.

    ``recent_pages``, with a page 0 of their own, are for the tokens that are not packed yet; 0: none are kept apart.
    ``state_slots``, slot 0 included, are for the layers with states; 0: there are none. ``window_pages``, with a page 0
    of their own, are for the layers with a sliding window; 0: they keep as much as the others.
    """

    fit: Fit
    pages: int
    context: int
    recent_pages: int = 0
    state_slots: int = 0
    window_pages: int = 0


def budget_bytes(memory: float | None, free: int) -> int:
    """``memory`` is a fraction of ``free`` when at most 1, else bytes (of which no more than are free). None: 0.85."""
    wanted = DEFAULT_FRACTION if memory is None else memory
    if wanted <= 0:
        return 0
    return int(free * wanted) if wanted <= 1 else min(int(wanted), free)


def activation_bytes(config: ModelConfig, dtype: torch.dtype, rows: int, logit_rows: int) -> int:
    """Bytes that one forward of ``rows`` rows holds at its widest, in addition to weights and cache.

    The widest point is in the MLP (residual, normalised input, gate and up, the product, the result) or in attention
    (the same with q, k, v, their rotation and the output). Every row may ask the same expert. Logits count with the
    float32 copies that sampling makes. Native products keep a copy of their input, in float32 at most and once for all
    layers.
    """
    read, moe = config.mlp.intermediate_size, config.moe
    inner = 3 * read
    if moe is not None:
        most = max(moe.intermediate_size, moe.shared_size)
        asked = 3 * most + EXPERT_HIDDEN * config.hidden_size
        # Where all experts run together each choice has a row: its gate, up and product, or that and its result.
        together = 2 * moe.intermediate_size + max(moe.intermediate_size, config.hidden_size)
        asked = max(asked, moe.experts_per_token * together + config.hidden_size)
        inner, read = (asked, most) if all(moe.sparse) and not moe.parallel else (max(inner, asked), max(read, most))
    heads, shapes = config.attention.num_heads, set(config.arena_shapes)
    latent = config.attention.latent
    attention = max(3 * (heads + 2 * shape.kv_heads) * shape.width for shape in shapes)
    scratch = SCRATCH_BYTES
    if latent is not None:
        # Absorbed: q twice, q in the latents' space, and the result there. Expanded keys and values stand next to
        # the latents that they come from and the projection on its way into place.
        attention = 2 * heads * (config.attention.head_dim + latent.rank + latent.rope)
        scratch += 3 * EXPANDED_BYTES
    if config.recurrent is not None:
        attention = max(attention, config.recurrent.widest)
    widest = 3 * config.hidden_size + max(inner, attention)
    copied = 4 * max(config.hidden_size, read, heads * max(shape.width for shape in shapes))
    logits = config.vocab_size * (logit_rows * dtype.itemsize + 4 * min(logit_rows, FLOAT_ROWS))
    return rows * (widest * dtype.itemsize + copied) + logits + scratch


def gpu_bytes(config: ModelConfig, dtype: torch.dtype, context: int) -> int:
    """Bytes that Kvasir's kernels and captured CUDA graphs take in addition: larger blocks of weights, the graphs' own
    nodes, the results of each, and rotation for all positions.

    Where more are captured than are counted on, and memory runs out, all are given up (`engine.compute.runner.graphs`).
    """
    results = sum(ROW_CLASSES) * config.vocab_size * dtype.itemsize
    turned = config.rotated_dim() + (config.rotated_dim(local=True) if config.positions.local_rope is not None else 0)
    rotation = 2 * context * turned * dtype.itemsize
    return GPU_SCRATCH_BYTES + GRAPHS * GRAPH_BYTES + results + rotation


def kv_bytes_per_token(
    config: ModelConfig, dtype: torch.dtype, kind: KVKind | None = None, in_window: bool | None = None
) -> float:
    """Keys and values of one token in all layers, scales included; ``dtype`` is theirs where they are not packed.

    ``in_window``: in the layers with a sliding window alone, or in the others; None: in all.
    """
    if config.attention.latent is not None:
        return config.cached_elements * dtype.itemsize * (not in_window)
    bits = 8.0 * dtype.itemsize
    packed = kind is not None and kind.name != "16bit"
    found = 0.0
    for shape, window in zip(config.arena_shapes, config.arena_windows, strict=True):
        if in_window is None or in_window == (window is not None):
            each = kind.bits_per_element(shape.width) if kind is not None and packed else bits
            found += 2 * shape.kv_heads * shape.width * each / 8
    return found


def plan(
    *,
    weights: int,
    kv_bytes: float,
    activations: int,
    context: int,
    free: int,
    memory: float | None = None,
    draft_weights: int = 0,
    credit: int = 0,
    sequences: int = SEQUENCES,
    residual: int = 0,
    recent_bytes: float = 0.0,
    rows: int = 0,
    state_bytes: int = 0,
    window: int = 0,
    window_bytes: float = 0.0,
    at_once: int = 0,
) -> MemoryPlan:
    """Divide the budget. ``kv_bytes`` is per token in every arena (the draft's too); all sizes in bytes.

    ``credit`` is what will be free besides ``free``: the model about to be replaced. ``context`` is what is asked for.
    Where the last ``residual`` tokens of a sequence are kept apart, each takes ``recent_bytes``, and so do the
    ``rows`` of a step: the answers that run together share them. ``state_bytes`` is a sequence's state, however long
    it is. ``window_bytes`` are those of a token in layers that keep the last ``window`` tokens and the rows of a step;
    ``kv_bytes`` are then those of the others. ``at_once``: the most rows that cannot be read in several steps.

    Raises :class:`OutOfMemory` when not even a short text fits.
    """
    available = free + credit
    budget = budget_bytes(memory, available)
    left = budget - weights - draft_weights - activations
    page_bytes = kv_bytes * PAGE_SIZE
    per_context = math.ceil(context / PAGE_SIZE)
    slots = 1 + max(LEAST_STATES, min(STATE_SLOTS, int(STATE_SHARE * left / state_bytes))) if state_bytes else 0
    left -= slots * state_bytes
    recent_pages = _recent_pages(residual, rows, context, left / (recent_bytes * PAGE_SIZE), at_once) if residual else 0
    left -= int(recent_pages * recent_bytes * PAGE_SIZE)
    whole = per_context * sequences + 1
    slot_bytes = window_bytes * PAGE_SIZE
    window += (CHANNEL_GROUP - PAGE_SIZE) * (window > 0 and residual > 0)  # packed pages come and go in groups
    window_pages = (
        min(whole, _window_pages(window, rows, context, WINDOW_SHARE * left / slot_bytes, at_once)) if window else 0
    )
    left -= int(window_pages * slot_bytes)
    affordable = int(left // page_bytes) if page_bytes else whole * (left >= 0)
    pages = min(affordable, whole)
    if window and pages == whole:
        spare = window_pages + (left - pages * page_bytes) / slot_bytes
        window_pages = min(whole, _window_pages(window, rows, context, spare, at_once))
    tokens = max(0, pages - 1) * PAGE_SIZE
    fit = Fit(
        weights=weights,
        draft_weights=draft_weights,
        kv=int(max(0, pages) * page_bytes + recent_pages * recent_bytes * PAGE_SIZE + window_pages * slot_bytes),
        kv_tokens=tokens,
        activations=activations,
        budget=budget,
        free=available,
        states=slots * state_bytes,
    )
    if tokens < min(LEAST_TOKENS, context):
        raise OutOfMemory(_refusal(fit, page_bytes), fit)
    return MemoryPlan(fit, pages, min(context, tokens), recent_pages, slots, window_pages)


def _recent_pages(residual: int, rows: int, context: int, affordable: float, at_once: int) -> int:
    """Pages for recent tokens, page 0 included, of which ``affordable`` would take all the room that there is.

    A sequence holds its residual, less than a group besides, and the rows of a step (`engine.cache.stores.recent`).
    """
    held = math.ceil(min(residual + CHANNEL_GROUP, context) / PAGE_SIZE) + 1
    least = held + math.ceil(min(max(RECENT_ROWS, at_once), context) / PAGE_SIZE) + (at_once > 0)
    wanted = RECENT_SEQUENCES * held + math.ceil(rows / PAGE_SIZE)
    return 1 + max(least, min(wanted, int(RECENT_SHARE * affordable)))


def _window_pages(window: int, rows: int, context: int, affordable: float, at_once: int) -> int:
    """Pages for layers with a window, page 0 included, of which ``affordable`` may be taken.

    A sequence holds its window, wherever on a page it begins, the rows of a step, and a page that it copies.
    """
    held = math.ceil((min(window, context) - 1) / PAGE_SIZE) + 1
    least = held + 1 + math.ceil(min(max(WINDOW_ROWS, at_once), context) / PAGE_SIZE)
    wanted = WINDOW_SEQUENCES * held + math.ceil(rows / PAGE_SIZE)
    return 1 + max(least, min(wanted, int(affordable) - 1))


def _refusal(fit: Fit, page_bytes: float) -> str:
    draft = f", {size(fit.draft_weights)} for the draft model's" if fit.draft_weights else ""
    draft += f", {size(fit.states)} for states of its recurrent layers" if fit.states else ""
    least = (
        fit.weights
        + fit.draft_weights
        + fit.activations
        + fit.states
        + int(page_bytes * (LEAST_TOKENS / PAGE_SIZE + 1))
    )
    advice = (
        "Raise the memory budget"
        if least <= 0.95 * fit.free
        else "Close other programs, or choose a smaller model" + (" or no draft model" if fit.draft_weights else "")
    )
    return (
        f"The model does not fit: it takes {size(fit.weights)} for its weights{draft} and {size(fit.activations)} "
        f"to work with, and {size(fit.budget)} may be used of the {size(fit.free)} that are free now. {advice}."
    )


def size(count: int) -> str:
    """Bytes for people: "5.1 GB", "740 MB"."""
    if count >= 10**9:
        return f"{count / 10**9:.1f} GB"
    return f"{max(0, count) / 10**6:.0f} MB"
