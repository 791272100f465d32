"""Why this speed? The buttons near the token rate, the card that they open, and what its buttons do."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from app.plots.why import FASTER, LOOKS, MOST, NOTHING, TITLE, WhyButton, WhyCard, remedy
from app.program import WindowProgram
from app.window.window import MainWindow
from app.window.wirings.why import WhyWiring
from engine import protocol
from engine.protocol import Reason, Reasons, Set
from tests.app.conftest import unfold
from tests.app.specs import choice, number, switch

SPECS = {spec.key: spec for spec in (switch(), choice(), number(4))}
LIMIT = "No more than 5.0 tokens a second are possible."


@pytest.fixture
def card(qtbot, theme) -> WhyCard:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(900, 600)
    near = WhyButton("near", window)
    near.move(20, 560)
    card = WhyCard(theme, window)
    window.show()
    card.open(near)
    return card


def found(*reasons: Reason) -> Reasons:
    return Reasons(id="1", reasons=list(reasons), limit=LIMIT)


def test_the_card_waits_for_words(card):
    assert TITLE in card.words
    assert LOOKS in card.words


def test_each_reason_has_its_sentence_its_detail_and_its_remedy(qtbot, card):
    slow = Reason(
        sentence="Drafts are refused.", detail="They cost time.", keys={"draft_length": 0, "speculation": "off"}
    )
    told = Reason(sentence="Other programs compute.", action="Close what computes.")
    card.show_reasons(found(slow, told), SPECS)
    for words in ("Drafts are refused.", "They cost time.", "Close what computes.", LIMIT):
        assert words in card.words
    assert LOOKS not in card.words
    (button,) = card.findChildren(QPushButton)
    assert button.text() == "Set Draft length: auto, Speculation: off"
    with qtbot.waitSignal(card.mended) as mended:
        button.click()
    assert mended.args == [{"draft_length": 0, "speculation": "off"}]


def test_what_another_page_mends_opens_it_and_closes_the_card(qtbot, card):
    card.show_reasons(found(Reason(sentence="It is large.", action="Choose a smaller one.", place="models")), SPECS)
    with qtbot.waitSignal(card.place_asked) as asked:
        card.findChild(QPushButton, "why.mend.0").click()
    assert asked.args == ["models"]
    assert card.isHidden()


def test_what_the_speed_is_made_of_stands_before_what_would_mend_it(card):
    said = ["A step takes 23 ms.", "A pass over the model reads 412 MB."]
    card.show_reasons(msgspec.structs.replace(found(Reason(sentence="Speculation is off.")), parts=said), SPECS)
    at = [card.words.index(words) for words in (*said, FASTER, "Speculation is off.")]
    assert at == sorted(at)
    row = card.findChild(QLabel, "why.parts")
    again = msgspec.structs.replace(found(Reason(sentence="Speculation is off.")), parts=["A step takes 24 ms."])
    card.show_reasons(again, SPECS)
    assert card.findChild(QLabel, "why.parts") is row, "new figures move nothing"
    assert row.text() == "A step takes 24 ms."


def test_nothing_holds_it_up(card):
    card.show_reasons(msgspec.structs.replace(found(), parts=["A step takes 23 ms."]), SPECS)
    assert "A step takes 23 ms." in card.words
    assert NOTHING in card.words
    assert FASTER not in card.words
    assert LIMIT in card.words


def test_what_matters_least_is_only_counted(card):
    card.show_reasons(found(*(Reason(sentence=f"Reason {place}.") for place in range(MOST + 2))), SPECS)
    assert f"Reason {MOST - 1}." in card.words
    assert f"Reason {MOST}." not in card.words
    assert "2 more, which matter less." in card.words


def test_a_switch_that_is_unknown_here_is_left_out_of_the_button():
    assert remedy(Reason(sentence="", keys={"kv_cache": True, "later": 1}), SPECS) == "Set KV cache: on"
    assert remedy(Reason(sentence="", action="Wait."), SPECS) == ""
    assert remedy(Reason(sentence="", keys={"later": 1}), SPECS) == ""


def test_in_a_small_window_with_large_text_it_is_scrolled(qtbot, card, theme):
    window = card.parentWidget()
    long = Reason(sentence="A sentence that is long. " * 6, detail="And its detail. " * 6, keys={"kv_cache": True})
    theme.set_scale(1.5)
    try:
        window.resize(800, 600)
        card.open(window.findChild(WhyButton))
        card.show_reasons(found(long, long, long, long), SPECS)
        assert window.rect().contains(card.geometry())
        last = card.findChild(QPushButton, "why.mend.3")
        last.setFocus()
        qtbot.keyClick(card, Qt.Key.Key_Down)
        assert card._scroll.verticalScrollBar().maximum() > 0
        assert card._scroll.verticalScrollBar().value() > 0
    finally:
        theme.set_scale(1.0)


def test_the_keyboard_keeps_its_place_and_goes_back_to_the_button(qtbot, card):
    near = card.button
    card.window().activateWindow()
    two = found(*(Reason(sentence=f"Reason {place}.", keys={"kv_cache": True}) for place in range(2)))
    card.show_reasons(two, SPECS)
    assert QApplication.focusWidget() is card.findChild(QPushButton, "why.mend.0")
    second = card.findChild(QPushButton, "why.mend.1")
    second.setFocus()
    card.show_reasons(Reasons(id="2", reasons=two.reasons, limit=two.limit), SPECS)
    assert QApplication.focusWidget() is second, "it says the same: nothing is made anew"
    near.setFocus()
    card.show_reasons(found(Reason(sentence="Another.", keys={"kv_cache": True})), SPECS)
    assert QApplication.focusWidget() is near, "the person is elsewhere"
    qtbot.keyClick(card, Qt.Key.Key_Escape)
    assert card.isHidden()
    assert QApplication.focusWidget() is near


def test_every_word_finds_room(card, theme):
    long = Reason(sentence="A sentence that is long. " * 8, detail="And its detail. " * 8, keys={"kv_cache": True})
    card.show_reasons(found(long, long), SPECS)
    for label in card.findChildren(QLabel):
        card.layout().activate()
        assert label.height() >= label.heightForWidth(label.width()), label.text()
    assert card.rect().contains(card.childrenRect())


def test_escape_a_click_elsewhere_and_another_size_of_the_window_close_it(qtbot, card):
    window, near = card.parentWidget(), card.parentWidget().findChild(WhyButton)
    card.show_reasons(found(Reason(sentence="It is off.", keys={"kv_cache": True})), SPECS)
    qtbot.mouseClick(card.findChild(QLabel), Qt.MouseButton.LeftButton)
    assert card.isVisible()
    closes = (
        lambda: qtbot.keyClick(card, Qt.Key.Key_Escape),
        lambda: qtbot.mouseClick(window, Qt.MouseButton.LeftButton),
        lambda: window.resize(901, 600),
    )
    for close in closes:
        card.open(near)
        assert card.isVisible()
        close()
        assert card.isHidden()


@pytest.mark.parametrize("y", [560, 2])
def test_it_stays_inside_the_window(card, y):
    window, near = card.parentWidget(), card.parentWidget().findChild(WhyButton)
    near.move(880, y)
    card.open(near)
    card.show_reasons(found(*(Reason(sentence=f"Reason {place}.") for place in range(3))), SPECS)
    assert window.rect().contains(card.geometry())
    assert not card.geometry().intersects(near.geometry())


# --- in the window --------------------------------------------------------------------------------------------------


def wiring(program: WindowProgram) -> WhyWiring:
    made = program.window.findChild(WhyWiring)
    assert made is not None
    return made


def ask(program: WindowProgram, qtbot) -> WhyCard:
    """Press the button that is on screen, and wait for what is said."""
    button = next(each for each in program.window.findChildren(WhyButton) if each.isVisible())
    button.click()
    card = wiring(program).card
    qtbot.waitUntil(lambda: LOOKS not in card.words)
    assert card.isVisible()
    return card


def test_a_slow_switch_is_mended_through_the_panel_and_gone(start, qtbot):
    program = start()
    for key, value in (("kv_cache", False), ("draft_length", 8)):
        program.link.send(Set(key=key, value=value))
    spec = program.window.panel.spec
    qtbot.waitUntil(lambda: spec("draft_length").value == 8)
    card = ask(program, qtbot)
    assert "The KV cache is off." in card.words
    card.findChild(QPushButton, "why.mend.0").click()
    qtbot.waitUntil(lambda: "The KV cache is off." not in card.words)
    assert spec("kv_cache").value is True
    assert "refused four times in five" in card.words
    card.findChild(QPushButton, "why.mend.0").click()
    qtbot.waitUntil(lambda: NOTHING in card.words)
    assert program.store.settings.options.get("draft_length") is None, "as if it had been set in the panel"
    card.hide()


def test_both_forms_of_the_strip_have_the_button(start, qtbot):
    program = start()
    for folded in (True, False):
        program.window.plots.set_collapsed(folded)
        program.window.plots.build()
        card = ask(program, qtbot)
        assert NOTHING in card.words
        qtbot.mouseClick(card.button, Qt.MouseButton.LeftButton)
        assert card.isHidden(), "the button that opened it closes it"


def test_a_page_of_the_window_that_mends_it_is_shown(start, qtbot):
    program = start()
    program.link.send(protocol.Load(model="odd"))
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == "odd")
    card = ask(program, qtbot)
    assert "The int4 kernel declined" in card.words
    card.findChild(QPushButton, "why.mend.0").click()
    assert program.window.page == MainWindow.MODELS


def test_without_a_model_or_an_engine_the_card_says_so(start, qtbot):
    program = start()
    program.link.send(protocol.Unload())
    qtbot.waitUntil(lambda: program.link.card is None)
    assert "Load one first." in ask(program, qtbot).words
    program.link.restart()
    card = wiring(program).card
    qtbot.waitUntil(lambda: "Load one first." not in card.words)
    assert "engine" in card.words, "it says what became of it"
    card.hide()


def test_an_answer_to_an_earlier_question_is_not_shown(start, qtbot):
    program = start()
    card = ask(program, qtbot)
    program.link.reasons.emit(Reasons(id="another", reasons=[Reason(sentence="Old.")]))
    assert "Old." not in card.words
    card.hide()
    program.link.options.emit(protocol.Options(catalogue=program.link.catalogue))
    assert card.isHidden(), "a switch that changes later opens nothing"


def test_the_chart_keeps_its_title_where_it_is_wide(start, qtbot):
    program = start()
    unfold(program)
    program.window.plots.build()
    chart = program.window.plots.charts[0]
    qtbot.waitUntil(lambda: chart.width() > 200)
    assert chart.title.elided == "Tokens per second"
    assert chart.why.geometry().right() < chart.figure.geometry().left()
    chart.resize(150, 180)
    assert chart.why.text() == "Why?"
    chart.resize(300, 180)
    assert chart.why.text() == TITLE
