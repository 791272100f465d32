"""The whole program: the real window, the real engine process, the bundled model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QLabel, QPushButton, QToolButton

from app.chat.context import overflow
from app.chat.side_by_side.chooser import SeveralDialog
from app.chat.transcript.stats import describe, explain
from app.history.chat_list import DropTarget
from app.history.records import Folder, FolderDocument, StoredMessage
from app.link.link import LinkState
from app.program import WindowProgram
from app.settings.store import Preset
from engine.protocol import Cost, Sampling, UnloadAfter, Value
from engine.protocol.keys import BATCH_INVARIANT, SPECULATION

PATIENCE_MS = 90_000  # a machine that does other things as well


def real(start: Callable[..., WindowProgram]) -> WindowProgram:
    """A running program with the bundled model loaded."""
    return start(engine=None, size=(1440, 900))


def ask(program: WindowProgram, qtbot, text: str) -> None:
    """Type the question and press Enter."""
    qtbot.keyClicks(program.chat.composer.edit, text)
    qtbot.keyClick(program.chat.composer.edit, Qt.Key.Key_Return)
    assert program.chat.streaming


def answered(program: WindowProgram, qtbot) -> str:
    """Wait for the end of the answer and return its text."""
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=PATIENCE_MS)
    return last(program).content


def last(program: WindowProgram):
    program.history.flush()
    return program.history.messages(program.chat.chat_id)[-1]


@pytest.mark.slow
def test_ask_stop_switch_kill_recover_and_reopen(start, qtbot) -> None:
    program = real(start)
    card = program.link.card
    assert card is not None
    assert card.name == "kvasir-guide"
    assert card.draft

    ask(program, qtbot, "What is a page?")
    first = answered(program, qtbot)
    assert "16" in first or "sixteen" in first
    stats = last(program).stats
    assert stats.timings is not None
    assert stats.timings.tokens_per_second > 0
    assert stats.reason == "stop"

    spec = program.window.panel.spec("speculation")
    assert spec is not None
    program.window.panel.value_changed.emit("speculation", "draft")
    program.window.panel.value_changed.emit("draft_length", 4)  # auto drafts only where it measured that it pays
    qtbot.waitUntil(lambda: program.window.panel.spec("draft_length").value == 4, timeout=PATIENCE_MS)
    assert program.window.panel.spec("speculation").value == "draft"
    ask(program, qtbot, "What is speculation?")
    assert answered(program, qtbot)
    assert last(program).stats.timings.proposed > 0

    program.chat.new_chat()
    ask(program, qtbot, "Why is decoding bound by memory?")
    qtbot.waitUntil(lambda: bool(last(program).content) or not program.chat.streaming, timeout=PATIENCE_MS)
    program.chat.stop()
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=PATIENCE_MS)
    assert last(program).stats.reason in ("cancelled", "stop")

    qtbot.waitUntil(lambda: program.library.listed, timeout=PATIENCE_MS)
    assert any(model.name == "kvasir-guide" for model in program.library.stored)
    _kill_engine(program, qtbot)
    program.library.details.ask("kvasir-guide")  # waits for the next engine
    qtbot.waitUntil(lambda: "kvasir-guide" in program.library.details.answers, timeout=PATIENCE_MS)
    assert program.library.details.answers["kvasir-guide"].layers == 8
    ask(program, qtbot, "What is the KV cache?")
    assert answered(program, qtbot)
    chats = [(chat.title, len(program.history.messages(chat.id))) for chat in program.history.chats()]
    assert len(chats) == 2
    program.close()

    again = start(model=False)  # what is kept needs no engine
    again.history.flush()
    assert [(chat.title, len(again.history.messages(chat.id))) for chat in again.history.chats()] == chats
    again.chat.open_chat(again.history.chats()[-1].id)
    texts = [message.content for message in again.history.messages(again.chat.chat_id)]
    assert first in texts


@pytest.mark.slow
def test_a_picture_is_described(start, qtbot) -> None:
    """Pasted into the message, read by the small model that sees, and there again when the chat is opened."""
    program = real(start)
    composer = program.chat.composer
    assert composer.attach.accessibleName() == "Add documents"
    program.chat.loads.load("kvasir-seeing", "")
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.pictures, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: not composer.reason, timeout=PATIENCE_MS)
    assert composer.attach.accessibleName() == "Add documents or pictures"
    data = QMimeData()
    data.setImageData(square("red"))
    composer.edit.insertFromMimeData(data)
    ask(program, qtbot, "describe this picture")
    assert answered(program, qtbot) == "A red square on the left."
    chat, shown = program.chat.chat_id, last(program)
    assert shown.stats.usage.prompt_tokens > 40
    program.chat.new_chat()
    program.chat.open_chat(chat)
    asked = program.chat.session.talk.last("user")
    assert [QImage.fromData(file).size() for file in asked.pictures] == [square("red").size()]
    ask(program, qtbot, "What colour is it?")
    assert answered(program, qtbot)
    assert last(program).stats.usage.cached_tokens >= 32, "the picture was not read again"


def square(colour: str) -> QImage:
    """One on the left of a grey background."""
    image = QImage(160, 80, QImage.Format.Format_RGB32)
    image.fill(QColor(225, 225, 225))
    painter = QPainter(image)
    painter.fillRect(12, 12, 56, 56, QColor(colour))
    painter.end()
    return image


SYSTEM = "You are the guide of Kvasir. Answer briefly, in plain words. " * 3


def chat_of(program: WindowProgram, qtbot, *questions: str) -> str:
    """A new chat with the common instructions, in which these were asked; its id."""
    program.chat.new_chat()
    program.chat.session.talk.set_settings(SYSTEM, Sampling())
    for question in questions:
        ask(program, qtbot, question)
        answered(program, qtbot)
    return program.chat.chat_id


def set_value(program: WindowProgram, qtbot, key: str, value: Value) -> None:
    program.window.panel.value_changed.emit(key, value)
    qtbot.waitUntil(lambda: program.window.panel.spec(key).value == value, timeout=PATIENCE_MS)


def cost(program: WindowProgram, qtbot, key: str) -> Cost:
    """What the switch costs on the chat on screen, as its button asks."""
    with qtbot.waitSignal(program.link.cost, timeout=PATIENCE_MS) as found:
        program.window.panel.row(key).cost.requested.emit()
    return found.args[0]


@pytest.mark.slow
def test_chats_share_the_cache_and_leave_it(start, qtbot, tmp_path: Path) -> None:
    """Two chats with the same instructions, another version of an answer and of a question, a deletion, and chats
    about one document."""
    program = real(start)
    program.window.findChild(QToolButton, "top.cache").click()
    panes = program.window.cache.panes
    first = chat_of(program, qtbot, "What is a page?", "What is speculation?")
    assert last(program).stats.usage.cached_tokens > 100, "a chat that goes on reads what is new"
    program.chat.regenerate_last()
    answered(program, qtbot)
    assert last(program).stats.usage.cached_tokens == last(program).stats.usage.prompt_tokens - 1
    assert "cached +" in describe(last(program))
    program.chat.message_actions.act_on_last("user", "edit")
    program.chat.composer.edit.clear()
    ask(program, qtbot, "What is the KV cache?")
    answered(program, qtbot)
    assert last(program).stats.usage.cached_tokens > 100
    second = chat_of(program, qtbot, "Why is decoding bound by memory?")
    assert last(program).stats.usage.cached_tokens >= 48, "the instructions"

    qtbot.waitUntil(lambda: {row.node.chat for row in panes.tree.rows.rows} == {first, second}, timeout=PATIENCE_MS)
    rows = panes.tree.rows.rows
    assert "guide of Kvasir" in rows[0].node.text
    assert (rows[0].depth, rows[0].current, rows[0].node.locks) == (0, True, 0)
    assert rows[0].node.hits == 4, "every prompt but the first began with it"

    def agree() -> bool:  # the tree and the map come one after the other
        held = sum(row.node.tokens for row in panes.tree.rows.rows)
        return held == 16 * panes.map.pages.counts()["cached"]

    qtbot.waitUntil(agree, timeout=PATIENCE_MS)
    assert program.window.findChild(QLabel, "cache.Page map").text().startswith("0 in use · ")
    assert panes.figures.text("Hit rate") not in ("–", "0 %")
    panes.map.body.point(0)
    qtbot.waitUntil(lambda: "tokens 0 to 15" in panes.card.words, timeout=PATIENCE_MS)
    assert "You are the guide" in panes.card.words
    assert panes.card.words.startswith("Why is decoding"), "the chat that read it last"

    program.sidebar.delete(second)
    qtbot.waitUntil(lambda: {row.node.chat for row in panes.tree.rows.rows} == {first}, timeout=PATIENCE_MS)
    program.sidebar.delete(first)
    qtbot.waitUntil(lambda: not panes.tree.rows.rows and not panes.map.pages.counts()["cached"], timeout=PATIENCE_MS)

    manual, composer = tmp_path / "manual.md", program.chat.composer
    manual.write_text("A page holds the keys and values of sixteen tokens.\n" * 20)
    said = []
    for question in ("What is a page?", "How large is it?"):
        program.chat.new_chat()
        composer.take_files([manual])
        qtbot.waitUntil(lambda: not composer.documents.reading, timeout=PATIENCE_MS)
        ask(program, qtbot, question)
        answered(program, qtbot)
        asked = program.chat.session.talk.last("user")
        said.append(program.chat.transcript.view(asked.id).findChild(QLabel, "document-lines").text())
    tokens = asked.documents[0].use.tokens
    assert tokens > 200
    assert said[0] == f"{tokens} tokens read by the model"
    kept = int(said[1].removeprefix("Read once, kept: ").removesuffix(f" of {tokens} tokens came from the cache"))
    assert tokens - 16 - 8 < kept <= tokens, "all but the last page, or a few tokens of the template more"
    # The document of a folder stands where those of first messages do, also in a chat that is moved there.
    program.history.save_folder(Folder("f", "Manuals"))
    program.history.set_folder_documents("f", [FolderDocument("m", asked.documents[0].document)])
    program.sidebar.new_chat_in.emit("f")
    ask(program, qtbot, "What is decoding?")
    answered(program, qtbot)
    assert last(program).stats.usage.cached_tokens > tokens - 16 - 8
    program.chat.new_chat()
    ask(program, qtbot, "What is decoding?")
    answered(program, qtbot)
    program.sidebar.place(program.chat.chat_id, DropTarget("list", "f"))
    ask(program, qtbot, "What is a page?")
    answered(program, qtbot)
    assert tokens < last(program).stats.usage.cached_tokens + 16 + 8


@pytest.mark.slow
def test_other_caches_of_the_same_model_go_on_with_the_chat(start, qtbot) -> None:
    program = real(start)
    loads: list[object] = []
    chat_of(program, qtbot, "What is a page?", "What is speculation?")
    program.link.loaded.connect(loads.append)
    for key, value, setting in (
        ("kv_kind", "int4", "int4"),
        ("kv_kind", "kivi", "KIVI"),
        ("kv_kind", "16bit", ""),
        ("page_policy", "quest", "QUEST"),
    ):
        set_value(program, qtbot, key, value)
        if setting:
            found = cost(program, qtbot, key)
            assert setting in found.setting
            assert 0.8 < found.present / found.exact < 1.25
            assert found.tokens > 100
    assert len(loads) == 4, "the cache is made anew, of the same model"
    set_value(program, qtbot, "page_policy", "window_sinks")
    set_value(program, qtbot, "window_tokens", 64)
    found = cost(program, qtbot, "page_policy")
    assert "last 64 tokens" in found.setting
    assert found.divergence > 0
    assert not program.window.panel.row("window_tokens").isHidden()
    assert program.window.panel.row("quest_tokens").isHidden()
    ask(program, qtbot, "What is the KV cache?")
    assert answered(program, qtbot)
    assert len(program.history.messages(program.chat.chat_id)) == 6
    assert last(program).stats.usage.cached_tokens == 0, "a window shares no text"


@pytest.mark.slow
def test_an_idle_model_comes_back_and_a_chat_outgrows_a_small_context(start, qtbot) -> None:
    program = real(start)
    with qtbot.waitSignal(program.link.unloaded, timeout=PATIENCE_MS):
        program.link.send(UnloadAfter(minutes=1e-4))
    assert program.link.idle
    program.link.send(UnloadAfter(minutes=0))
    with qtbot.waitSignal(program.link.loaded, timeout=PATIENCE_MS):
        ask(program, qtbot, "What is a page?")
    assert "16" in answered(program, qtbot) or "sixteen" in last(program).content
    assert not program.link.idle

    program.store.update(context=192)
    with qtbot.waitSignal(program.link.loaded, timeout=PATIENCE_MS):
        program.window.settings_page.engine.reload_requested.emit()
    qtbot.waitUntil(lambda: not program.chat.composer.reason, timeout=PATIENCE_MS)
    assert program.link.card.context == 192
    questions = ("What is a page?", "What is speculation?", "What is the KV cache?", "Why is decoding bound by memory?")

    program.chat.new_chat()
    program.chat.session.talk.set_settings(
        "", Sampling(temperature=0.0)
    )  # so that an answer meets the end, not a prompt
    for question in questions:
        ask(program, qtbot, question)
        answered(program, qtbot)
        if last(program).stats.reason == "context":
            break
    assert describe(last(program)).startswith("the context is full")
    assert program.chat.notice.text.startswith("The context is full")

    seen: dict[str, tuple[StoredMessage, str]] = {}
    for policy in ("drop_middle", "window"):
        program.chat.new_chat()
        program.chat.settings.overflow_changed.emit(policy)
        for question in questions:
            ask(program, qtbot, question)
            answered(program, qtbot)
        hidden = overflow.hidden(program.chat.session.talk.path)
        seen[policy] = last(program), hidden.sentence if hidden is not None else ""
    message, sentence = seen["drop_middle"]
    assert "The model no longer sees these" in sentence
    assert "the messages in its middle were left out" in explain(message)
    assert message.stats.usage.prompt_tokens < 192
    message, sentence = seen["window"]
    assert "first 4 and the last 144 tokens" in sentence
    assert message.stats.usage.prompt_tokens > 160
    assert message.stats.reason == "stop"


@pytest.mark.slow
def test_the_bundled_model_goes_on_as_if_it_had_not_been_cut(start, qtbot) -> None:
    """Greedy and batch-invariant, cut after so many tokens: the uncut text, and nothing of it is read again."""
    program = real(start)
    set_value(program, qtbot, BATCH_INVARIANT, True)
    set_value(program, qtbot, SPECULATION, "off")
    session = program.chat.session
    session.talk.set_settings("", Sampling(temperature=0.0))
    ask(program, qtbot, "What is speculation?")
    uncut = answered(program, qtbot)
    assert last(program).stats.usage.generated_tokens > 12
    for most in (1, 5, 12):
        program.chat.new_chat()
        session.talk.set_settings("", Sampling(temperature=0.0, max_tokens=most))
        ask(program, qtbot, "What is speculation?")
        answered(program, qtbot)
        message = last(program)
        assert (message.stats.reason, uncut.startswith(message.content)) == ("length", True)
        session.set_settings("", Sampling())
        view = program.chat.transcript.view(message.id)
        view.findChild(QPushButton, "message-continue").click()
        assert answered(program, qtbot) == uncut
        usage = last(program).stats.usage
        assert usage.cached_tokens >= usage.prompt_tokens - 2, "what it read and wrote is not read again"
        assert last(program).stats.diverged is None
    ask(program, qtbot, "What is a page?")
    answered(program, qtbot)
    usage = last(program).stats.usage
    assert usage.cached_tokens >= 40, "the next turn goes on from both parts"
    assert last(program).stats.diverged is None


@pytest.mark.slow
def test_answers_side_by_side_are_those_that_each_gives_alone(start, qtbot) -> None:
    """Greedy and batch-invariant: two columns of one batch, with and without another system prompt."""
    program = real(start)
    set_value(program, qtbot, BATCH_INVARIANT, True)
    chat, session, greedy = program.chat, program.chat.session, Sampling(temperature=0.0)
    brief = Preset("You are the guide of Kvasir. Answer briefly.", greedy)
    program.store.update(presets={"Brief": brief})
    alone = []
    for system in ("", brief.system):
        chat.new_chat()
        session.set_settings(system, greedy)
        ask(program, qtbot, "What is speculation?")
        alone.append(answered(program, qtbot))
        assert last(program).stats.usage.generated_tokens > 12
    chat.new_chat()
    session.set_settings("", greedy)
    chat.composer.edit.setPlainText("What is speculation?")
    chat.several.choose()
    dialog = chat.findChild(SeveralDialog)
    dialog.choices[1].choose("preset:Brief")
    dialog.ask.click()
    first, second = session.side_by_side
    qtbot.waitUntil(lambda: not chat.streaming, timeout=PATIENCE_MS)
    told = session.side_by_side
    assert [each.id for each in told] == [first.id, second.id]
    assert [each.content for each in told] == alone
    assert [each.stats.reason for each in told] == ["stop", "stop"]
    chat.findChildren(QPushButton, "column-use")[1].click()
    ask(program, qtbot, "What is a page?")
    assert answered(program, qtbot)
    assert last(program).stats.usage.cached_tokens > 0


def _kill_engine(program: WindowProgram, qtbot) -> None:
    """Kill -9 the engine: the window notices within a second, restarts it and loads the model again."""
    pid = program.link.engine_pid
    assert pid is not None
    states: list[LinkState] = []
    program.link.state_changed.connect(lambda state, sentence: states.append(state))
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    qtbot.waitUntil(lambda: LinkState.RESTARTING in states, timeout=10_000)
    assert time.monotonic() - killed < 5, "a second on a quiet machine"
    qtbot.waitUntil(lambda: states[-1] is LinkState.CONNECTED, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: not program.chat.composer.reason, timeout=PATIENCE_MS)
    assert program.link.engine_pid != pid
