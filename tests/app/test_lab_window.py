"""The Lab in the assembled program: its tab, the engine's memory, and what it changes in chats."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QMessageBox

from app.chat.session.queued import WAITS_FOR_LAB
from app.lab import words
from app.lab.page import LabView
from app.link.calls import GONE
from app.program import WindowProgram
from app.shortcuts import TABLE
from app.window.window import MainWindow
from engine import protocol
from engine.protocol.lab import RunExperiment
from engine.protocol.library import StoredModel
from tests.app.conftest import ask
from tests.app.lab_support import asked, change, lab_of, said
from tests.app.naming import nameless
from tests.app.pressing import press


@pytest.fixture
def program(start, state: Path) -> WindowProgram:
    program = start("--rate", "2000")
    fake, call = lab_of(state), program.link.call

    def perform(operation: Any, *details: Any) -> Any:
        return (fake.call if operation.name.startswith("lab.") else call)(operation, *details)

    program.link.call = perform
    return program


@pytest.fixture
def lab(qtbot, program: WindowProgram) -> LabView:
    program.window.show_page(MainWindow.LAB)
    view = program.lab_page.inner
    assert view is not None
    qtbot.waitUntil(lambda: view._runs.index is not None)
    return view


@pytest.fixture
def sent(program: WindowProgram, monkeypatch: pytest.MonkeyPatch) -> list[protocol.Message]:
    """What is sent to the engine from now on, which gets it."""
    messages: list[protocol.Message] = []
    send = program.link.send

    def note(message: protocol.Message) -> None:
        messages.append(message)
        send(message)

    monkeypatch.setattr(program.link, "send", note)
    return messages


def of(sent: list[protocol.Message], *kinds: type) -> list[protocol.Message]:
    return [message for message in sent if isinstance(message, kinds)]


def run_own(lab: LabView) -> None:
    lab.show_experiment("prefixes")
    press(lab, "lab.model.own")
    press(lab, "lab.run")


def test_it_is_made_when_it_is_first_shown_and_has_the_keyboard(qtbot, program, monkeypatch):
    assert program.lab is None
    assert program.lab_page.inner is None
    keys = next(entry.keys for entry in TABLE if entry.action == "show_lab")
    shortcut = next(each for each in program.window.commands.shortcuts if each.key().toString() == keys)
    shortcut.activated.emit()
    assert program.window.page == MainWindow.LAB
    view = program.lab_page.inner
    qtbot.waitUntil(lambda: view._runs.index is not None)
    assert program.window._parts() == [program.window.bar, program.lab_page]
    assert QApplication.focusWidget() is view.topics or not program.window.isActiveWindow()
    assert nameless(program.window) == []
    stopped = []
    monkeypatch.setattr(program.chat, "stop", lambda: stopped.append(1))
    qtbot.keyClick(view.topics, Qt.Key.Key_Escape)  # no experiment runs
    assert stopped == [1]


def test_ones_own_model_is_run_as_it_is_loaded(qtbot, program, lab, sent, state):
    order = program.link.last_load
    run_own(lab)
    qtbot.waitUntil(lambda: not lab._runs.running)
    assert asked(state) == [RunExperiment(name="prefixes", model="/models/tiny", draft=order.draft)]
    assert of(sent, protocol.Unload, protocol.Load) == []
    qtbot.waitUntil(lambda: said(lab, "lab.headline").startswith("10.5 times"))
    assert lab.models.isVisibleTo(lab)
    assert said(lab, "lab.memory") == words.memory("tiny")  # it is still chosen


def test_nothing_runs_while_a_model_is_being_loaded(qtbot, program, lab, sent):
    lab.show_experiment("prefixes")
    program.chat.loads.load_now("odd")
    assert said(lab, "lab.status") == words.LOADING
    assert not lab.view.run.isEnabled()
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == "odd")
    qtbot.waitUntil(lab.view.run.isEnabled)
    program.chat.loads.load_now("missing")
    qtbot.waitUntil(lab.view.run.isEnabled)  # it failed


def test_an_engine_that_dies_meanwhile_is_told_and_started_again(qtbot, program, lab, state, monkeypatch):
    monkeypatch.setattr(lab._runs, "_caller", SimpleNamespace(call=program.link._calls.call))  # the fake engine's
    lab.show_experiment("prefixes")
    press(lab, "lab.run")
    qtbot.waitUntil(lambda: lab._runs._run.sent)
    with qtbot.waitSignal(program.link.loaded):
        program.link.restart()
    assert not lab._runs.running
    assert said(lab, "lab.note") == GONE


def test_nothing_runs_while_an_answer_is_written(qtbot, program, lab, sent, state):
    lab.show_experiment("prefixes")
    program.chat.send("slow")
    qtbot.waitUntil(lambda: said(lab, "lab.status") == words.BUSY)
    assert not lab.view.run.isEnabled()
    program.chat.stop()
    qtbot.waitUntil(lab.view.run.isEnabled)


def test_what_can_wait_is_asked_when_the_lab_is_finished(qtbot, program, lab, state, sent):
    change(state, steps=-1)
    lab.show_experiment("prefixes")
    press(lab, "lab.run")
    program.window.show_page(MainWindow.CHAT)
    program.chat.composer.edit.setPlainText("hello there")
    program.chat.composer.edit.submitted.emit()
    assert [message.content for message in program.chat.session.talk.path] == ["hello there"]
    assert program.chat.sending.waits.accessibleName() == WAITS_FOR_LAB
    assert of(sent, protocol.Generate) == []
    lab._runs.cancel()
    with qtbot.waitSignal(program.link.finished):
        pass
    assert program.chat.sending.waits.isHidden()


def test_a_model_asked_for_meanwhile_is_loaded_later_which_is_said(qtbot, program, lab, state, sent):
    change(state, steps=-1)
    lab.show_experiment("prefixes")
    press(lab, "lab.run")
    program.chat.loads.load("/models/odd", None)
    assert len(of(sent, protocol.Load)) == 1  # which the engine keeps until then
    assert program.chat.notice.text == words.LATER
    lab._runs.cancel()
    qtbot.waitUntil(lambda: not lab._runs.running)
    assert program.chat.notice.text == ""


def test_quitting_asks_while_an_experiment_runs(qtbot, program, lab, state):
    change(state, steps=-1)
    lab.show_experiment("prefixes")
    press(lab, "lab.run")
    assert not program.window.close()
    box = program.window.findChild(QMessageBox, "window.leave")
    assert box.text() == "The Lab is measuring. Quitting ends that. Downloads and quantising go on next time."
    assert not program.window.close()
    assert program.window.findChildren(QMessageBox, "window.leave") == [box]
    box.button(QMessageBox.StandardButton.Cancel).click()
    assert program.window.isVisible()
    lab._runs.cancel()
    qtbot.waitUntil(lambda: not lab._runs.running)
    assert program.window.close()


def test_one_measurement_at_a_time(qtbot, program, lab, state):
    ask(qtbot, program)
    reasons: list[str] = []
    program.window.panel.set_measurable = reasons.append
    measuring = program.measuring
    measuring._cost = ("1", "kv_kind")
    measuring.changed.emit()
    lab.show_experiment("prefixes")
    assert said(lab, "lab.status") == words.MEASURING
    measuring._end_cost()
    assert lab.view.run.isEnabled()
    for tool in ("prefixes", "roofline", "compare"):
        change(state, steps=-1)
        lab.show_experiment(tool)
        if tool == "compare":
            lab.compare.comparison._run = object()
            lab.compare.comparison.changed.emit()
        else:
            press(lab, "lab.run" if tool == "prefixes" else "lab.roofline.run")
        assert reasons[-1] == words.TAKEN, tool
        lab._runs.cancel()
        qtbot.waitUntil(lambda: not lab._runs.running)
    lab.compare.comparison._end("")
    assert reasons[-1] == ""


def test_the_comparison_learns_of_new_models(program, lab):
    new = StoredModel(name="New <b>", path="/models/new", format="safetensors", bytes=1)
    program.library.stored = [new]
    program.library.stored_changed.emit()
    assert lab.compare.findChild(QAction, "compare.model./models/new") is not None


def test_what_was_shown_is_used_in_chats(qtbot, program, lab, sent):
    lab.show_experiment("cache")
    with qtbot.waitSignal(program.link.options):
        press(lab, "lab.use")
    assert of(sent, protocol.Set) == [protocol.Set(key="kv_cache", value=False)]
    assert said(lab, "lab.used") == "Your chats use it from now on: KV cache: off."
    qtbot.waitUntil(lambda: program.window.panel.spec("kv_cache").value is False)
    press(lab, "lab.use")
    assert said(lab, "lab.used") == words.USED_ALREADY
    assert lab.use({"quest": True}) == "QUEST sparse pages: Needs a context above 4,096 tokens."
    assert lab.use({"unheard of": True}) == words.NO_SWITCH
    assert len(of(sent, protocol.Set)) == 1


def test_the_window_closes_in_the_middle_of_a_run(qtbot, program, lab, state):
    change(state, steps=-1)
    run_own(lab)
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))
    program.close()
    assert json.loads(program.store.path.read_text())["model"] == "tiny"  # the next start loads it


def test_a_row_of_the_panel_leads_to_its_experiment_before_the_lab_knows_any(qtbot, program) -> None:
    window = program.window
    window.panel.row("kv_cache").learn.click()
    view = program.lab_page.inner
    assert (window.page, view._runs.index) == (MainWindow.LAB, None)
    qtbot.waitUntil(lambda: view.open_page == "prefixes")
    assert view.view is not None
