"""The cache in the assembled window: what is subscribed to when, pointing, clicking, forgetting, and costs."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLabel, QPushButton

from app.cache.page_map import SmallMap
from app.cache.panes import DESCRIBE_MS
from app.history.records import Chat
from app.link.link import EngineLink, LinkState
from app.panel.cost import describe
from app.program import WindowProgram
from app.window.folds import CACHE_HEIGHTS
from app.window.window import MainWindow
from app.window.wirings.measure import NO_CHAT
from engine import protocol as p
from tests.app.conftest import fold
from tests.app.naming import nameless


def listen(program: WindowProgram, monkeypatch) -> list[p.Message]:
    """What the window sends from now on (it is sent all the same)."""
    sent: list[p.Message] = []
    send = program.link.send

    def spy(message: p.Message) -> None:
        sent.append(message)
        send(message)

    monkeypatch.setattr(program.link, "send", spy)
    return sent


def ask(qtbot, program: WindowProgram, text: str = "Why pages?") -> str:
    with qtbot.waitSignal(program.link.finished, timeout=20_000):
        program.chat.send(text)
    return program.chat.chat_id


def topics(sent: list[p.Message]) -> list[list[str]]:
    return [message.topics for message in sent if isinstance(message, p.Subscribe)]


def test_maps_are_asked_for_only_while_somebody_looks(qtbot, program, monkeypatch):
    assert program.cache_wiring.topics.wanted == {"telemetry", "pages"}
    sent = listen(program, monkeypatch)
    fold(program, "cache").click()
    qtbot.waitUntil(lambda: topics(sent) == [["pages", "telemetry", "tree"]])
    program.window.show_page(MainWindow.HELP)
    qtbot.waitUntil(lambda: topics(sent)[1:] == [["telemetry"]])
    program.window.show_page(MainWindow.CHAT)
    qtbot.waitUntil(lambda: len(topics(sent)) == 3)
    fold(program, "cache").click()
    qtbot.waitUntil(lambda: topics(sent)[3:] == [["pages", "telemetry"]])
    fold(program, "plots").click()
    qtbot.waitUntil(lambda: topics(sent)[4:] == [["telemetry"]])
    assert all(message.rate <= 10 for message in sent if isinstance(message, p.Subscribe))


def test_a_restarted_engine_is_told_what_is_looked_at(qtbot, program, monkeypatch):
    sent = listen(program, monkeypatch)
    fold(program, "cache").click()
    qtbot.waitUntil(lambda: topics(sent) == [["pages", "telemetry", "tree"]])
    sent.clear()
    program.chat.send("please crash")
    qtbot.waitUntil(lambda: topics(sent) == [["pages", "telemetry", "tree"]], timeout=20_000)
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=20_000)


def test_the_cache_takes_the_charts_room_and_gives_it_back(program):
    window = program.window
    fold(program, "cache").click()
    assert window.cache.isVisible()
    assert window.plots.collapsed
    assert not fold(program, "plots").isChecked()
    assert CACHE_HEIGHTS[0] <= window.cache.height() <= CACHE_HEIGHTS[1]
    fold(program, "cache").click()
    assert not window.cache.isVisible()
    assert not window.plots.collapsed
    fold(program, "cache").click()
    fold(program, "plots").click()
    assert not window.cache.isVisible()
    assert not window.plots.collapsed
    assert program.store.settings.cache_open is False


def test_another_cache_of_the_same_model_is_no_load(program, monkeypatch):
    marks: list[str] = []
    monkeypatch.setattr(program.window.plots, "mark", marks.append)
    card = program.link.card
    for rebuilt in (True, False, True):
        program.link.loaded.emit(p.Loaded(card=card, fit=p.Fit(1, 0, 1, 16, 0, 1, 1), rebuilt=rebuilt))
    assert marks == ["model loaded"]


@pytest.mark.slow
def test_an_open_cache_is_remembered(qtbot, make_program):
    first = make_program()
    fold(first, "cache").click()
    first.close()
    second = make_program(opened=False)
    assert second.window.cache.isVisible()
    assert second.window.plots.collapsed
    fold(second, "cache").click()
    assert not second.window.plots.collapsed


def test_chats_that_begin_alike_share_pages(qtbot, program):
    fold(program, "cache").click()
    panes = program.window.cache.panes
    system = "Answer briefly and name the sources that you know. " * 6
    chats = []
    for text in ("Why pages?", "Show me code"):
        program.chat.new_chat()
        program.chat.session.talk.set_settings(system, p.Sampling())
        chats.append(ask(qtbot, program, text))
    qtbot.waitUntil(lambda: len(panes.tree.rows.rows) == 3, timeout=5_000)
    rows = panes.tree.rows.rows
    assert rows[0].depth == 0
    assert [row.depth for row in rows[1:]] == [1, 1]
    assert [row.current for row in rows] == [True, False, True]
    qtbot.waitUntil(lambda: panes.map.pages is not None and len(panes.map.pages.legend) == 2, timeout=5_000)
    assert "Why pages?" in panes.chats.text()
    assert "<b>Show me code</b>" in panes.chats.text()
    qtbot.waitUntil(lambda: panes.figures.text("Hit rate") not in ("", "–", "0 %"), timeout=5_000)
    program.chat.open_chat(chats[0])
    assert [row.current for row in panes.tree.rows.rows] == [True, True, False]


def test_a_page_says_what_it_holds_and_leads_to_its_chat(qtbot, program, monkeypatch):
    first = ask(qtbot, program, "Show me code")
    fold(program, "cache").click()
    panes = program.window.cache.panes
    qtbot.waitUntil(lambda: panes.map.pages is not None and panes.map.pages.counts()["cached"] > 3, timeout=5_000)
    program.chat.new_chat()
    sent = listen(program, monkeypatch)
    panes._rest.setInterval(60_000)  # a busy machine may take long from page to page
    for page in (0, 1, 2):  # passing over pages asks nothing until the mouse rests
        qtbot.mouseMove(panes.map.body, panes.map._canvas.place(page).center())
    panes._rest.setInterval(DESCRIBE_MS)
    qtbot.waitUntil(lambda: panes.card.words != "", timeout=5_000)
    assert [message.page for message in sent if isinstance(message, p.DescribePage)] == [2]
    title, line, text = panes.card.words.split("\n")
    assert title == "Show me code"
    assert line == "Page 2: cached for texts that begin alike, and not in use, tokens 32 to 47"
    assert text.startswith("“")
    qtbot.mouseClick(panes.map.body, Qt.MouseButton.LeftButton, pos=panes.map._canvas.place(2).center())
    assert program.chat.chat_id == first
    panes.map.body.point(-1)
    assert panes.card.words == ""


def test_a_page_that_changes_under_the_mouse_is_asked_about_again(qtbot, program, monkeypatch):
    ask(qtbot, program, "Show me code")
    fold(program, "cache").click()
    panes = program.window.cache.panes
    qtbot.waitUntil(lambda: panes.map.pages is not None and panes.map.pages.counts()["cached"] > 3, timeout=5_000)
    sent = listen(program, monkeypatch)
    panes.map.body.point(1)
    qtbot.waitUntil(lambda: panes.card.words != "", timeout=5_000)
    pages = panes.map.pages
    panes.show_pages(pages._replace(states=(pages.states + 1) % 7))
    qtbot.waitUntil(lambda: sum(isinstance(message, p.DescribePage) for message in sent) == 2, timeout=5_000)


def test_what_came_before_the_cache_was_opened_is_shown(qtbot, program):
    ask(qtbot, program)
    chart = program.window.plots.findChild(SmallMap)
    qtbot.waitUntil(lambda: "cached" in chart.accessibleDescription(), timeout=5_000)
    program.cache_wiring.topics.stop()
    program.link.page_map.disconnect(program.cache_wiring._on_pages)
    fold(program, "cache").click()
    panes = program.window.cache.panes
    assert panes.map.pages.counts()["cached"] > 3
    program.link.unloaded.emit(p.Unloaded())
    assert program.window.cache._pages is None


def test_a_run_of_the_tree_leads_to_its_chat(qtbot, program):
    first = ask(qtbot, program)
    fold(program, "cache").click()
    tree = program.window.cache.panes.tree
    qtbot.waitUntil(lambda: len(tree.rows.rows) == 1, timeout=5_000)
    program.chat.new_chat()
    place = tree.visualRect(tree.rows.index(0)).center()
    qtbot.mouseMove(tree.viewport(), place + QPoint(1, 0))
    tree.entered.emit(tree.rows.index(0))
    assert program.window.cache.panes.card.words.startswith("Why pages?\n")
    qtbot.mouseClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert program.chat.chat_id == first


def test_a_damaged_map_is_logged_and_the_last_one_stays(qtbot, program, caplog):
    fold(program, "cache").click()
    panes = program.window.cache.panes
    qtbot.waitUntil(lambda: panes.map.pages is not None, timeout=5_000)
    before = panes.map.pages.total
    program.link.page_map.emit(p.PageMap(total=3, states=b"", owners=b""))
    assert panes.map.pages.total == before
    assert "a page map is damaged" in caplog.text


def test_everything_of_the_cache_has_a_name(qtbot, program):
    ask(qtbot, program)
    fold(program, "cache").click()
    panes = program.window.cache.panes
    qtbot.waitUntil(lambda: panes.figures.text("Unused slots (fragmentation)") != "", timeout=5_000)
    assert nameless(program.window) == []
    for widget in (panes.map.body, panes.tree, panes.figures, panes.states):
        assert widget.accessibleName()
    program.window.resize(1024, 700)
    for part in (program.window.cache, program.window.chat, program.window.plots):
        assert program.window.rect().contains(part.mapTo(program.window, part.rect().bottomRight()))
    assert program.chat.transcript.height() > 100


# --- forgetting ----------------------------------------------------------------------------------------------------


def test_a_deleted_chat_is_forgotten_by_the_engine_after_its_answer_stops(qtbot, program, monkeypatch):
    ask(qtbot, program)
    sent = listen(program, monkeypatch)
    program.chat.send("a long one")
    chat = program.chat.chat_id
    program.sidebar.delete(chat)
    kinds = [type(message) for message in sent]
    assert p.ForgetChat(chat=chat) in sent
    assert kinds.index(p.Cancel) < kinds.index(p.ForgetChat)
    qtbot.waitUntil(lambda: not program.chat.answers._running, timeout=5_000)


@pytest.mark.slow
def test_a_chat_deleted_without_an_engine_is_forgotten_at_the_next_start(qtbot, make_program, monkeypatch):
    first = make_program()
    chat = ask(qtbot, first)
    first.link.shutdown()
    first.history.delete(chat)
    first.close()
    told: list[p.Message] = []
    send = EngineLink.send
    monkeypatch.setattr(EngineLink, "send", lambda link, message: (told.append(message), send(link, message)))
    second = make_program()
    assert second.history.chat(chat) is None
    assert p.ForgetChat(chat=chat) in told
    assert second.cache_wiring.forgetter.waiting == []


def test_what_cannot_be_told_waits_for_the_connection(qtbot, program, monkeypatch):
    told: list[p.Message] = []
    forgetter = program.cache_wiring.forgetter
    monkeypatch.setattr(program.link, "send", told.append)
    monkeypatch.setattr(program.link, "_state", LinkState.RESTARTING)
    program.history.save_chat(Chat("gone", "Gone", 1.0, 2.0))
    forgetter.forget("gone")
    assert not told
    assert forgetter.waiting == ["gone"]
    monkeypatch.setattr(program.link, "_state", LinkState.CONNECTED)
    program.link.state_changed.emit(LinkState.CONNECTED, "")
    assert [message for message in told if isinstance(message, p.ForgetChat)] == [p.ForgetChat(chat="gone")]


# --- what an approximation costs -----------------------------------------------------------------------------------


def test_an_approximation_offers_to_measure_its_cost(qtbot, program, monkeypatch):
    panel = program.window.panel
    assert panel.row("kv_cache").cost is None
    button = panel.findChild(QPushButton, "kv_kind.cost")
    assert not button.isVisible()
    with qtbot.waitSignal(program.link.options):
        panel.findChild(QPushButton, "kv_kind.int4").click()
    qtbot.waitUntil(button.isVisible)
    assert not button.isEnabled()
    assert button.toolTip() == NO_CHAT
    chat = ask(qtbot, program)
    qtbot.waitUntil(button.isEnabled)
    sent = listen(program, monkeypatch)
    with qtbot.waitSignal(program.link.cost, timeout=5_000):
        button.click()
        assert button.text() == "Measuring its cost…"
        assert not button.isEnabled()
        assert panel.findChild(QLabel, "panel.card.progress").text() == "Measuring its cost on this chat…"
    assert [(message.prompt, message.chat) for message in sent if isinstance(message, p.MeasureCost)] == [("", chat)]
    outcome = panel.findChild(QLabel, "kv_kind.cost.outcome")
    assert outcome.text() == (
        "Quality with int4: perplexity +1.7 % (± 0.8) (1,310 tokens). Details: PPL 12.31 → 12.52, KL 0.012"
    )
    assert outcome.property("role") == "warn"
    assert (panel.card.isVisible(), panel.card.words) == (True, outcome.text())
    assert not outcome.isVisible(), "it would move the rows below"
    panel.row("kv_kind").toggle_explanation()
    assert outcome.isVisible()
    assert button.isEnabled()
    program.chat.new_chat()
    assert not outcome.isVisible()
    assert not panel.card.isVisible()


def test_a_text_too_short_for_a_verdict_gets_none():
    few = p.Cost(
        id="1", setting="int4", tokens=251, exact=12.0, present=12.0, divergence=0.002, same_top=1.0, error=0.1
    )
    assert describe(few) == (
        "Quality with int4: no verdict yet: this chat has 251 tokens, a verdict needs 500. Details: PPL 12.00 → 12.00, "
        "KL 0.002"
    )


def test_a_cost_that_cannot_be_measured_says_so(qtbot, program):
    ask(qtbot, program)
    panel = program.window.panel
    with qtbot.waitSignal(program.link.options):
        panel.findChild(QPushButton, "kv_kind.int8").click()
    sent: list[p.Message] = []
    program.link.send = sent.append
    button = panel.findChild(QPushButton, "kv_kind.cost")
    qtbot.waitUntil(button.isEnabled)
    button.click()
    sentence = "The cache no longer holds this chat. Ask something first."
    program.link.failed.emit(p.Error(code="unknown_chat", message=sentence, id=sent[0].id))
    assert program.window.notice.text == sentence
    assert not panel.card.isVisible()
    assert button.isEnabled()
    assert button.text() == "Measure its cost on this chat"
    panel.findChild(QPushButton, "kv_kind.int4").click()
    assert program.window.notice.text == ""
