"""Position embeddings: what tells the layers of a model the positions of tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``original_max_position``: the context before the extension, in tokens (llama3, yarn, longrope).

    ``factors``: what each of the head_dim / 2 frequencies is divided by besides; all 1 when empty (GGUF's rope_freqs,
    longrope's short factors). ``long_factors`` take their place beyond the original context (longrope).
    ``partial``: the share of each head, from its start, that rotates.
    """

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn", "longrope"] = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    partial: float = 1.0
    query_beta: float = 0.0
    """Queries are multiplied by ``1 + query_beta * ln(1 + floor(position / original_max_position))`` (Llama 4)."""
    sections: tuple[int, ...] = ()
    """Pairs of dimensions that turn by time, row and column in a text with pictures; () where all turn alike."""
    interleaved: bool = False
    """The pairs of the sections take turns, instead of following each other."""

    def width(self, head_dim: int) -> int:
        """Dimensions of a head that rotate."""
        return int(head_dim * self.partial)


@dataclass(frozen=True, slots=True)
class PositionConfig:
    """Positions. ``rotary[i]`` is False where layer i has no position embedding (SmolLM3)."""

    rope: RopeConfig
    max_position: int
    rotary: tuple[bool, ...]
    local_rope: RopeConfig | None = None
    """The rotation of the layers whose ``local`` is True; the others have ``rope``."""
    local: tuple[bool, ...] = ()
    multi_token_local: bool = False
    """The checkpoint's multi-token layer is one of those, with their window (Mellum 2)."""
    learned: bool = False
    """A vector of each position is added to the tokens (OPT)."""
    longer: int = 0
    """The longest text with ``rope.long_factors`` for all of it; of no account unless more than ``max_position``."""

    def for_context(self, context: int | None) -> PositionConfig:
        """These, rotating by the long factors if texts of more than ``max_position`` tokens are asked for."""
        if context is None or context <= self.max_position or self.longer <= self.max_position:
            return self
        return replace(self, rope=replace(self.rope, factors=self.rope.long_factors), max_position=self.longer)
