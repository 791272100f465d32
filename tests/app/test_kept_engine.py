"""What the window keeps for the engine: switches, questions that wait, recent models; and what it says meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app import model_dialog
from app.chat.context.count import ContextCounter
from app.link.link import LinkState
from app.link.switches import Switches
from app.program import WindowProgram
from engine import catalogue
from engine import protocol as p
from tests.app.conftest import answer, send
from tests.app.specs import choice, switch
from tests.kit.engine_thread import kill


def value(program: WindowProgram, key: str) -> p.Value:
    return next(spec.value for spec in program.link.catalogue if spec.key == key)


def choose(program: WindowProgram, qtbot, key: str, wanted: p.Value) -> None:
    program.window.panel.value_changed.emit(key, wanted)
    qtbot.waitUntil(lambda: value(program, key) == wanted, timeout=10_000)


def menu(program: WindowProgram) -> dict[str, object]:
    program.selector.fill_menu()
    return {action.text(): action for action in program.selector.model.menu().actions() if action.text()}


# --- switches --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_switches_come_back_after_a_restart_and_after_a_crash(start, qtbot) -> None:
    program = start()
    for key, wanted in (("speculation", "ngram"), ("kv_kind", "int4"), ("chunked_prefill", False), ("draft_length", 5)):
        choose(program, qtbot, key, wanted)
    choose(program, qtbot, "chunked_prefill", True)  # the default is not kept
    assert program.store.settings.options == {"speculation": "ngram", "kv_kind": "int4", "draft_length": 5}
    with qtbot.waitSignal(program.link.withheld, timeout=30_000):
        kill(program.link.engine_pid)
    qtbot.waitUntil(lambda: value(program, "speculation") == "ngram", timeout=10_000)
    program.close()
    again = start()
    for key, wanted in (("speculation", "ngram"), ("kv_kind", "int4"), ("draft_length", 5)):
        qtbot.waitUntil(lambda key=key, wanted=wanted: value(again, key) == wanted, timeout=10_000)
    assert value(again, "chunked_prefill") is True
    assert again.window.notice.text == ""


def test_a_switch_that_cannot_be_set_now_is_said_and_kept(start, qtbot, tmp_path: Path) -> None:
    program = start()
    choose(program, qtbot, "speculation", "draft")
    program.chat.loads.load("/models/plain", "")
    qtbot.waitUntil(lambda: program.link.card.name == "plain", timeout=10_000)
    qtbot.waitUntil(lambda: program.window.notice.text != "", timeout=10_000)
    assert "Speculation: draft model (Needs a draft model)" in program.window.notice.text
    assert value(program, "speculation") == "off"
    assert program.store.settings.options == {"speculation": "draft"}


@pytest.mark.slow
def test_odd_switches_of_the_file_are_left_alone(start, qtbot) -> None:
    first = start()
    first.store.update(options={"gone": 3, "draft_length": 7, "nonsense": [1], "kv_kind": None})
    first.close()
    program = start()
    qtbot.waitUntil(lambda: value(program, "draft_length") == 7, timeout=10_000)
    choose(program, qtbot, "draft_length", 8)
    assert program.store.settings.options == {"gone": 3, "draft_length": 8}


def test_what_the_engine_refuses_is_wanted_no_more_and_not_tried_for_ever() -> None:
    off, on = choice("off"), choice("ngram")
    switches = Switches()
    switches.choose("speculation", "ngram", [off])
    switches.refuse()
    assert switches.wanted == {}
    switches.choose("speculation", "ngram", [off])
    switches.confirm([on])
    switches.refuse()
    assert switches.wanted == {"speculation": "ngram"}
    assert [change.value for change in switches.missing([off])] == ["ngram"]
    assert list(switches.missing([off])) == []  # this model was told
    switches.try_again()
    assert len(list(switches.missing([off]))) == 1
    switches.try_again()
    switches.hold_back("it stopped")
    assert list(switches.missing([off])) == []
    assert [wish.reason for wish in switches.withheld([off, switch()])] == ["it stopped"]


def test_what_decides_a_load_is_told_before_it_whatever_the_catalogue_says_without_a_model() -> None:
    wanted = {
        "weights": "16bit",
        "packed_kernel": "torch",
        "kv_kind": "kivi",
        "kv_key_bits": "4",
        "speculation": "auto",
    }
    switches = Switches()
    switches.want(wanted)
    unloaded = catalogue.state(catalogue.defaults(), frozenset())
    told = {change.key: change.value for change in switches.missing(unloaded, before_load=True)}
    del wanted["speculation"]
    assert told == wanted


def test_a_choice_that_the_engine_makes_after_an_error_is_kept() -> None:
    """A load is cancelled while the choice still waits behind it."""
    off, on = choice("off"), choice("ngram")
    switches = Switches()
    switches.choose("speculation", "ngram", [off])
    switches.refuse()
    switches.confirm([on])
    assert switches.wanted == {"speculation": "ngram"}
    switches.choose("speculation", "off", [on])
    switches.confirm([on])  # of another switch
    switches.confirm([off])
    switches.choose("speculation", "ngram", [off])
    switches.choose("speculation", "off", [off])
    switches.refuse()
    for spec in (on, off, on):  # both choices, then a comparison
        switches.confirm([spec])
    assert switches.wanted == {}


def test_what_is_withheld_is_said_only_as_long_as_it_is(start, qtbot) -> None:
    program = start()
    notice = program.window.notice
    choose(program, qtbot, "speculation", "draft")
    program.chat.loads.load("/models/plain", "")
    qtbot.waitUntil(lambda: "your choice is remembered" in notice.text, timeout=10_000)
    choose(program, qtbot, "chunked_prefill", False)
    assert "your choice is remembered" in notice.text
    choose(program, qtbot, "speculation", "ngram")
    assert notice.text == ""


def test_who_chooses_a_draft_model_gets_speculation_and_can_undo_it(start, qtbot) -> None:
    program = start()
    assert value(program, "speculation") == "off"
    program.chat.loads.help_with("/models/small-draft")
    qtbot.waitUntil(lambda: value(program, "speculation") == "draft", timeout=10_000)
    assert program.window.notice.text.startswith("Speculation is on: /models/small-draft drafts tokens for tiny.")
    qtbot.mouseClick(program.window.findChild(QPushButton, "window.notice.action"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: value(program, "speculation") == "off", timeout=10_000)
    program.chat.loads.help_with("/models/heads")
    qtbot.waitUntil(lambda: value(program, "speculation") == "medusa", timeout=10_000)


# --- a question before the model is there ----------------------------------------------------------------------------


def test_a_question_while_the_engine_starts_waits_and_is_sent(start, qtbot) -> None:
    program = start("--load-seconds", "1.5", model=False)
    page = program.chat
    send(program, qtbot, "hello")
    assert page.composer.text == ""
    assert [view.message.content for view in page.transcript.views] == ["hello"]
    assert not page.sending.waits.isHidden()
    send(program, qtbot, "and then")
    assert page.composer.text == "and then"  # one waits already
    qtbot.waitUntil(lambda: program.link.state is LinkState.CONNECTED, timeout=20_000)
    assert page.session.queued
    with qtbot.waitSignal(program.link.state_changed):
        kill(program.link.engine_pid)
    assert program.link.state is LinkState.RESTARTING
    assert page.session.queued
    assert page.composer.reason == "One question waits already"
    qtbot.waitUntil(lambda: len(page.session.talk.path) == 2 and not page.streaming, timeout=30_000)
    assert page.sending.waits.isHidden()
    assert page.session.talk.path[1].content.startswith("Each conversation")
    assert page.composer.text == "and then"


def test_a_question_that_waited_is_answered_with_the_chosen_switches(start, qtbot, monkeypatch) -> None:
    program = start()
    choose(program, qtbot, "speculation", "ngram")
    told: list[p.Message] = []
    transmit = program.link._transmit
    monkeypatch.setattr(program.link, "_transmit", lambda message: (told.append(message), transmit(message)))
    with qtbot.waitSignal(program.link.state_changed):
        kill(program.link.engine_pid)
    assert program.link.state is LinkState.RESTARTING
    send(program, qtbot, "hello")
    assert program.chat.session.queued
    qtbot.waitUntil(lambda: len(program.chat.session.talk.path) == 2 and not program.chat.streaming, timeout=30_000)
    asked = next(number for number, message in enumerate(told) if isinstance(message, p.Generate))
    assert p.Set(key="speculation", value="ngram") in told[:asked]


def test_a_question_that_waited_for_a_load_that_failed_goes_to_the_model_that_stays(start, qtbot) -> None:
    program = start("--load-seconds", "1")
    page = program.chat
    page.loads.load("/models/missing", None)
    send(program, qtbot, "hello")
    assert page.session.queued
    qtbot.waitUntil(lambda: len(page.session.talk.path) == 2 and not page.streaming, timeout=20_000)
    assert page.session.talk.path[1].content.startswith("Each conversation")


def test_questions_of_several_chats_wait_each(start, qtbot) -> None:
    program = start("--load-seconds", "1", model=False)
    chats = []
    for text in ("first", "second"):
        send(program, qtbot, text)
        chats.append(program.chat.chat_id)
        program.chat.new_chat()
    assert program.chat.sending.waits.isHidden()

    def answered() -> bool:
        last = [program.history.messages(chat)[-1] for chat in chats]
        return all(message.role == "assistant" and message.state == "complete" for message in last)

    qtbot.waitUntil(answered, timeout=30_000)


def test_a_question_that_waits_can_be_changed_and_dropped(start, qtbot) -> None:
    program = start("--load-seconds", "2", model=False)
    page = program.chat
    page.settings.changed.emit("Be short.", p.Sampling(temperature=0.2))
    page.settings.overflow_changed.emit("window")
    page.composer.thinking.changed.emit(p.Thinking(on=False))
    send(program, qtbot, "helo")
    assert page.transcript.views[0].findChild(QPushButton, "message-retry").isHidden()
    page.sending.waits.findChild(QPushButton, "queued-edit").click()
    chat = page.session.talk.chat
    assert (chat.system_prompt, chat.sampling) == ("Be short.", p.Sampling(temperature=0.2))
    assert (chat.thinking, chat.overflow) == (p.Thinking(on=False), "window")
    assert page.composer.text == "helo"
    assert page.sending.waits.isHidden()
    assert program.history.chats() == []
    send(program, qtbot, "!")
    assert page.session.talk.path[0].content == "helo!"
    page.sending.waits.findChild(QPushButton, "queued-cancel").click()
    assert page.session.talk.path == []
    assert page.composer.text == ""
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=20_000)
    assert page.session.talk.path == []


def test_taking_back_a_first_question_keeps_what_was_typed_meanwhile(start, qtbot) -> None:
    program = start("--load-seconds", "2", model=False)
    page = program.chat
    send(program, qtbot, "helo")
    first = page.chat_id
    page.new_chat()
    qtbot.keyClicks(page.composer.edit, "elsewhere")
    page.open_chat(first)
    qtbot.keyClicks(page.composer.edit, "meanwhile")
    page.sending.waits.findChild(QPushButton, "queued-cancel").click()
    assert page.composer.text == "meanwhile\nelsewhere"


@pytest.mark.parametrize("button", ["edit", "cancel"])
def test_taking_back_another_version_leaves_the_first_on_screen(start, qtbot, button: str) -> None:
    program = start("--load-seconds", "2")
    page = program.chat
    answer(program, qtbot, "hello")
    path = page.session.talk.path
    page.loads.load("/models/odd", None)
    page.message_actions.act_on_last("user", "edit")
    send(program, qtbot, ", you")
    assert page.session.queued
    page.sending.waits.findChild(QPushButton, f"queued-{button}").click()
    assert page.session.talk.path == path
    assert program.history.chat(page.chat_id).leaf == path[-1].id
    assert (page.composer.text, page.composer.editing) == (("hello, you", True) if button == "edit" else ("", False))


# --- banners and counts ----------------------------------------------------------------------------------------------


def test_an_error_goes_when_it_is_no_longer_so(start, qtbot) -> None:
    program = start()
    notice = program.chat.notice
    program.chat.loads.load("/models/missing", None)
    qtbot.waitUntil(lambda: "There is no model" in notice.text, timeout=10_000)
    with qtbot.waitSignal(program.link.loaded, timeout=10_000):
        program.chat.loads.load("odd", None)
    assert notice.text == ""
    program.window.panel.value_changed.emit("quest", True)
    qtbot.waitUntil(lambda: "QUEST cannot apply" in notice.text, timeout=10_000)
    choose(program, qtbot, "speculation", "ngram")
    assert notice.text == ""
    program.history.failed.emit("The history could not be saved (full).")
    assert "could not be saved" in notice.text
    program.history.recovered.emit()
    assert notice.text == ""


def test_the_return_of_the_engine_is_said_once(start, qtbot) -> None:
    program = start()
    notice = program.chat.notice
    for closed in (True, False):
        kill(program.link.engine_pid)
        qtbot.waitUntil(lambda: "the model is loaded" in notice.text, timeout=30_000)
        if closed:
            notice._close.click()
        else:
            program.chat.news.say("Something else.")
        with qtbot.waitSignal(program.link.loaded, timeout=10_000):
            program.chat.loads.load("/models/odd", None)
        assert notice.text == ("" if closed else "Something else.")


def test_writes_that_succeed_again_are_announced(qtbot, history) -> None:
    from app.history.records import Chat, StoredMessage

    with qtbot.waitSignal(history.failed, timeout=5_000):
        history.save_message(StoredMessage("m", "no such chat", "", "user", "text", created=1.0))
    with qtbot.waitSignal(history.recovered, timeout=5_000):
        history.save_chat(Chat("no such chat", "Pages", 1.0, 2.0))


def test_the_context_counter_grows_with_the_answer(start, qtbot) -> None:
    program = start("--rate", "150")
    page = program.chat
    send(program, qtbot, "a long one")
    seen: list[int] = []

    def grown() -> bool:
        if page.header.context.text:
            seen.append(int(page.header.context.text.split()[1].replace(",", "")))
        return len(set(seen)) > 3

    qtbot.waitUntil(grown, timeout=20_000)
    assert page.streaming
    assert seen == sorted(seen)
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming, timeout=10_000)
    usage = page.session.talk.path[-1].stats.usage
    assert page.header.context.text == f"context {usage.prompt_tokens + usage.generated_tokens:,} / 2,048"


@pytest.mark.slow
def test_after_leaving_out_the_counter_shows_what_the_model_sees(start, qtbot) -> None:
    program = start()
    page = program.chat
    page.settings.overflow_changed.emit("drop_middle")
    for text in ("a long one", "and a long one more", "an overflow of it"):
        answer(program, qtbot, text)
    usage = page.session.talk.path[-1].stats.usage
    sees = usage.prompt_tokens + usage.generated_tokens
    counter = page.findChild(ContextCounter)
    counter._tokens = 6_699  # what the whole conversation takes
    counter._show()
    assert page.header.context.text == f"context {min(2048, sees):,} / 2,048"
    assert "The conversation has 6,699 tokens" in page.header.context.toolTip().replace("\n", " ")


# --- the model menu --------------------------------------------------------------------------------------------------


def test_the_menu_begins_with_the_models_used_last(start, qtbot, tmp_path: Path) -> None:
    mine, gone = tmp_path / "mine", tmp_path / "gone"
    for folder in (mine, gone):
        folder.mkdir()
    program = start()
    for path in (gone, mine):
        program.chat.loads.load(str(path), None)
        qtbot.waitUntil(lambda path=path: program.link.card.path == str(path), timeout=10_000)
    gone.rmdir()
    entries = menu(program)
    assert list(entries) == [
        "mine",
        "gone",
        "tiny",
        "odd",
        "Get a model…",
        "Open a file…",
        "Speculation helper",
        "Load settings…",
        "Unload the model",
    ]
    assert entries["mine"].isChecked()
    assert not entries["gone"].isEnabled()
    assert "is not there any more" in entries["gone"].toolTip()
    assert program.store.settings.recent == [str(mine), str(gone), "/models/tiny"]


@pytest.mark.parametrize("part", ["", "config.json", "model.safetensors", "other.gguf"])
def test_one_entry_opens_a_folder_or_a_file(start, qtbot, tmp_path: Path, monkeypatch, part: str) -> None:
    folder = tmp_path / "shelf" / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "other.gguf"):
        (folder / name).write_text("{}")
    program = start()
    program.store.update(folder=str(folder if part else folder.parent))
    began: list[str] = []

    def pick(dialog: model_dialog.ModelDialog) -> None:
        began.append(dialog.directory().absolutePath())
        dialog.selectFile(str(folder / part) if part else str(folder))
        dialog.accept()

    monkeypatch.setattr(model_dialog.ModelDialog, "exec", pick)
    menu(program)["Open a file…"].trigger()
    wanted = folder / part if part.endswith(".gguf") else folder
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.path == str(wanted), timeout=10_000)
    assert began == [
        program.store.settings.folder if part.endswith(".gguf") else str(folder if part else folder.parent)
    ]
    assert program.store.settings.folder == str(wanted.parent)


def test_loading_is_shown_at_once_with_a_way_to_stop(start, qtbot, monkeypatch) -> None:
    program = start("--load-seconds", "0.3")
    page = program.chat
    page.loads.load("/models/odd", None)
    selector = program.selector
    assert selector.text == "Loading odd: looking at its files · 0 s"
    assert selector.model.accessibleName().startswith("Model: odd · 0%")
    assert (selector.model.bar.isVisible(), selector.stop.isVisible()) == (True, True)
    assert "model is loading" in page.composer.reason
    sent: list[p.Message] = []
    monkeypatch.setattr(program.link, "send", sent.append)
    selector.stop.click()
    assert sent == [p.CancelLoad()]
    monkeypatch.undo()
    qtbot.waitUntil(lambda: selector.text == "", timeout=10_000)
    assert selector.model.accessibleName().startswith("Model: odd · GPTQ")
    page.loads.load("/models/missing", None)
    program.link.unloaded.emit(p.Unloaded(reason="Made room for missing."))
    assert selector.text
    qtbot.waitUntil(lambda: selector.text == "", timeout=10_000)


def test_what_would_end_an_answer_asks_first(start, qtbot) -> None:
    program = start("--rate", "60")
    send(program, qtbot, "a long one")
    for entry, words in (("Unload the model", "Unloading tiny ends it."), ("odd", "Opening odd ends it.")):
        menu(program)[entry].trigger()
        assert program.window.notice.text == f"An answer is being written. {words}"
        assert program.link.card is not None
        assert program.chat.streaming
    with qtbot.assertNotEmitted(program.chat.loads.helper_chosen):
        program.chat.loads.load("/models/tiny", "/models/draft", chosen=True)
    with qtbot.waitSignal(program.chat.loads.helper_chosen):
        qtbot.mouseClick(program.window.findChild(QPushButton, "window.notice.action"), Qt.MouseButton.LeftButton)
    program.chat.stop()
    qtbot.waitUntil(lambda: program.link.card is not None and not program.chat.streaming, timeout=10_000)
    send(program, qtbot, "a long one")
    menu(program)["Unload the model"].trigger()
    qtbot.mouseClick(program.window.findChild(QPushButton, "window.notice.action"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: program.link.card is None, timeout=10_000)
    program.chat.stop()
    qtbot.waitUntil(lambda: not program.chat.streaming, timeout=10_000)


def test_a_folder_called_draft_is_not_named_twice() -> None:
    from app.models.cards import drafters

    def words(**fields: object) -> str:
        card = p.ModelCard("m", "/m", "L", 1, "bf16", 1, 1, [], True, p.Sampling(), **fields)
        return drafters(card)[0]

    assert words(draft="draft") == "draft model"
    assert words(draft="Qwen3-0.6B") == "draft Qwen3-0.6B"
    assert words(heads=["medusa"]) == "Medusa heads"
    assert words() == ""
    card = p.ModelCard("m", "/m", "L", 1, "bf16", 1, 1, [], True, p.Sampling(), draft="tiny", heads=["medusa", "eagle"])
    assert drafters(card) == ("draft tiny, Medusa and EAGLE heads", "draft, Medusa, EAGLE", "3 drafters")
