"""The first minute: what stands in a chat before its first word."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QPushButton

from app import paths
from app.chat.page import ChatPage
from app.chat.welcome import ASK, BUNDLED, CHOOSE, LOCAL, QUESTIONS, Welcome
from app.help.page import HelpPage
from app.link.link import LinkState
from app.theme.theme import Theme
from engine.protocol import Load

KNOWLEDGE = paths.assets_dir() / "demo" / "knowledge"


@pytest.fixture
def page(qtbot, make_link, history, theme) -> ChatPage:
    page = ChatPage(make_link(load=False), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 700)
    page.show()
    return page


def offered(page: ChatPage) -> list[QPushButton]:
    return [button for button in page.welcome.findChildren(QPushButton) if button.isVisible()]


def load(qtbot, page: ChatPage, name: str) -> None:
    page._link.send(Load(model=name))
    qtbot.waitUntil(lambda: page._link.card is not None and not page._reason(), timeout=10_000)


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
    assert offered(page) == []


def test_it_shows_what_there_is_room_for(qtbot, page: ChatPage) -> None:
    load(qtbot, page, BUNDLED)
    for height, shown, questions in ((700, True, 3), (340, True, 0), (190, False, 0), (700, True, 3)):
        page.resize(900, height)
        QApplication.processEvents()
        inside = page.transcript.viewport().rect().contains(page.welcome.geometry())
        assert (page.welcome.isVisible(), len(offered(page)), inside or not shown) == (shown, questions, True), height


def test_the_buttons_of_the_help_fit_larger_text(qtbot, qapp) -> None:
    large = Theme(mode="light", scale=1.6)
    large.apply(qapp)
    page = HelpPage(KNOWLEDGE, large)
    qtbot.addWidget(page)
    page.resize(1024, 700)
    page.show()
    for button in page.findChildren(QPushButton):
        assert button.width() >= button.sizeHint().width(), button.text()
    Theme(mode="dark").apply(qapp)


def test_it_is_read_aloud_as_what_it_does(qtbot, qapp) -> None:
    from PySide6.QtWidgets import QWidget

    place = QWidget()
    qtbot.addWidget(place)
    for button in Welcome(place).findChildren(QPushButton):
        assert button.accessibleName() == f"Ask: {button.text()}"
