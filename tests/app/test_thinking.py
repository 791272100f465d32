"""Thinking in the window: shown apart from the answer, folded away, kept, and switched where the model allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QTextOption

from app.chat.page import ChatPage
from app.chat.thinking_switch import ThinkingSwitch
from app.chat.transcript.message import MessageView
from app.chat.transcript.stats import explain
from app.chat.transcript.thinking import PEEK_CHARS, ThinkingBlock
from app.chat.transcript.transcript import Transcript
from app.history.records import AnswerStats, StoredMessage
from app.history.store import HistoryStore
from app.theme.theme import Theme
from engine import protocol as p
from engine.protocol import ModelCard, Sampling, Thinking, ThinkingModes
from tests.app.chatting import ask, button, chat_page
from tests.kit.fake_engine import THOUGHTS, long_answer


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(model: str, *arguments: str) -> ChatPage:
        link = make_link(*arguments, load=False)
        page = chat_page(link, history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        qtbot.waitUntil(lambda: link.welcome is not None, timeout=10_000)
        page.loads.load(model, "")
        qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
        return page

    return make


def answer(content: str, thinking: str, seconds: float = 12.3, state: str = "complete") -> StoredMessage:
    stats = AnswerStats(thought_s=seconds)
    return StoredMessage("a", "c", "", "assistant", content, state, stats, thinking=thinking)  # type: ignore[arg-type]


@pytest.fixture
def transcript(qtbot, theme: Theme) -> Transcript:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(900, 600)
    view.show()
    return view


def shown(transcript: Transcript, message: StoredMessage) -> tuple[MessageView, ThinkingBlock]:
    transcript.show_path([message], lambda _: (0, 1))
    view = transcript.view(message.id)
    assert view is not None
    assert view.thinking is not None
    return view, view.thinking


def test_thinking_is_folded_and_unfolds_by_click_and_key(qtbot, transcript: Transcript) -> None:
    view, block = shown(transcript, answer("Yes.", THOUGHTS))
    assert block.head.text() == "▸ Thought for 12 s"
    assert block.head.accessibleName() == "Thought for 12 s, folded"
    assert block.body.isHidden()
    folded = view.height()
    top = view.blocks[0].y()
    qtbot.mouseClick(block.head, Qt.MouseButton.LeftButton)
    assert block.open
    assert block.body.toPlainText() == THOUGHTS  # plain: no tag of it is markup
    assert block.head.accessibleName() == "Thought for 12 s, unfolded"
    assert view.height() > folded + 60
    assert view.blocks[0].y() > block.geometry().bottom() >= block.body.geometry().bottom()
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Space):
        before = block.open
        qtbot.keyClick(block.head, key)
        assert block.open is not before
    qtbot.mouseClick(block.head, Qt.MouseButton.LeftButton)
    assert view.blocks[0].y() == top
    assert view.height() == folded


def test_what_is_unfolded_is_reached_and_copied_with_the_keyboard(qtbot, transcript: Transcript) -> None:
    view, block = shown(transcript, answer("Yes.", THOUGHTS))
    with qtbot.waitActive(transcript):
        transcript.activateWindow()
    block.head.setFocus()
    qtbot.keyClick(block.head, Qt.Key.Key_Return)
    qtbot.keyClick(block.head, Qt.Key.Key_Tab)
    assert block.body.hasFocus()
    assert view.focused
    qtbot.keyClick(block.body, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(block.body, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == THOUGHTS
    block.head.click()  # folded: Tab goes past it
    assert block.body.focusPolicy() == Qt.FocusPolicy.ClickFocus


def test_unfolding_leaves_the_message_where_it_is(qtbot, transcript: Transcript) -> None:
    old = [StoredMessage(f"m{i}", "c", "", "user", f"Question {i}") for i in range(20)]
    transcript.show_path([*old, answer("Yes.", THOUGHTS * 20)], lambda _: (0, 1))
    view = transcript.view("a")
    assert view is not None
    assert view.thinking is not None
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()
    place = view.y() - bar.value()
    qtbot.mouseClick(view.thinking.head, Qt.MouseButton.LeftButton)
    assert view.y() - bar.value() == place
    assert bar.maximum() > bar.value() + 200


def test_while_it_grows_its_last_lines_show_and_then_fold(transcript: Transcript) -> None:
    view, block = shown(transcript, answer("", "Well", 0.2, "streaming"))
    view.stream("", [], long_answer(400), 3.4)
    low = view.fit(700)
    assert block.head.text() == "▸ Thinking… 3 s"
    assert block.head.accessibleName() == "Thinking, folded"
    assert not block.body.isHidden()
    assert len(block.body.toPlainText()) <= PEEK_CHARS
    assert block.body.toPlainText().endswith(long_answer(400)[-40:])
    assert view.waiting_text == ""
    view.stream("", [], long_answer(2000), 9.0)
    assert view.fit(700) == low  # the line does not jump while it thinks
    bar = block.body.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    view.stream("Yes", [], long_answer(2000), 9.4)
    assert block.head.text() == "▸ Thought for 9 s"
    assert block.body.isHidden()
    assert view.fit(700) < low


def test_what_was_unfolded_stays_so_and_is_only_appended_to(transcript: Transcript, monkeypatch) -> None:
    view, block = shown(transcript, answer("", "One", 1.0, "streaming"))
    block.toggle()
    wholes: list[str] = []
    monkeypatch.setattr(block.body, "show_text", wholes.append)
    for end in range(10, 400, 40):
        view.stream("", [], "One" + THOUGHTS[:end], 1.0)
    assert block.body.toPlainText() == "One" + THOUGHTS[:370]
    view.stream("Yes.", [], "One" + THOUGHTS, 1.0)
    assert block.body.toPlainText() == "One" + THOUGHTS
    assert block.open
    assert wholes == []


def test_an_answer_of_thinking_alone_says_so(transcript: Transcript) -> None:
    view, block = shown(transcript, answer("", THOUGHTS, 0.1))
    assert view.waiting_text == "The model thought but gave no answer."
    assert block.head.text() == "▸ Thought for a moment"
    assert view._waiting.y() > block.geometry().bottom()


def test_an_endless_word_that_grows_does_not_wrap_at_words(transcript: Transcript) -> None:
    view, block = shown(transcript, answer("", "One", 1.0, "streaming"))
    block.toggle()
    modes = QTextOption.WrapMode
    for length, mode in ((4_000, modes.WrapAtWordBoundaryOrAnywhere), (6_000, modes.WrapAnywhere)):
        view.stream("", [], "One " + "x" * length, 1.0)
        assert block.body.wordWrapMode() == mode
    view.stream("", [], "One " + "x" * 6_000 + " and words" * 700, 1.0)
    assert block.body.wordWrapMode() == modes.WrapAnywhere


def test_what_was_unfolded_stays_so_when_it_was_out_of_sight(qtbot, transcript: Transcript) -> None:
    later = [StoredMessage(f"m{i}", "c", "", "user", f"Question {i}\n" * 30) for i in range(20)]
    transcript.show_path([answer("Yes.", THOUGHTS), *later], lambda _: (0, 1))
    bar = transcript.verticalScrollBar()
    bar.setValue(0)
    block = transcript.view("a").thinking  # type: ignore[union-attr]
    assert block is not None
    block.head.setFocus()
    qtbot.mouseClick(block.head, Qt.MouseButton.LeftButton)
    bar.setValue(bar.maximum())
    assert transcript.view("a") is not None  # the keyboard is on it
    transcript._on_focus(None, None)
    bar.setValue(bar.maximum() - 1)
    assert transcript.view("a") is None
    bar.setValue(0)
    again = transcript.view("a")
    assert again is not None
    assert again.thinking is not None
    assert again.thinking.open
    assert again.thinking.body.toPlainText() == THOUGHTS
    qtbot.mouseClick(again.thinking.head, Qt.MouseButton.LeftButton)
    bar.setValue(bar.maximum())
    bar.setValue(0)
    assert not transcript.view("a").thinking.open  # type: ignore[union-attr]


def test_no_thinking_no_block(transcript: Transcript) -> None:
    transcript.show_path([answer("Yes.", "")], lambda _: (0, 1))
    view = transcript.view("a")
    assert view is not None
    assert view.thinking is None
    assert view.blocks[0].y() == 0


def test_an_answer_is_kept_with_its_thinking_and_copied_without(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("/models/thinker", "--rate", "2000")
    view = ask(qtbot, page, "Why?")
    assert view.thinking is not None
    saved = history.messages(page.chat_id)[1]
    assert saved.thinking == THOUGHTS
    assert "drawn with seed" in saved.content
    assert THOUGHTS[:20] not in saved.content
    assert saved.stats.thought_s > 0
    assert saved.stats.usage is not None
    assert saved.stats.usage.thinking_tokens > 40
    assert f"tokens, {saved.stats.usage.thinking_tokens} of them thinking, after" in explain(saved)
    assert sum(span.chars for span in saved.spans) == len(saved.content)
    button(view, "copy").click()
    assert QGuiApplication.clipboard().text() == saved.content
    # A program that starts again shows it.
    chat = page.chat_id
    page.new_chat()
    page.open_chat(chat)
    again = page.transcript.views[-1].thinking
    assert again is not None
    assert again.text == THOUGHTS
    # The next turn hands it to the template apart from the content.
    assert [(m.content, m.thinking) for m in page.session.talk.prompt(page.session.talk.leaf)][1] == (
        saved.content,
        THOUGHTS,
    )


def test_an_answer_that_is_stopped_while_it_thinks_is_kept(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("/models/thinker", "--rate", "60")
    page.send("Why?")
    leaf = page.session.talk.leaf
    qtbot.waitUntil(lambda: page.answers.snapshot(leaf).thinking != "", timeout=10_000)
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    saved = history.messages(page.chat_id)[1]
    assert saved.content == ""
    assert THOUGHTS.startswith(saved.thinking)
    assert saved.stats.thought_s > 0


def test_the_switch_is_remembered_by_its_chat(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("/models/thinker", "--rate", "3000")
    switch = page.composer.thinking
    assert switch.isVisible()
    assert switch.toggle.isChecked()
    assert switch.toggle.accessibleName() == "Think before answering"
    qtbot.mouseClick(switch.toggle, Qt.MouseButton.LeftButton)
    view = ask(qtbot, page, "Why?")
    assert view.thinking is None
    assert view.message.stats.thinking == Thinking(on=False)
    chat = page.chat_id
    assert history.chat(chat).thinking == Thinking(on=False)  # type: ignore[union-attr]
    page.new_chat()
    assert switch.toggle.isChecked()
    page.open_chat(chat)
    assert not switch.toggle.isChecked()
    qtbot.mouseClick(switch.toggle, Qt.MouseButton.LeftButton)
    assert history.chat(chat).thinking == Thinking(on=True)  # type: ignore[union-attr]
    page.message_actions.act(view.message.id, "again")  # exactly: as it was asked, not as the switch stands now
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    assert page.transcript.views[-1].message.thinking == ""
    page.regenerate_last()
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    assert page.transcript.views[-1].message.thinking == THOUGHTS
    assert page.session.last_thinking() == Thinking(on=True)
    page.session.set_thinking(Thinking(on=True, effort="high"))  # as chosen for another model
    page.regenerate_last()
    assert page.session.last_thinking() == Thinking(on=True)
    assert page.session.next_prompt(page.composer.draft)[1] == Thinking(on=True)
    page.new_chat()
    page.session.set_thinking(Thinking(effort="high"))
    assert page.session.last_thinking() == Thinking()


def card(modes: ThinkingModes) -> ModelCard:
    return ModelCard(
        name="m", path="m", architecture="M", parameters=1, quantisation="", context=64, vocabulary=9, eos_ids=[],
        has_chat_template=True, sampling=Sampling(), thinking=modes,
    )  # fmt: skip


def test_the_switch_shows_what_the_model_allows(qtbot, theme: Theme) -> None:
    switch = ThinkingSwitch(theme)
    qtbot.addWidget(switch)
    chosen: list[Thinking] = []
    switch.changed.connect(chosen.append)
    for modes in (None, ThinkingModes(), ThinkingModes(kind="always")):
        switch.show_for(card(modes) if modes is not None else None, Thinking())
        assert switch.isHidden()
    switch.show_for(card(ThinkingModes(kind="switchable", default=False)), Thinking())
    assert not switch.isHidden()
    assert not switch.toggle.isChecked()
    assert switch.efforts is None
    switch.show_for(card(ThinkingModes(kind="always", efforts=["low", "medium", "high"])), Thinking(effort="high"))
    assert switch.toggle.isHidden()
    assert switch.efforts is not None
    buttons = {key: switch.efforts.findChild(object, f"effort.{key}") for key in ("low", "medium", "high")}
    assert [key for key, one in buttons.items() if one.isChecked()] == ["high"]  # type: ignore[attr-defined]
    qtbot.mouseClick(buttons["low"], Qt.MouseButton.LeftButton)
    assert chosen == [Thinking(effort="low")]
    both = card(ThinkingModes(kind="switchable", efforts=["low", "medium", "high"]))
    switch.show_for(both, Thinking(on=False))
    assert not switch.efforts.isEnabled()
    switch.toggle.click()
    assert switch.efforts.isEnabled()
    assert chosen[-1] == Thinking(on=True)


def test_deltas_of_both_channels_keep_their_order(qtbot, make_page) -> None:
    page = make_page("/models/harmony", "--rate", "3000", "--batch", "7")
    heard: list[p.Delta] = []
    page._link.delta.connect(heard.append)
    ask(qtbot, page, "Why?")
    channels = [delta.channel for delta in heard]
    assert channels == sorted(channels, reverse=True)
    assert {"thinking", "content"} == set(channels)
    assert page.composer.thinking.efforts is not None
