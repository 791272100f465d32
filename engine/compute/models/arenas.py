"""Chooses the KV cache of a model."""

from __future__ import annotations

from dataclasses import replace

import torch

import engine.cache.techniques  # noqa: F401 - registers the kinds
from engine import catalogue
from engine.cache.policies import SparseReads
from engine.cache.stores.kinds import Arenas, KVKind
from engine.cache.stores.states import StateStore
from engine.cache.stores.store import DenseKVStore, KVStore, LatentKVStore
from engine.cache.stores.windowed import WindowedStore
from engine.cache.technique import PolicyTechnique
from engine.cache.techniques.quest.store import bounded_layers
from engine.catalogue.exclusions import ODD_WIDTH, excluded
from engine.config.model import ModelConfig
from engine.protocol import keys

SIXTEEN_BITS = KVKind()


def refuses(config: ModelConfig, kind: KVKind) -> str:
    """Reason a model's keys and values cannot be kept in this kind, as a sentence; "" if they can."""
    choosing = (each.name for each in catalogue.records(PolicyTechnique) if kind.bounds and each.store is not None)
    asked = (*((keys.PAGE_POLICY, name) for name in choosing), (keys.KV_KIND, kind.name))
    reason = next(filter(None, (excluded(config, *each) for each in asked)), "")
    planes = max(1, 8 // min(kind.key_bits, kind.value_bits))
    odd = next((shape.width for shape in config.arena_shapes if shape.width % planes), 0)
    if not reason and odd:
        return ODD_WIDTH.format(kind=kind.title, channels=planes, width=odd)
    return reason


def window_of(config: ModelConfig, kind: KVKind) -> int:
    """Tokens of the widest window, where layers with one keep no more than that; 0 where all layers keep everything."""
    if not kind.windowed or config.attention.bidirectional:
        return 0
    return max((window for window in config.arena_windows if window is not None), default=0)


def new_store(
    config: ModelConfig,
    pages: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    kind: KVKind = SIXTEEN_BITS,
    recent_pages: int | None = None,
    state_slots: int | None = None,
    state_dtype: torch.dtype | None = None,
    window_pages: int | None = None,
) -> KVStore:
    """Arenas for keys and values of every layer that has some. ``pages`` counts page 0, which belongs to nobody.

    ``recent_pages`` are those for tokens that are not packed yet, with a page 0 of their own; None: as ``pages``.
    ``state_slots`` are for the layers with states, if there are any, and count slot 0; None: likewise. ``state_dtype``
    is the model's; None: ``dtype``, that of keys and values. ``window_pages`` are for layers with a window, with a page
    0 of their own, 0: they keep everything; None: as many as ``pages``, where the kind says so.
    Raises ValueError for a kind that the model `refuses`.
    """
    reason = refuses(config, kind)
    if reason:
        raise ValueError(reason)
    store = _new_store(config, pages, dtype, device, kind, recent_pages, window_pages)
    shape = config.recurrent
    if shape is not None:
        slots, tail = pages if state_slots is None else state_slots, (shape.kernel - 1, shape.channels)
        store.states = StateStore(sum(shape.layers), slots, tail, shape.matrix, state_dtype or dtype, device)
    return store


def _new_store(
    config: ModelConfig,
    pages: int,
    dtype: torch.dtype,
    device: torch.device | str,
    kind: KVKind,
    recent_pages: int | None,
    window_pages: int | None,
) -> KVStore:
    latent = config.attention.latent
    if latent is not None:
        return LatentKVStore(len(config.attention_layers), pages, latent.rank, latent.rope, dtype, device)
    recent = pages if recent_pages is None else recent_pages
    make, layers = kind.technique.store, range(len(config.attention_layers))
    every = Arenas(config, kind, pages, recent, dtype, torch.device(device), layers)
    if window_pages == 0 or not window_of(config, kind):
        return make(every)
    if kind.residual:
        every = every._replace(beside=DenseKVStore(every.shape[0], recent, dtype, device))
    windows = config.arena_windows
    whole, rolling = ([layer for layer in layers if (windows[layer] is None) == reads] for reads in (True, False))
    return WindowedStore(
        make(every._replace(layers=whole)) if whole else None,
        make(every._replace(layers=rolling, pages=window_pages or pages, kind=replace(kind, bounds=False))),
        pages,
        windows,
        kind.bounds,  # in a model all of whose layers have a window, rows choose among pages and read all of them
    )


def sparse_reads(config: ModelConfig) -> SparseReads:
    """Share of layers that read everything, and query heads for each key head: what rows that choose pages read."""
    bounded = bounded_layers(config)
    return SparseReads(1 - sum(bounded) / len(bounded), config.attention.num_heads // config.attention.num_kv_heads)
