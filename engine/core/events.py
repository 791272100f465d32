"""What the engine tells its listener: plain facts, emitted from the engine thread.

Times are seconds of the engine's clock, sizes are bytes; rates and percentiles are computed by whoever listens.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol import Channel, FinishReason, Fit, ModelCard, OptionSpec, Timings, TokenInfo, Usage


class TokensEvent(NamedTuple):
    """Tokens that one answer gained in a step, and the text they released (some may be held back for later).

    A step that changes the channel gives one event for each.
    """

    request_id: str
    answer: int
    text: str
    tokens: list[TokenInfo]
    channel: Channel = "content"


class PrefillEvent(NamedTuple):
    """How much of a prompt has been read; ``done`` = ``total`` ends it."""

    request_id: str
    done: int
    cached: int
    total: int


class FinishedEvent(NamedTuple):
    """An answer ended. ``detail`` is a sentence where the reason alone does not say what happened."""

    request_id: str
    answer: int
    reason: FinishReason
    usage: Usage
    timings: Timings
    detail: str = ""


class LoadingEvent(NamedTuple):
    """``fraction`` 0..1 of the whole load."""

    model: str
    stage: str
    fraction: float


class LoadedEvent(NamedTuple):
    card: ModelCard
    fit: Fit


class UnloadedEvent(NamedTuple):
    reason: str = ""


class OptionsEvent(NamedTuple):
    """A value or an availability in the catalogue changed."""

    catalogue: list[OptionSpec]


class ErrorEvent(NamedTuple):
    """``message``: what happened and what to do. Empty ``request_id``: it concerns no request."""

    code: str
    message: str
    request_id: str = ""


class GuessRecord(NamedTuple):
    """What one proposer did in a step. ``proposed[i]`` and ``accepted[i]`` count answers: those for which it guessed to
    depth i + 1 (however many branches), and those that kept a guess there.

    ``draft_length`` is the greatest depth it was asked for, ``tree_nodes`` the most guesses of one answer;
    ``off_reason`` says why it was asked for none. ``guesses`` counts all, ``reasoning`` is the controller's line.
    """

    proposer: str
    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    draft_length: int
    off_reason: str = ""
    tree_nodes: int = 0
    guesses: int = 0
    reasoning: str = ""


class HostSeconds(NamedTuple):
    """The host's part of a step in seconds: planning it with its pages, making tensors of the plan, taking in results.

    All of it is in :class:`StepRecord`'s ``host_seconds``.
    """

    schedule: float = 0.0
    batch: float = 0.0
    settle: float = 0.0


class StepRecord(NamedTuple):
    """Raw facts of one step. Rows are counted by what they were for; ``verify_rows`` are the guesses checked.

    ``duration`` is the whole step in seconds, ``host_seconds`` the part outside tensor operations. ``bytes_read`` are
    the weights and the keys and values that the forward passes touched. ``ttfts`` are the times to first token, in
    seconds, of the answers that began in this step. ``pages_cached`` of the pages used hold text that nobody reads now.
    ``host`` says what the host's part went into.
    """

    time: float
    duration: float
    host_seconds: float
    decode_rows: int
    prefill_rows: int
    verify_rows: int
    generated: int
    guesses: tuple[GuessRecord, ...]
    pages_total: int
    pages_used: int
    live_tokens: int
    pages_cached: int
    waiting: int
    running: int
    prefilling: int
    bytes_read: int
    preemptions: int
    ttfts: tuple[float, ...]
    host: HostSeconds = HostSeconds()


Event = (
    TokensEvent
    | PrefillEvent
    | FinishedEvent
    | LoadingEvent
    | LoadedEvent
    | UnloadedEvent
    | OptionsEvent
    | ErrorEvent
    | StepRecord
)
