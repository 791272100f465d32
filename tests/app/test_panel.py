"""The panel is built from option specs alone and says what a comparison found."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDoubleSpinBox, QLabel, QPushButton, QSlider, QSpinBox, QToolButton

from app.panel.controls import value_title
from app.panel.panel import NO_PROMPT, OptimisationPanel
from app.panel.words import BADGES, bought, event_label, explanation
from app.theme.widgets import Toggle
from app.wiring import compare_values
from engine.protocol import Compared, CompareProgress
from tests.app.specs import choice, number, switch


def result(**changes: object) -> Compared:
    fields: dict = {
        "id": "1",
        "key": "speculation",
        "values": ["off", "ngram"],
        "runs": [],
        "same": True,
        "before": 28.1,
        "after": 60.3,
        "ratio": 60.3 / 28.1,
    }
    return Compared(**{**fields, **changes})


@pytest.fixture
def panel(qtbot, theme) -> OptimisationPanel:
    panel = OptimisationPanel(theme)
    qtbot.addWidget(panel)
    panel.set_catalogue([switch(), choice(), number()])
    panel.resize(316, 800)
    panel.show()
    return panel


def text(panel: OptimisationPanel, name: str) -> str:
    return panel.findChild(QLabel, name).text()


def test_rows_stand_under_their_groups_in_order(panel):
    heads = [label.text() for label in panel.findChildren(QLabel) if label.property("role") == "section"]
    assert heads == ["Cache", "Speculation"]
    assert [label.text() for label in panel.findChildren(QLabel) if label.property("badge")] == ["exact"] * 3


def test_what_means_nothing_beside_the_present_values_is_hidden(panel):
    spec = msgspec.structs.replace(number(), of="speculation", of_value="ngram")
    panel.set_catalogue([switch(), choice(), spec])
    row = panel.row(spec.key)
    assert row.isHidden()
    panel.set_catalogue([switch(), msgspec.structs.replace(choice(), value="ngram"), spec])
    assert not row.isHidden()
    assert panel.row(spec.key) is row


def test_a_fraction_is_shown_as_it_is(qtbot, panel):
    spec = msgspec.structs.replace(
        number(), key="room", kind="float", value=1.0, default=1.0, minimum=0.0, maximum=9.0, zero_means="off"
    )
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
    panel.findChild(QPushButton, "speculation.ngram").click()
    panel.findChild(QSlider, "draft_length.value").setValue(3)
    panel.findChild(QSlider, "draft_length.value").setValue(4)
    qtbot.waitUntil(lambda: len(heard) == 3)
    assert heard == [("kv_cache", False), ("speculation", "ngram"), ("draft_length", 4)]
    assert [type(value) for _, value in heard] == [bool, str, int]


def test_new_state_from_the_engine_is_silent_and_keeps_the_widgets(qtbot, panel):
    row = panel.row("kv_cache")
    with qtbot.assertNotEmitted(panel.value_changed, wait=300):
        panel.set_catalogue([switch(value=False), choice("draft"), number(7)])
    assert panel.row("kv_cache") is row
    assert not row.findChild(Toggle).isChecked()
    assert panel.findChild(QPushButton, "speculation.draft").isChecked()
    assert panel.findChild(QSlider, "draft_length.value").value() == 7


def test_another_catalogue_rebuilds(panel):
    panel.set_catalogue([choice()])
    assert panel.spec("kv_cache") is None
    assert panel.spec("speculation").value == "off"


def test_a_disabled_row_keeps_its_place_and_says_why(panel):
    reason = "Load a model first."
    panel.set_catalogue([switch(disabled_reason=reason), choice(), number()])
    assert text(panel, "kv_cache.caption") == reason
    assert not panel.row("kv_cache").findChild(Toggle).isEnabled()
    assert panel.row("kv_cache").isVisible()


def test_a_disabled_choice_is_grey_with_its_reason(panel):
    reason = "Needs a draft model: load one beside the model."
    panel.set_catalogue([switch(), choice(disabled_choices={"draft": reason}), number()])
    button = panel.findChild(QPushButton, "speculation.draft")
    assert not button.isEnabled()
    assert button.toolTip() == reason
    assert panel.findChild(QPushButton, "speculation.ngram").isEnabled()


def test_zero_has_its_word_and_long_ranges_get_a_box(panel):
    labels = [label.text() for label in panel.row("draft_length").findChildren(QLabel)]
    assert "automatic" in labels
    panel.set_catalogue([number(0, key="disk_cache", kind="float", default=0.0, zero_means="off", compare=[])])
    assert panel.findChild(QDoubleSpinBox).text() == "off"
    panel.set_catalogue([number(512, key="token_budget", minimum=16, maximum=8192, zero_means="")])
    assert panel.findChild(QSpinBox, "token_budget.value").value() == 512


def test_automatic_says_what_it_amounts_to(panel):
    panel.show_live("draft_length", "now 4")
    panel.show_live("no such option", "now 4")
    labels = [label.text() for label in panel.row("draft_length").findChildren(QLabel)]
    assert "automatic, now 4" in labels
    panel.set_catalogue([switch(), choice(), number(3)])
    labels = [label.text() for label in panel.row("draft_length").findChildren(QLabel)]
    assert "3" in labels


def test_reload_options_say_so(panel):
    panel.set_catalogue([switch(applies="reload")])
    assert "reloads the model" in text(panel, "kv_cache.caption")


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
    assert button.toolTip() == NO_PROMPT
    panel.set_measurable("")
    with qtbot.waitSignal(panel.measure_requested) as heard:
        button.click()
    assert heard.args == ["speculation"]


def test_progress_blocks_the_other_rows_and_a_result_frees_them(panel):
    panel.set_measurable("")
    panel.show_progress("speculation", CompareProgress(id="1", done=2, total=6))
    assert text(panel, "speculation.bought") == "2/6"
    assert not panel.findChild(QToolButton, "kv_cache.measure").isEnabled()
    panel.show_result(result())
    assert text(panel, "speculation.bought") == "2.1×"
    assert text(panel, "speculation.outcome") == "28.1 → 60.3 tokens/s, same text (off → n-gram)."
    assert panel.findChild(QToolButton, "kv_cache.measure").isEnabled()
    panel.clear_results()
    assert text(panel, "speculation.bought") == "–"


def test_unlike_answers_give_no_figure():
    found = bought(choice(), result(same=False, ratio=None, first_difference=12, near_tie=True))
    assert found.text == "answers\ndiffer"
    assert found.sentence == "Answers differ from token 12 (near-tie), not compared."
    # Even a ratio that came along is not shown.
    assert "×" not in bought(choice(), result(same=False)).text


@pytest.mark.parametrize(
    ("ratio", "text", "tone"),
    [(2.146, "2.1×", "good"), (0.8, "0.8×", "warn"), (1.0, "1.0×", "caption"), (31, "31×", "good")],
)
def test_a_loss_is_shown_as_a_loss(ratio, text, tone):
    found = bought(choice(), result(ratio=ratio))
    assert (found.text, found.tone) == (text, tone)


def test_every_exactness_has_a_badge():
    kinds = msgspec.structs.fields(type(switch()))
    exactness = next(field for field in kinds if field.name == "exactness")
    assert set(exactness.type.__args__) == set(BADGES)


def test_words():
    assert value_title(switch(), True) == "on"
    assert value_title(number(), 0) == "automatic"
    assert value_title(choice(), "draft") == "draft model"
    assert event_label(choice(), "draft") == "speculation draft"
    assert event_label(switch(), False) == "KV off"
    assert "Takes effect with the next message." in explanation(switch())


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
