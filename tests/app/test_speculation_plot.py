"""The chart of kept guesses: whose bars, in which order, and what stands below them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.plots import words
from app.plots.acceptance import MOST_SERIES, AcceptanceChart, reasoning, series
from app.proposers import PROPOSERS, color
from app.theme.theme import DARK, LIGHT
from engine.protocol import Acceptance
from tests.app.specs import GUESSERS, frame


def guesses(proposer: str, proposed: int = 100, accepted: int = 60, **changes: object) -> Acceptance:
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


def visible(chart: AcceptanceChart) -> list:
    return [bars for bars in chart._bars if bars.isVisible()]


def test_every_guesser_has_a_name_and_a_colour_of_its_own(chart, theme) -> None:
    for mode, tokens in (("dark", DARK), ("light", LIGHT)):
        theme.set_mode(mode)
        colours = [color(theme, key) for key in GUESSERS]
        assert len(set(colours)) == len(GUESSERS)
        assert color(theme, "ngram") == tokens.teal
    for key in GUESSERS:
        show(chart, guesses(key))
        assert PROPOSERS[key].name in chart._legend.text().replace("\xa0", " ")
        assert color(theme, key) in chart._legend.text()
        assert visible(chart)[0].opts["brush"] == color(theme, key)


def test_at_most_four_guessers_are_drawn_the_largest_first(chart) -> None:
    many = [guesses(key, proposed=10 * (index + 1)) for index, key in enumerate(GUESSERS)]
    show(chart, *many)
    assert [one.proposer for one in series(many)] == ["mtp", "eagle", "medusa", "skip"]
    bars = visible(chart)
    assert len(bars) == MOST_SERIES
    edges = [(bar.opts["x"] - bar.opts["width"] / 2, bar.opts["x"] + bar.opts["width"] / 2) for bar in bars]
    for (_, right), (left, _) in pairwise(edges):
        assert (right < left).all(), "bars of one depth lie side by side"
    assert edges[-1][1][0] < edges[0][0][1], "and those of the next depth after them"
    assert "draft model: 60 of 10" in chart.toolTip(), "the tooltip has all of them"
    show(chart, guesses("ngram"))
    assert len(visible(chart)) == 1


def test_the_live_figure_is_tokens_a_step(chart) -> None:
    show(chart, guesses("medusa", accepted=120, tokens_per_step=2.5))
    assert chart.figure.text() == "2.5 tok/step"
    # 80 rounds of 2.5 tokens, and 20 of 1.5.
    two = [guesses("medusa", accepted=120, tokens_per_step=2.5), guesses("ngram", accepted=10, tokens_per_step=1.5)]
    assert words.per_step(two) == pytest.approx((80 * 2.5 + 20 * 1.5) / 100)
    none_kept = guesses("ngram", proposed=80, accepted=0, draft_length=4, tokens_per_step=1.0)
    assert words.per_step([none_kept]) == 1.0
    show(chart)
    assert chart.figure.text() == "–"
    assert chart._caption.text() == "Speculation is off or idle."
    assert chart._legend.isHidden()


def test_the_caption_is_the_controllers_line(chart) -> None:
    line = "n-gram at depth 6: a checked row costs 0.12 of a step and 3.1 guesses are kept"
    show(chart, guesses("ngram", 10), guesses("medusa", 400, reasoning=line))
    assert chart._caption.text() == chart._caption.toolTip() == line
    assert chart._caption.width() <= chart.width()
    assert reasoning([guesses("medusa", draft_length=4, tree_nodes=16)]) == "Guesses 4 ahead, 16 guesses a step"
    assert reasoning([guesses("draft", draft_length=4, tree_nodes=4)]) == "Guesses 4 ahead"
    off = guesses("eagle", by_depth=[], off_reason="guesses cost more than they save")
    assert reasoning([off]) == "Off: guesses cost more than they save"
    stale = guesses("medusa", 400, reasoning="what was said before it stopped", off_reason="it stopped")
    assert reasoning([stale, guesses("ngram", 10, reasoning=line)]) == line
    show(chart, off, guesses("ngram", 10))
    assert chart._caption.text() == "Guesses 2 ahead"
    assert "off: guesses cost more" in chart.toolTip()
    assert "EAGLE (off)" in chart._legend.text().replace("\xa0", " ")


def test_depths_are_numbered_as_far_as_they_go(chart, theme) -> None:
    def numbers() -> list[str]:
        return [label.toPlainText() for label in chart._depths]

    show(chart, guesses("draft"))
    assert numbers() == ["1", "2", "3", "4"]
    show(chart, guesses("draft", by_depth=[0.5] * 16))
    assert [number for number in numbers() if number] == [str(depth) for depth in range(2, 17, 2)]
    theme.set_mode("light")
    chart.recolour()
    assert chart._depths[0].color.name() == LIGHT.mute
