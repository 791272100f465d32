"""Inputs of a draw: one row's settings and place, and the ways of choosing that serve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.processors import History

Kind = Literal["greedy", "whole", "truncated", "typical"]
"""Draw of a row: its largest score; from all tokens; from the most likely ones; from the most typical ones."""


class Draw(NamedTuple):
    """One row to draw for: the sequence ``tokens`` (committed), then ``path`` (drafted), then the drawn token.

    ``prompt_length`` divides ``tokens`` into prompt and output. ``history`` serves the penalties; it is brought up to
    ``tokens`` here, and must be given when the penalties of ``params`` count tokens.
    """

    params: SamplingParams
    answer: int
    tokens: Sequence[int]
    path: Sequence[int] = ()
    history: History | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Seed, answer and the place of the drawn token in its sequence: what the noise depends on."""
        return self.params.seed, self.answer, len(self.tokens) + len(self.path)


def kind_of(params: SamplingParams) -> Kind:
    """The way of choosing that serves a row."""
    if params.greedy:
        return "greedy"
    if not params.truncates:
        return "whole"
    return "truncated" if params.top_k or params.top_p < 1.0 or params.min_p > 0.0 else "typical"
