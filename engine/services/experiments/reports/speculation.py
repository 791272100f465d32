"""Figures that ``kvasir bench --speculation`` measured."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.services.experiments.measures.timing import Spread
from engine.services.experiments.reports.tables import show_absent, show_line, show_table

DEPTHS = 8
"""The depths that are shown; the file of figures has all."""
PAYS = 1.05
"""A gain below this is within the noise."""
AIM = 0.03
"""Share of the speed that may be lost where the method "auto" has found that nothing pays."""


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
    exact: int = 0
    exact_answers: int = 0

    @property
    def cells(self) -> str:
        """The row of the table."""
        by_depth = costs = ""
        if self.accepted:
            shown = " ".join(f"{100 * share:.0f}" for share in self.accepted[:DEPTHS])
            by_depth = f"{shown}{' ..' * (len(self.accepted) > DEPTHS)} ({self.acceptance:.0%})"
        if self.drafting:
            draft = f"{self.passes:.0f} x {self.draft_pass:.2f}" if self.passes else "0"
            costs = f"{draft}, {self.verify_step:.2f} ({self.verify_rows:.0f})"
        predicted = "" if self.predicted is None else f"{self.predicted:.2f}"
        return (
            f"{self.title} | {self.speed:.0f} ({self.plain:.0f}) | {self.speedup} | {predicted} | "
            f"{self.tokens_per_step:.2f} | {by_depth} | {costs or 'never drafted'} | {self.same}"
        )

    @property
    def same(self) -> str:
        """Say whether speculation changed the text; a near-tie is decided by the last bits of the fast arithmetic."""
        if self.exact < self.exact_answers:
            return f"DIFFERS in {self.exact_answers - self.exact} of {self.exact_answers}"
        near = self.answers - self.equal
        return f"near-tie in {near} of {self.answers}" if near else "same"


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

    ``drafting`` is the share of the steps in which it drafted nevertheless; ``best`` the best speed-up of a fixed
    length on that text.
    """

    batch: int
    text: str
    best: float
    speed: float
    plain: float
    ratio: Spread
    drafting: float

    @property
    def sentence(self) -> str:
        """The figures, and whether the aim holds."""
        if self.best >= PAYS:
            verdict = f"a fixed length gains there too ({self.best:.2f})"
        elif self.ratio.high >= 1:
            verdict = "it cost nothing that rises above the noise"
        else:
            lost = 1 - self.ratio.median
            verdict = f"it cost {lost:.1%}, {'within' if lost < AIM else 'beyond'} the aim of {AIM:.0%}"
        return (
            f"auto compared with off on {self.text}, {self.batch} at once: {self.speed:.0f} and {self.plain:.0f} "
            f"tokens/s, ratio {self.ratio}, drafting in {self.drafting:.0%} of the steps; {verdict}"
        )


class SpeculationFigures(msgspec.Struct, frozen=True):
    """``absent`` says what was left out, and why."""

    model: str
    draft: str
    device: str
    dtype: str
    rounds: int
    plain_step_ms: float
    texts: list[TextFigures]
    verify: list[VerifyRow]
    overhead: list[OverheadRow]
    absent: list[str]

    def show(self) -> None:
        companions = f" with {self.draft}" if self.draft else ""
        show_line(
            f"{self.model}{companions}, {self.dtype} on {self.device}: speculation and plain decoding in "
            f"{self.rounds} interleaved rounds; a plain step takes {self.plain_step_ms:.2f} ms"
        )
        for text in self.texts:
            show_table(
                f"{text.title}: {text.prompts} prompts, {text.tokens:,} tokens; accepted in % of steps, "
                "(of those reached); costs in plain steps",
                "draft method | tokens/s (plain) | speed-up (quarters) | formula | per step | accepted by depth | "
                "pass, check (rows) | text",
                (row.cells for row in text.rows),
            )
        if self.verify:
            self._show_verify()
        for line in (*(row.sentence for row in self.overhead), *self.equality()):
            show_line(line)
        show_absent(self.absent)

    def _show_verify(self) -> None:
        one, *more = sorted({row.rows for row in self.verify})
        known = {(row.batch, row.rows): row for row in self.verify}
        show_table(
            "the model's forward by rows of each answer, compared with one row",
            " | ".join(["answers", "one row, ms", *(f"{count} rows" for count in more)]),
            (
                " | ".join([f"{batch}", f"{known[batch, one].ms:.2f}", *(f"{known[batch, n].ratio:.2f}" for n in more)])
                for batch in sorted({row.batch for row in self.verify})
            ),
        )

    def equality(self) -> Iterator[str]:
        """Yield sentences on whether the texts were those of plain decoding."""
        rows = [(text.title, row) for text in self.texts for row in text.rows]
        wrong = [f"{row.title} on {title}" for title, row in rows if row.exact < row.exact_answers]
        if wrong:
            yield f"The text CHANGED in batch-invariant arithmetic, which is an error: {', '.join(wrong)}."
            return
        checked, timed = (sum(getattr(row, name) for _, row in rows) for name in ("exact_answers", "answers"))
        if checked:
            yield f"All {checked} answers in batch-invariant arithmetic were those of plain decoding, token for token."
        near = timed - sum(row.equal for _, row in rows)
        if near:
            yield f"Of the {timed} timed ones {near} left the plain text at a near-tie of two tokens."
