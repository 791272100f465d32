"""Sampling settings with nothing left open: request value, else the model's default, else neutral."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec

from engine.protocol import Sampling

MAX_SEED = 2**53
"""Seeds survive a trip through JSON numbers."""
MAX_LOGPROBS = 32
MAX_STOPS, MAX_STOP_CHARS = 256, 10_000
"""Stop strings, and their characters together: all are looked for at every token, while other answers wait."""
MAX_BIASES = 1 << 14
"""Tokens with a bias: all are added at every token."""
LEAST_TEMPERATURE = 1e-30
"""Below it a temperature counts as 0: scores that are divided by less leave float32."""
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "repetition_penalty": (0.01, 100.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (1, math.inf),
    "seed": (-(2**63), 2**64 - 1),
}
"""The least and the most of each setting."""
TOP_K_OFF = (0, -1)
"""Values of top-k that keep all: other programs write -1."""
LEFT_TO_MODEL = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
"""Settings that generation_config.json states where a request does not."""


class SamplingError(ValueError):
    """A setting outside its range; the message is one sentence for a person."""


class LateEnd(NamedTuple):
    """None of ``ids`` is drawn for a sequence of fewer than ``length`` tokens, its prompt included."""

    length: int = 0
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class SamplingParams:
    """Resolved :class:`engine.protocol.Sampling`. ``max_tokens`` None: up to the context. Defaults are neutral.

    What follows from the settings is asked for every row of every step, so worked out once.
    """

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
    logprobs_drawn: bool = False
    min_tokens: int = 0
    late_end: LateEnd = field(default_factory=LateEnd)

    @cached_property
    def greedy(self) -> bool:
        """True if no noise is added: temperature 0, or too near to 0 to divide by."""
        return self.temperature < LEAST_TEMPERATURE

    @cached_property
    def truncates(self) -> bool:
        """True if any setting removes tokens before the draw."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0 or self.typical_p < 1.0

    @cached_property
    def counts(self) -> bool:
        """True if repetition, presence or frequency change the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @cached_property
    def plain(self) -> bool:
        """True if the logits go to the draw as the model gave them (up to temperature and truncation)."""
        return not (self.counts or self.logit_bias or self.dry_multiplier > 0.0 or self.late_end.length)


def resolve(asked: Sampling, default: Sampling) -> SamplingParams:
    """Fill what ``asked`` leaves open from ``default`` (generation_config.json), else neutral; draw a missing seed.

    Raises :class:`SamplingError` when a value lies outside its range.
    """
    settings = msgspec.structs.asdict(asked)
    for name in LEFT_TO_MODEL:
        if settings[name] is None:
            settings[name] = getattr(default, name)
        if settings[name] is None:
            del settings[name]
    if settings["seed"] is None:
        settings["seed"] = secrets.randbelow(MAX_SEED)
    if settings.get("top_k") in TOP_K_OFF:
        settings["top_k"] = 0
    bias, stop = dict(asked.logit_bias), tuple(text for text in asked.stop if text)
    params = SamplingParams(**settings | {"logit_bias": bias, "stop": stop})
    _check(params)
    return params


def with_least_length(params: SamplingParams, prompt: int, end_ids: Iterable[int]) -> SamplingParams:
    """The settings of an answer to a prompt of that many tokens, which ends with one of ``end_ids``."""
    if not params.min_tokens or params.ignore_eos:
        return params
    return replace(params, late_end=LateEnd(prompt + params.min_tokens, tuple(end_ids)))


def refuse_outside(name: str, value: float) -> None:
    """Raises :class:`SamplingError` for a value that is not within the setting's range."""
    low, high = RANGES[name]
    if not low <= value <= high:
        # An integer may be larger than any float.
        shown = f"{value:g}" if not abs(value) > 1e300 else "so large a number"
        raise SamplingError(f"{name} lies between {low:g} and {high:g}: {shown} does not.")


def _check(params: SamplingParams) -> None:
    for name in RANGES:
        refuse_outside(name, getattr(params, name))
    if params.max_tokens is not None and params.max_tokens < 0:
        raise SamplingError(f"max_tokens is at least 0: {params.max_tokens} is not.")
    if not 0 <= params.min_tokens <= (math.inf if params.max_tokens is None else params.max_tokens):
        raise SamplingError(f"min_tokens lies between 0 and max_tokens: {params.min_tokens} does not.")
    if params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS:
        raise SamplingError(f"logprobs lies between 0 and {MAX_LOGPROBS}: {params.logprobs} does not.")
    characters = sum(map(len, params.stop))
    if len(params.stop) > MAX_STOPS or characters > MAX_STOP_CHARS:
        raise SamplingError(
            f"stop holds at most {MAX_STOPS} texts with {MAX_STOP_CHARS:,} characters together: "
            f"{len(params.stop):,} with {characters:,} are too many."
        )
    if len(params.logit_bias) > MAX_BIASES:
        raise SamplingError(f"logit_bias holds at most {MAX_BIASES:,} tokens: {len(params.logit_bias):,} are too many.")
    if not all(math.isfinite(bias) for bias in params.logit_bias.values()):
        raise SamplingError("logit_bias holds a value that is not a number: use finite values.")
