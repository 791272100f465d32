"""A request as the engine makes one, whose pages a test hands out itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.cache.groups.residual import ResidualGroup
from engine.cache.manager import KVCacheManager
from engine.cache.pool import PagePool
from engine.cache.sequences import SequenceCache
from engine.cache.text import NewSequence
from engine.compute.sampling.params import SamplingParams
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.text.stream import TextStream


def new_request(
    id: str,
    prompt: Sequence[int],
    params: SamplingParams,
    options: RequestOptions,
    context: int = 512,
    *,
    answer: int = 0,
    arrival: int = 0,
    stream: TextStream | None = None,
    fork_of: Request | None = None,
    residual: int = 0,
) -> Request:
    """``residual``: recent tokens have pages of their own, as over KIVI."""
    pool, other = PagePool(2), fork_of.cache if fork_of is not None else None
    content: Any = None
    manager = KVCacheManager(pool, groups=[ResidualGroup(PagePool(2), residual, content)] if residual else [])
    cache = SequenceCache(manager, NewSequence((id, answer), list(prompt), options.policy, fork_of=other))
    return Request(arrival, cache, params, options, context, stream, 0.0)  # type: ignore[arg-type]
