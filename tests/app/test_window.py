"""The assembled program with the fake engine: wiring, folding, shortcuts, accessible names."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QApplication,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QToolButton,
    QWidget,
)

from app.commands.dialog import ShortcutsDialog
from app.help.page import HelpPage
from app.history.records import Chat, StoredMessage
from app.shortcuts import TABLE
from app.theme.widgets import PageTitle, Toggle
from app.window.window import MainWindow
from app.window.wirings.measure import NO_TOOLS
from engine import protocol
from tests.app.conftest import ask
from tests.app.naming import nameless
from tests.kit.engine_thread import kill


def test_it_loads_the_first_model_and_fills_its_parts(qtbot, program):
    window = program.window
    assert program.link.card.name == "tiny"
    assert window.bar.device.text() == "Fake CPU · CPU"
    assert window.panel.spec("speculation") is not None
    qtbot.waitUntil(lambda: bool(window.plots.charts) and window.plots.charts[0].figure.text() != "–", timeout=10_000)
    assert program.store.settings.model == program.link.card.name == "tiny"


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_the_titles_of_all_pages_stand_at_one_height(program, qapp, scale):
    """But for a pixel that the ring of a page may take."""
    window, places = program.window, {}
    program.theme.set_scale(scale)
    for page in (window.MODELS, window.LAB, window.SERVER, window.SETTINGS):
        window.show_page(page)
        qapp.processEvents()
        for title in window.findChildren(PageTitle):
            if title.isVisible():
                places[title.text()] = title.mapTo(window, title.rect().center()).y()
    program.theme.set_scale(1.0)
    assert len(places) == 4, "the chat and the help have none"
    assert max(places.values()) - min(places.values()) <= 1, places


@pytest.mark.slow
def test_the_switches_can_be_reached_with_large_text_in_a_small_window(qtbot, program):
    window, panel = program.window, program.window.panel
    window.resize(1024, 700)
    window.findChild(QToolButton, "top.panel").click()
    before = panel.width()
    try:
        program.theme.set_scale(1.6)
        qtbot.waitUntil(lambda: panel.width() > before)
        toggles = [toggle for toggle in panel.findChildren(Toggle) if toggle.isVisible()]
        assert toggles
        for toggle in toggles:
            assert toggle.mapTo(panel, toggle.rect().topRight()).x() < panel.width(), toggle.accessibleName()
    finally:
        program.theme.set_scale(1.0)
    qtbot.waitUntil(lambda: panel.width() == before)


def test_the_settings_reach_the_load(qtbot, make_program):
    program = make_program()
    sent = []
    program.link.send = sent.append
    program.store.update(memory=0.5, context=1024, draft=False)
    program.window.show_page(MainWindow.SETTINGS)
    program.window.settings_page.findChild(QPushButton, "settings.reload").click()
    program.chat.loads.load("elsewhere", None)
    options = protocol.LoadOptions(memory=0.5, context=1024)
    assert sent[0] == protocol.Load(model=program.link.card.path, draft="", options=options)
    assert sent[1].options == options


def test_loading_again_keeps_the_draft_and_asks_before_it_ends_an_answer(qtbot, program, monkeypatch):
    reload = program.window.settings_page.findChild(QPushButton, "settings.reload")
    program.chat.loads.help_with("/models/small-draft")
    qtbot.waitUntil(lambda: program.link.card is not None and "small" in program.link.card.draft, timeout=10_000)
    sent = []
    monkeypatch.setattr(program.link, "send", sent.append)
    reload.click()
    assert [(order.model, order.draft) for order in sent] == [(program.link.card.path, "/models/small-draft")]
    monkeypatch.setattr(type(program.chat.answers), "busy", True)
    reload.click()
    assert program.window.notice.text == "An answer is being written. Reloading tiny ends it."
    assert len(sent) == 1


def test_a_flipped_switch_reaches_the_engine_and_marks_the_plots(qtbot, program):
    window = program.window
    qtbot.waitUntil(lambda: bool(window.plots.charts) and len(window.plots.charts[0]._ring) > 0, timeout=10_000)
    marks = window.plots.charts[0]._marks
    before = len(marks)
    with qtbot.waitSignal(program.link.options):
        window.panel.findChild(QAction, "speculation.ngram").trigger()
    assert len(marks) == before + 1
    assert next(s for s in program.link.catalogue if s.key == "speculation").value == "ngram"


def test_measuring_replays_the_last_prompt(qtbot, program):
    panel = program.window.panel
    button = panel.findChild(QToolButton, "kv_cache.measure")
    assert not button.isEnabled()
    ask(qtbot, program)
    qtbot.waitUntil(button.isEnabled)
    with qtbot.waitSignal(program.link.compared, timeout=10_000):
        button.click()
    assert panel.findChild(QLabel, "kv_cache.bought").text() == "2.1×\n1.90–2.3"
    asked = program.chat.last_prompt()[0][-1].content
    assert panel.findChild(QLabel, "kv_cache.outcome").text() == f"On: “{asked}” (off → on)."


def test_measuring_takes_the_tools_along(qtbot, program, monkeypatch):
    ask(qtbot, program)
    talk, sent = program.chat.session.talk, []
    tools = protocol.ToolConfig(tools=[protocol.Tool(name="look")])
    parts = (protocol.ToolResult("c", "", pictures=[b"picture"]),)
    answer = talk.last("assistant")
    digest = program.history.save_tools(talk.chat.id, tools)
    talk.tree.put(StoredMessage("told", talk.chat.id, answer.id, "tool", "", parts=parts))
    stats = msgspec.structs.replace(answer.stats, servers=["kit"], tools=digest)
    talk.tree.put(answer._replace(id="after", parent="told", stats=stats))
    talk.go_to("after")
    monkeypatch.setattr(program.link, "send", sent.append)
    program.window.panel.measure_requested.emit("kv_cache")
    assert sent[0].tools == tools
    assert [len(message.pictures) for message in sent[0].prompt] == [0, 0, 0], "which this model cannot see"
    program.measuring._end_comparison()
    talk.tree.put(answer._replace(id="after", parent="told", stats=msgspec.structs.replace(stats, tools="")))
    program.window.panel.measure_requested.emit("kv_cache")
    assert sent[1].tools is None
    assert program.window.notice.text == NO_TOOLS


def test_a_measurement_is_stopped_without_an_error(qtbot, program):
    ask(qtbot, program, "slow")
    panel = program.window.panel
    button = panel.findChild(QToolButton, "kv_cache.measure")
    qtbot.waitUntil(button.isEnabled)
    button.click()
    qtbot.waitUntil(lambda: panel.findChild(QLabel, "kv_cache.bought").text() == "…")
    with qtbot.waitSignal(program.link.failed, timeout=5_000):
        button.click()
    assert panel.findChild(QLabel, "kv_cache.bought").text() == "–"
    assert not program.window.notice.text


def test_an_answer_waits_for_a_switch_that_is_measured(qtbot, program):
    ask(qtbot, program, "slow")
    panel, chat, window = program.window.panel, program.chat, program.window
    button = panel.findChild(QToolButton, "kv_cache.measure")
    qtbot.waitUntil(button.isEnabled)
    button.click()
    chat.regenerate_last()
    assert chat.notice.text == "A switch is being measured; an answer now spoils it."
    assert window.findChild(QPushButton, "notice.other").isHidden(), "a regeneration cannot wait"
    here = chat.chat_id
    chat.send("hello")
    chat.new_chat()
    assert not chat.notice.text, "what was asked about is in another chat"
    chat.open_chat(here)
    chat.send("hello")
    window.findChild(QPushButton, "notice.other").click()
    assert not chat.streaming
    with qtbot.waitSignal(program.link.finished):
        button.click()
    assert not chat.notice.text


@pytest.mark.parametrize("how", ["stopped", "finished", "killed"])
def test_a_question_whose_answer_is_over_goes(qtbot, program, how):
    program.chat.send("long" if how == "killed" else "hello")
    program.chat.loads.load("/models/odd", None)
    assert program.window.notice.text == "An answer is being written. Opening odd ends it."
    if how == "killed":
        kill(program.link.engine_pid)
    elif how == "stopped":
        program.chat.stop()
    qtbot.waitUntil(lambda: not program.window.notice.text)
    assert not program.chat.answers.busy


def test_a_switch_that_ends_an_answer_asks_first(qtbot, program):
    window, panel = program.window, program.window.panel
    program.chat.send("slow long")
    panel.findChild(QAction, "weights.16-bit").trigger()
    assert window.notice.text == "An answer is being written. Changing Weights ends it."
    assert panel.spec("weights").value == "packed"
    assert panel.findChild(QAction, "weights.packed").isChecked()
    assert program.chat.answers.busy
    with qtbot.waitSignal(program.link.loaded):
        window.findChild(QPushButton, "window.notice.action").click()
    qtbot.waitUntil(lambda: panel.spec("weights").value == "16-bit")


def test_no_row_comes_and_goes_while_a_model_is_on_its_way_back(qtbot, program, monkeypatch):
    shown = []
    monkeypatch.setattr(program.window.panel, "set_catalogue", lambda _: shown.append(program.link.card))
    with qtbot.waitSignal(program.link.loaded):
        kill(program.link.engine_pid)
    qtbot.waitUntil(lambda: bool(shown))
    assert None not in shown
    program.link.send(protocol.Unload())
    program.link.send(protocol.Set(key="kv_cache", value=False))
    qtbot.waitUntil(lambda: None in shown)


def test_what_was_said_of_a_state_goes_with_it(qtbot, program):
    """A banner that is over is taken away; another that came in its place stays."""
    chat = program.chat
    ask(qtbot, program)
    chat.send("slow long")
    chat.regenerate_last()
    assert chat.notice.text == "Stop the answer that is being written first."
    chat.stop()
    qtbot.waitUntil(lambda: not chat.streaming)
    assert not chat.notice.text
    program.link.send(protocol.Unload())
    qtbot.waitUntil(lambda: bool(chat.sending.reason))
    chat.sending.ask("What is a page?")
    said = chat.notice.text
    assert said == f"{chat.sending.reason}."
    program.link.send(protocol.Load(model="tiny"))
    qtbot.waitUntil(lambda: not chat.sending.reason)
    assert chat.notice.text != said


def test_quitting_asks_while_something_would_be_lost(qtbot, program):
    window = program.window
    program.chat.send("slow long")
    assert not window.close()
    box = window.findChild(QMessageBox, "window.leave")
    assert box.text().startswith("An answer is being written. Quitting ends that.")
    next(each for each in box.buttons() if each.text() == "Quit now").click()
    assert not window.isVisible()


def test_a_comparison_that_fails_says_so_and_frees_the_row(qtbot, program):
    ask(qtbot, program)
    panel = program.window.panel
    sent = []
    program.link.send = sent.append
    panel.findChild(QToolButton, "kv_cache.measure").click()
    assert isinstance(sent[0], protocol.Compare)
    assert panel.findChild(QLabel, "kv_cache.bought").text() == "…"
    sentence = "The comparison was refused. Load a model first."
    program.link.failed.emit(protocol.Error(code="refused", message=sentence, id=sent[0].id))
    assert program.window.notice.text == sentence
    assert panel.findChild(QLabel, "kv_cache.bought").text() == "–"
    assert panel.findChild(QToolButton, "kv_cache.measure").isEnabled()


def test_a_refused_value_does_not_stay_on_show(qtbot, program):
    panel = program.window.panel
    program.link.send = lambda message: None
    toggle = panel.row("kv_cache").findChild(Toggle)
    before = toggle.isChecked()
    toggle.click()
    assert toggle.isChecked() != before
    program.link.failed.emit(protocol.Error(code="refused", message="It conflicts. Switch the other off."))
    assert toggle.isChecked() == before


def test_the_panel_leads_to_the_help_and_is_led_to(qtbot, program):
    window, panel = program.window, program.window.panel
    panel.row("kv_cache").help.click()
    assert window.page == MainWindow.HELP
    assert window.findChild(HelpPage).text.toPlainText().startswith("KV cache\n")
    assert not panel._rest.isVisibleTo(panel)
    assert window.show_switch("chunked_prefill")
    assert (window.page, panel.row("chunked_prefill").isVisible()) == (MainWindow.CHAT, True)
    assert program.store.settings.panel_all
    assert not window.show_switch("no such switch")


def test_a_load_is_shown_in_the_title_row_of_every_page(program):
    selector = program.selector
    loading = protocol.Loading(model="/models/a-new-one", stage="reading weights", fraction=0.4)
    for page in range(6):
        program.window.show_page(page)
        program.link.loading.emit(loading)
        assert selector.model.accessibleName().startswith("Model: a-new-one · 40%")
        assert (selector.model.bar.isVisible(), selector.model.bar.fraction) == (True, 0.4)
        assert selector.stop.isVisible()
        program.link.welcomed.emit(program.link.welcome)
        assert not selector.stop.isVisible()
        assert not selector.model.bar.isVisible()
        assert selector.model.accessibleName().startswith("Model: tiny · ")


def test_the_title_row_has_one_form_for_each_width_and_text(qtbot, qapp, program):
    """The model can always be chosen, and no two parts lie on each other."""
    window, bar, model = program.window, program.window.bar, program.selector.model
    for scale in (1.0, 1.5):
        program.theme.set_scale(scale)
        forms: dict[int, set[tuple[object, ...]]] = {}
        for width in [*range(800, 1400, 90), *range(1340, 800, -90)]:
            window.resize(width, 700)
            qapp.processEvents()
            parts = [part for part in bar.findChildren(QWidget) if part.parent() is bar and part.isVisible()]
            parts.sort(key=lambda part: part.x())
            forms.setdefault(width, set()).add(tuple(part.objectName() for part in parts))
            assert model.isVisible()
            assert model.width() >= model.minimumSizeHint().width()
            assert parts[-1].geometry().right() <= width
            assert all(a.geometry().right() < b.x() for a, b in pairwise(parts)), (scale, width)
        assert {width for width, seen in forms.items() if len(seen) > 1} == set()
    program.theme.set_scale(1.0)


def test_where_there_is_no_room_for_tabs_a_menu_leads_to_the_pages(qtbot, program):
    window = program.window
    program.theme.set_scale(1.6)
    assert not window.bar.menu.isVisible()
    window.setMinimumWidth(500)
    window.resize(500, 700)
    qtbot.waitUntil(window.bar.menu.isVisible)
    window.bar.findChild(QAction, f"top.page.{MainWindow.HELP}").trigger()
    assert (window.page, window.bar.menu.title) == (MainWindow.HELP, "Help")
    program.theme.set_scale(1.0)


def test_an_engine_that_dies_is_said_and_comes_back(qtbot, program):
    states = {}
    model = program.selector.model
    program.link.state_changed.connect(lambda state, _: states.update({state.name: model.title}))
    program.chat.send("please crash")
    qtbot.waitUntil(lambda: "RESTARTING" in states, timeout=20_000)
    assert states["RESTARTING"] == "The engine is restarting"
    qtbot.waitUntil(lambda: program.link.card is not None, timeout=20_000)
    assert list(states)[-1] == "CONNECTED"
    assert "restarting" not in model.accessibleName()


def test_tint_is_remembered_and_passed_on(qtbot, make_program, monkeypatch):
    program = make_program()
    heard = []
    monkeypatch.setattr(program.chat, "set_tint", heard.append)
    program.window.panel.findChild(Toggle, "panel.tint").click()
    assert heard == [True]
    assert program.store.settings.tint


@pytest.mark.slow
def test_what_is_toggled_without_a_click_is_taken_as_one(program):
    """A screen reader's "toggle" changes a checkable button and clicks nothing."""
    window, told = program.window, []
    for page, name in ((MainWindow.MODELS, "Models"), (MainWindow.CHAT, "Chat")):
        tab = next(each for each in window.bar.findChildren(QPushButton) if each.accessibleName() == f"Page: {name}")
        tab.toggle()
        assert window.page == page
    window.panel.tint_changed.connect(told.append)
    toggle = window.panel.findChild(Toggle, "panel.tint")
    toggle.toggle()
    window.panel.set_tint(True)
    window.panel.set_tint(False)
    assert told == [True], "what the program shows is nobody's wish"


