"""What a kind of KV cache makes its arenas from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.cache.stores.kinds import KVKind
from engine.cache.stores.store import DenseKVStore
from engine.config.attention import HeadShape
from engine.config.model import ModelConfig


class Arenas(NamedTuple):
    """Parameters of a store. ``pages`` and ``recent_pages`` each count a page 0; ``layers`` are those of the cache
    that it has."""

    config: ModelConfig
    kind: KVKind
    pages: int
    recent_pages: int
    dtype: torch.dtype
    device: torch.device
    layers: Sequence[int]
    beside: DenseKVStore | None = None
    """Has the recent tokens of all layers; None: each store has those of its own."""

    @property
    def shape(self) -> tuple[tuple[HeadShape, ...], int]:
        """Each layer's heads of keys and values, and the pages."""
        shapes = self.config.arena_shapes
        return tuple(shapes[layer] for layer in self.layers), self.pages
