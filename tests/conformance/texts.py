"""Prompts, ways to sample, and settings of the cache within which a text is the same however it was come by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.cache.offload.saved import SavedChats
from engine.protocol import Sampling, Value
from tests.kit.checkpoints import EOS
from tests.kit.hosts import Host
from tests.kit.listener import Answer


class Variant(NamedTuple):
    """A setting of the cache within which every answer is the same however it was come by."""

    switches: dict[str, Value]
    shares: bool | None = True
    """Whether prompts that begin alike find each other; None: it depends on where they end (KIVI's snapshots)."""


VARIANTS = {
    "16bit": Variant({}),
    "int8": Variant({"kv_kind": "int8"}),
    "fp8": Variant({"kv_kind": "fp8"}),
    "int4": Variant({"kv_kind": "int4"}),
    "kivi": Variant({"kv_kind": "kivi"}, shares=None),
    "quest": Variant({"page_policy": "quest", "quest_tokens": 64}),
    "window": Variant({"page_policy": "window_sinks", "window_tokens": 64}, shares=False),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=14, ignore_eos=True),
    "seeded": Sampling(temperature=1.0, seed=11, max_tokens=14, ignore_eos=True),
}
LONGER_SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=24, ignore_eos=True),
    "sampled": Sampling(temperature=1.0, seed=11, max_tokens=24),
    "warped": Sampling(
        temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.15, frequency_penalty=0.2, seed=12, max_tokens=24
    ),
}
COMMON = [(7 * i + i * i // 5) % EOS for i in range(200)]
PROMPTS = [COMMON[:150], COMMON[:137], [*COMMON[:90], *COMMON[:60]], [*COMMON[:75], 3, 4], COMMON[50:150]]


def cases(*often: str, by: tuple[str, ...] = (), of: tuple[str, ...] = tuple(VARIANTS)) -> list[object]:
    """The variants ``of``, or these and whatever ``by`` says; those of ``often`` in every run of the tests."""
    names = [f"{variant}-{other}" for variant in of for other in by] if by else list(of)
    assert set(often) <= set(names)
    marks = {name: () if name in often else pytest.mark.long for name in names}
    return [pytest.param(*name.split("-"), marks=marks[name], id=name) for name in names]


def prompts(count: int) -> list[list[int]]:
    """Of 9 tokens, 14, 19, ..."""
    return [[(7 * i + 11 * b + (i * i) // 5) % EOS for i in range(9 + 5 * b)] for b in range(count)]


@contextmanager
def restarted(
    open_host: Callable[[SavedChats], Host], folder: Path, sampling: Sampling, **switches: Value
) -> Iterator[tuple[Host, int, int]]:
    """A chat that is asked, answered and saved by one engine, and goes on in another, from files: the second engine,
    how many tokens are known when it goes on, and how many of these came from the files. What it says is proven to be
    what it says without any cache."""
    first = open_host(saved := SavedChats(folder, 1 << 30))
    first.set(disk_cache=1.0, **switches)
    ids = first.ask(PROMPTS[:1], sampling, chat="a chat")
    first.run()
    assert saved.flush(20)
    saved.close()
    longer = [*PROMPTS[0], *first.of(ids)[0], 5, 6, 7]
    second = open_host(saved := SavedChats(folder, 1 << 30))
    second.set(disk_cache=1.0, **switches)
    ids = second.ask([longer], sampling, chat="a chat")
    second.run()
    cached = second.cached[ids[0]]
    alone = second.ask([longer], sampling, prefix_cache=False)
    second.run()
    assert second.of(ids) == second.of(alone)
    yield second, len(longer) - 4, cached
    saved.close()


def same(a: list[Answer], b: list[Answer]) -> bool:
    """In tokens, text and reason."""
    return [(one.tokens, one.text, one.reason) for one in a] == [(one.tokens, one.text, one.reason) for one in b]
