"""What ``kvasir bench --cache`` measured."""

from __future__ import annotations

import msgspec


class CacheSide(msgspec.Struct, frozen=True):
    """One way of a part on one trace: times to first token in ms over all answers; tokens, pages and bytes of a round.

    ``tokens_per_second``: those written, of all answers together, from the first request to the last answer.
    ``hit_rate`` is the share of prompt tokens that were found, ``saved`` their number. ``waste`` is the share of the
    slots of used pages that held no token, over all steps. ``pages`` are the most in use, ``bytes`` what they take,
    with the most that the recent tokens can take where those are kept apart. ``swapped``: bytes that left the device.

    Compared with the first way, by round, median: ``first_ratio`` is its time to first token over this one's,
    ``speed_ratio`` this one's speed over its. ``equal``: answers with the same tokens, of ``answers``. Where
    ``approximate``, different tokens are to be expected, and the ratios are of unlike answers.
    """

    title: str
    approximate: bool
    ttft_median: float
    ttft_p95: float
    tokens_per_second: float
    hit_rate: float
    saved: int
    waste: float
    pages: int
    bytes: int
    preemptions: int
    swapped: int
    first_ratio: float
    speed_ratio: float
    equal: int
    answers: int


class CacheRow(msgspec.Struct, frozen=True):
    """A part of the cache in all its ways; the others are compared with the first."""

    part: str
    title: str
    sides: list[CacheSide]


class TraceFigures(msgspec.Struct, frozen=True):
    """``reserved_waste``: share of the slots that would hold nothing if each answer reserved the whole context.

    ``cache_tokens`` is what the cache holds in all.
    """

    name: str
    title: str
    requests: int
    prompt_tokens: int
    reserved_waste: float
    rows: list[CacheRow]
    cache_tokens: int = 0


class HitFigures(msgspec.Struct, frozen=True):
    """Time to first token, ms, medians: of a prompt with ``found`` tokens in the cache, and of one read anew.

    ``ratio`` is hit / cold, pair by pair.
    """

    model: str
    prompt: int
    found: int
    cold: float
    hit: float
    ratio: float


class HostFigures(msgspec.Struct, frozen=True):
    """The host's part of a step that writes a token for each of ``sequences`` answers: ms, medians over the steps.

    ``least`` is the smallest of the totals; on a busy machine the medians include the time that other programs took.
    """

    sequences: int
    steps: int
    schedule: float
    batch: float
    settle: float
    total: float
    least: float


class SavedFigures(msgspec.Struct, frozen=True):
    """A chat that goes on after a restart: ms to the first token, read anew and from files; medians.

    ``ratio`` is from files / anew, pair by pair; ``equal`` rounds gave the same answer, of ``rounds``.
    """

    prompt: int
    found: int
    bytes: int
    anew: float
    saved: float
    ratio: float
    equal: int
    rounds: int


class CacheFigures(msgspec.Struct, frozen=True):
    """``absent`` says which parts were left out, and why."""

    model: str
    context: int
    rounds: int
    traces: list[TraceFigures]
    absent: list[str] = []
    hit: HitFigures | None = None
    host: HostFigures | None = None
    saved: SavedFigures | None = None
