"""Which cache a model wants."""

from __future__ import annotations

import torch

from engine.cache.kinds import KVKind
from engine.cache.packed_stores import KiviStore, TokenPackedStore
from engine.cache.quest import DENSE_LAYERS, QuestStore
from engine.cache.store import DenseKVStore, KVStore, LatentKVStore
from engine.models.base import ModelConfig

SIXTEEN_BITS = KVKind()


def refuses(config: ModelConfig, kind: KVKind) -> str:
    """Why a model's keys and values cannot be kept in this kind, as a sentence; "" if they can."""
    if kind.bounds and config.latent is not None:
        return "QUEST ranks pages by keys, and this model caches latents, which its heads share."
    if kind.name == "16bit":
        return ""
    if config.latent is not None:
        return "This model caches latents, which its heads share: they are kept in 16 bits."
    planes = 8 // min(kind.key_bits, kind.value_bits)
    if config.head_dim % planes:
        return f"{kind.title} packs {planes} channels into a byte, and this model's heads have {config.head_dim}."
    return ""


def new_store(
    config: ModelConfig,
    pages: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    kind: KVKind = SIXTEEN_BITS,
    recent_pages: int | None = None,
) -> KVStore:
    """Arenas for keys and values of every layer. ``pages`` counts page 0, which belongs to nobody.

    ``recent_pages`` are those for KIVI's recent tokens, with a page 0 of their own; None: as many as ``pages``. Raises
    ValueError for a kind that the model `refuses`.
    """
    reason = refuses(config, kind)
    if reason:
        raise ValueError(reason)
    latent, layers = config.latent, config.num_layers
    if latent is not None:
        return LatentKVStore(layers, pages, latent.rank, latent.rope, dtype, device)
    heads, width = config.num_kv_heads, config.head_dim
    if kind.name == "kivi":
        recent = pages if recent_pages is None else recent_pages
        return KiviStore(kind, layers, pages, recent, heads, width, dtype, device)
    if kind.name != "16bit":
        return TokenPackedStore(kind.name, layers, pages, heads, width, device)
    if kind.bounds:
        return QuestStore(layers, pages, heads, width, dtype, device, bounded_layers(config))
    return DenseKVStore(layers, pages, heads, width, dtype, device)


def bounded_layers(config: ModelConfig) -> list[bool]:
    """Layers whose rows may choose pages: not the first, nor those with a window, which read all of it."""
    return [layer >= DENSE_LAYERS and window is None for layer, window in enumerate(config.windows)]
