"""Placement of the parts of a load, and their form: all of them on one device."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch

from engine.cache.stores.kinds import KVKind
from engine.config.model import ModelConfig
from engine.formats.source import Packing
from engine.loading.memory import estimate
from engine.loading.memory.probe import choose_device, choose_dtype, choose_kv_dtype
from engine.protocol import DeviceName, LoadOptions


class DevicePlacement(NamedTuple):
    """``dtype`` is computed in, ``kv_dtype`` that of keys and values that are not packed, ``kind`` the cache's.
    ``packing``: of linear layers that are packed. ``computing``: a sentence about the dtype, "" where it needs none."""

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    packing: Packing
    kind: KVKind
    computing: str = ""

    @classmethod
    def choose(cls, asked: LoadOptions, auto: DeviceName, packing: Packing, kind: KVKind) -> Self:
        """The placement for the options of a load, ``auto`` being the device of one that names none. Raises
        :class:`engine.loading.memory.probe.NoSuchDevice`."""
        device = choose_device(asked.device if asked.device != "auto" else auto)
        dtype, computing = choose_dtype(device, asked.dtype)
        return cls(device, dtype, choose_kv_dtype(dtype, asked.dtype), packing, kind, computing)

    @property
    def unrounded(self) -> Self:
        """The same, but keys and values are not rounded on their way into the cache."""
        return self._replace(kv_dtype=self.dtype)

    def kv_bytes(self, config: ModelConfig, in_window: bool | None = None) -> float:
        """Bytes of keys and values of one token; ``in_window`` as in :func:`estimate.kv_bytes_per_token`."""
        return estimate.kv_bytes_per_token(config, self.kv_dtype, self.kind, in_window)