def test_folded_parts_and_geometry_are_remembered(qtbot, make_program):
    first = make_program(model=False)
    first.window.resize(1200, 750)
    for name in ("top.sidebar", "top.panel", "top.plots"):
        first.window.findChild(QToolButton, name).click()
    assert not first.window.panel.isVisible()
    assert not first.window.sidebar.isVisible()
    assert first.window.plots.collapsed
    first.window.resize(800, 750)  # the offscreen display is no wider, and no window is restored beyond it
    first.close()
    second = make_program(model=False, opened=False)
    assert second.window.size().toTuple() == (800, 750)
    second.window.resize(1200, 750)
    assert not second.window.panel.isVisible()
    assert not second.window.sidebar.isVisible()
    assert second.window.plots.collapsed
    second.window.findChild(QToolButton, "top.panel").click()
    assert second.window.panel.isVisible()


@pytest.mark.parametrize("size", [(800, 600), (960, 1040), (1024, 700), (1100, 700)])
def test_it_fits(qtbot, program, size):
    window = program.window
    window.resize(*size)
    ask(qtbot, program, "show me code")
    assert window.size().toTuple() == size
    for part in (window.bar, window.chat, window.plots):
        corner = part.mapTo(window, part.rect().bottomRight())
        assert window.rect().contains(corner), part.objectName()
    assert window.chat.width() >= 400


