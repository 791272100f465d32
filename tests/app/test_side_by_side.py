"""Two to four answers side by side. With the bundled model: test_end_to_end.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app.chat.page import ChatPage
from app.chat.session.branches import versions
from app.chat.session.sending import UNDECIDED
from app.chat.side_by_side.asking import EDITING, NOTHING, RUNNING
from app.chat.side_by_side.chooser import SeveralDialog
from app.chat.side_by_side.columns import across, offered
from app.chat.side_by_side.frames import ColumnFrame
from app.chat.transcript.stats import explain
from app.documents.records import of_text
from app.history.records import Attached, Chat, StoredMessage
from app.history.store import HistoryStore
from app.link.link import EngineLink
from app.models.state.remotes import RemoteServers
from app.program import WindowProgram
from app.settings.store import Preset
from app.window.window import MainWindow
from engine.protocol import Counted, Generate, OfferedModel, RemoteModel, RemoteServer, Sampling
from engine.protocol.operations import LIST_REMOTE_MODELS, LIST_REMOTES
from tests.app.chatting import ask, button, chat_page
from tests.app.naming import nameless
from tests.app.pressing import press
from tests.app.tabbing import tab_reaches_all
from tests.kit.operations import ScriptedOperations

GONE = RemoteModel(server="gone", model="big")


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(*arguments: str, link: EngineLink | None = None) -> ChatPage:
        page = chat_page(link or make_link("--rate", "4000", *arguments), history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        return page

    return make


def begin(qtbot, page: ChatPage, text: str, columns: Sequence[str] = ("chat", "seed")) -> None:
    """Type the message, choose the columns and press Ask."""
    qtbot.waitUntil(lambda: not page.composer.reason)
    page.composer.edit.setPlainText(text)
    page.composer.ways.several.trigger()
    dialog = page.findChild(SeveralDialog)
    press(dialog, f"several.count.{len(columns)}")
    for choice, key in zip(dialog.choices, columns, strict=False):
        next(action for action in choice.menu().actions() if action.objectName().endswith(f".{key}")).trigger()
    press(dialog, "several.ask")


def answers(qtbot, page: ChatPage, text: str, columns: Sequence[str] = ("chat", "seed")) -> list[StoredMessage]:
    """The same, and wait for the ends of the answers."""
    begin(qtbot, page, text, columns)
    qtbot.waitUntil(lambda: not page.streaming)
    return page.session.side_by_side


def frames(page: ChatPage) -> list[ColumnFrame]:
    return list(page.transcript._columns.frames.values())


def test_two_answer_side_by_side_and_the_chat_goes_on_from_one(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    first, second = answers(qtbot, page, "hello")
    assert first.content != second.content, "each has a seed of its own"
    left, right = frames(page)
    assert (left.heading.text(), right.heading.text()) == ("This chat's settings", "Another seed")
    assert left.y() == right.y()
    assert left.geometry().right() < right.x()
    for message, frame in zip((first, second), (left, right), strict=True):
        view = page.transcript.view(message.id)
        assert frame.geometry().contains(view.geometry())
        assert "tok/s" in view._footer.stats.text()
    assert nameless(page) == []

    page.composer.edit.setPlainText("and then?")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert page.notice.text == UNDECIDED
    assert page.composer.text == "and then?"

    right.use.click()
    assert not page.notice.text
    assert page.session.side_by_side == [] == frames(page)
    assert page.session.talk.leaf == second.id
    view = page.transcript.view(second.id)
    assert view._footer._position.text() == "2 / 2"
    assert view.width() > 600, "as wide as any other"
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.streaming)
    assert [message.id for message in page.session.talk.path][1] == second.id
    button(view, "previous").click()
    assert page.session.talk.leaf == first.id, "the other is a version"
    assert page.session.side_by_side == []
    kept = {message.id: message for message in history.messages(page.chat_id)}
    assert all(kept[each.id].stats.beside.chosen for each in (first, second))
    assert "one of several answers: Another seed" in explain(second)
    named = [version.words.partition(":")[0] for version in versions(page.session.talk.tree)]
    assert named == ["Answer, This chat's settings", "Answer, Another seed"]


def test_what_is_not_decided_stands_side_by_side_again(qtbot, make_page, make_link, history: HistoryStore) -> None:
    link = make_link("--rate", "4000")
    page = make_page(link=link)
    told = answers(qtbot, page, "hello", ("temperature:1", "temperature:0", "chat"))
    assert [message.stats.sampling.temperature for message in told] == [1.0, 0.0, None]
    chat = page.chat_id
    page.new_chat()
    assert frames(page) == []
    page.open_chat(chat)
    assert [frame.heading.text() for frame in frames(page)] == [
        "Temperature 1",
        "Temperature 0",
        "This chat's settings",
    ]
    assert page.session.side_by_side == told
    again = make_page(link=link)  # the next start
    again.open_chat(chat)
    assert again.session.side_by_side == told
    qtbot.mouseClick(frames(again)[1].use, Qt.MouseButton.LeftButton)
    page.new_chat()
    page.open_chat(chat)
    assert page.session.talk.leaf == told[1].id
    assert frames(page) == []


def test_stop_stops_all_of_them_and_use_this_one_the_others(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page("--rate", "60")
    begin(qtbot, page, "an essay", ("chat", "chat", "chat"))
    qtbot.waitUntil(lambda: all(page.answers.snapshot(end).text for end in page.session.ends))
    assert len(page.answers._running) == 3, "all at once"
    assert page.composer.button.text() == "Stop"
    for end in page.session.ends:
        qtbot.waitUntil(lambda end=end: bool(page.transcript.view(end).blocks))
    page.composer.button.click()
    qtbot.waitUntil(lambda: not page.streaming)
    assert [message.stats.reason for message in page.session.side_by_side] == ["cancelled"] * 3
    frames(page)[0].use.click()

    page.session.set_settings("", Sampling(max_tokens=40))
    begin(qtbot, page, "an essay")
    one, other = page.session.ends
    frames(page)[1].use.click()
    assert page.session.talk.leaf == other
    assert page.streaming, "the one that was chosen goes on"
    qtbot.waitUntil(lambda: not page.answers.busy)
    kept = {message.id: message.stats for message in history.messages(page.chat_id)}
    assert (kept[one].reason, kept[other].reason) == ("cancelled", "length")
    assert kept[one].beside.chosen
    assert kept[other].beside.chosen


def remotes_of(page: ChatPage, *models: str) -> None:
    """Another server that has these models and cannot be reached."""
    engine = ScriptedOperations()
    page.several.remotes = RemoteServers(engine)
    page.several.remotes.refresh()
    engine.answer(LIST_REMOTES, [RemoteServer(name=GONE.server, url="http://gone.example")])
    engine.answer(LIST_REMOTE_MODELS, [OfferedModel(name=name) for name in models])


def test_an_error_is_shown_in_its_column_alone(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    remotes_of(page, GONE.model)
    first, second = answers(qtbot, page, "hello", ("chat", f"remote:gone:{GONE.model}"))
    assert first.state == "complete"
    assert (second.state, second.stats.remote) == ("interrupted", GONE)
    left, right = frames(page)
    assert right.heading.text() == "big on gone"
    assert (left.problem.isHidden(), right.problem.text()) == (True, "gone cannot be reached.")
    assert right.geometry().contains(right.problem.geometry().translated(right.pos()))
    assert page.notice.text == ""
    left.use.click()
    assert page.session.talk.path[-1].id == first.id
    assert page.transcript.view(first.id)._footer._position.text() == "1 / 2"


def test_answers_are_given_again_in_their_columns(qtbot, make_page, history: HistoryStore) -> None:
    page = make_page()
    first, second = answers(qtbot, page, "hello", ("chat", "temperature:0.7"))
    frames(page)[1].again.click()
    qtbot.waitUntil(lambda: not page.streaming)
    same, third = page.session.side_by_side
    assert same.id == first.id
    assert third.id != second.id
    assert third.stats.sampling.temperature == 0.7
    assert third.stats.sampling.seed != second.stats.sampling.seed
    assert frames(page)[1].heading.text() == "Temperature 0.7"
    page.regenerate_last()
    qtbot.waitUntil(lambda: not page.streaming)
    told = page.session.side_by_side
    assert [message.stats.beside.place for message in told] == [0, 1]
    assert not {message.id for message in told} & {first.id, third.id}
    frames(page)[0].use.click()
    assert page.transcript.view(told[0].id)._footer._position.text() == "4 / 5"
    assert len(history.messages(page.chat_id)) == 6


def test_the_last_question_is_asked_again_where_nothing_is_typed(qtbot, make_page) -> None:
    page = make_page("--rate", "300")
    qtbot.waitUntil(lambda: not page.composer.reason)
    page.several.choose()
    assert page.notice.text == NOTHING
    only = ask(qtbot, page, "hello").message
    page.several.choose()
    assert not page.notice.text
    dialog = page.findChild(SeveralDialog)
    assert nameless(dialog) == []
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    assert [each.parent for each in page.session.side_by_side] == [only.parent] * 2
    page.several.choose()
    assert page.notice.text == RUNNING
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming)
    assert not page.notice.text
    frames(page)[0].use.click()
    button(page.transcript.views[-1], "edit").click()
    page.several.choose()
    assert page.notice.text == EDITING
    page.composer.clear()
    assert page.composer.ways.again.text() == "Ask: This chat's settings | Another seed"
    page.composer.edit.setPlainText("more")
    page.composer.ways.again.trigger()
    assert len(page.session.side_by_side) == 2
    assert page.session.talk.path[-2].content == "more"


def test_a_preset_brings_its_system_prompt(qtbot, make_page, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_page()
    sent: list[Generate] = []
    send = page._link.send
    monkeypatch.setattr(page._link, "send", lambda message: (sent.append(message), send(message))[1])
    page.settings.offer_presets({"Brief": Preset("Be brief.", Sampling(temperature=0.2))})
    page.session.set_settings("Be kind.", Sampling())
    page.session.set_servers(["files"])

    def asked() -> list[tuple[str, float | None]]:
        found = [(each.prompt[0].content, each.sampling.temperature) for each in sent if isinstance(each, Generate)]
        sent.clear()
        return found

    answers(qtbot, page, "hello", ("chat", "preset:Brief"))
    dialog = page.findChild(SeveralDialog)
    assert not dialog._tools.isHidden()
    assert asked() == [("Be kind.", None), ("Be brief.", 0.2)]
    frames(page)[1].again.click()
    qtbot.waitUntil(lambda: not page.streaming)
    assert asked() == [("Be brief.", 0.2)]
    frames(page)[1].use.click()
    page.message_actions.act_on_last("assistant", "again")
    qtbot.waitUntil(lambda: not page.streaming)
    assert asked() == [("Be brief.", 0.2)]
    repeat = page.session.talk.path[-1]
    assert repeat.stats.repeat.same
    assert page.session.talk.last_prompt()[0][0].content == "Be brief."


def test_a_document_is_read_by_every_column(qtbot, make_page) -> None:
    page = make_page()
    counted: list[Counted] = []
    page._link.counted.connect(counted.append)
    attached = page.composer.documents
    attached.show_attached([Attached("note.txt", of_text("note.txt", "The key is under the mat."))])
    first, second = answers(qtbot, page, "Where is the key?")
    assert not attached.attached
    assert sum(each.id.startswith("settle-") for each in counted) == 3, "one decides for both"
    assert first.stats.usage.prompt_tokens == second.stats.usage.prompt_tokens > 10
    (document,) = page.session.talk.path[0].documents
    assert document.use.passages is None
    assert len(page.session.talk.tree) == 3
    frames(page)[0].use.click()
    attached.show_attached([Attached("more.txt", of_text("more.txt", "So is the other one."))])
    begin(qtbot, page, "And the other?")
    page.answers.stop(page.session.ends[0])  # the one that decides
    qtbot.waitUntil(lambda: not page.streaming)
    stopped, whole = page.session.side_by_side
    assert (stopped.content, stopped.state, whole.stats.reason) == ("", "interrupted", "stop")


def test_matches_are_found_in_every_column(qtbot, make_page) -> None:
    page = make_page()
    told = answers(qtbot, page, "hello", ("chat", "seed", "seed"))
    page.finding.begin()
    page.finding.bar.field.setText("drawn with seed")
    qtbot.waitUntil(lambda: len(page.finding._matches) == 3)
    seen = []
    for _ in told:
        seen.append(page.finding._current.message)
        page.finding.step(True)
    assert seen == [message.id for message in told]


def test_columns_stand_in_rows_where_there_is_no_room(qtbot, make_page) -> None:
    page = make_page()
    page.resize(1400, 800)
    answers(qtbot, page, "hello", ("chat", "seed", "seed", "chat"))
    assert len({frame.y() for frame in frames(page)}) == 1
    page.resize(800, 600)
    tops = [frame.y() for frame in frames(page)]
    assert tops[0] == tops[1] < tops[2] == tops[3]
    page.resize(420, 600)
    assert len({frame.y() for frame in frames(page)}) == 4
    for message, frame in zip(page.session.side_by_side, frames(page), strict=True):
        view = page.transcript.view(message.id)
        assert view is None or frame.geometry().contains(view.geometry())


@pytest.mark.parametrize(
    ("count", "room", "columns"),
    [(2, 1000, 2), (2, 300, 1), (3, 1000, 3), (3, 700, 2), (4, 1000, 2), (4, 1400, 4), (4, 100, 1)],
)
def test_rows_are_even(count: int, room: int, columns: int) -> None:
    assert across(count, room, 300, 12) == columns


def test_columns_are_of_the_chat_as_it_is() -> None:
    chat = Chat("c", "", 0, 0, sampling=Sampling(seed=7, top_p=0.9), remote=GONE)
    found = {
        key: column
        for offer in offered(chat, {}, {"gone": [GONE, RemoteModel("gone", "small")]}, "tiny")
        for key, column in offer.columns.items()
    }
    assert found["chat"].sampling == chat.sampling
    assert found["chat"].remote == GONE
    assert found["seed"].sampling == Sampling(top_p=0.9)
    assert found["temperature:0"].sampling == Sampling(seed=7, top_p=0.9, temperature=0.0)
    assert found["here"].remote is None
    assert [key for key in found if key.startswith("remote")] == ["remote:gone:small"]


def test_the_window_offers_it_and_leads_to_compare(qtbot, make_program: Callable[..., WindowProgram]) -> None:
    program = make_program()
    page, window = program.chat, program.window
    assert page.several.remotes is program.library.remotes
    page.composer.edit.setPlainText("hello")
    window.show_page(MainWindow.HELP)
    command = next(each for each in window.commands.all() if each.name == "ask_several")
    assert not command.refused
    command.run()
    dialog = page.findChild(SeveralDialog)
    assert window.page == MainWindow.CHAT
    assert dialog.isVisible()
    press(dialog, "several.ask")
    qtbot.waitUntil(lambda: not page.streaming)
    tab_reaches_all(qtbot, window)
    page.several.choose()
    press(dialog, "several.compare")
    assert window.page == MainWindow.LAB
    assert program.lab_page.inner.open_page == "compare"
    assert not dialog.isVisible()
    assert page.findChild(QPushButton, "column-use") is not None
