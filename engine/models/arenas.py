"""Which cache a model wants."""

from __future__ import annotations

import torch

from engine.cache.quest import DENSE_LAYERS, QuestStore
from engine.cache.store import DenseKVStore, KVStore, LatentKVStore
from engine.models.base import ModelConfig


def new_store(config: ModelConfig, pages: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> KVStore:
    """Arenas for keys and values of every layer. ``pages`` counts page 0, which belongs to nobody."""
    latent, layers = config.latent, config.num_layers
    if latent is not None:
        return LatentKVStore(layers, pages, latent.rank, latent.rope, dtype, device)
    return DenseKVStore(layers, pages, config.num_kv_heads, config.head_dim, dtype, device)


def new_quest_store(
    config: ModelConfig, pages: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> QuestStore:
    """Arenas in which rows may choose pages, but for the first layers and those with a window, which read all of it.

    Raises ValueError for multi-head latent attention.
    """
    if config.latent is not None:
        raise ValueError("QUEST ranks pages by keys, and this model keeps latents (MLA), which are no keys.")
    bounded = [layer >= DENSE_LAYERS and window is None for layer, window in enumerate(config.windows)]
    return QuestStore(config.num_layers, pages, config.num_kv_heads, config.head_dim, dtype, device, bounded)
