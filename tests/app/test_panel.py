"""The panel is built from option specs alone and says what a comparison found."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDoubleSpinBox, QLabel, QPushButton, QSpinBox, QToolButton

from app.panel.controls import value_title
from app.panel.panel import NO_PROMPT, OptimisationPanel
from app.panel.row import OptionRow
from app.panel.words import badge_of, event_label, explanation
from app.theme.sheet import apply
from app.theme.widgets import Toggle
from app.window.sides import PANEL_WIDTH
from app.window.wirings.measure import compare_values
from engine import catalogue
from engine.protocol import CompareProgress, Cost
from tests.app.effects import effect, result
from tests.app.specs import choice, number, switch


@pytest.fixture
def panel(qtbot, theme) -> OptimisationPanel:
    panel = OptimisationPanel(theme)
    qtbot.addWidget(panel)
    panel.set_catalogue([switch(), choice(), number()])
    panel.resize(316, 800)
    panel.show()
    return panel


def settle(qapp) -> None:
    """Rows ask for room again once they know their width."""
    for _ in range(4):
        qapp.processEvents()


def text(panel: OptimisationPanel, name: str) -> str:
    return panel.findChild(QLabel, name).text()


def test_rows_stand_under_their_groups_in_order(panel):
    heads = [label.text() for label in panel.findChildren(QLabel) if label.property("role") == "section"]
    assert heads == ["Cache", "Speculation"]
    assert not [label for label in panel.findChildren(QLabel) if label.property("badge")], "all are lossless"


def test_what_means_nothing_beside_the_present_values_is_hidden(panel):
    spec = msgspec.structs.replace(number(), of="speculation", of_values=["draft", "ngram"])
    panel.set_catalogue([switch(), choice(), spec])
    row = panel.row(spec.key)
    assert row.isHidden()
    panel.set_catalogue([switch(), msgspec.structs.replace(choice(), value="ngram"), spec])
    assert not row.isHidden()
    assert panel.row(spec.key) is row
    panel.set_catalogue([switch(hidden=True), msgspec.structs.replace(choice(), value="ngram"), spec])
    assert panel.row("kv_cache").isHidden()


def test_rows_stay_where_another_model_brings_others(panel):
    """With their results and in the order of Tab, which comes to the new one between them."""
    kept = [panel.row(key) for key in ("kv_cache", "draft_length")]
    other = msgspec.structs.replace(switch(), key="other", title="Other")
    panel.set_catalogue([switch(), other, number()])
    assert [panel.row(key) for key in ("kv_cache", "draft_length")] == kept
    (first, second, third) = (panel.row(key) for key in ("kv_cache", "other", "draft_length"))
    assert first.y() <= second.y() <= third.y()
    seen, at = [], first.stops()[0]
    while len(seen) < 40:
        seen += [row.spec.key for row in (first, second, third) if row.isAncestorOf(at)]
        at = at.nextInFocusChain()
    assert list(dict.fromkeys(seen)) == ["kv_cache", "other", "draft_length"]
    assert panel.findChild(OptionRow, "row.speculation") is None


def test_a_fraction_is_shown_as_it_is(qtbot, panel):
    spec = number(1.0, key="room", kind="float", default=1.0, minimum=0.0, maximum=9.0, zero_means="off")
    panel.set_catalogue([spec])
    box = panel.row("room").findChild(QDoubleSpinBox)
    shown = []
    for value in (1.0, 0.25, 0.0):
        panel.set_catalogue([msgspec.structs.replace(spec, value=value)])
        shown.append(box.text())
    assert shown == ["1", "0.25", "off"]


def test_the_persons_values_come_out_with_their_key(qtbot, panel):
    heard = []
    panel.value_changed.connect(lambda key, value: heard.append((key, value)))
    panel.row("kv_cache").findChild(Toggle).click()
    panel.findChild(QAction, "speculation.ngram").trigger()
    panel.findChild(QSpinBox, "draft_length.value").setValue(3)
    panel.findChild(QSpinBox, "draft_length.value").setValue(4)
    qtbot.waitUntil(lambda: len(heard) == 3)
    assert heard == [("kv_cache", False), ("speculation", "ngram"), ("draft_length", 4)]
    assert [type(value) for _, value in heard] == [bool, str, int]


def test_new_state_from_the_engine_is_silent_and_keeps_the_widgets(qtbot, panel):
    row = panel.row("kv_cache")
    with qtbot.assertNotEmitted(panel.value_changed, wait=300):
        panel.set_catalogue([switch(value=False), choice("draft"), number(7)])
    assert panel.row("kv_cache") is row
    assert not row.findChild(Toggle).isChecked()
    assert panel.findChild(QAction, "speculation.draft").isChecked()
    assert panel.findChild(QSpinBox, "draft_length.value").value() == 7


def test_another_catalogue_rebuilds(panel):
    panel.set_catalogue([choice()])
    assert panel.spec("kv_cache") is None
    assert panel.spec("speculation").value == "off"


def test_a_disabled_row_keeps_its_place_and_says_why(panel):
    reason = "Load a model first."
    panel.set_catalogue([switch(disabled_reason=reason), choice(), number()])
    assert text(panel, "kv_cache.reason") == reason
    assert not panel.row("kv_cache").findChild(Toggle).isEnabled()
    assert panel.row("kv_cache").isVisible()


def test_a_disabled_choice_is_grey_with_its_reason(panel):
    reason = "Needs a draft model: choose one in the model menu."
    panel.set_catalogue([switch(), choice(disabled_choices={"draft": reason}), number()])
    action = panel.findChild(QAction, "speculation.draft")
    assert not action.isEnabled()
    assert action.toolTip() == reason
    assert panel.findChild(QAction, "speculation.ngram").isEnabled()
    few = choice(
        "2", key="bits", default="2", choices=["4", "2"], choice_titles=["4", "2"], disabled_choices={"4": "No."}
    )
    panel.set_catalogue([few])
    button = panel.findChild(QPushButton, "bits.4")
    assert not button.isEnabled()
    assert button.toolTip() == "No."


def test_zero_has_its_word(panel):
    assert panel.findChild(QSpinBox, "draft_length.value").text() == "auto"
    panel.set_catalogue([number(0, key="disk_cache", kind="float", default=0.0, zero_means="off", compare=[])])
    assert panel.findChild(QDoubleSpinBox).text() == "off"
    panel.set_catalogue([number(512, key="token_budget", minimum=16, maximum=8192, zero_means="")])
    assert panel.findChild(QSpinBox, "token_budget.value").value() == 512


def test_a_switch_says_what_it_amounts_to_and_why_no_more(panel):
    panel.set_catalogue([switch(key="cuda_graphs", title="CUDA graphs")])
    second = panel.findChild(QLabel, "cuda_graphs.term")
    panel.show_live("cuda_graphs", "94 % of steps", "The others: prompts of more than 64 rows are read.")
    assert second.isVisible()
    assert second.text() == "94 % of steps"
    assert "prompts of more than 64 rows" in second.toolTip()
    row = panel.row("cuda_graphs")
    row.toggle_explanation()
    assert "prompts of more than 64 rows" in panel.findChild(QLabel, "cuda_graphs.caption").text()
    panel.show_live("cuda_graphs", "")
    assert not second.isVisible()
    assert "prompts" not in panel.findChild(QLabel, "cuda_graphs.caption").text()


def test_automatic_says_what_it_amounts_to(panel):
    panel.show_live("draft_length", "4")
    panel.show_live("no such option", "4")
    box = panel.findChild(QSpinBox, "draft_length.value")
    assert box.text() == "auto (4)"
    panel.set_catalogue([switch(), choice(), number(3)])
    assert box.text() == "3"


def test_reload_options_say_so(panel):
    panel.set_catalogue([switch(applies="reload")])
    assert text(panel, "kv_cache.term") == "reloads"


def test_the_term_to_look_up_stands_below_the_name(panel):
    panel.set_catalogue([switch(title="Prefix caching (RadixAttention)")])
    assert text(panel, "kv_cache.term") == "RadixAttention"
    name = next(label for label in panel.row("kv_cache").findChildren(QLabel) if label.text() == "Prefix caching")
    assert name.accessibleName() == "Prefix caching (RadixAttention)"


def test_the_name_unfolds_the_explanation(qtbot, panel):
    caption = panel.findChild(QLabel, "kv_cache.caption")
    assert not caption.isVisible()
    name = next(label for label in panel.row("kv_cache").findChildren(QLabel) if label.text() == "KV cache")
    qtbot.mouseClick(name, Qt.MouseButton.LeftButton)
    assert caption.isVisible()
    assert "Keeps keys and values." in caption.text()
    assert "tokens per second" in caption.text()
    qtbot.keyClick(name, Qt.Key.Key_Space)
    assert not caption.isVisible()


def test_nothing_is_measured_without_a_prompt(qtbot, panel):
    button = panel.findChild(QToolButton, "speculation.measure")
    assert not button.isEnabled()
    assert button.toolTip().replace("\n", " ") == NO_PROMPT
    panel.set_measurable("")
    with qtbot.waitSignal(panel.measure_requested) as heard:
        button.click()
    assert heard.args == ["speculation"]


def test_progress_blocks_the_other_rows_and_a_result_frees_them(panel):
    panel.set_measurable("")
    panel.show_progress("speculation", CompareProgress(id="1", done=2, total=6))
    assert text(panel, "speculation.bought") == "2/6"
    assert not panel.findChild(QToolButton, "kv_cache.measure").isEnabled()
    panel.show_result(result(effect()))
    assert text(panel, "speculation.bought") == "2.1×\n1.94–2.3"
    assert text(panel, "speculation.outcome") == "off → n-gram."
    assert panel.findChild(QToolButton, "kv_cache.measure").isEnabled()
    panel.clear_results()
    assert text(panel, "speculation.bought") == "–"


def test_the_icon_of_a_button_is_painted_only_where_it_changes(panel, theme):
    """Each takes eight pictures, and a whole catalogue comes with every change of a switch."""

    def icons() -> list[int]:
        return [row.result.button.icon().cacheKey() for row in panel._rows.values()]

    before = icons()
    panel.set_measurable("")
    panel.set_catalogue([switch(), choice("ngram"), number()])
    assert icons() == before
    panel.show_progress("speculation", CompareProgress(id="1", done=2, total=6))
    assert [old == new for old, new in zip(before, icons(), strict=True)] == [True, False, True]
    theme.set_mode("light")
    assert not set(before) & set(icons())


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_a_figure_moves_no_row(panel, qapp, theme, scale):
    """Neither while it is measured nor when it is there: a click would land on another row."""
    theme.set_scale(scale)
    panel.set_catalogue(catalogue.state(catalogue.defaults(), frozenset(["several layers", "kinds"])))
    panel.show_all(True)
    panel.resize(theme.px(PANEL_WIDTH), 900)

    def heights() -> dict:
        settle(qapp)
        return {key: (row.geometry(), row._name.geometry()) for key, row in panel._rows.items() if row.isVisible()}

    before = heights()
    measurable = [
        key for key in before if not panel.spec(key).measure.metric.elsewhere and not panel.spec(key).disabled_reason
    ]
    assert len(measurable) > 8
    for key in measurable:
        panel.show_progress(key, CompareProgress(id="1", done=12, total=18))
        assert heights() == before
        panel.show_result(msgspec.structs.replace(result(effect()), key=key), "What is a page?")
        assert panel.card.isVisible()
        assert heights() == before
    panel.card.hide()
    assert heights() == before
    panel.show_cost_running("kv_kind", True)
    panel.show_cost("kv_kind", Cost(id="1", tokens=600, exact=3.1, present=3.2, divergence=0.01, setting="4-bit"))
    assert heights() == before


@pytest.mark.parametrize("code", ["en", "de"])
def test_no_term_is_cut_at_the_panels_own_width(panel, qapp, request, code):
    if code == "de":
        request.getfixturevalue("german")
    panel.set_catalogue(catalogue.state(catalogue.defaults(), frozenset(["several layers", "kinds"])))
    panel.show_all(True)
    panel.resize(PANEL_WIDTH - 1, 900)  # less the hairline towards the chat
    settle(qapp)
    terms = [row._second for row in panel._rows.values() if row._second.isVisible()]
    assert "RadixAttention" in [term.text() for term in terms]
    assert [term.elided for term in terms] == [term.text() for term in terms]


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_rows_are_as_high_as_each_other(panel, qapp, theme, scale):
    """Those whose name is one line; no row has room for words that it does not have."""
    apply(theme, qapp)
    theme.set_scale(scale)
    panel.set_catalogue(catalogue.state(catalogue.defaults(), frozenset(["several layers", "kinds"])))
    panel.show_all(True)
    panel.resize(theme.px(PANEL_WIDTH), 900)
    settle(qapp)
    try:
        rows = [row for row in panel._rows.values() if row.isVisible() and row._cell.isVisible()]
        lines = [round(row._name.height() / row._name.fontMetrics().lineSpacing()) for row in rows]
        assert len({row._columns.height() for row, each in zip(rows, lines, strict=True) if each == 1}) == 1
        assert lines.count(1) > 4 * (len(rows) - lines.count(1))
    finally:
        theme.set_scale(1.0)


def test_a_badge_is_as_wide_as_its_frame_from_the_first(panel, qapp):
    panel.set_catalogue([choice("ngram", exactness="approximate")])
    settle(qapp)
    badge = panel.findChild(QLabel, "speculation.badge")
    assert badge.text() == "lossy"
    assert badge.width() >= badge.fontMetrics().horizontalAdvance("lossy") + 12


def test_an_explanation_links_to_each_of_its_sources(panel):
    sources = "Kwon et al. 2023, <PagedAttention> (arXiv 2309.06180, arXiv 2312.07104); lookup (https://a.org/b?c=1&d)"
    panel.set_catalogue([switch(reference=sources), choice()])
    panel.row("kv_cache").toggle_explanation()
    shown = panel.findChild(QLabel, "kv_cache.paper")
    assert shown.text() == (
        "Kwon et al. 2023, &lt;PagedAttention&gt; "
        '(<a href="https://arxiv.org/abs/2309.06180">arXiv 2309.06180</a>, '
        '<a href="https://arxiv.org/abs/2312.07104">arXiv 2312.07104</a>); '
        'lookup (<a href="https://a.org/b?c=1&amp;d">https://a.org/b?c=1&amp;d</a>)'
    )
    panel.row("speculation").toggle_explanation()
    assert panel.findChild(QLabel, "speculation.paper").isHidden()


def test_no_row_changes_while_a_switch_is_set_both_ways_but_those_the_person_sets(panel, qapp):
    """The switch, its cost line, and the rows that depend on it stay where they are until the end."""

    def catalogue(kind: str, **changes) -> list:
        kinds = {"key": "kv_kind", "title": "KV cache precision", "group": "Cache", "exactness": "approximate"}
        options = {"choices": ["16-bit", "int4"], "choice_titles": ["16-bit", "4-bit, one scale a head"]}
        on = kind == "int4"
        return [
            choice(kind, default="16-bit", compare=["16-bit", "int4"], **kinds, **options),
            switch(key="hadamard", title="Rotated keys (Hadamard)", of="kv_kind", of_values=["int4"]),
            switch(key="quest", disabled_reason="Needs 16-bit keys." if on else ""),
            switch(**changes),
        ]

    def places() -> list:
        settle(qapp)
        shown = [row for row in panel._rows.values() if row.isVisible()]
        return [(row.spec, row.geometry(), row.cost and row.cost.isVisible()) for row in shown]

    panel.set_catalogue(catalogue("int4"))
    panel.set_measurable("")
    before = places()
    for done, kind in enumerate(["16-bit", "int4", "16-bit"]):
        panel.show_progress("kv_kind", CompareProgress(id="1", done=done, total=6))
        panel.set_catalogue(catalogue(kind))
        assert places() == before
    panel.value_changed.emit("kv_cache", False)
    panel.set_catalogue(catalogue("16-bit", value=False))
    assert [spec.value for spec, *_ in places()] == ["int4", True, True, False]
    panel.show_progress("kv_kind", None)  # stopped in the middle: the engine is about to put it back
    assert panel.spec("kv_kind").value == "int4"
    panel.set_catalogue(catalogue("int4", value=False))
    assert [geometry for _, geometry, _ in places()] == [geometry for _, geometry, _ in before]
    panel.set_catalogue(catalogue("16-bit", value=False))
    assert panel.spec("kv_kind").value == "16-bit"


@pytest.mark.parametrize(
    ("exactness", "value", "badge"),
    [
        ("lossless", "draft", None),
        ("model property", "draft", None),
        ("same distribution", "draft", "same distribution"),
        ("approximate", "draft", "lossy"),
        ("approximate", "off", None),
    ],
)
def test_only_what_can_change_the_text_has_a_badge(exactness, value, badge):
    found = badge_of(choice(value, exactness=exactness))
    assert (found and found.text) == badge


def test_words():
    assert value_title(switch(), True) == "on"
    assert value_title(number(), 0) == "auto"
    assert value_title(choice(), "draft") == "draft model"
    assert event_label(choice(), "draft") == "Speculation draft"
    assert event_label(switch(), False) == "KV cache off"
    assert "Takes effect with the next message." in explanation(switch())


def test_marks_in_the_plots_are_short_and_none_is_like_another():
    labels = {}
    for spec in catalogue.state(catalogue.defaults(), frozenset()):
        values = {"bool": [False, True], "choice": [*spec.titles]}.get(spec.kind, [spec.default, spec.range.maximum])
        for value in values:
            labels[spec.key, value] = event_label(spec, value)
            assert labels[spec.key, value].startswith(spec.title[:15].split(" (")[0])
    assert len(set(labels.values())) == len(labels)
    for label in labels.values():
        assert len(label) <= 28, label
        assert label[-1].isalnum(), label


def test_a_third_choice_is_measured_against_off():
    assert compare_values(choice("draft")) == ["off", "draft"]
    assert compare_values(choice("off")) == ["off", "ngram"]
    assert compare_values(number(7)) == [4, 0]


def test_tint_is_the_windows_own_switch(qtbot, panel):
    toggle = panel.findChild(Toggle, "panel.tint")
    assert toggle.isVisible()
    with qtbot.waitSignal(panel.tint_changed) as heard:
        toggle.click()
    assert heard.args == [True]
    panel.set_catalogue([switch()])
    assert not toggle.isVisible()


def test_arrows_go_between_rows_and_within_one(qtbot, panel) -> None:
    panel.activateWindow()
    panel.set_measurable("")
    first, second = panel.row("kv_cache").stops(), panel.row("speculation").stops()
    first[-1].setFocus()
    qtbot.waitUntil(first[-1].hasFocus)
    for stop in (2, 1, 0):
        qtbot.keyClick(first[stop + 1], Qt.Key.Key_Left)
        assert first[stop].hasFocus()
    qtbot.keyClick(first[0], Qt.Key.Key_Down)
    assert second[0].hasFocus()
    qtbot.keyClick(second[0], Qt.Key.Key_Right)
    qtbot.keyClick(second[1], Qt.Key.Key_Right)
    assert second[2].hasFocus()
    qtbot.keyClick(second[2], Qt.Key.Key_Up)
    assert first[2].hasFocus()


def test_tab_stops_once_a_row(panel) -> None:
    for key in ("kv_cache", "speculation", "draft_length"):
        stops = panel.row(key).stops()
        assert [bool(stop.focusPolicy() & Qt.FocusPolicy.TabFocus) for stop in stops] == [False, False, False, True], (
            key
        )


def test_names_and_terms_begin_at_one_edge(panel, qapp):
    panel.set_catalogue([switch(title="Prefix caching (RadixAttention)"), choice()])
    qapp.processEvents()
    row = panel.row("kv_cache")
    parts = (row.stops()[0], panel.findChild(QLabel, "kv_cache.term"))
    assert parts[0].indent() == 0
    assert len({part.mapTo(panel, part.rect().topLeft()).x() for part in parts}) == 1


def test_what_the_load_measured_stands_in_the_row(panel):
    panel.set_catalogue([choice(found="auto 16-bit, KL 0.0030", finding="Measured with this model.")])
    row = panel.findChild(OptionRow)
    assert text(panel, f"{row.spec.key}.term") == "auto 16-bit, KL 0.0030"
    row.toggle_explanation()
    assert text(panel, f"{row.spec.key}.caption").endswith("\nMeasured with this model.")


@pytest.fixture
def levels(panel, qapp) -> OptimisationPanel:
    """One common switch, the others behind the line."""
    cache = switch(common=True, lab="kv_cache")
    panel.set_catalogue([cache, choice(), number(), switch(key="quest", title="QUEST", group="Cache")])
    settle(qapp)
    return panel


def test_all_but_the_common_switches_stand_behind_one_line(qtbot, levels, qapp) -> None:
    assert [key for key in ("kv_cache", "speculation", "draft_length", "quest") if levels.row(key).isVisible()] == [
        "kv_cache"
    ]
    assert levels.line.text() == "▸ All 4 switches"
    levels.set_catalogue(
        [*(levels.spec(key) for key in ("kv_cache",)), choice("ngram"), number(), levels.spec("quest")]
    )
    assert (levels.line.text(), levels.line.toolTip()) == ("▸ All 4 switches · 1 changed", "Speculation")
    with qtbot.waitSignal(levels.unfolded) as heard:
        qtbot.mouseClick(levels.line, Qt.MouseButton.LeftButton)
    assert heard.args == [True]
    assert all(levels.row(key).isVisible() for key in ("kv_cache", "speculation", "draft_length", "quest"))
    assert levels.line.text() == "▾ All 4 switches · 1 changed"
    qtbot.mouseClick(levels.line, Qt.MouseButton.LeftButton)
    assert not levels.row("quest").isVisible()


def test_what_points_to_a_switch_behind_the_line_unfolds_it(qtbot, levels) -> None:
    levels.activateWindow()
    with qtbot.assertNotEmitted(levels.unfolded):
        assert levels.reveal("kv_cache")
    with qtbot.waitSignal(levels.unfolded):
        assert levels.reveal("quest")
    assert levels.row("quest").isVisible()
    qtbot.waitUntil(levels.row("quest").stops()[0].hasFocus)
    assert not levels.reveal("no such switch")


def test_a_row_leads_to_its_experiment_and_to_its_help(qtbot, levels) -> None:
    row = levels.row("kv_cache")
    with qtbot.waitSignal(levels.learn_requested) as learn:
        qtbot.mouseClick(row.learn, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(levels.help_requested) as read:
        qtbot.mouseClick(row.help, Qt.MouseButton.LeftButton)
    assert (learn.args, read.args) == (["kv_cache"], ["kv_cache"])
    assert levels.row("quest").learn.isHidden(), "no experiment shows it"


def test_the_card_says_how_far_a_measurement_is_and_what_it_found(qtbot, levels, qapp) -> None:
    levels.set_measurable("")
    card, row = levels.card, levels.row("kv_cache")
    levels.show_progress("kv_cache", CompareProgress(id="1", done=0, total=0))
    assert text(levels, "panel.card.progress") == "Measuring…"
    assert card.y() == row.geometry().bottom() + 1
    levels.show_progress("kv_cache", CompareProgress(id="1", done=3, total=8))
    assert text(levels, "panel.card.progress") == "Run 3 of 8"
    levels.show_result(msgspec.structs.replace(result(effect()), key="kv_cache"), "What is a page?")
    assert "What is a page?" in card.words
    assert "2.1× more" in card.words
    assert not card._scroll.verticalScrollBar().isVisible(), "it is as high as its words"
    levels.resize(levels.width(), 180)
    settle(qapp)
    assert card.height() <= 180
    levels.resize(levels.width(), 700)
    levels.show_progress("kv_cache", CompareProgress(id="2", done=1, total=8))
    qtbot.mouseClick(card.close_button, Qt.MouseButton.LeftButton)
    levels.show_progress("kv_cache", CompareProgress(id="2", done=2, total=8))
    levels.show_result(msgspec.structs.replace(result(effect()), key="kv_cache"))
    assert not card.isVisible(), "the person closed it"
    levels.show_progress("kv_cache", CompareProgress(id="3", done=1, total=8))
    assert card.isVisible()
    levels.show_progress("kv_cache", None)  # stopped
    assert not card.isVisible()
