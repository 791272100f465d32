"""KIVI, a cache of 2 or 4 bits but for the recent tokens: its value of "kv_kind", its bits, and what excludes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cache.stores.kinds import KVTechnique
from engine.cache.stores.packed import CHANNEL_GROUP, value_group
from engine.catalogue import Choice, Option, Relevance
from engine.catalogue.exclusions import LATENTS, Exclusion, Idle, Setting, ShapeExclusion
from engine.catalogue.metrics import KV_BYTES
from engine.protocol import CACHE_GROUP, Measure, keys

if TYPE_CHECKING:
    from engine.cache.stores.kinds import Arenas
    from engine.cache.stores.store import KVStore

_PAPER = "Liu et al. 2024, KIVI (arXiv 2402.02750)"
_NEED = "KIVI cache"
_KIVI = Setting(keys.KV_KIND, ("kivi",))


def _bits(key: str, title: str, explains: str) -> Option:
    return Option(
        key=key,
        title=title,
        group=CACHE_GROUP,
        default="2",
        applies="cache",
        exactness="approximate",
        explains=explains,
        measure=Measure("bits per element, and perplexity against 16 bits", KV_BYTES, lab="kivi"),
        helps="Choosing between room and quality once KIVI is on.",
        costs="The text may change: fewer bits, more change.",
        source=("engine/cache/stores/kinds.py",),
        reference=_PAPER,
        choices=(
            Choice("4", "4", explains="The smaller change of the two."),
            Choice("2", "2", explains="The least memory."),
        ),
        needs=(_NEED,),
        relevant=Relevance(of=(keys.KV_KIND, ("kivi",))),
    )


def _store(arenas: Arenas) -> KVStore:
    from engine.cache.techniques.kivi.store import KiviStore

    return KiviStore.of(arenas)


def _scales(width: int) -> tuple[float, float]:
    """Of keys a scale and a minimum for each channel of a group of tokens, of values for each group of channels."""
    return 32 / CHANNEL_GROUP, 32 / value_group(width)


TECHNIQUE = KVTechnique(
    choice=Choice(
        "kivi",
        "KIVI (2-bit)",
        (_NEED,),
        explains="Quantises keys per channel and values per token to 2 or 4 bits, all but the "
        "last 128 tokens: from a fifth of the memory. The change of the text grows with what lies before those "
        "128.",
        also=("KIVI", "2-bit KV cache"),
    ),
    missing={_NEED: "KIVI packs heads of a width that 4 divides, and no latents that heads share (MLA)."},
    label="KIVI",
    paper=_PAPER,
    bits=(4, 2),
    store=_store,
    scales=_scales,
    residual=128,  # the paper's R
    options=(
        _bits(
            keys.KV_KEY_BITS,
            "KIVI: key bits",
            "How many bits an element of a key takes, and one more for its share of scale and minimum. "
            "Keys decide which tokens attention looks at and suffer first: models with few KV heads are better served "
            "by 4.",
        ),
        _bits(
            keys.KV_VALUE_BITS,
            "KIVI: value bits",
            "How many bits an element of a value takes, and one more for its share of scale and minimum. "
            "Errors of values are averaged over the tokens that attention looks at, so 2 bits do less harm here.",
        ),
    ),
    exclusions=(
        Exclusion(
            Setting(keys.PAGE_POLICY, ("window_sinks",)),
            _KIVI,
            "A sliding window does not work with a KIVI cache: choose another KV cache precision first.",
        ),
    ),
    idle=(
        Idle(keys.CASCADE, _KIVI, "Packed and recent tokens are read apart, and not once for several answers."),
        Idle(keys.ASYNC_SCHEDULING, _KIVI, "What a KIVI cache packs is planned step by step."),
        Idle(
            keys.CUDA_GRAPHS,
            _KIVI,
            "What a KIVI cache packs in a step is planned on the host, which cannot be captured.",
        ),
    ),
    shapes=(ShapeExclusion(_KIVI, lambda shape: shape.attention.latent is not None, LATENTS),),
)
