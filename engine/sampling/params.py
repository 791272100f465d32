"""Sampling settings with nothing left open: request value, else the model's default, else neutral."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.protocol import Sampling

MAX_SEED = 2**53
"""Seeds survive a trip through JSON numbers."""
MAX_LOGPROBS = 32


class SamplingError(ValueError):
    """A setting outside its range; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """As :class:`engine.protocol.Sampling`, resolved. ``max_tokens`` None: up to the context. Defaults are neutral."""

    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    greedy: bool = field(init=False)
    """Whether no noise is added: temperature 0."""
    truncates: bool = field(init=False)
    """Whether any setting removes tokens before the draw."""
    counts: bool = field(init=False)
    """Whether repetition, presence or frequency change the logits."""
    plain: bool = field(init=False)
    """Whether the logits go to the draw as the model gave them (up to temperature and truncation)."""

    def __post_init__(self) -> None:
        counts = self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        # Asked for every row of every step, so worked out once.
        for name, value in (
            ("greedy", self.temperature == 0.0),
            ("truncates", self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0 or self.typical_p < 1.0),
            ("counts", counts),
            ("plain", not (counts or self.logit_bias or self.dry_multiplier > 0.0)),
        ):
            object.__setattr__(self, name, value)


def resolve(asked: Sampling, default: Sampling) -> SamplingParams:
    """Fill what ``asked`` leaves open from ``default`` (generation_config.json), else neutral; draw a missing seed.

    Raises :class:`SamplingError` when a value lies outside its range.
    """
    neutral = SamplingParams(seed=0)

    def pick(name: str) -> float:
        for source in (asked, default):
            value = getattr(source, name)
            if value is not None:
                return float(value)
        return float(getattr(neutral, name))

    params = SamplingParams(
        seed=secrets.randbelow(MAX_SEED) if asked.seed is None else asked.seed,
        temperature=pick("temperature"),
        top_k=int(pick("top_k")),
        top_p=pick("top_p"),
        min_p=pick("min_p"),
        typical_p=pick("typical_p"),
        repetition_penalty=pick("repetition_penalty"),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        dry_multiplier=asked.dry_multiplier,
        dry_base=asked.dry_base,
        dry_allowed_length=asked.dry_allowed_length,
        logit_bias=dict(asked.logit_bias),
        max_tokens=asked.max_tokens,
        stop=tuple(text for text in asked.stop if text),
        ignore_eos=asked.ignore_eos,
        logprobs=asked.logprobs,
    )
    _check(params)
    return params


def _check(params: SamplingParams) -> None:
    ranges = (
        ("temperature", 0.0, 100.0),
        ("top_k", 0, math.inf),
        ("top_p", 0.0, 1.0),
        ("min_p", 0.0, 1.0),
        ("typical_p", 0.0, 1.0),
        ("presence_penalty", -100.0, 100.0),
        ("frequency_penalty", -100.0, 100.0),
        ("repetition_penalty", 0.01, 100.0),
        ("dry_multiplier", 0.0, 100.0),
        ("dry_base", 1.0, 100.0),
        ("dry_allowed_length", 1, math.inf),
        ("seed", -(2**63), 2**64 - 1),
    )
    for name, low, high in ranges:
        value = getattr(params, name)
        if not low <= value <= high:
            raise SamplingError(f"{name} lies between {low:g} and {high:g}: {value:g} does not.")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise SamplingError(f"max_tokens is at least 1: {params.max_tokens} is not.")
    if params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS:
        raise SamplingError(f"logprobs lies between 0 and {MAX_LOGPROBS}: {params.logprobs} does not.")
    if not all(math.isfinite(bias) for bias in params.logit_bias.values()):
        raise SamplingError("logit_bias holds a value that is not a number: use finite values.")