def test_plots_pause_on_other_pages(program):
    assert not program.window.plots.paused
    program.window.show_page(MainWindow.HELP)
    assert program.window.plots.paused
    program.window.show_page(MainWindow.CHAT)
    assert not program.window.plots.paused


def test_the_folded_line_opens_plots_and_panel(program):
    window = program.window
    window.findChild(QToolButton, "top.plots").setChecked(False)
    assert window.plots.collapsed
    panel = window.panel.isVisible()
    window.plots.findChild(QToolButton, "plots.open.optimisations").click()
    assert window.panel.isVisible() is not panel
    window.plots.findChild(QToolButton, "plots.open.plots").click()
    assert not window.plots.collapsed
    assert window.findChild(QToolButton, "top.plots").isChecked()


def test_every_shortcut_is_bound_once_and_works(qtbot, make_program):
    window = make_program(model=False).window
    keys = [keys for entry in TABLE for keys in (entry.keys, *entry.also) if keys]
    assert len(set(keys)) == len(keys)
    bound = [keys.toString() for shortcut in window.commands.shortcuts for keys in QShortcut.keys(shortcut)]
    assert bound == [
        QKeySequence(each).toString()
        for entry in TABLE
        if entry.action and entry.keys
        for each in (entry.keys, *entry.also)
    ]
    trigger = {shortcut.key().toString(): shortcut.activated.emit for shortcut in window.commands.shortcuts}
    trigger["F1"]()
    assert window.page == MainWindow.HELP
    trigger["Ctrl+,"]()
    assert window.page == MainWindow.SETTINGS
    window.sidebar._history.save_chat(Chat("c", "Old", 1.0, 2.0))
    window.sidebar.refresh()
    window.sidebar.select("c")
    trigger["F2"]()
    assert window.page == MainWindow.CHAT
    assert window.sidebar.list.viewport().findChild(QLineEdit).text() == "Old"
    trigger["Ctrl+N"]()
    trigger["Ctrl+Shift+O"]()
    assert not window.panel.isVisible()
    trigger["Ctrl+/"]()
    dialog = window.findChild(ShortcutsDialog)
    words = {label.text() for label in dialog.findChildren(QLabel)}
    assert {entry.words for entry in TABLE} <= words
    dialog.close()


