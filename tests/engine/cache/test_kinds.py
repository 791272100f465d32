"""What a kind is called, how many bits it takes, and that its arenas take no others."""

from __future__ import annotations

import pytest
import torch

from engine.cache.stores.kinds import KVKind
from engine.compute.models.arenas import new_store, refuses
from engine.config.attention import LatentShape
from engine.loading.memory.estimate import kv_bytes_per_token
from tests.kit.models import CONFIG

BY_TOKEN = [KVKind(name) for name in ("int8", "fp8", "int4")]
KINDS = [KVKind(), *BY_TOKEN, *(KVKind("kivi", k, v) for k in (2, 4) for v in (2, 4))]


@pytest.mark.parametrize(
    ("kind", "title", "width", "bits"),
    [
        (KVKind(), "16-bit", 128, 16.0),
        (KVKind("int8"), "int8", 128, 8.125),
        (KVKind("int8"), "int8", 64, 8.25),
        (KVKind("fp8"), "fp8", 64, 8.25),
        (KVKind("int4"), "int4", 128, 5.0),
        (KVKind("int4"), "int4", 80, 6.0),
        (KVKind("kivi"), "KIVI 2-bit", 128, 3.0),
        (KVKind("kivi", 4, 4), "KIVI 4-bit", 64, 5.0),
        (KVKind("kivi", 4, 2), "KIVI 4-bit keys, 2-bit values", 96, 4.0),
    ],
)
def test_titles_and_bits(kind: KVKind, title: str, width: int, bits: float) -> None:
    assert kind.title == title
    assert kind.bits_per_element(width) == bits


def test_kinds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="2 or 4 bits"):
        KVKind("kivi", 3, 2)
    for residual in (32, 100):
        with pytest.raises(ValueError, match="groups of 32"):
            KVKind("kivi", 2, 2, residual)
    assert KVKind("int8", 4, 2, 64) == KVKind("int8"), "only KIVI's bits are chosen"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
def test_the_bits_are_those_of_the_allocated_bytes(kind: KVKind, width: int) -> None:
    shape = CONFIG.changed(head_dim=width)
    store = new_store(shape, 9, torch.bfloat16, kind=kind, recent_pages=5)
    elements = shape.num_layers * 2 * shape.attention.num_kv_heads * width
    assert store.bytes_per_token() * 8 == elements * kind.bits_per_element(width)
    assert store.bytes_per_token() == kv_bytes_per_token(shape, torch.bfloat16, kind)
    recent = 5 * 16 * elements * 2 if kind.residual else 0
    assert store.storage_size() == 9 * 16 * store.bytes_per_token() + recent


def test_latents_stay_as_they_are() -> None:
    latent = CONFIG.changed(head_dim=64, latent=LatentShape(32, 16, 8, 16))
    assert refuses(latent, KVKind()) == ""
    for kind in KINDS[1:]:
        assert "kept in 16 bits" in refuses(latent, kind)
        with pytest.raises(ValueError, match="latents"):
            new_store(latent, 4, torch.bfloat16, kind=kind)


def test_a_width_that_fills_no_byte_is_refused() -> None:
    odd = CONFIG.changed(head_dim=66)
    assert refuses(odd, KVKind("int4")) == ""
    assert "packs 4 channels into a byte, and this model's heads have 66" in refuses(odd, KVKind("kivi", 4, 2))
