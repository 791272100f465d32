"""Inputs of a draw: one row's settings and place, and the ways of choosing that serve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.processors import History

Kind = Literal["greedy", "whole", "truncated", "typical"]
"""Draw of a row: its largest score; from all tokens; from the most likely ones; from the most typical ones."""


class TokenMask(Protocol):
    """Tokens that may come next."""

    @property
    def words(self) -> np.ndarray:
        """[ceil(V / 32)] uint32, a bit for each token, the lowest one first."""

    @property
    def ends(self) -> bool:
        """True if nothing but the end of the answer may."""


class Constraint(Protocol):
    """Interface to what bars tokens from an answer by what comes before them."""

    def allowed(self, tokens: Sequence[int], path: Sequence[int]) -> TokenMask | None:
        """Tokens that may follow ``tokens`` and a drafted ``path``; None where any may, or where nothing ever does."""


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
    constraint: Constraint | None = None

    @property
    def plain(self) -> bool:
        """True if the logits go to the draw as the model gave them (up to temperature and truncation)."""
        return self.params.plain and self.constraint is None

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
