"""A smaller model being made of a larger one: what `kvasir quantise --json` prints, one object a line."""

from __future__ import annotations

from typing import Literal

from engine.protocol.base import Message, Part

MakeState = Literal["waiting", "reading", "quantising", "measuring", "paused", "failed", "done"]


class MakeProgress(Message, frozen=True):
    """Progress of making a model. ``done`` and ``total`` count layers while it quantises, texts while it measures."""

    id: str
    """The same for the same model, format and options: the same command goes on where it ended."""
    model: str
    """Path of the model that it is made of."""
    to: str
    """The format, as `--to` names it."""
    state: MakeState
    done: int = 0
    total: int = 0
    left_s: float = 0.0
    """Seconds until it is done, as it went so far; 0: not known yet."""
    sentence: str = ""
    """Reason that it failed, or what is being done."""
    path: str = ""
    """Path of the model, once it is done."""
    options: list[str] = []
    """Arguments of the command that continues it besides MODEL and `--to`, as ["--text", FILE, "--group-size", "64"].
    """


class LayerError(Part, frozen=True):
    """Error of one linear layer's outputs on the calibration text, against those of the original weights.

    Both as the sum of squared differences over the sum of squared outputs. ``rounded``: of rounding each weight to the
    nearest value alone, in the same format.
    """

    name: str
    error: float
    rounded: float


class ModelQuality(Part, frozen=True):
    """Size, quality and speed of a model, measured on the report's text. ``tokens_per_second``: of one chat, greedy."""

    bytes: int
    perplexity: float = 0.0
    """0: not measured, as for the speed."""
    tokens_per_second: float = 0.0


class MakeReport(Message, frozen=True):
    """Report on a quantised model against the original, written beside the model as kvasir-report.json."""

    name: str
    path: str
    source: str
    """Name of the model that it was made of."""
    to: str
    before: ModelQuality
    after: ModelQuality
    kl: float
    """Mean KL divergence of the next token's distribution from the original's, in nats."""
    same_top: float
    """Share of positions at which both think the same token the likeliest."""
    tokens: int
    """Tokens of the text that it was measured on, none of which was calibrated with; 0: only the sizes are known."""
    worst: list[LayerError] = []
    """The layers with the largest error, the worst first; empty where nothing was calibrated."""
    seconds: float = 0.0
    """Seconds the conversion took."""
    unmeasured: str = ""
    """Reason that nothing was measured, as a sentence."""
