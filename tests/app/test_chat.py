"""The chat page against the fake engine: ask, stream, stop, branch, edit, settings, death, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QPushButton

from app.chat.page import ChatPage
from app.chat.transcript.message import MessageView
from app.chat.transcript.text.blocks import TextBlock
from app.chat.transcript.text.code_block import CodeBlock
from app.chat.transcript.text.table_block import TableBlock
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from app.texts.side_by_side import SideBySide
from engine import protocol as p
from engine.protocol import Sampling
from tests.app.chatting import ask, button, chat_page, selector, shown_text
from tests.kit.engine_thread import kill


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    pages: list[ChatPage] = []

    def make(*arguments: str, load: bool = True, link: EngineLink | None = None) -> ChatPage:
        page = chat_page(link or make_link(*arguments, load=load), history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        pages.append(page)
        return page

    return make


def test_an_answer_streams_in_is_kept_and_counted(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    view = ask(qtbot, page, "Why does the cache need pages?")
    stats = view.message.stats
    assert stats.usage is not None
    assert "finished" not in view._footer.stats.text()
    assert "tok/s" in view._footer.stats.text()
    assert "TTFT" in view._footer.stats.text()
    assert [chat.title for chat in history.chats()] == ["Why does the cache need pages?"]
    saved = history.messages(page.chat_id)
    assert [(m.role, m.state) for m in saved] == [("user", "complete"), ("assistant", "complete")]
    assert saved[1].content.endswith(f"drawn with seed {stats.sampling.seed}.")
    assert sum(span.chars for span in saved[1].spans) == len(saved[1].content)
    used = stats.usage.prompt_tokens + stats.usage.generated_tokens
    assert page.header.context.text == f"context {used:,} / 2,048"


def said(block: TextBlock | TableBlock) -> str:
    return (block.text if isinstance(block, TableBlock) else block).toPlainText()


def test_the_shown_text_is_the_streamed_text(qtbot, make_page) -> None:
    page = make_page("--rate", "3000")
    view = ask(qtbot, page, "Show me code")
    streamed = [block.code if isinstance(block, CodeBlock) else said(block) for block in view.blocks]
    again = MessageView(view.message, page.transcript._theme, page)
    whole = [block.code if isinstance(block, CodeBlock) else said(block) for block in again.blocks]
    assert "return page * 16 + position % 16" in streamed[1]
    assert " ".join(streamed).split() == " ".join(whole).split()
    again.deleteLater()


def test_enter_sends_and_shift_enter_breaks_the_line(qtbot, make_page) -> None:
    page = make_page()
    edit = page.composer.edit
    qtbot.keyClicks(edit, "one")
    qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(edit, "two")
    assert page.composer.text == "one\ntwo"
    height = edit.height()
    edit.setPlainText("\n".join("x" * 30))
    assert edit.height() > height
    assert edit.height() < 12 * edit.fontMetrics().lineSpacing()
    edit.setPlainText("one\ntwo")
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert page.composer.text == ""
    assert page.transcript.views[0].message.content == "one\ntwo"
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)


def test_send_is_stop_while_an_answer_streams(qtbot, make_page) -> None:
    page = make_page("--rate", "60")
    page.send("a long one")
    assert page.composer.button.text() == "Stop"
    qtbot.waitUntil(lambda: page.answers.snapshot(page.transcript.views[-1].message.id)[0] != "", timeout=10_000)
    qtbot.mouseClick(page.composer.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not page.streaming, timeout=5_000)
    view = page.transcript.views[-1]
    assert view._footer.stats.text().endswith("stopped")
    assert view.message.content
    assert page.composer.button.text() == "Send"


def test_without_a_model_the_composer_says_why(qtbot, make_page, theme) -> None:
    page = make_page(load=False)
    assert page.composer.reason == "Choose a model to begin"
    page.composer.edit.setPlainText("hello")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert page.composer.text == "hello"
    assert page.transcript.views == []
    model = selector(qtbot, page, theme).model
    actions = {action.text(): action for action in model.menu().actions()}
    actions["odd"].trigger()
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    assert model.accessibleName().startswith("Model: odd · GPTQ 4-bit")
    assert "declined" in page.header.warning.toolTip()
    assert page.header.draft.text() == "draft tiny-draft"


def test_a_failed_load_is_a_notice_in_place(qtbot, make_page) -> None:
    page = make_page()
    page.loads.load("/missing", None)
    qtbot.waitUntil(lambda: "no model at /missing" in page.notice.text, timeout=5_000)
    assert not page.composer.reason


def test_regenerate_draws_a_new_seed_and_again_keeps_it(qtbot, make_page) -> None:
    page = make_page()
    first = ask(qtbot, page, "hello")
    seed, text = first.message.stats.sampling.seed, first.message.content
    qtbot.mouseClick(button(first, "regenerate"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    second = page.transcript.views[-1]
    assert second.message.stats.sampling.seed != seed
    assert second.message.content != text
    qtbot.mouseClick(button(second, "previous"), Qt.MouseButton.LeftButton)
    back = page.transcript.views[-1]
    assert back.message.content == text
    qtbot.mouseClick(button(back, "again"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    third = page.transcript.views[-1]
    assert third.message.content == text
    assert third.message.id != back.message.id
    assert page.last_prompt() == ([p.ChatMessage.of("user", "hello")], Sampling(seed=seed))


def test_running_again_ends_with_a_verdict_and_offers_both(qtbot, make_page) -> None:
    page = make_page()
    first = ask(qtbot, page, "hello")
    with qtbot.waitSignal(page.answers.ended):
        button(first, "again").click()
    view = page.transcript.views[-1]
    shown = view.findChild(QLabel, "answer-repeat")
    assert shown.isVisible()
    assert view.message.stats.repeat.of == first.message.id
    assert view.message.stats.repeat.verdict.startswith("same text, ")
    assert shown.toolTip() == view.message.stats.repeat.verdict
    assert shown.property("role") == "good"
    kept = page.session.talk._history.messages(view.message.chat)
    assert next(m for m in kept if m.id == view.message.id).stats.repeat == view.message.stats.repeat
    qtbot.mouseClick(button(view, "compare"), Qt.MouseButton.LeftButton)
    dialog = page.findChild(SideBySide)
    assert [side.toPlainText() for side in dialog.views] == [first.message.content, view.message.content]
    dialog.close()
    gone = msgspec.structs.replace(
        view.message.stats, repeat=msgspec.structs.replace(view.message.stats.repeat, of="x")
    )
    page.session.talk.tree.put(view.message._replace(stats=gone))
    page.message_actions.act(view.message.id, "compare")
    assert "is gone" in page.notice.text


def test_running_again_without_an_engine_is_refused_at_once(qtbot, make_page, monkeypatch) -> None:
    page = make_page()
    first = ask(qtbot, page, "hello").message
    monkeypatch.setattr(page._link, "_state", LinkState.RESTARTING)
    page.session.again(first)
    monkeypatch.undo()
    assert not page.streaming
    assert page.session.talk.tree.siblings(first.id) == [first.id]
    assert "not running yet" in page.notice.text


def test_editing_starts_a_branch_and_keeps_the_old_one(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    ask(qtbot, page, "first")
    ask(qtbot, page, "second")
    user = next(view for view in page.transcript.views if view.message.content == "first")
    page.transcript.acted.emit(user.message.id, "edit")
    assert page.composer.editing
    assert page.composer.text == "first"
    ask(qtbot, page, "first, but better")
    assert [view.message.content for view in page.transcript.views][::2] == ["first, but better"]
    assert len(history.messages(page.chat_id)) == 6
    page.transcript.acted.emit(page.transcript.views[0].message.id, "previous")
    assert [view.message.content for view in page.transcript.views][::2] == ["first", "second"]


def test_escape_leaves_a_message_as_it_was(qtbot, make_page) -> None:
    page = make_page()
    ask(qtbot, page, "first")
    page.message_actions.act_on_last("user", "edit")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert not page.composer.editing
    ask(qtbot, page, "second")
    assert [view.message.content for view in page.transcript.views][::2] == ["first", "second"]


def test_prefill_progress_stands_where_the_answer_will(qtbot, make_page) -> None:
    page = make_page()
    page.send("prefill")

    def reading() -> bool:
        text = page.transcript.views[-1].waiting_text
        return text.startswith("reading the prompt") and text.endswith("/ 1,024")  # before that: of the prompt itself

    qtbot.waitUntil(reading, timeout=5_000)
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    assert page.transcript.views[-1].waiting_text == ""


def test_a_refused_prompt_leaves_no_empty_answer(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    page.send("please refuse")
    qtbot.waitUntil(lambda: "longer than the context" in page.notice.text, timeout=5_000)
    assert [m.role for m in history.messages(page.chat_id)] == ["user"]
    view = page.transcript.views[-1]
    assert not button(view, "retry").isHidden()
    assert not page.streaming


def test_a_killed_engine_leaves_the_half_answer_and_comes_back(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "60")
    page.send("a long one")
    answer = page.transcript.views[-1].message.id
    qtbot.waitUntil(lambda: len(page.answers.snapshot(answer)[0]) > 20, timeout=10_000)
    kill(page._link.engine_pid)
    qtbot.waitUntil(lambda: not page.streaming, timeout=1_000)
    view = page.transcript.views[-1]
    assert view._footer.stats.text() == "interrupted"
    assert "SIGKILL" in page.notice.text
    kept = history.messages(page.chat_id)[-1]
    assert kept.state == "interrupted"
    assert len(kept.content) > 20
    qtbot.waitUntil(lambda: page._link.card is not None, timeout=20_000)
    assert "the model is loaded" in page.notice.text
    assert not button(view, "regenerate").isHidden()
    page.regenerate_last()
    qtbot.waitUntil(
        lambda: page.streaming and len(page.answers.snapshot(page.session.talk.leaf)[0]) > 0, timeout=10_000
    )
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=5_000)


def test_a_streaming_answer_is_saved_before_it_ends(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "60")
    page.send("a long one")
    qtbot.waitUntil(lambda: history.messages(page.chat_id)[-1].content != "", timeout=5_000)
    saved = history.messages(page.chat_id)[-1]
    assert saved.state == "streaming"
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=5_000)


def test_the_first_text_of_an_answer_is_saved_at_once(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "60")
    page.answers._save.setInterval(3_600_000)
    page.send("a long one")
    with qtbot.waitSignal(page.answers.grown, timeout=10_000):
        pass
    assert history.messages(page.chat_id)[-1].content != ""
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=5_000)


def test_an_answer_goes_on_behind_another_chat(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "300")
    page.send("a long one")
    first = page.chat_id
    page.new_chat()
    assert page.transcript.views == []
    assert not page.streaming
    ask(qtbot, page, "hello")
    page.open_chat(first)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    assert "tok/s" in page.transcript.views[-1]._footer.stats.text()
    assert history.messages(first)[-1].content == page.transcript.views[-1].message.content


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_settings_belong_to_the_chat_and_reach_the_engine(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    settings = page.settings
    page.header.settings.click()
    assert settings.inputs["temperature"].placeholderText() == "Default (0.7)"
    settings.system.setPlainText("Be short.")
    settings.inputs["temperature"].setText("0.2")
    settings.inputs["seed"].setText("11")
    settings.inputs["top_p"].setText("seven")
    settings.stop.setPlainText("END\n\\n")
    settings.hide()
    view = ask(qtbot, page, "hello")
    assert view.message.content.endswith("seed 11.")
    chat = history.chat(page.chat_id)
    assert chat is not None
    assert chat.system_prompt == "Be short."
    assert chat.sampling == Sampling(temperature=0.2, seed=11, stop=["END", "\n"])
    prompt = page.last_prompt()
    assert prompt is not None
    assert [m.role for m in prompt[0]] == ["system", "user"]
    page.new_chat()
    settings.fill("", page.session.talk.chat.sampling, page._link.card)
    assert settings.inputs["temperature"].text() == ""


def test_tint_marks_accepted_and_corrected_words(qtbot, make_page) -> None:
    page = make_page()
    with qtbot.waitSignal(page._link.options, timeout=5_000):
        page._link.send(p.Set(key="speculation", value="draft"))
    page.set_tint(True)
    view = ask(qtbot, page, "Show me code")
    marked = [shown_text(view.blocks[0], run) for run in view.blocks[0].tint_runs]
    assert marked[0] == "Each conversation grows"
    assert marked[1] == " by"
    image = view.blocks[0].grab().toImage()
    assert image.pixelColor(2, 18).name() == page.transcript._theme.tint("good", 0.24)
    page.set_tint(False)
    assert view.blocks[0].tint_runs == []


def test_reopened_chats_show_what_was_there(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    view = ask(qtbot, page, "Show me code")
    chat, stats = page.chat_id, view._footer.stats.text()
    other = make_page(link=page._link)
    other.open_chat(chat)
    again = other.transcript.views[-1]
    assert again._footer.stats.text() == stats
    assert again.message == view.message
    button(again, "copy").click()
    assert QGuiApplication.clipboard().text() == view.message.content


def test_a_deleted_chat_leaves_the_screen(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    ask(qtbot, page, "hello")
    history.delete(page.chat_id)
    qtbot.waitUntil(lambda: page.chat_id == "", timeout=5_000)
    assert page.transcript.views == []


def test_the_dead_engine_can_be_started_from_the_notice(qtbot, make_page, monkeypatch) -> None:
    page = make_page()
    revived: list[bool] = []
    monkeypatch.setattr(page._link, "revive", lambda: revived.append(True))
    page._link.state_changed.emit(LinkState.DEAD, "The engine stopped. Start it again.")
    page.notice.findChild(QPushButton, "notice.action").click()
    assert revived == [True]
