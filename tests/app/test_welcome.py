"""The first minute: what stands in a chat before its first word."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from app import paths
from app.chat.get_card import LOOKING, NONE, Line
from app.chat.page import ChatPage
from app.chat.welcome import ASK, BUNDLED, CHOOSE, LOCAL, QUESTIONS, WelcomeView
from app.gpu.words import Button
from app.help.page import HelpPage
from app.link.link import LinkState
from app.theme.sheet import apply
from app.theme.theme import Theme
from engine.protocol import Load, ModelCard, Sampling
from tests.app.chatting import chat_page
from tests.app.pressing import press

GET, CANCEL = (Button("get", "Get"),), (Button("cancel", "Cancel"),)
KNOWLEDGE = paths.assets_dir() / "demo" / "knowledge"


@pytest.fixture
def page(qtbot, make_link, history, theme) -> ChatPage:
    page = chat_page(make_link(load=False), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 700)
    page.show()
    return page


def offered(page: ChatPage) -> list[QPushButton]:
    """The questions; the cards' buttons are no questions."""
    return [button for button in page.welcome._questions.findChildren(QPushButton) if button.isVisible()]


def load(qtbot, page: ChatPage, name: str) -> None:
    page._link.send(Load(model=name))
    qtbot.waitUntil(lambda: page._link.card is not None and not page.sending.reason, timeout=10_000)


def test_the_bundled_model_learned_the_questions() -> None:
    texts = "\n".join(file.read_text(encoding="utf-8") for file in KNOWLEDGE.glob("*.txt"))
    for question in QUESTIONS:
        assert f"Q: {question}\n" in texts


def test_a_question_is_a_click_away(qtbot, page: ChatPage) -> None:
    assert page.welcome.isVisible()
    assert offered(page) == []
    assert page.welcome.title.text() == CHOOSE
    load(qtbot, page, BUNDLED)
    assert page.welcome.title.text() == ASK
    assert [button.text() for button in offered(page)] == list(QUESTIONS)
    offered(page)[0].click()
    assert page.session.talk.path[0].content == QUESTIONS[0]
    assert page.welcome.isHidden()
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    page.new_chat()
    assert page.welcome.isVisible()


