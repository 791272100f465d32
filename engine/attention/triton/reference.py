"""What the kernels compute, in torch: the oracle of their trial and of their tests."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from engine.attention.backends.reference import ReferenceAttention
from engine.attention.interface import AttnSpec, KeyRange
from engine.batch import Batch
from engine.cache.stores.packed import PackedKV


def attend(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    group: int = 0,
    need_lse: bool = False,
    first: Tensor | None = None,
    stop: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As `launch.attend`."""
    keys = None if first is None and stop is None else KeyRange(_on_host(first), _on_host(stop))
    return ReferenceAttention().attend(q, kv, spec, batch, group, need_lse, keys)


def _on_host(bounds: Tensor | None) -> np.ndarray | None:
    return None if bounds is None else bounds.long().cpu().numpy()
