"""Titles by the model: when one is asked for, what ends that, and what is never replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from app.chat.page import ChatPage
from app.chat.session.titles import ASK, title_in
from app.history.store import HistoryStore
from app.link.link import EngineLink
from app.program import WindowProgram
from app.theme.widgets import Toggle
from engine import protocol as p
from tests.app.chatting import ask, chat_page

TITLE = "Pages of a cache"


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(model: str = "large", rate: int = 4000, link: EngineLink | None = None) -> ChatPage:
        link = link or make_link("--rate", str(rate), load=False)
        with qtbot.waitSignal(link.options):
            link.send(p.Load(model=model))
        page = chat_page(link, history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.show()
        return page

    return make


@pytest.fixture
def sent(monkeypatch) -> list[p.Message]:
    """What the window sends to an engine."""
    messages: list[p.Message] = []
    send = EngineLink.send
    monkeypatch.setattr(EngineLink, "send", lambda link, message: (messages.append(message), send(link, message))[1])
    return messages


def asked_for(sent: list[p.Message]) -> list[p.Generate]:
    return [each for each in sent if isinstance(each, p.Generate) and each.id.startswith("title-")]


def titles(history: HistoryStore) -> list[str]:
    return [chat.title for chat in history.chats()]


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Pages of a cache", TITLE),
        ('Title: **"Pages of a cache."**\n\nIt fits.', TITLE),
        ("\n\n# Pages of a cache\n", TITLE),
        ("Titel: „Pages of a cache“", TITLE),
        ("", ""),
        (' "" \n', ""),
        ("word " * 40, "word word word word word word word word word word word word…"),
    ],
)
def test_a_title_is_the_first_line_without_signs(said: str, title: str) -> None:
    assert title_in(said) == title


def test_the_first_answer_gets_a_title_and_no_later_one(qtbot, make_page, history: HistoryStore, sent) -> None:
    page = make_page()
    ask(qtbot, page, "why does the cache need pages?")
    qtbot.waitUntil(lambda: titles(history) == [TITLE])
    assert page.session.talk.chat.title == TITLE
    (asked,) = asked_for(sent)
    assert (asked.service, asked.sampling.temperature, asked.sampling.max_tokens) == ("batch", 0.0, 24)
    assert [message.role for message in asked.prompt] == ["user", "assistant", "user"]
    assert asked.prompt[-1].content == ASK
    assert asked.parent == page.session.talk.leaf
    assert asked.chat == "", "it is no turn of the chat"
    ask(qtbot, page, "and then?")
    page.regenerate_last()
    qtbot.waitUntil(lambda: not page.streaming)
    assert len(asked_for(sent)) == 1
    assert len(history.messages(page.chat_id)) == 5


def test_a_thinking_model_does_not_think_for_it(qtbot, make_page, history: HistoryStore, sent) -> None:
    page = make_page("large-thinker")
    ask(qtbot, page, "hello")
    qtbot.waitUntil(lambda: titles(history) == [TITLE])
    assert asked_for(sent)[0].thinking.on is False


@pytest.mark.parametrize("model", ["tiny", "large-harmony"])
def test_a_small_model_and_one_that_always_thinks_are_not_asked(qtbot, make_page, history, sent, model: str) -> None:
    page = make_page(model)
    ask(qtbot, page, "hello")
    assert (asked_for(sent), page.titles.asking, titles(history)) == ([], False, ["hello"])


def test_a_question_of_the_person_ends_it(qtbot, make_page, history: HistoryStore, sent) -> None:
    page = make_page(rate=150)
    page.send("hello")
    qtbot.waitUntil(lambda: page.titles.asking)
    page.send("and then?")
    assert not page.titles.asking
    (asked,) = asked_for(sent)
    assert p.Cancel(id=asked.id) in sent
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming)
    assert titles(history) == ["hello"]


def test_what_the_person_typed_meanwhile_stays(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page(rate=150)
    page.send("hello")
    qtbot.waitUntil(lambda: page.titles.asking)
    history.set_title(page.chat_id, "Mine")
    qtbot.waitUntil(lambda: not page.titles.asking)
    assert titles(history) == ["Mine"]
    page.regenerate_last()
    qtbot.waitUntil(lambda: not page.streaming)
    assert (page.titles.asking, titles(history)) == (False, ["Mine"])


def test_none_is_asked_for_while_something_is_measured_or_they_are_off(qtbot, make_page, history, sent) -> None:
    page = make_page()
    allowed = False
    page.titles.allowed = lambda: allowed
    ask(qtbot, page, "hello")
    assert (asked_for(sent), titles(history)) == ([], ["hello"])
    allowed = True
    page.titles.settle()
    qtbot.waitUntil(lambda: titles(history) == [TITLE])


def test_a_title_that_cannot_be_given_is_not_missed(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page(rate=150)
    page.send("hello")
    qtbot.waitUntil(lambda: page.titles.asking)
    page._link.failed.emit(p.Error(code="prompt_too_long", message="Too long.", id=page.titles._asked.id))
    assert (page.titles.asking, page.notice.text, titles(history)) == (False, "", ["hello"])


def test_the_switch_of_the_settings(program: WindowProgram) -> None:
    """And a measurement, which a title would disturb."""
    toggle = program.window.settings_page.findChild(Toggle, "settings.titles")
    assert toggle.isChecked()
    assert program.chat.titles.allowed()
    program.measuring._cost = ("id", "kv_kind")
    assert not program.chat.titles.allowed()
    program.measuring._cost = None
    toggle.click()
    assert (program.store.settings.titles, program.chat.titles.allowed()) == (False, False)
