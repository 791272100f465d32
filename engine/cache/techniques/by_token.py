"""Kinds of KV cache that keep each token by itself: in 16 bits, or packed to 8 or 4."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.cache.stores.kinds import KVTechnique
from engine.cache.stores.packed import value_group
from engine.cache.technique import PolicyTechnique
from engine.catalogue import Choice, records
from engine.catalogue.exclusions import LATENTS, Setting, ShapeExclusion
from engine.protocol import keys

if TYPE_CHECKING:
    from engine.cache.stores.kinds import Arenas
    from engine.cache.stores.store import KVStore

_NEED = "packed cache"
_MISSING = {_NEED: "This model's KV cache stays in 16 bits: its heads share latents (MLA), or have an odd width."}


def _dense(arenas: Arenas) -> KVStore:
    """Numbers as they are, with bounds of pages if the policy that the kind is for wants them."""
    from engine.cache.stores.store import DenseKVStore

    if arenas.kind.bounds:
        return next(each.store(arenas) for each in records(PolicyTechnique) if each.store is not None)
    return DenseKVStore(*arenas.shape, arenas.dtype, arenas.device)


def _packed(kind: str, arenas: Arenas) -> KVStore:
    from engine.cache.stores.packed_stores import TokenPackedStore

    return TokenPackedStore(kind, *arenas.shape, arenas.device, arenas.kind.hadamard)


def _each(width: int) -> tuple[float, float]:
    """A scale for each head of a token."""
    return 16 / width, 16 / width


def _groups(width: int) -> tuple[float, float]:
    """A scale and a minimum for each group of channels."""
    return 32 / value_group(width), 32 / value_group(width)


def _latents(name: str) -> tuple[ShapeExclusion, ...]:
    return (ShapeExclusion(Setting(keys.KV_KIND, (name,)), lambda shape: shape.attention.latent is not None, LATENTS),)


SIXTEEN_BITS = KVTechnique(
    choice=Choice("16bit", "16-bit", explains="Keys and values as the model computed them."),
    label="16-bit",
    bits=(16,),
    store=_dense,
)
INT8 = KVTechnique(
    choice=Choice("int8", "8-bit", (_NEED,), explains="About half the memory, and the least change."),
    missing=_MISSING,
    label="int8",
    bits=(8,),
    store=partial(_packed, "int8"),
    scales=_each,
    uses=(keys.KV_HADAMARD,),
    shapes=_latents("int8"),
)
FP8 = KVTechnique(
    choice=Choice(
        "fp8",
        "FP8 (e4m3)",
        (_NEED,),
        explains="As 8-bit, but each number is a float: the same memory and a larger change of the text, "
        "which outlier channels do not add to.",
        also=("float8 KV cache",),
    ),
    label="fp8",
    bits=(8,),
    store=partial(_packed, "fp8"),
    scales=_each,
    shapes=_latents("fp8"),
)
INT4 = KVTechnique(
    choice=Choice("int4", "4-bit", (_NEED,), explains="About a third of the memory, and more change."),
    label="int4",
    bits=(4,),
    store=partial(_packed, "int4"),
    scales=_groups,
    uses=(keys.KV_HADAMARD,),
    shapes=_latents("int4"),
)
