"""All that is said of chunks, and how the policy is made."""

from __future__ import annotations

from collections.abc import Mapping

from engine.cache.policies import PagePolicy
from engine.cache.technique import PolicyTechnique
from engine.catalogue import Choice, Option, Relevance
from engine.protocol import CACHE_GROUP, Measure, NumberRange, Value, keys


def _make(values: Mapping[str, Value], prompt_length: int | None) -> PagePolicy:
    from tests.extending.chunked.policy import Chunked

    return Chunked(int(values["chunk_tokens"]))


TECHNIQUE = PolicyTechnique(
    choice=Choice("chunked", "within chunks", exactness="approximate", explains="Each token sees its own chunk."),
    make=_make,
    tokens="chunk_tokens",
    sees="chunks of {}",
    options=(
        Option(
            key="chunk_tokens",
            title="Chunk (tokens)",
            group=CACHE_GROUP,
            default=48,
            range=NumberRange(16, 8192),
            applies="next request",
            exactness="approximate",
            explains="How many tokens a chunk has, in whole pages.",
            relevant=Relevance(of=(keys.PAGE_POLICY, ("chunked",))),
            measure=Measure("pages of a long answer"),
            helps="Smaller chunks take less memory.",
            costs="What lies before the chunk is forgotten.",
            source=("tests/extending/chunked/policy.py",),
        ),
    ),
)
