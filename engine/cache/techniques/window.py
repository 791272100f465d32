"""Attention to all pages, and to a sliding window with sinks: values of the switch "page_policy"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.cache.technique import PolicyTechnique
from engine.catalogue import Choice, Option, Relevance
from engine.catalogue.exclusions import NOT_IN_TREE, Idle, Setting, ShapeExclusion
from engine.catalogue.metrics import CACHE_BYTES
from engine.protocol import CACHE_GROUP, Measure, NumberRange, Value, keys

if TYPE_CHECKING:
    from engine.cache.policies import PagePolicy

_PAPER = "Xiao et al. 2023, StreamingLLM (arXiv 2309.17453)"
_WINDOW = Setting(keys.PAGE_POLICY, ("window_sinks",))


def _all(values: Mapping[str, Value], prompt_length: int | None) -> PagePolicy:
    from engine.cache.policies import KEEP_ALL

    return KEEP_ALL


def _window(values: Mapping[str, Value], prompt_length: int | None) -> PagePolicy:
    from engine.cache.policies import WindowWithSinks

    return WindowWithSinks(int(values[keys.WINDOW_TOKENS]))


FULL = PolicyTechnique(
    choice=Choice("keep_all", "full", explains="Every earlier token. This is lossless."),
    make=_all,
    sees="all pages",
)
WINDOW = PolicyTechnique(
    choice=Choice(
        "window_sinks",
        "sliding window + sinks (StreamingLLM)",
        needs=("sliding window",),
        explains="Keeps the last tokens and the first four, the attention sinks, without which a window breaks "
        "down. Memory stays constant, and what lies between is forgotten.",
        also=("StreamingLLM", "attention sinks", "sinks", "sliding window with sinks"),
    ),
    missing={
        "sliding window": "This model cannot use a sliding window: its kind of positions or of attention does not "
        "allow one."
    },
    label="StreamingLLM",
    paper=_PAPER,
    make=_window,
    tokens=keys.WINDOW_TOKENS,
    sees="4 and the last {}",
    options=(
        Option(
            key=keys.WINDOW_TOKENS,
            title="Window size (tokens)",
            group=CACHE_GROUP,
            default=1024,
            range=NumberRange(64, 1_048_576),
            applies="next request",
            exactness="approximate",
            explains="How many of the last tokens the sliding window keeps. "
            "Whole pages are kept, so it may be up to fifteen more.",
            relevant=Relevance(of=(keys.PAGE_POLICY, ("window_sinks",))),
            measure=Measure("pages of a long answer", CACHE_BYTES, lab="window"),
            helps="A smaller window takes less memory.",
            costs="What lies before the window is forgotten.",
            source=("engine/cache/policies.py",),
            reference=_PAPER,
        ),
    ),
    idle=(
        Idle(
            keys.PREFIX_CACHE,
            _WINDOW,
            "The pages of a sliding window have gaps, so no other text can begin with them.",
        ),
        Idle(keys.DISK_CACHE, _WINDOW, NOT_IN_TREE),
    ),
    shapes=(
        ShapeExclusion(
            # The absorbed form of latent attention attends with what it made of rotated queries, the expanded form to a
            # temporary copy of all keys: neither can rotate the query that sees sinks to another position.
            _WINDOW,
            lambda shape: shape.attention.latent is not None,
            "Models with multi-head latent attention keep all pages: their cache is small already.",
        ),
        ShapeExclusion(
            _WINDOW,
            lambda shape: shape.positions.learned,
            "This model adds learned positions to its tokens, so a query cannot be moved next to the first tokens.",
        ),
    ),
)
