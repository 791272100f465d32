"""What ``kvasir bench --speculation`` measured."""

from __future__ import annotations

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Ratios of pairs: their median, and the quartiles ``low`` and ``high``."""

    median: float
    low: float
    high: float
    pairs: int


class WayRow(msgspec.Struct, frozen=True):
    """One draft method on one kind of text, each answer compared with the same one without drafting, one at a time.

    ``speed`` and ``plain`` are tokens a second after the first token, medians; ``speedup`` is the one over the other,
    pair by pair. ``accepted[d]`` is the share of steps that accepted a draft token at depth d + 1, of those that
    proposed one there; ``acceptance`` the share of all draft tokens accepted, of those whose predecessors were.
    ``tokens_per_step``: written by each step that reads no prompt; ``drafting`` is the share of these steps that
    drafted.

    Costs are in plain steps: ``draft_pass`` of one pass of the proposer, ``passes`` of them in a drafting step, and
    ``verify_step`` of what is left of a drafting step, which has ``verify_rows`` rows (medians). ``predicted`` is the
    speed-up that the formula gives for this acceptance and these costs; None where nothing was drafted.

    ``equal`` timed answers of ``answers`` are those of plain decoding; the others diverge where the last bits of the
    arithmetic decide. ``exact``: of ``exact_answers`` in batch-invariant arithmetic, sampled with keyed noise, those
    that are equal.
    """

    proposer: str
    title: str
    speed: float
    plain: float
    speedup: Spread
    accepted: list[float]
    acceptance: float
    tokens_per_step: float
    drafting: float
    draft_pass: float
    passes: float
    verify_step: float
    verify_rows: float
    predicted: float | None
    equal: int
    answers: int
    exact: int
    exact_answers: int


class TextFigures(msgspec.Struct, frozen=True):
    """All ways on one kind of text; ``tokens`` are those of its plain answers."""

    key: str
    title: str
    prompts: int
    tokens: int
    rows: list[WayRow]


class VerifyRow(msgspec.Struct, frozen=True):
    """A forward of ``rows`` rows for each of ``batch`` answers: its ``ratio`` to one row each, which takes ``ms``."""

    batch: int
    rows: int
    ratio: float
    ms: float


class OverheadRow(msgspec.Struct, frozen=True):
    """The method "auto" compared with none, on the text where drafting pays least: tokens a second of all answers.

    ``drafting`` is the share of the steps in which it drafted nevertheless.
    """

    batch: int
    text: str
    best: float
    """The best speed-up of a fixed length on that text."""
    speed: float
    plain: float
    ratio: Spread
    drafting: float


class AssistedRow(msgspec.Struct, frozen=True):
    """transformers with speculation over that without: tokens a second after the first ones, greedy, float32."""

    text: str
    title: str
    speedup: Spread
    equal: int
    answers: int


class SpeculationFigures(msgspec.Struct, frozen=True):
    """``absent`` says what was left out, and why; ``conclusions`` what the figures say, in sentences."""

    model: str
    draft: str
    device: str
    dtype: str
    rounds: int
    plain_step_ms: float
    texts: list[TextFigures]
    verify: list[VerifyRow]
    overhead: list[OverheadRow]
    assisted: list[AssistedRow]
    absent: list[str]
    conclusions: list[str] = []
