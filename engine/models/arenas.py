"""Which cache a model wants."""

from __future__ import annotations

import torch

from engine.cache.store import DenseKVStore, KVStore, LatentKVStore
from engine.models.base import ModelConfig


def new_store(config: ModelConfig, pages: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> KVStore:
    """Arenas for keys and values of every layer. ``pages`` counts page 0, which belongs to nobody."""
    latent, layers = config.latent, config.num_layers
    if latent is not None:
        return LatentKVStore(layers, pages, latent.rank, latent.rope, dtype, device)
    return DenseKVStore(layers, pages, config.num_kv_heads, config.head_dim, dtype, device)
