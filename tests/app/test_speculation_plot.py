"""The chart of kept drafts: whose bars, in which order, and what stands below them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.charts.axes import bar_edges
from app.plots import words
from app.plots.acceptance import MOST_SERIES, AcceptanceChart, caption, reasoning, series
from app.proposers import color, proposer
from app.theme.theme import DARK, LIGHT
from engine.protocol import Acceptance, Latencies, QueueCounts
from tests.app.specs import DRAFTERS, frame


def draft_tokens(proposer: str, proposed: int = 100, accepted: int = 60, **changes: object) -> Acceptance:
    fields = {"by_depth": [0.9, 0.6], "draft_length": 2, "tokens_per_step": 2.2, **changes}
    return Acceptance(proposer=proposer, proposed=proposed, accepted=accepted, **fields)


@pytest.fixture
def chart(qtbot, theme) -> AcceptanceChart:
    chart = AcceptanceChart(theme)
    qtbot.addWidget(chart)
    chart.resize(204, 188)
    chart.show()
    return chart


def show(chart: AcceptanceChart, *acceptance: Acceptance) -> None:
    chart.add(frame(0, acceptance=list(acceptance)))
    chart.refresh()


def test_every_drafter_has_a_name_and_a_colour_of_its_own(chart, theme) -> None:
    for mode, tokens in (("dark", DARK), ("light", LIGHT)):
        theme.set_mode(mode)
        colours = [color(theme, key) for key in DRAFTERS]
        assert len(set(colours)) == len(DRAFTERS)
        assert color(theme, "ngram") == tokens.teal
    for key in DRAFTERS:
        show(chart, draft_tokens(key))
        assert proposer(key).name in chart._legend.text().replace("\xa0", " ")
        assert color(theme, key) in chart._legend.text()
        assert chart._plot.bars[0].color == color(theme, key)


def test_at_most_four_drafters_are_drawn_the_largest_first(chart) -> None:
    many = [draft_tokens(key, proposed=10 * (index + 1)) for index, key in enumerate(DRAFTERS)]
    show(chart, *many)
    assert [one.proposer for one in series(many)] == list(reversed(DRAFTERS[-4:]))
    assert len(chart._plot.bars) == MOST_SERIES
    edges = [bar_edges(len(bars.heights), index, MOST_SERIES) for index, bars in enumerate(chart._plot.bars)]
    for (_, right), (left, _) in pairwise(edges):
        assert (right < left).all(), "bars of one depth lie side by side"
    assert edges[-1][1][0] < edges[0][0][1], "and those of the next depth after them"
    assert "draft model: 60 of 10" in chart.toolTip(), "the tooltip has all of them"
    show(chart, draft_tokens("ngram"))
    assert len(chart._plot.bars) == 1


def test_the_live_figures_are_the_share_and_tokens_per_step(chart) -> None:
    show(chart, draft_tokens("medusa", accepted=92, tokens_per_step=4.4))
    assert chart.figure.text() == "92 %"
    assert chart._caption.text() == "92 % accepted · 4.4 tokens per step"
    assert chart.title.text() == "Acceptance rate by draft position"
    # 80 rounds of 2.5 tokens, and 20 of 1.5.
    two = [
        draft_tokens("medusa", accepted=120, tokens_per_step=2.5),
        draft_tokens("ngram", accepted=10, tokens_per_step=1.5),
    ]
    assert words.per_step(two) == pytest.approx((80 * 2.5 + 20 * 1.5) / 100)
    none_kept = draft_tokens("ngram", proposed=80, accepted=0, draft_length=4, tokens_per_step=1.0)
    assert words.per_step([none_kept]) == 1.0


def test_without_drafts_the_chart_says_so(chart) -> None:
    chart.refresh()
    assert chart.figure.text() == "–"
    assert chart._caption.text() == "No draft yet."
    assert chart._legend.isHidden()


def test_the_last_answers_bars_stay_until_the_next(chart) -> None:
    """The engine's figures are of the last seconds: after an answer its steps leave them one by one."""
    idle, busy = QueueCounts(0, 0, 0), QueueCounts(waiting=0, running=1, prefilling=0)
    chart.add(frame(0, acceptance=[draft_tokens("draft", 100, 60)], queue=busy))
    chart.add(frame(1, acceptance=[draft_tokens("draft", 120, 84)], queue=idle))
    for later, rest in enumerate(([draft_tokens("draft", 4, 0)], []), 2):
        chart.add(frame(later, acceptance=rest, queue=idle))
        chart.refresh()
        assert chart.figure.text() == "70 %"
        assert len(chart._plot.bars) == 1
    chart.add(frame(4, acceptance=[], queue=busy))
    chart.refresh()
    assert chart.figure.text() == "70 %", "the next one has only begun"
    chart.add(frame(5, acceptance=[draft_tokens("ngram", 2, 1)], queue=busy))
    chart.refresh()
    assert chart.figure.text() == "50 %"
    chart.add(frame(6, acceptance=[], queue=busy, latency=Latencies(itl_p50_ms=9.0)))
    chart.refresh()
    assert chart.figure.text() == "–", "it decodes without drafts"
    assert chart._caption.text() == "The last answer used no speculation."


def test_the_tooltip_has_the_controllers_line(chart) -> None:
    line = "n-gram at depth 6: a checked row costs 0.12 of a step and 3.1 drafts are kept"
    show(chart, draft_tokens("ngram", 10), draft_tokens("medusa", 400, reasoning=line))
    assert line in chart.toolTip().replace("\n", " ")
    assert chart._caption.width() <= chart.width()
    assert (
        reasoning([draft_tokens("medusa", draft_length=4, tree_nodes=16)])
        == "Drafts 4 tokens ahead, 16 drafted tokens per step"
    )
    assert reasoning([draft_tokens("draft", draft_length=4, tree_nodes=4)]) == "Drafts 4 tokens ahead"
    off = draft_tokens("eagle", by_depth=[], off_reason="drafts cost more than they save")
    assert caption([off]) == "Off: drafts cost more than they save"
    assert reasoning([off]) == ""
    stale = draft_tokens("medusa", 400, reasoning="what was said before it stopped", off_reason="it stopped")
    assert reasoning([stale, draft_tokens("ngram", 10, reasoning=line)]) == line
    show(chart, off, draft_tokens("ngram", 10))
    assert "Drafts 2 tokens ahead" in chart.toolTip()
    assert "off: drafts cost more" in chart.toolTip()
    assert "EAGLE (off)" in chart._legend.text().replace("\xa0", " ")


def test_positions_are_numbered_as_far_as_they_go(chart) -> None:
    def numbers() -> list[str]:
        return [text for _, text in chart._plot.ticks]

    show(chart, draft_tokens("draft"))
    assert numbers() == ["1", "2", "3", "4"]
    show(chart, draft_tokens("draft", by_depth=[0.5] * 16))
    assert numbers() == [str(depth) for depth in range(2, 17, 2)]
    assert chart._plot.labels == ["0 %", "50 %", "100 %"]
