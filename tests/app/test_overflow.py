"""A conversation that outgrows the context: each chat's policy, what is marked, what is offered; and the footer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QPushButton

from app.chat.context.offer import FROM_NOW
from app.chat.context.overflow import MEANINGS, hidden
from app.chat.page import ChatPage
from app.chat.transcript.message import MessageView
from app.chat.transcript.stats import Share, describe, explain
from app.chat.transcript.transcript import Transcript
from app.chat.transcript.unseen import Veil
from app.history.records import AnswerStats, OmittedContext, StoredMessage
from app.history.store import HistoryStore
from engine import protocol as p
from engine.protocol import Timings, Usage
from tests.app.chatting import chat_page


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(*arguments: str) -> ChatPage:
        page = chat_page(make_link("--rate", "3000", *arguments), history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        return page

    return make


def ask(qtbot, page: ChatPage, text: str) -> MessageView:
    page.send(text)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    return page.transcript.views[-1]


def asked(page: ChatPage, monkeypatch) -> list[p.Generate]:
    sent: list[p.Generate] = []
    send = page._link.send

    def spy(message: p.Message) -> None:
        if isinstance(message, p.Generate):
            sent.append(message)
        send(message)

    monkeypatch.setattr(page._link, "send", spy)
    return sent


def dimmed(page: ChatPage) -> list[bool]:
    return [view.findChild(Veil) is not None for view in page.transcript.views]


@pytest.mark.qt_log_ignore("does not support", extend=True)
def test_each_chat_keeps_its_policy_and_sends_it(qtbot, make_page, history: HistoryStore, monkeypatch) -> None:
    page = make_page()
    sent = asked(page, monkeypatch)
    page.settings.overflow.chosen.emit("window")
    ask(qtbot, page, "Why pages?")
    first = page.chat_id
    assert (sent[0].chat, sent[0].overflow) == (first, "window")
    saved = history.chat(first)
    assert saved is not None
    assert saved.overflow == "window"
    page.new_chat()
    ask(qtbot, page, "And here?")
    assert (sent[1].chat, sent[1].overflow) == (page.chat_id, "stop")
    page.settings.overflow.chosen.emit("drop_middle")
    page.open_chat(first)
    page.dialogs.open_settings()
    assert page.settings.findChild(QPushButton, "overflow.window").isChecked()
    page.settings.findChild(QPushButton, "overflow.drop_middle").click()
    assert page.settings._overflow_meaning.text() == MEANINGS["drop_middle"]
    page.settings.hide()
    assert [chat.overflow for chat in history.chats()] == ["drop_middle", "drop_middle"]


def test_the_messages_that_are_left_out_are_dimmed_and_the_line_says_so(qtbot, make_page, monkeypatch) -> None:
    page = make_page()
    for text in ("one", "two", "three"):
        ask(qtbot, page, text)
    assert page.transcript.unseen == ""
    page.settings.overflow.chosen.emit("drop_middle")
    view = ask(qtbot, page, "an overflow now")
    assert view.message.stats.cut == OmittedContext("drop_middle", 2, 6, 4210)
    assert page.transcript.unseen == "The model no longer sees these 4 messages (4,210 tokens)"
    page.transcript.verticalScrollBar().setValue(0)
    page.resize(900, 3000)
    assert dimmed(page) == [False] * 2 + [True] * 4 + [False] * 2
    line, views = page.transcript._line, page.transcript.views
    assert line.isVisible()
    assert views[5].geometry().bottom() < line.geometry().top() + 1
    assert line.geometry().bottom() < views[6].geometry().top()
    assert "no longer sees this" in views[3].accessibleName()
    assert "no longer sees" not in views[6].accessibleName()
    chat = page.chat_id
    page.new_chat()
    assert page.transcript.unseen == ""
    page.open_chat(chat)
    assert page.transcript.unseen == "The model no longer sees these 4 messages (4,210 tokens)"
    ask(qtbot, page, "short again")
    assert page.transcript.unseen == ""
    assert dimmed(page) == [False] * 10


def test_with_a_system_prompt_the_same_messages_are_meant(qtbot, make_page) -> None:
    page = make_page()
    page.session.talk.set_settings("Be brief.", p.Sampling())
    page.settings.overflow.chosen.emit("drop_middle")
    for text in ("one", "two", "an overflow now"):
        view = ask(qtbot, page, text)
    assert view.message.stats.cut == OmittedContext("drop_middle", 1, 4, 4210)
    assert page.transcript.unseen == "The model no longer sees these 3 messages (4,210 tokens)"


def test_the_line_is_there_while_the_answer_streams(qtbot, make_link, history, theme) -> None:
    page = chat_page(make_link("--rate", "40"), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.show()
    page.settings.overflow.chosen.emit("window")
    page.send("an overflow now")
    qtbot.waitUntil(lambda: page.transcript.unseen != "", timeout=5_000)
    assert page.streaming
    assert page.transcript.unseen == "The model sees only the first 4 and the last 2,048 tokens"
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=5_000)


def test_a_full_context_is_marked_and_another_policy_offered(qtbot, make_page, monkeypatch) -> None:
    page = make_page()
    view = ask(qtbot, page, "an overflow now")
    assert view._footer.stats.text().startswith("the context is full · ")
    assert view._footer.stats.property("role") == "warn"
    assert page.notice.text.startswith("The context is full, so the answer stopped after")
    button = page.notice.findChild(QPushButton, "notice.action")
    assert button.text() == "Drop the middle (keep first and latest)"
    button.click()
    assert page.session.talk.chat.overflow == "drop_middle"
    assert page.notice.text == FROM_NOW
    sent = asked(page, monkeypatch)
    ask(qtbot, page, "and now")
    assert sent[0].overflow == "drop_middle"
    opened: list[bool] = []
    monkeypatch.setattr(page.dialogs, "open_settings", lambda: opened.append(True))
    again = page.transcript.view(view.message.id)
    assert again is not None
    again._footer.show_actions(True, ("overflow",))
    again.findChild(QPushButton, "message-overflow").click()
    assert opened == [True]


def test_the_offer_is_for_the_chat_that_is_full(qtbot, make_page) -> None:
    page = make_page()
    ask(qtbot, page, "an overflow now")
    assert page.notice.text != ""
    page.new_chat()
    assert page.notice.text == ""
    page.news.say("Something else.")
    page.new_chat()
    assert page.notice.text == "Something else."


def test_a_question_that_does_not_fit_is_asked_again_with_the_policy_accepted(qtbot, make_page, history) -> None:
    page = make_page()
    ask(qtbot, page, "one")
    page.send("an oversized question")
    qtbot.waitUntil(lambda: "2,400 tokens" in page.notice.text, timeout=5_000)
    assert [m.role for m in history.messages(page.chat_id)] == ["user", "assistant", "user"]
    page.notice.findChild(QPushButton, "notice.action").click()
    qtbot.waitUntil(lambda: len(page.transcript.views) == 4 and not page.streaming, timeout=10_000)
    assert page.notice.text == ""
    assert page.transcript.views[-1].message.stats.overflow == "drop_middle"


def test_run_again_keeps_the_policy_of_the_answer(qtbot, make_page, monkeypatch) -> None:
    page = make_page()
    page.settings.overflow.chosen.emit("window")
    view = ask(qtbot, page, "an overflow now")
    page.settings.overflow.chosen.emit("stop")
    sent = asked(page, monkeypatch)
    page.message_actions.act(view.message.id, "again")
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    assert sent[0].overflow == "window"


def test_the_bar_says_what_will_happen(qtbot, make_page) -> None:
    page = make_page()
    bar = page.header.context
    bar.show_tokens(3000, 2048)
    assert "shorten a message" in bar.toolTip().replace("\n", " ")
    page.settings.overflow.chosen.emit("drop_middle")
    bar.show_tokens(3000, 2048)
    assert "will not see its middle" in bar.toolTip().replace("\n", " ")


def answer(cut: OmittedContext | None = None, state: str = "complete", **fields: object) -> StoredMessage:
    return StoredMessage("m", "c", "", "assistant", "x", state, AnswerStats(cut=cut, **fields))


USER = StoredMessage("u", "c", "", "user", "?")


def test_what_is_hidden_is_what_the_last_begun_answer_did_not_see() -> None:
    middle = OmittedContext("drop_middle", 2, 3, 17)
    path = [USER, answer(), USER, answer(), USER]
    assert hidden([*path, answer(middle)]) == (2, 3, 3, "The model no longer sees this message (17 tokens)")
    assert hidden([*path, answer(middle), USER]) == hidden([*path, answer(middle)])
    assert hidden([*path, answer(middle), USER, answer(state="streaming")]) == hidden([*path, answer(middle)])
    assert hidden([*path, answer(middle), USER, answer()]) is None
    assert hidden([*path, answer(OmittedContext("drop_middle", 2, 2))]) is None
    window = hidden([*path, answer(OmittedContext("window", window=1024))])
    assert window == (0, 0, 5, "The model sees only the last 1,024 tokens")
    assert hidden([]) is None


def test_dimming_moves_with_the_theme_and_the_size(qtbot, theme) -> None:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(900, 900)
    view.show()
    path = [
        StoredMessage(f"m{i}", "c", "", "assistant" if i % 2 else "user", "Words. " * 30, stats=AnswerStats())
        for i in range(5)
    ]
    path.append(
        StoredMessage("m5", "c", "m4", "assistant", "End.", stats=AnswerStats(cut=OmittedContext("drop_middle", 1, 3)))
    )
    view.show_path(path, lambda _: (0, 1))
    for width in (900, 500):
        view.resize(width, 900)
        for one in view.views[1:3]:
            assert one.findChild(Veil).geometry() == one.rect()
    before = view.views[1].grab().toImage().pixelColor(2, 8)
    theme.set_mode("light")
    assert view.views[1].grab().toImage().pixelColor(2, 8) != before


# --- the footer ------------------------------------------------------------------------------------------------------

USAGE = Usage(prompt_tokens=1310, cached_tokens=1240, generated_tokens=50, seed=1)
TIMINGS = Timings(queued_ms=0, ttft_ms=61, total_ms=500, tokens_per_second=87.4, tokens_per_step=1, steps=50)


def test_the_footer_says_what_came_from_the_cache_and_where_the_prompt_diverged() -> None:
    message = answer(
        reason="stop", usage=USAGE, timings=TIMINGS, diverged=812, divergence="the template drops thinking."
    )
    said = "prompt: 1,240 cached + 70 new tokens"
    assert describe(message).endswith(f"{said} · read again from token 812")
    assert describe(message, Share("cached", 3)).endswith(said)
    assert describe(message, Share("short", 3)).endswith("· 1,240 of 1,310 cached")
    assert "cache" not in describe(message, Share("", 3))
    sentence = "The prompt leaves the earlier conversation at token 812: the template drops thinking."
    assert {said, sentence} <= set(explain(message).split("\n"))
    assert "leaves the earlier" not in explain(answer(usage=USAGE, timings=TIMINGS))


def test_a_divergence_is_kept_with_the_answer(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    ask(qtbot, page, "Why pages? Tell me all of it and more")
    view = ask(qtbot, page, "does it diverge?")
    stats = view.message.stats
    assert stats.usage is not None
    assert stats.usage.cached_tokens == stats.diverged > 0
    assert stats.divergence == "the chat template leaves earlier thinking out"
    assert history.messages(page.chat_id)[-1].stats == stats
    assert f"at token {stats.diverged}: the chat template" in view._footer.stats.toolTip().replace("\n", " ")


def test_the_bar_says_what_is_kept_of_a_chat_that_is_opened(qtbot, make_page) -> None:
    page = make_page()
    page.resize(1000, 600)
    bar = page.header.context
    ask(qtbot, page, "Tell me about pages, at length. " * 20)
    first = page.chat_id
    page.new_chat()
    qtbot.waitUntil(lambda: bar.kept.text() == "")
    page.open_chat(first)
    qtbot.waitUntil(lambda: bar.kept.text().endswith(" tokens kept"))
    assert bar.kept.isVisible()
    assert int(bar.kept.text().split()[0].replace(",", "")) > 64
    page.header._fit(420)
    assert not bar.kept.isVisible(), "it is the first to go where there is little room"
    bar.show_kept(20)
    assert bar.kept.text() == "", "next to nothing"
