"""What ``kvasir bench --speculation`` makes of steps: shares by depth, costs, the formula, sentences and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from engine.decoding.speculation.base import DraftCost
from engine.decoding.speculation.control.stats import expected_tokens
from engine.decoding.telemetry.records import DraftRecord, StepRecord, StepRows
from engine.services.experiments.measures.steps import Costs, Drafted, costs, decoding, held, predicted
from engine.services.experiments.measures.timing import Spread, spread
from engine.services.experiments.reports.speculation import OverheadRow, SpeculationFigures, TextFigures, WayRow
from tests.engine.decoding.telemetry.steps import step as record_of


def drafted(
    depth: int, kept: int, cost: float = 1.0, draft: float = 0.0, passes: int = 0, name: str = "draft"
) -> Drafted:
    return Drafted(cost, draft, passes, 1 + depth, 1 + kept, ((name, depth, kept),) if depth else ())


def record(
    time: float, prefill: int = 0, draft: DraftRecord | None = None, drafting: DraftCost = DraftCost()
) -> StepRecord:
    draft_tokens = () if draft is None else (draft,)
    verified = 0 if draft is None else len(draft.proposed)
    rows = StepRows(int(not prefill), prefill, verified)
    return record_of(time, duration=0.5, host_seconds=0.1, rows=rows, drafts=draft_tokens, drafting=drafting)


def test_shares_by_depth_count_what_was_reached() -> None:
    """Of three chains of three one fails at once, one at its last draft, one holds whole."""
    judged = held([drafted(3, 0), drafted(3, 2), drafted(3, 3), drafted(0, 0)])
    assert judged.proposed == [3, 3, 3]
    assert judged.accepted == [2, 2, 1]
    assert judged.reached == 1 + 3 + 3
    assert judged.share == 5 / 7
    both = [drafted(2, 2, name="ngram"), drafted(1, 0)]
    assert (held(both, "ngram").share, held(both, "draft").share) == (1.0, 0.0)
    assert held([]).share == 0.0


def test_costs_are_medians_by_rows() -> None:
    steps = [drafted(4, 1, 3.0, 1.2, 4), drafted(4, 1, 2.0, 0.4, 4), drafted(4, 1, 9.0, 0.8, 4), drafted(0, 0, 1.1)]
    known = costs(steps)
    assert known.draft_pass == pytest.approx(0.2)
    assert known.verify == pytest.approx({5: 1.8, 1: 1.1})


@pytest.mark.parametrize(("share", "length"), [(0.8, 4), (0.5, 1)])
def test_the_formula(share: float, length: int) -> None:
    """For equal chains it is Leviathan's: E / (g c + v)."""
    hits = round(share * 100)
    # Chains of one draft, so that the share that holds is exact; then counted as chains of ``length``.
    steps = [drafted(1, int(place < hits)) for place in range(100)]
    assert held(steps).share == share
    longer = [step._replace(rows=1 + length, passes=length, depths=(("draft", length, 0),)) for step in steps]
    made = predicted(longer, Costs(0.1, {1 + length: 1.2}))
    assert made == pytest.approx(1.0 / (length * 0.1 + 1.2)), "nothing held"
    kept = [step._replace(depths=(("draft", length, length),)) for step in longer]
    assert predicted(kept, Costs(0.1, {1 + length: 1.2})) == pytest.approx((length + 1) / (length * 0.1 + 1.2))
    one = predicted(steps, Costs(0.1, {2: 1.2}))
    assert one == pytest.approx(expected_tokens(share, 1) / 1.2)


def test_the_formula_over_steps_that_do_not_all_draft() -> None:
    """Half of the steps draft two ahead and keep all: three tokens for 1.5 steps, and one for one."""
    steps = [drafted(2, 2, passes=2), drafted(0, 0)]
    assert predicted(steps, Costs(0.1, {3: 1.3, 1: 1.0})) == pytest.approx((3 + 1) / (1.5 + 1.0))
    assert predicted([drafted(0, 0)], Costs(0.0, {1: 1.0})) is None


def test_steps_that_read_a_prompt_are_left_out() -> None:
    """Costs are in the unit given, those of drafting by its step."""
    steps = [
        record(2.0, prefill=9, drafting=DraftCost(0.2, 4, 7)),
        record(3.0, draft=DraftRecord("draft", (1, 1), (1, 0), 2), drafting=DraftCost(0.1, 1, 1)),
        record(4.0),
    ]
    assert decoding(steps, unit=0.25) == [
        Drafted(2.0, 0.4, 1, 3, 1, (("draft", 2, 1),)),
        Drafted(2.0, 0.0, 0, 1, 1, ()),
    ]


def test_quarters() -> None:
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0, 1)
    assert spread([1.0, 5.0, 2.0, 3.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)


def row(title: str, gain: float, low: float = 0.0, drafting: float = 1.0, **more: Any) -> WayRow:
    told: dict[str, Any] = {
        "proposer": "draft", "title": title, "speed": 1.0, "plain": 1.0, "speedup": Spread(gain, low or gain, gain, 4),
        "accepted": [0.5], "acceptance": 0.5, "tokens_per_step": 1.5, "drafting": drafting, "draft_pass": 0.25,
        "passes": 4.0, "verify_step": 1.5, "verify_rows": 5.0, "predicted": 0.6, "equal": 4, "answers": 4, "exact": 2,
        "exact_answers": 2,
    }  # fmt: skip
    return WayRow(**(told | more))


def whole(rows: list[WayRow], overhead: Sequence[OverheadRow] = ()) -> SpeculationFigures:
    text = TextFigures("talk", "free talk", 1, 9, rows)
    return SpeculationFigures("m", "d", "cpu", "float32", 1, 1.0, [text], [], list(overhead), [])


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[SpeculationFigures], str]:
    def show(figures: SpeculationFigures) -> str:
        figures.show()
        return re.sub(r"\s+", " ", capsys.readouterr().out)

    monkeypatch.setattr("engine.services.experiments.reports.tables.PAGE", 200)
    return show


def test_whether_the_texts_were_the_same_is_said() -> None:
    (equal,) = whole([row("n-gram", 1.5), row("draft model", 0.6)]).equality()
    assert equal == "All 4 answers in batch-invariant arithmetic were those of plain decoding, token for token."
    near = list(whole([row("draft model", 0.6, equal=3)]).equality())
    assert near[-1] == "Of the 4 timed ones 1 left the plain text at a near-tie of two tokens."


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.98, "it cost 2.0%, within the aim of 3%"), (0.9, "it cost 10.0%, beyond the aim"), (1.01, "it cost nothing")],
)
def test_what_automatic_drafting_costs(shown: Callable[[SpeculationFigures], str], ratio: float, words: str) -> None:
    spent = OverheadRow(8, "noise", 0.7, 98.0, 100.0, Spread(ratio, ratio, ratio, 4), 0.03)
    assert words in spent.sentence
    assert "a fixed length gains there too (1.20)" in msgspec.structs.replace(spent, best=1.2).sentence
    out = shown(whole([row("draft model", 0.6)], [spent]))
    assert "auto compared with off on noise, 8 at once: 98 and 100 tokens/s" in out


def test_the_table_says_what_was_measured(shown: Callable[[SpeculationFigures], str]) -> None:
    out = shown(whole([row("draft model, 4 ahead", 0.6, low=0.5), row("automatic", 1.0, drafting=0.0, accepted=[])]))
    for cell in ("0.60 (0.50-0.60)", "4 x 0.25, 1.50 (5)", "never drafted", "a plain step takes 1.00 ms", "same"):
        assert cell in out, cell
