"""Answers that go on, that the person writes, or begins. With the bundled model: test_end_to_end.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from PySide6.QtCore import Qt

from app.chat.page import ChatPage
from app.chat.session.continuing import NOTHING
from app.chat.transcript.message import MessageView
from app.chat.transcript.stats import describe, explain
from app.history.export import to_markdown
from app.history.records import StoredMessage
from app.history.store import HistoryStore
from app.link.link import EngineLink
from engine.protocol import Load, RemoteModel, Sampling
from tests.app.chatting import ask, button, chat_page
from tests.kit.fake_engine import THOUGHTS


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(*arguments: str, link: EngineLink | None = None) -> ChatPage:
        page = chat_page(link or make_link("--rate", "4000", *arguments), history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        return page

    return make


def cut(qtbot, page: ChatPage, tokens: int = 12) -> StoredMessage:
    """An answer that was cut after so many tokens."""
    page.session.set_settings("", Sampling(seed=7, max_tokens=tokens))
    return ask(qtbot, page, "hello").message


def with_stats(message: StoredMessage, **changes: object) -> StoredMessage:
    return message._replace(stats=msgspec.structs.replace(message.stats, **changes))


def press(qtbot, page: ChatPage, name: str) -> StoredMessage:
    """Press a button of the last answer and wait for the end of what that begins."""
    qtbot.mouseClick(button(page.transcript.views[-1], name), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not page.streaming)
    return page.session.talk.path[-1]


def actions(view: MessageView) -> list[str]:
    return [name for name, each in view._footer._buttons.items() if not each.isHidden()]


def test_a_cut_answer_grows_in_place_until_it_ends(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    first = cut(qtbot, page)
    assert first.stats.reason == "length"
    second = press(qtbot, page, "continue")
    assert second.id == first.id
    assert second.content.startswith(first.content)
    assert (second.stats.continued_at, second.stats.usage.generated_tokens) == (len(first.content), 12)
    assert second.stats.usage.prompt_tokens > first.stats.usage.prompt_tokens
    assert describe(second).startswith("continued · ")
    assert "all figures are those of the last part" in explain(second)
    assert sum(span.chars for span in second.spans) == len(second.content)
    assert "again" not in actions(page.transcript.views[-1]), "one run gives no answer in two parts"
    talk = page.session.talk
    page.session.set_settings("", Sampling(seed=1))  # its seed stays, and the limit is that of now
    whole = press(qtbot, page, "continue")
    assert whole.content.endswith("drawn with seed 7.")
    assert list(history.messages(page.chat_id)) == talk.path
    assert "continue" not in actions(page.transcript.views[-1]), "the model ended it"
    shown = " ".join(block.toPlainText() for block in page.transcript.views[-1].blocks)
    assert "stay empty. Pages fix that" in shown


def test_a_stopped_continuation_keeps_what_stood_there(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "40")
    first = cut(qtbot, page)
    page.session.go_on(first)
    page.stop()  # before a token came, or just after
    qtbot.waitUntil(lambda: not page.streaming)
    kept = history.messages(page.chat_id)[-1]
    assert kept.content.startswith(first.content)
    assert kept.state == "complete"


def test_a_refused_continuation_leaves_the_answer_as_it_was(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    first = cut(qtbot, page)
    refused = with_stats(first, adapter="gone")
    page.session.talk.tree.put(refused)
    page.session.go_on(refused)
    qtbot.waitUntil(lambda: not page.streaming)
    assert page.session.talk.path[-1] == refused
    assert "No adapter is called" in page.notice.text
    assert history.messages(page.chat_id)[-1].state == "complete"


def test_what_cannot_go_on_says_why(qtbot, make_page) -> None:
    page = make_page()
    first = cut(qtbot, page)
    for message, words in (
        (first._replace(content=" "), NOTHING),
        (with_stats(first, remote=RemoteModel(server="box", model="big")), "box may begin a new one"),
    ):
        page.session.talk.tree.put(message)
        page.session.changed.emit()
        press(qtbot, page, "continue")
        assert words in page.notice.text
        assert page.session.talk.path[-1] == message


def test_what_the_model_thinks_goes_on(qtbot, make_page) -> None:
    page = make_page()
    with qtbot.waitSignal(page._link.options):
        page._link.send(Load(model="thinker"))
    first = cut(qtbot, page)
    assert (first.content, first.thinking != "", first.stats.reason) == ("", True, "length")
    page.session.set_settings("", Sampling())
    page.session.talk.tree.put(with_stats(first, thought_s=50.0))
    whole = press(qtbot, page, "continue")
    assert whole.thinking == THOUGHTS
    assert whole.content.endswith("drawn with seed 7.")
    assert 50 <= whole.stats.thought_s < 100
    assert whole.stats.continued_at == len(first.thinking)
    assert describe(whole).startswith("continued · ")


def test_an_edited_answer_is_another_version_and_can_go_on(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    first = ask(qtbot, page, "hello").message
    qtbot.mouseClick(button(page.transcript.views[-1], "edit"), Qt.MouseButton.LeftButton)
    composer = page.composer
    assert composer.text == first.content
    assert (composer.button.text(), composer.more.isVisible()) == ("Save", True)
    composer.edit.setPlainText("In my words. ")
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert page.focusWidget() is composer.edit, "the next message can be typed at once"
    edited = page.session.talk.path[-1]
    assert (edited.content, edited.stats.edited, edited.stats.timings) == ("In my words. ", True, None)
    assert describe(edited) == "edited"
    assert "not the model's" in explain(edited)
    assert page.session.talk.branch(edited.id) == (1, 2)
    assert composer.text == ""
    assert "## Answer (edited)\n\nIn my words." in to_markdown(page.session.talk.chat, page.session.talk.path)
    whole = press(qtbot, page, "continue")
    assert whole.content == "In my words.  is what it goes on with."
    assert describe(whole).startswith("edited · continued · ")
    assert "which are yours" in explain(whole)
    press(qtbot, page, "previous")
    assert page.session.talk.path[-1] == first
    assert [message.id for message in history.messages(page.chat_id)][1:] == [first.id, whole.id]


def test_an_answer_is_begun_by_the_person_and_continued(qtbot, make_page) -> None:
    page = make_page()
    ask(qtbot, page, "hello")
    page.composer.edit.setPlainText("a draft")
    page.transcript.acted.emit(page.transcript.views[0].message.id, "begin")
    assert (page.composer.text, page.composer.button.text()) == ("", "Continue")
    qtbot.keyClicks(page.composer.edit, "It")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.streaming)
    begun = page.session.talk.path[-1]
    assert begun.content == "It is what it goes on with."
    assert (begun.stats.edited, begun.stats.continued_at) == (True, 2)
    assert page.composer.text == "a draft"
    page.message_actions.act_on_last("user", "begin")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert (page.composer.text, page.composer.editing) == ("a draft", False)


def test_ctrl_enter_saves_and_continues(qtbot, make_page) -> None:
    page = make_page()
    first = ask(qtbot, page, "hello").message
    page.message_actions.act_on_last("assistant", "edit")
    page.composer.edit.setPlainText(first.content[:31])
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: not page.streaming)
    whole = page.session.talk.path[-1]
    assert whole.content == first.content
    assert whole.id != first.id


def test_up_in_the_empty_field_edits_the_last_message(qtbot, make_page) -> None:
    page = make_page()
    ask(qtbot, page, "hello")
    edit = page.composer.edit
    qtbot.keyClick(edit, Qt.Key.Key_Up)
    assert (page.composer.text, page.composer.editing) == ("hello", True)
    qtbot.keyClick(edit, Qt.Key.Key_Escape)
    qtbot.keyClicks(edit, "x")
    qtbot.keyClick(edit, Qt.Key.Key_Up)
    assert (page.composer.text, page.composer.editing) == ("x", False)


def test_a_model_of_another_name_is_said_to_have_begun_it(qtbot, make_page) -> None:
    page = make_page()
    first = cut(qtbot, page)
    page.session.talk.tree.put(with_stats(first, model="other"))
    page.session.changed.emit()
    whole = press(qtbot, page, "continue")
    assert (whole.stats.model, whole.stats.begun_by) == ("tiny", "other")
    assert "which are of other" in explain(whole)
