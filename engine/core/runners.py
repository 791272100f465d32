"""Runners over a model's weights: for its answers, and for texts that are scored beside them."""

from __future__ import annotations

from typing import cast

import torch

from engine.attention.registry import Attention
from engine.cache.kinds import KVKind
from engine.cache.policies import PagePolicy
from engine.cache.pool import pages_for
from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.fingerprint import fingerprint
from engine.checkpoints.load import Checkpoint
from engine.core.inspecting import Readers, ReadersFactory
from engine.core.runner import RunnableModel, Runner
from engine.core.score import Reader, reader
from engine.models.arenas import SIXTEEN_BITS, new_store
from engine.models.base import CausalLM


def new_runner(
    model: CausalLM, pages: int, device: torch.device, kind: KVKind = SIXTEEN_BITS, recent_pages: int | None = None
) -> Runner:
    """A runner with arenas of its own; ``pages`` counts page 0, and so does ``recent_pages`` (None: as many)."""
    store = new_store(model.config, pages, model.dtype, device, kind, recent_pages)
    return Runner(cast(RunnableModel, model), store, Attention(model.numerics), device)


def readers_of(model: CausalLM, device: torch.device, kind: KVKind) -> ReadersFactory:
    """Readers with arenas as those of the answers, and with exact ones."""

    def exact(length: int) -> Reader:
        return reader(new_runner(model, pages_for(length) + 1, device))

    def readers(policy: PagePolicy) -> Readers:
        def present(length: int) -> Reader:
            return reader(new_runner(model, pages_for(length) + 1, device, kind), policy)

        return Readers(exact, present, f"{kind.title}, {policy.title}")

    return readers


def fingerprint_of(checkpoint: Checkpoint, *what: str) -> str:
    """Which model computes, and with what; "" where its files cannot be read any more, so that nothing is saved."""
    try:
        return fingerprint(checkpoint, *what)
    except CheckpointError:
        return ""
