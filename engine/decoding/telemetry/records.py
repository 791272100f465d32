"""Records of what one step did, counted for plots, logs and metrics."""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol import PageCounts, PhaseChange, QueueCounts


class DraftRecord(NamedTuple):
    """Drafting of one proposer in a step. ``proposed[i]`` and ``accepted[i]`` count answers: those for which it drafted
    to depth i + 1 (however many branches), and those that accepted a draft token there.

    ``draft_length`` is the greatest depth it was asked for, ``tree_nodes`` the most draft tokens of one answer;
    ``off_reason`` says why it was asked for none. ``draft_tokens`` counts all draft tokens, ``reasoning`` is the
    controller's line.
    """

    proposer: str
    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    draft_length: int
    off_reason: str = ""
    tree_nodes: int = 0
    draft_tokens: int = 0
    reasoning: str = ""


class TreeRecord(NamedTuple):
    """Draft of one answer of a request, as in a `DraftTree`: tokens, their parents (None: a chain), and the nodes that
    were accepted, the root first."""

    id: str
    answer: int
    proposer: str
    tokens: tuple[int, ...]
    parents: tuple[int, ...] | None
    accepted: tuple[int, ...]


class HostSeconds(NamedTuple):
    """The host's part of a step in seconds: planning it with its pages, making tensors of the plan, taking in results.

    All of it is in :class:`StepRecord`'s ``host_seconds``.
    """

    schedule: float = 0.0
    batch: float = 0.0
    settle: float = 0.0


class DraftCost(NamedTuple):
    """Cost of drafting: seconds spent in tensor operations, forward passes of the proposer, bytes they read."""

    seconds: float = 0.0
    passes: int = 0
    bytes_read: int = 0


class EndedAnswer(NamedTuple):
    """An answer that came to its end: its service class, and whether it kept to its targets."""

    service: str
    in_time: bool


class StepRows(NamedTuple):
    """Rows of a step by what they were for; ``verify`` are the draft tokens verified."""

    decode: int = 0
    prefill: int = 0
    verify: int = 0


class StepRecord(NamedTuple):
    """Raw facts of one step.

    ``duration`` is the whole step in seconds, ``host_seconds`` the part outside tensor operations. ``bytes_read`` are
    the weights and the keys and values that the forward passes touched. ``ttfts`` are the times to first token, in
    seconds, of the answers that began in this step.
    ``host`` says what the host's part went into, ``drafting`` what drafting cost. ``captured``: whether the forward was
    a captured graph, None where none can be; ``eager`` says why it was not, and ``late`` why no kernel of it started
    early where that was asked for. ``trees``: the draft tokens themselves.
    ``phases``: those that answers entered since the record before. ``ended``: the answers that ended in this step.
    """

    time: float
    duration: float
    host_seconds: float
    rows: StepRows
    generated: int
    drafts: tuple[DraftRecord, ...]
    pages: PageCounts
    queue: QueueCounts
    bytes_read: int
    preemptions: int
    ttfts: tuple[float, ...]
    host: HostSeconds = HostSeconds()
    drafting: DraftCost = DraftCost()
    captured: bool | None = None
    eager: str = ""
    late: str = ""
    trees: tuple[TreeRecord, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    ended: tuple[EndedAnswer, ...] = ()