def test_escape_stops_from_wherever_nobody_else_wants_it(qtbot, program, monkeypatch):
    stopped = []
    monkeypatch.setattr(program.chat, "stop", lambda: stopped.append(1))
    qtbot.keyClick(program.window.panel.row("kv_cache").findChild(Toggle), Qt.Key.Key_Escape)
    qtbot.keyClick(program.sidebar.search, Qt.Key.Key_Escape)
    assert len(stopped) == 2
    program.window.show_page(MainWindow.HELP)
    qtbot.keyClick(program.window.findChild(HelpPage).search_field, Qt.Key.Key_Escape)
    assert len(stopped) == 3


def test_everything_interactive_has_an_accessible_name(qtbot, program):
    ask(qtbot, program, "show me code")
    for page in (MainWindow.CHAT, MainWindow.HELP, MainWindow.SETTINGS):
        program.window.show_page(page)
        QApplication.processEvents()
    assert nameless(program.window) == []


def test_the_search_for_nameless_widgets_finds_them(qtbot):
    holder = QWidget()
    qtbot.addWidget(holder)
    QLineEdit(holder)
    QToolButton(holder)
    QPushButton("named", holder)
    assert len(nameless(holder)) == 2


def test_a_broken_settings_file_is_a_notice(qtbot, make_program, own_folders):
    folder = own_folders / "kvasir" / "config"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{")
    program = make_program(model=False)
    assert "could not be read" in program.window.notice.text


@pytest.mark.qt_log_ignore("does not support raise", extend=True)
def test_a_second_start_brings_the_window_back(qtbot, make_program):
    window = make_program(model=False).window
    window.setWindowState(Qt.WindowState.WindowMinimized)
    window.presence.to_front()
    assert not window.windowState() & Qt.WindowState.WindowMinimized
    assert window.isVisible()


def test_closing_ends_the_engine(qtbot, make_program):
    program = make_program(process=True)
    pid = program.link.engine_pid
    program.close()
    program.close()
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
