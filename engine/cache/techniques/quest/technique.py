"""QUEST, sparse attention by pages: its value of the switch "page_policy", its budget, and what excludes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.cache.technique import PolicyTechnique
from engine.catalogue import Choice, Option, Relevance
from engine.catalogue.exclusions import Exclusion, Idle, Setting, ShapeExclusion
from engine.catalogue.metrics import BYTES_READ
from engine.protocol import CACHE_GROUP, Measure, NumberRange, Value, keys

if TYPE_CHECKING:
    from engine.cache.policies import PagePolicy
    from engine.cache.stores.kinds import Arenas
    from engine.cache.stores.store import KVStore

_PAPER = "Tang et al. 2024, QUEST (arXiv 2406.10774)"
_QUEST = Setting(keys.PAGE_POLICY, ("quest",))


def _make(values: Mapping[str, Value], prompt_length: int | None) -> PagePolicy:
    from engine.cache.techniques.quest.policy import QuestPolicy

    if prompt_length is None:
        raise ValueError("rows choose pages after a prompt: its length is missing")
    return QuestPolicy(int(values[keys.QUEST_TOKENS]), prompt_length)


def _store(arenas: Arenas) -> KVStore:
    from engine.cache.techniques.quest.store import QuestStore

    return QuestStore.of(arenas)


TECHNIQUE = PolicyTechnique(
    choice=Choice(
        "quest",
        "sparse (QUEST)",
        needs=("page bounds",),
        metric=BYTES_READ,
        explains="Keeps every page, and each head of a new token reads only those whose keys may score "
        "highest, up to a budget.",
        also=("QUEST", "sparse attention"),
    ),
    missing={"page bounds": "This model cannot use QUEST: its cache has no keys by which pages could be ranked."},
    label="QUEST",
    paper=_PAPER,
    make=_make,
    store=_store,
    tokens=keys.QUEST_TOKENS,
    sees="QUEST, {} tokens",
    options=(
        Option(
            key=keys.QUEST_TOKENS,
            title="QUEST budget (tokens)",
            group=CACHE_GROUP,
            default=1024,
            range=NumberRange(16, 1_048_576),
            applies="next request",
            exactness="approximate",
            explains="How many tokens each head of a new token reads, in whole pages of sixteen, one of which is the "
            "page that is being written. "
            "The first two layers read everything, and so do the tokens of the prompt.",
            relevant=Relevance(of=(keys.PAGE_POLICY, ("quest",))),
            measure=Measure("bytes read per token", BYTES_READ, lab="quest"),
            helps="A smaller budget reads fewer bytes per token; below the budget nothing is skipped.",
            costs="What a head does not choose, it does not see.",
            source=("engine/compute/attention/quest.py",),
            reference=_PAPER,
        ),
    ),
    exclusions=(
        Exclusion(
            _QUEST,
            Setting(keys.KV_KIND, ("int8", "fp8", "int4", "kivi")),
            "QUEST ranks pages by 16-bit keys: set the KV cache precision to 16-bit first.",
        ),
    ),
    idle=(
        Idle(keys.CUDA_GRAPHS, _QUEST, "Pages are chosen by a plan of each step, which cannot be captured."),
        Idle(keys.TREE_NODES, _QUEST, "Rows that choose pages cannot share a tree: its first path alone is checked."),
    ),
    shapes=(
        ShapeExclusion(
            _QUEST,
            lambda shape: shape.attention.latent is not None,
            "QUEST ranks pages by keys, and this model caches latents, which its heads share.",
        ),
    ),
)