def test_what_was_written_is_not_lost(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    page.composer.edit.setPlainText("half a question")
    offered(page)[0].click()
    assert page.composer.text == "half a question"
    assert page.session.talk.path == []
    assert page.notice.text


def test_of_another_model_nothing_is_promised(qtbot, page: ChatPage) -> None:
    load(qtbot, page, "tiny")
    assert page._link.state is LinkState.CONNECTED
    assert page.welcome.caption.text() == LOCAL
    assert page.welcome.chat.about.text() == "tiny is loaded and answers on this computer."
    assert offered(page) == []


def test_it_shows_what_there_is_room_for(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    sizes = (
        ((900, 700), True, 3),
        ((800, 450), True, 0),
        ((900, 300), True, 0),
        ((900, 190), False, 0),
        ((500, 800), True, 3),
    )
    for height, shown, questions in sizes:
        page.resize(*height)
        QApplication.processEvents()
        assert page.welcome._cards.isVisible() == (height[1] > 300), height
        inside = page.transcript.viewport().rect().contains(page.welcome.geometry())
        assert (page.welcome.isVisible(), len(offered(page)), inside or not shown) == (shown, questions, True), height


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_nothing_moves_when_the_first_model_and_the_offers_come(qtbot, qapp, scale: float) -> None:
    theme, place = Theme("light", scale), QWidget()
    apply(theme, qapp)
    qtbot.addWidget(place)
    welcome = WelcomeView(place, theme)
    place.resize(1200, 1000)
    place.show()
    welcome.show_first(True)
    welcome.show_for(None, True)
    QApplication.processEvents()
    before = welcome.mapTo(place, welcome.title.pos()), welcome.geometry().bottom()
    assert not welcome._questions.isVisible()
    welcome.show_models([offer(name) for name in "abc"], True)
    welcome.show_for(ModelCard(BUNDLED, "/m", "L", 1, "bf16", 1, 1, [], True, Sampling()), True)
    QApplication.processEvents()
    assert welcome._questions.isVisible()
    after = welcome.mapTo(place, welcome.title.pos()), welcome.geometry().bottom()
    assert (before[0] - after[0]).manhattanLength() <= 3
    assert abs(before[1] - after[1]) <= 3
    apply(Theme(mode="dark"), qapp)


def test_no_sentence_of_a_card_is_cut(qtbot, page: ChatPage) -> None:
    """Also right after the words changed: the first picture is the one that people see."""
    for name in (BUNDLED, "tiny"):
        load(qtbot, page, name)
        QApplication.processEvents()
        for card in page.welcome._all:
            assert card.about.height() >= card.about.heightForWidth(card.about.width()), name
            assert card.about.height() <= card.about.heightForWidth(card.about.width()) + 40, "no empty cards"


def test_where_the_sentences_find_no_room_the_cards_stay(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    page.resize(800, 370)
    QApplication.processEvents()
    assert page.welcome.isVisible()
    for card in page.welcome._all:
        assert card.button.isVisible()
        assert not card.about.isVisible()


def test_the_buttons_of_the_help_fit_larger_text(qtbot, qapp) -> None:
    large = Theme(mode="light", scale=1.6)
    apply(large, qapp)
    page = HelpPage(paths.docs_dir(), large)
    qtbot.addWidget(page)
    page.resize(1024, 700)
    page.show()
    for button in page.findChildren(QPushButton):
        assert button.width() >= button.sizeHint().width(), button.text()
    apply(Theme(mode="dark"), qapp)


def test_it_is_read_aloud_as_what_it_does(qtbot, theme) -> None:
    place = QWidget()
    qtbot.addWidget(place)
    welcome = WelcomeView(place, theme)
    for button in welcome._questions.findChildren(QPushButton):
        assert button.accessibleName() == f"Ask: {button.text()}"
    for card in (welcome.chat, welcome.more, welcome.why):
        assert card.button.accessibleName() == f"{card.title.text()}: {card.button.text()}"
    welcome.show_models([offer("a")], True)
    (line,) = welcome.get.lines
    assert line.accessibleName() == "Model a, 1.0 GB. The best answers."
    assert [button.accessibleName() for button in line.buttons.findChildren(QPushButton)] == ["Get: Model a"]


def test_three_things_to_do_are_a_click_away(qtbot, page: ChatPage, monkeypatch) -> None:
    monkeypatch.setattr("app.model_dialog.ask", lambda *_: "")
    load(qtbot, page, BUNDLED)
    welcome = page.welcome
    assert "tiny" in welcome.chat.about.text()
    assert "knows only its manual" in welcome.chat.about.text()
    welcome.chat.button.click()
    assert page.window().focusWidget() is page.composer.edit
    with qtbot.waitSignal(page.models_asked):
        welcome.more.button.click()
    with qtbot.waitSignal(welcome.open_asked):
        welcome.open.click()
    with qtbot.waitSignal(page.why_asked):
        welcome.why.button.click()


def offer(key: str, **changes: object) -> Line:
    said = Line(key, f"Model {key}", "1.0 GB", "runs well here", "good", "Why.", "The best answers.", GET)
    return said._replace(**changes)


def test_where_no_model_is_some_are_offered(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    welcome = page.welcome
    welcome.show_first(True)
    assert welcome.get.isVisible()
    assert not welcome._cards.isVisible()
    assert welcome.get.said.text() == LOOKING
    before = welcome.geometry()
    welcome.show_models([offer(key) for key in "abc"], True)
    assert [line.name.text() for line in welcome.get.lines] == ["Model a", "Model b", "Model c"]
    assert abs(welcome.geometry().height() - before.height()) < 30, "nothing jumps when they come"
    lines = welcome.get.lines
    for line in lines:
        assert line.height() >= line.sizeHint().height(), "no line is squeezed in the first picture"
        assert line.badge.width() >= line.badge.sizeHint().width()
    assert len(offered(page)) == len(QUESTIONS)
    with qtbot.waitSignal(welcome.get.acted) as acted:
        press(lines[1], "get.b.get")
    assert acted.args == ["get", "b"]
    at = [line.geometry() for line in lines]
    welcome.show_models([offer("a"), offer("b", share=0.5, about="0.5 GB of 1.0 GB", buttons=CANCEL), offer("c")], True)
    assert welcome.get.lines == lines, "a row stays while its model does"
    assert [line.geometry() for line in lines] == at, "nor does a download move it"
    assert (lines[1].bar.isVisible(), lines[0].bar.isVisible()) == (True, False)
    lines[1].buttons.findChildren(QPushButton)[-1].setFocus()
    for buttons in ((Button("get", "Get", why_not="Being asked for."),), CANCEL):
        welcome.show_models([offer("a"), offer("b", share=0.0, buttons=buttons), offer("c")], True)
        place = QApplication.focusWidget()
        assert place in (lines[1].buttons, *lines[1].buttons.findChildren(QPushButton)), "not at another model's button"
    come = (Button("load", "Chat with it", True),)
    welcome.show_models([offer("a"), offer("b", about="It is here.", buttons=come), offer("c")], True)
    QApplication.processEvents()
    assert len({line.badge.geometry().right() for line in lines}) == 1, "verdicts stand below each other"
    with qtbot.waitSignal(page.models_asked):
        welcome.get.all.click()
    welcome.show_models([], True)
    assert welcome.get.said.text() == NONE
    welcome.show_first(False)
    assert not welcome.get.isVisible()


def test_verdicts_stand_below_each_other_with_a_longer_title_too(qtbot, page: ChatPage, monkeypatch) -> None:
    monkeypatch.setattr("app.models.state.getting.AGAIN", "Erneut versuchen, bitte")
    load(qtbot, page, BUNDLED)
    page.welcome.show_first(True)
    again = (Button("get", "Erneut versuchen, bitte"),)
    page.welcome.show_models([offer("a"), offer("b", about="No.", buttons=again, failed=True), offer("c")], True)
    QApplication.processEvents()
    assert len({line.badge.geometry().right() for line in page.welcome.get.lines}) == 1


def test_what_is_offered_fits_a_small_page(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    page.welcome.show_first(True)
    page.welcome.show_models([offer(key) for key in "abc"], True)
    lines, seen = page.welcome.get.lines, set()
    for height in range(560, 280, -20):
        page.resize(800, height)
        QApplication.processEvents()
        seen.add((page.welcome.isVisible(), len(offered(page)), lines[0].about.isVisible()))
        if page.welcome.isVisible():
            assert page.transcript.viewport().rect().contains(page.welcome.geometry())
        if page.welcome.get.isVisible():
            assert all(line.isVisible() and line.height() >= line.minimumSizeHint().height() for line in lines)
    assert {(True, 0, True), (True, 0, False)} <= seen
    assert not page.welcome.get.isVisible()
    assert page.welcome.seek.isVisible(), "a way to a model stays"
    with qtbot.waitSignal(page.models_asked):
        page.welcome.seek.click()


def test_what_is_offered_is_seen_with_larger_text(qtbot, page: ChatPage, theme) -> None:
    page.resize(1000, 560)
    load(qtbot, page, BUNDLED)
    page.welcome.show_first(True)
    page.welcome.get.machine.setText("A processor with a long name (2 cores) · 25.3 GB RAM")
    page.welcome.show_models([offer(key) for key in "abc"], True)
    try:
        theme.set_scale(1.5)
        qtbot.waitUntil(page.welcome.get.isVisible)
        assert page.transcript.viewport().rect().contains(page.welcome.geometry())
    finally:
        theme.set_scale(1.0)


def test_before_a_model_there_is_nothing_to_write_to(page: ChatPage) -> None:
    assert not page.welcome.chat.button.isEnabled()
    assert page.welcome.more.button.isEnabled()


def test_with_larger_text_the_cards_stand_one_above_the_other(qtbot, page: ChatPage, theme) -> None:
    page.resize(860, 860)
    load(qtbot, page, BUNDLED)
    try:
        theme.set_scale(1.5)
        qtbot.waitUntil(page.welcome._cards.isVisible)
        assert page.welcome.more.y() > page.welcome.chat.y()
        assert page.transcript.viewport().rect().contains(page.welcome.geometry())
    finally:
        theme.set_scale(1.0)


def test_the_legend_of_the_tint_moves_nothing(page: ChatPage) -> None:
    before = page.welcome.mapTo(page, QPoint()), page.welcome.size()
    page.set_tint(True)
    assert page.legend.isVisible()
    assert (page.welcome.mapTo(page, QPoint()), page.welcome.size()) == before
