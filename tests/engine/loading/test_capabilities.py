"""What a loaded model is found capable of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.config.attention import AttentionConfig
from engine.loading.capabilities import _reads_shared_keys_once


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_are_shared_but_by_the_native_attention(dtype: torch.dtype) -> None:
    """Whichever of the two this processor has for the type; it has none for heads of 80."""
    attention = AttentionConfig(num_heads=1, num_kv_heads=1, head_dim=64, windows=(None,))
    config = SimpleNamespace(attention=attention)
    model = SimpleNamespace(config=config, device=torch.device("cpu"), dtype=dtype, kv_dtype=dtype)
    kv = DenseKVStore([(1, 64)], 2, dtype).view(0)
    native = NativeAttention().declines(AttnProblem("cpu", dtype, AttnSpec(1.0))) is None
    assert _reads_shared_keys_once(model, kv) is not native  # type: ignore[arg-type]
    other = DenseKVStore([(1, 80)], 2, dtype).view(0)
    assert _reads_shared_keys_once(model, other)  # type: ignore[arg-type]
