"""What a comparison found, in words and colours: each figure by itself, unlike answers beside each other."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from PySide6.QtGui import QTextFormat
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QTextEdit, QToolButton

from app.panel import verdicts
from app.panel.effects import EffectLine, figure, lines, sentence
from app.panel.panel import OptimisationPanel
from app.texts.difference import parting, parts_at
from app.texts.side_by_side import Side, SideBySide
from app.window.sides import PANEL_WIDTH
from engine.protocol import Compared, CompareProgress, Metric, compared
from tests.app.effects import BYTES, FIRST, SPEED, WASTE, effect, result
from tests.app.specs import choice, number, switch

TEXTS = ["A page holds sixteen tokens.", "A page holds 16 tokens, and no more."]


def unlike(*effects: object) -> Compared:
    return result(*effects, same=False, first_difference=3, texts=TEXTS)


@pytest.fixture
def panel(qtbot, theme, monkeypatch) -> OptimisationPanel:
    panel = OptimisationPanel(theme)
    qtbot.addWidget(panel)
    panel.set_catalogue([switch(), choice(), number()])
    panel.set_measurable("")
    panel.resize(PANEL_WIDTH, 800)
    panel.show()
    monkeypatch.setattr(panel.row("speculation").parentWidget(), "underMouse", lambda: False)
    return panel


def said(panel: OptimisationPanel, key: str = "speculation") -> dict[str, str]:
    """Shown sentences with their colours."""
    labels = panel.findChildren(QLabel, f"{key}.outcome")
    return {label.text(): label.property("role") for label in labels if label.isVisible()}


def first_mark(view: QTextEdit) -> str:
    """The word that is marked most."""
    marks = view.extraSelections()  # which own their cursors
    strongest = max(marks, key=lambda mark: mark.format.property(QTextFormat.Property.UserProperty))
    return strongest.cursor.selectedText()


def test_the_switchs_own_figure_is_the_headline_with_its_range() -> None:
    found = figure(result(effect(FIRST, before=69, after=34, ratio=2.0, low=1.8, high=2.2), effect(SPEED)))
    assert found == EffectLine("2.0×\n1.80–2.2", "good")
    assert figure(None).text == "–"


@pytest.mark.parametrize("metric", [SPEED, FIRST, BYTES, WASTE])
@pytest.mark.parametrize(
    ("ratio", "low", "high"), [(2.1, 1.9, 2.3), (0.4, 0.3, 0.6), (1, 1, 1), (31, 9, 50), (None, 0, 0)]
)
def test_the_window_says_what_reports_and_terminals_say(metric, ratio, low, high) -> None:
    for word, pairs in itertools.product(("better", "worse", "none", "few"), (1, 8)):
        found = effect(metric, ratio=ratio, low=low, high=high, verdict=word, pairs=pairs)
        assert verdicts.verdict(found) == compared.verdict(found)
        assert verdicts.amount(9e8 * found.high, metric) == compared.amount(9e8 * found.high, metric)
    assert verdicts.busy_or_quiet(low) == compared.busy_or_quiet(low)


def test_each_sentence_has_its_own_colour() -> None:
    shown = lines(
        choice(),
        result(effect(SPEED), effect(FIRST, before=99, after=168, ratio=0.59, low=0.5, high=0.71, verdict="worse")),
        "What is a page?",
    )
    assert shown[0] == EffectLine("On: “What is a page?” (off → n-gram).", "caption")
    assert shown[1] == EffectLine("Tokens/s 28.1 → 60.3: 2.1× more (1.94–2.3 in 8 pairs).", "good")
    assert shown[2] == EffectLine("First token 99 ms → 168 ms: 1.69× later (1.41–2.0 in 8 pairs).", "warn")
    assert shown[3] == EffectLine("The answers are the same, token for token.", "caption")


def test_a_range_that_crosses_one_is_no_clear_difference() -> None:
    none = effect(ratio=1.04, low=0.92, high=1.2, verdict="none")
    assert figure(result(none)) == EffectLine("no clear\ndifference", "tiny")
    assert "no clear difference (0.92–1.20 in 8 pairs)" in sentence(none, result(none))
    assert {line.tone for line in lines(choice(), result(none), "")} == {"caption"}


def test_too_few_pairs_are_no_verdict() -> None:
    few = effect(pairs=3, verdict="few")
    assert figure(result(few)).tone == "caption"
    assert "3 of 8 pairs are too few for a verdict" in sentence(few, result(few))


def test_figures_are_written_in_their_units() -> None:
    counted = effect(BYTES, before=1024, after=288, ratio=3.56, low=3.56, high=3.56)
    assert sentence(counted, result(counted)) == "KV cache per token 1,024 bytes → 288 bytes: 3.6× less."
    assert figure(result(counted)) == EffectLine("3.6×", "good")
    waste = effect(WASTE, before=0.97, after=0.06, ratio=16.2, low=15, high=17)
    assert sentence(waste, result(waste)) == "Unused slots 97 % → 6 %: 16× less (15–17 in 8 pairs)."
    near = effect(ratio=1.13, low=1.12, high=1.149)
    assert "1.13× more (1.12–1.15 in 8 pairs)" in sentence(near, result(near))
    assert "(1.12–1.12 in 8 pairs)" in sentence(near := effect(ratio=1.12, low=1.119, high=1.121), result(near))
    nothing = effect(before=0, after=3, ratio=None, low=0, high=0, verdict="none")
    assert sentence(nothing, result(nothing)) == "Tokens/s 0.0 → 3.0."
    assert figure(result(nothing)).text == "no figure"


def test_unlike_answers_show_their_speeds_labelled_and_what_is_counted_in_full() -> None:
    found = unlike(effect(BYTES, before=1024, after=288, ratio=3.56, low=3.56, high=3.56), effect(SPEED))
    assert figure(found) == EffectLine("3.6×", "good")
    shown = lines(choice(), found, "")
    assert shown[2] == EffectLine("Tokens/s 28.1 → 60.3: 2.1× more (1.94–2.3 in 8 pairs) (unlike answers).", "caption")
    assert shown[3].text == "The answers differ from word 4 on, so their speeds are not comparable."
    assert shown[3].tone == "warn"
    assert "unlike" in figure(unlike(effect(SPEED))).text
    assert figure(unlike(effect(SPEED))).tone == "caption"


def test_where_texts_part() -> None:
    found = parting(*TEXTS)
    assert found is not None
    assert (found.word, TEXTS[0][: found.at]) == (4, "A page holds ")
    assert (found.one, found.other) == ("sixteen tokens.", "16 tokens, and no…")
    assert parting("same", "same") is None
    first = parting("abc", "abd")
    assert first is not None
    assert (first.at, parts_at(first)) == (0, "from the first word on")
    cut = parting("one two", "one ")
    assert cut is not None
    assert (cut.word, cut.other) == (2, "(ends)")


def test_both_answers_stand_beside_each_other_with_the_place_marked(qtbot, theme, panel) -> None:
    panel.row("speculation").toggle_explanation()
    panel.show_result(unlike(effect(SPEED)), "What is a page?")
    button = panel.findChild(QPushButton, "speculation.both")
    assert button.isVisible()
    button.click()
    dialog = panel.findChild(SideBySide)
    assert dialog is not None
    assert [view.toPlainText() for view in dialog.views] == TEXTS
    assert "from word 4 on" in dialog.sentence.text()
    assert "What is a page?" in dialog.sentence.text()
    assert [first_mark(view) for view in dialog.views] == ["sixteen", "16"]
    dialog.close()
    panel.show_result(result(effect(SPEED)))
    assert not button.isVisible()


def test_marks_stand_right_behind_signs_that_qt_counts_twice(qtbot, theme) -> None:
    dialog = SideBySide(Side("a", "", "😀 😀 one"), Side("b", "", "😀 😀 two"), "", theme)
    qtbot.addWidget(dialog)
    assert [first_mark(view) for view in dialog.views] == ["one", "two"]
    theme.set_mode("light")
    light = [mark.format.background().color().name() for mark in dialog.views[0].extraSelections()]
    theme.set_mode("dark")
    assert light != [mark.format.background().color().name() for mark in dialog.views[0].extraSelections()]
    same = SideBySide(Side("a", "", "one"), Side("b", "", "one"), "", theme)
    qtbot.addWidget(same)
    assert same.sentence.text() == "Both texts are the same."
    assert not same.views[0].extraSelections()


@pytest.mark.parametrize(
    "found",
    [
        result(effect(ratio=1.04, low=0.92, high=1.2, verdict="none")),
        result(effect(ratio=0.93, low=0.91, high=0.98, verdict="worse")),
        result(effect(ratio=123, low=101, high=140)),
        result(effect(ratio=None, verdict="none")),
        unlike(effect(SPEED)),
    ],
)
def test_no_figure_is_cut(panel, found) -> None:
    panel.resize(PANEL_WIDTH, 700)
    panel.show()
    panel.show_result(found)
    label = panel.findChild(QLabel, "speculation.bought")
    QApplication.processEvents()
    assert label.sizeHint().width() <= label.width(), label.text()


def test_a_result_is_marked_when_the_switch_is_set_to_something_else(panel) -> None:
    panel.set_catalogue([switch(), choice("ngram"), number()])
    panel.row("speculation").toggle_explanation()
    panel.show_result(result(effect(SPEED)))
    assert "good" in said(panel).values()
    panel.set_catalogue([switch(), choice("off"), number()])
    assert "Measured with n-gram; the switch is at off now." in said(panel)
    assert set(said(panel).values()) == {"caption"}
    assert panel.findChild(QLabel, "speculation.bought").property("role") == "caption"
    panel.set_catalogue([switch(), choice("ngram"), number()])
    assert "good" in said(panel).values()


def test_what_one_answer_cannot_show_has_no_button_and_says_where_it_is_measured(qtbot, panel) -> None:
    where = "One answer alone cannot show this: kvasir bench --cache measures it on many chats."
    panel.set_catalogue([switch(metric=Metric(elsewhere=where)), choice()])
    assert not panel.findChild(QToolButton, "kv_cache.measure").isVisible()
    assert panel.findChild(QLabel, "kv_cache.bought").toolTip().replace("\n", " ") == where
    panel.row("kv_cache").toggle_explanation()
    assert where in panel.findChild(QLabel, "kv_cache.caption").text()


def test_a_running_measurement_can_be_stopped_at_its_own_button(qtbot, panel) -> None:
    panel.show_progress("speculation", CompareProgress(id="1", done=2, total=18))
    button = panel.findChild(QToolButton, "speculation.measure")
    assert button.isEnabled()
    assert button.toolTip() == "Stop measuring."
    with qtbot.waitSignal(panel.measure_requested) as heard:
        button.click()
    assert heard.args == ["speculation"]
    assert msgspec.structs.asdict(CompareProgress(id="1", done=0, total=0))["total"] == 0
    panel.show_progress("speculation", CompareProgress(id="1", done=0, total=0))
    assert panel.findChild(QLabel, "speculation.bought").text() == "…"
