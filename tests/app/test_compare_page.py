"""Columns compared from the window, with made-up figures behind the page, and once with the true ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QPushButton, QSpinBox, QTextEdit, QWidget

from app.chat.elsewhere import reason
from app.chat.welcome import BUNDLED
from app.lab.compare import words
from app.lab.compare.page import ComparePage
from app.lab.compare.result import SHOWN
from app.lab.figures import Dots
from app.link.calls import Caller
from app.link.link import EngineLink
from app.texts.side_by_side import MarkedText
from app.theme.theme import Theme
from engine.protocol import KnownModel, Metric, RemoteModel
from engine.protocol.compared import FAULT, ROUNDING, amount
from engine.protocol.lab import Column, CompareColumns
from tests.app import fake_compare
from tests.app.lab_support import FakeCaller, true_engine
from tests.app.naming import nameless
from tests.app.pressing import button_of, press
from tests.app.specs import choice, number, switch

KV = choice(
    "16bit", key="kv_kind", title="KV cache precision", group="Cache", default="16bit", choices=["16bit", "int8"],
    choice_titles=["16-bit", "8-bit (per group)"], compare=["16bit", "int8"],
)  # fmt: skip
EXACT = switch(key="batch_invariant", title="Batch invariance", default=False, value=False)
CATALOGUE = [KV, switch(), choice(), number(), EXACT]
BIG = RemoteModel(server="lab", model="big & wide")
OWN = KnownModel(name="Qwen3-0.6B", path="/models/a, b: c = d")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"way": "well", "waits": 0.0}))
    return path


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.fixture
def start(qtbot, qapp) -> Iterator[Callable[..., ComparePage]]:
    pages = []

    def begin(caller: Caller | None) -> ComparePage:
        page = ComparePage(caller, Theme("dark", 1.0, True))
        pages.append(page)
        qtbot.addWidget(page)
        page.resize(1000, 700)
        page.columns.set_catalogue(CATALOGUE)
        page.columns.set_models([KnownModel(name=BUNDLED, path="/bundled"), OWN])
        page.show()
        return page

    yield begin
    for page in pages:
        page.comparison.close_down()


@pytest.fixture
def true(qtbot) -> Iterator[EngineLink]:
    with true_engine(qtbot) as link:
        yield link


@pytest.fixture
def page(start, state: Path) -> ComparePage:
    return start(FakeCaller({"lab.compare": partial(fake_compare.compare, state)}))


def compare(qtbot, page: ComparePage) -> None:
    with qtbot.waitSignal(page.done):
        press(page, "compare.run")
    if page.result is not None:
        qtbot.waitUntil(lambda: page.result.rest.over)


def add(page: ComparePage, at: int, key: str) -> None:
    press(page.columns.cards[at], f"compare.add.{key}")


def asked(state: Path) -> CompareColumns:
    return msgspec.convert(json.loads(state.read_text())["request"], CompareColumns)


def texts(page: ComparePage, name: str) -> list[str]:
    assert page.result is not None
    return [label.text() for label in page.result.findChildren(QLabel, name)]


def test_two_columns_from_the_cards_to_the_result(qtbot, page, state):
    add(page, 1, "kv_kind")
    assert page.columns.cards[1].name.placeholderText() == "KV cache precision 8-bit"
    assert not button_of(page.columns.cards[1], "compare.add.kv_kind").isVisible()  # it is set already
    assert nameless(page) == []
    compare(qtbot, page)
    assert asked(state).columns == [
        Column(name="baseline", model=BUNDLED),
        Column(name="KV cache precision 8-bit", model=BUNDLED, set={"kv_kind": "int8"}),
    ]
    assert page.note.isHidden()
    assert texts(page, "compare.median")[:4] == ["151.2", "212", "14.5 ms", "14.6 ms"]
    verdicts = texts(page, "compare.verdict")
    assert verdicts[:4] == [
        "1.41× more (1.40–1.41 in 8 pairs)",
        "no clear difference (0.99–1.01 in 8 pairs)",
        "1.20× less",
        "no ratio: one of them is 0",
    ]
    assert texts(page, "compare.text") == ["Differs from token 11 on: log-probabilities 0.412 apart."] * 2
    assert "perplexity 12.600 against 12.500" in texts(page, "compare.quality")[0]
    assert texts(page, "compare.taken") == ["Each column answered every prompt in 8 tokens."]
    assert texts(page, "compare.absent") == ["Energy: no counter was found."]
    marks = [view.extraSelections() for view in page.result.findChildren(QTextEdit)[:2]]
    assert [mark[1].cursor.selectedText() for mark in marks] == ["16", "sixteen"]
    assert nameless(page) == []


def test_a_result_comes_a_row_or_a_text_at_a_time(qtbot, page, state):
    """So that no turn of the event loop is long."""
    change(state, prompts=5)
    with qtbot.waitSignal(page.comparison.found):
        press(page, "compare.run")
    told, seen = page.result.told, [0, 0]
    while not page.result.rest.over:
        page.result.rest.step()
        now = [len(page.result.findChildren(kind)) for kind in (Dots, MarkedText)]
        assert sum(now) - sum(seen) <= len(told.columns)
        seen = now
    rows = sum(len(kind.figures) for kind in told.kinds)
    assert seen == [rows * len(told.columns), len(told.kinds) * SHOWN * len(told.columns)]
    assert texts(page, "compare.taken") == [told.taken]
    qtbot.waitUntil(lambda: not page.busy)


def test_of_many_prompts_the_texts_are_shown_when_they_are_asked_for(qtbot, page, state):
    change(state, prompts=11)
    compare(qtbot, page)
    assert len(page.result.findChildren(MarkedText)) == 2 * 2 * SHOWN
    press(page.result, "compare.texts.prose")
    qtbot.waitUntil(lambda: len(page.result.findChildren(MarkedText)) == 2 * (11 + SHOWN))
    assert button_of(page.result, "compare.texts.prose").isHidden()


@pytest.mark.parametrize(
    ("value", "told"), [(0.034, "0.034 tokens/s"), (151.23, "151.2 tokens/s"), (12_345.6, "12,346 tokens/s")]
)
def test_figures_are_told_without_powers_of_ten(value, told):
    assert amount(value, Metric(unit="tokens/s")) == told


def test_the_dots_of_a_row_share_a_scale(qtbot, page):
    add(page, 1, "kv_kind")
    compare(qtbot, page)
    one, other = page.result.findChildren(Dots)[:2]
    assert "151.2" in one.accessibleDescription(), "as finely as their median"
    assert one.runs == [[151.2, 148.0, 155.1]]
    assert other.runs == [[212.0, 208.4, 219.3]]
    assert one.at(148.0) < one.at(151.2) < one.at(155.1) < one.at(208.4) < one.at(219.3) <= one.width()
    assert abs(one.width() - other.width()) <= 1, "columns of a page of an odd width"
    assert one.at(180.0) == pytest.approx(other.at(180.0), abs=1.0)


def test_a_lossless_column_that_differs_is_called_a_fault_where_arithmetic_is_exact(qtbot, page, state):
    change(state, lossless=True)
    add(page, 1, "kv_cache")
    compare(qtbot, page)
    (said, _) = page.result.findChildren(QLabel, "compare.text")
    assert said.text().endswith(ROUNDING)
    assert said.property("role") != "bad"
    for column in (0, 1):
        add(page, column, "batch_invariant")
    compare(qtbot, page)
    (said, _) = page.result.findChildren(QLabel, "compare.text")
    assert said.text().endswith(FAULT)
    assert said.property("role") == "bad"


def test_columns_alike_are_compared_and_told_apart(qtbot, page, state):
    compare(qtbot, page)
    assert [column.name for column in asked(state).columns] == ["baseline", "nothing changed"]
    assert set(texts(page, "compare.verdict")) == {"no clear difference"}
    assert texts(page, "compare.text") == ["Identical, 8 tokens."] * 2
    assert not any(view.extraSelections() for view in page.result.findChildren(QTextEdit))


def test_cards_are_changed_duplicated_and_removed(qtbot, page, state):
    first, second = page.columns.cards
    add(page, 1, "draft_length")
    add(page, 1, "kv_cache")
    second.findChild(QSpinBox, "draft_length.value").lineEdit().setText("7")  # typed, and not yet left
    press(second, f"compare.model.{OWN.path}")
    press(second, "compare.quantise.nf4")
    second.name.setText("mine: a, b = c")
    press(second, "compare.duplicate")
    assert page.columns.cards[1] is second
    copy = page.columns.cards[2].column
    assert copy.name == "Qwen3-0.6B, NF4, Draft length 7, KV cache off"
    assert (copy.model, copy.quantise, copy.set) == (OWN.path, "nf4", {"draft_length": 7, "kv_cache": False})
    press(first, "compare.remove")
    assert [card.column.name for card in page.columns.cards] == ["mine: a, b = c", copy.name]
    assert all(card.findChild(QPushButton, "compare.remove").isHidden() for card in page.columns.cards)
    row = page.columns.cards[1].settings["kv_cache"]
    row.findChild(QWidget, "compare.remove.kv_cache").click()
    assert page.columns.cards[1].column.set == {"draft_length": 7}
    page.columns.set_models([])  # the model of the cards went away
    compare(qtbot, page)
    assert [column.model for column in asked(state).columns] == [OWN.path] * 2
    for _ in range(len(words.LETTERS) - 2):
        press(page, "compare.more")
    assert not page.columns.more.isEnabled()


def test_another_server_s_model_is_a_column_without_settings(qtbot, page, state):
    first, second = page.columns.cards
    add(page, 1, "kv_kind")
    press(second, "compare.quantise.nf4")
    page.columns.set_models([OWN], {"lab": [BIG], "gone": []})
    assert [action.text() for action in second.model.menu().actions() if not action.isEnabled() and action.text()] == [
        "lab", "gone: no models told",
    ]  # fmt: skip
    assert first.findChild(QAction, f"compare.model.lab: {BIG.model}") is None, "column A is the baseline"
    press(second, f"compare.model.lab: {BIG.model}")
    why = reason(BIG)
    assert (second.elsewhere.text(), second.elsewhere.isVisible()) == (why, True)
    for widget in (second.quantise, second.add, second.settings["kv_kind"].in_order[0]):
        assert not widget.isEnabled()
        assert widget.toolTip().replace("\n", " ") == why
    page.columns.set_models([OWN])  # the server was removed meanwhile
    press(second, "compare.duplicate")
    compare(qtbot, page)
    there = Column(name="big & wide on lab", remote=BIG)
    assert asked(state).columns[1:] == [there, msgspec.structs.replace(there, name=f"{there.name} (C)")]
    assert texts(page, "compare.missing")[:2] == ["–", "–"]
    assert texts(page, "compare.remark")[:2] == ["Not seen from here."] * 2
    assert texts(page, "compare.median")[:3] == ["151.2", "151.2", "151.2"], "its times are seen"
    assert {label.property("role") for label in page.result.findChildren(QLabel, "compare.text")} == {"caption"}
    assert nameless(page) == []
    page.columns.set_models([OWN], {"lab": [BIG]})
    press(second, f"compare.model.{OWN.path}")
    assert second.elsewhere.isHidden()
    assert second.column.set == {"kv_kind": "int8"}, "as they were before"
    press(second, f"compare.model.lab: {BIG.model}")
    press(first, "compare.remove")
    press(page, "compare.run")
    assert page.note.text() == words.FIRST_HERE
    assert not page.busy


def test_what_the_columns_are_to_do(qtbot, page, state, tmp_path, monkeypatch):
    assert not page.findChild(QPushButton, "compare.prompts.chat").isEnabled()
    page.set_prompts(["What is a page?", "And a pool?"])
    press(page, "compare.prompts.chat")
    page.tokens.setValue(32)
    page.rounds.setValue(3)
    page.comparison.device = lambda: "cpu"
    compare(qtbot, page)
    told = asked(state)
    assert (told.tokens, told.pairs, told.device) == (32, 3, "cpu")
    assert told.prompts == ["What is a page?", "And a pool?"]
    page.set_prompts([])  # an empty chat
    prompts, text = tmp_path / "prompts.jsonl", tmp_path / "text.txt"
    press(page, "compare.prompts.file")
    press(page, "compare.run")
    assert page.note.text() == "Choose a file of prompts."
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(prompts), ""))
    press(page, "compare.file.choose")
    press(page, "compare.run")
    assert page.note.text() == f"There is no file {prompts}. Choose one."
    assert not page.busy
    prompts.write_text("{}")
    page.text.setText(str(text))
    press(page, "compare.run")
    assert page.note.text() == f"There is no file {text}. Choose one."
    text.write_text("words")
    compare(qtbot, page)
    told = asked(state)
    assert (told.prompts, told.prompts_file, told.text_file) == ([], str(prompts), str(text))


def test_progress_and_cancel_keep_what_is_on_the_page(qtbot, page, state):
    add(page, 1, "kv_kind")
    compare(qtbot, page)
    before = page.result
    change(state, waits=60.0)
    page.activateWindow()
    page.go.setFocus()
    press(page, "compare.run")
    assert QApplication.focusWidget() is page.cancel
    qtbot.waitUntil(lambda: page.status.text() == "Prose, run 3: baseline")
    assert (page.bar.value(), page.bar.maximum()) == (2, 6)
    page.set_blocked("Another experiment is running.")
    page.set_blocked("")
    assert page.status.text() == "Prose, run 3: baseline"
    with qtbot.waitSignal(page.done):
        qtbot.keyClick(page.cancel, Qt.Key.Key_Escape)
        assert page.status.text() == words.STOPPING
        assert page.busy
    assert not page.busy
    assert page.note.text() == words.STOPPED
    assert page.result is before
    assert QApplication.focusWidget() is page.go


def test_a_run_without_a_result_says_why_and_keeps_the_last_one(qtbot, page, state):
    compare(qtbot, page)
    before = page.result
    change(state, way="fails")
    compare(qtbot, page)
    assert page.note.text() == "There is no model 'gone'. Give the full path of a model folder."
    assert page.note.property("role") == "bad"
    assert page.result is before
    change(state, way="well")
    compare(qtbot, page)
    assert page.note.isHidden()
    assert page.result is not before


def test_the_report_and_the_figures_are_saved(qtbot, page, state, tmp_path, monkeypatch):
    assert not page.findChild(QPushButton, "compare.save.html").isVisible()
    add(page, 1, "kv_kind")
    compare(qtbot, page)
    change(state, way="fails")
    compare(qtbot, page)  # those of the result on show stay
    for kind, begins in (("html", "<!doctype html>"), ("json", '{\n "type": "LabCompared"')):
        path = tmp_path / f"mine.{kind}"
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, path=path: (str(path), ""))
        press(page, f"compare.save.{kind}")
        assert path.read_text().startswith(begins)
        assert page.note.text() == f"Saved as {path}."
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path), ""))
    press(page, "compare.save.html")
    assert page.note.text() == "The file could not be written: Is a directory. Choose another place."
    assert page.result is not None


def test_nothing_runs_where_it_is_blocked(start, page):
    page.set_blocked("An answer is being written.")
    assert not page.go.isEnabled()
    assert page.status.text() == "An answer is being written."
    page.set_blocked("")
    assert page.go.isEnabled()
    assert start(None).status.text() == words.NO_COMPARE


def test_the_keyboard_reaches_all(qtbot, page):
    add(page, 0, "kv_kind")
    press(page.columns.cards[0], "compare.duplicate")
    compare(qtbot, page)
    reached: list[QWidget] = []
    page.activateWindow()
    page.columns.cards[0].name.setFocus()
    while (now := QApplication.focusWidget()) not in reached:
        reached.append(now)
        qtbot.keyClick(now, Qt.Key.Key_Tab)
    for button in page.findChildren(QPushButton):
        if button.isVisible() and button.isEnabled() and button.property("kind") != "segment":
            assert button in reached, button.objectName()
    cards = [page.columns.cards.index(card) for card in _cards_of(page, reached)]
    assert cards == sorted(cards)


def _cards_of(page: ComparePage, widgets: list[QWidget]) -> list[Any]:
    return [card for widget in widgets for card in page.columns.cards if card.isAncestorOf(widget)]


def test_narrow_and_large(page):
    page.resize(800, 600)
    QApplication.processEvents()
    assert page.columns.cards[0].y() == page.columns.cards[1].y()
    page.resize(500, 600)
    QApplication.processEvents()
    assert page.columns.cards[0].y() < page.columns.cards[1].y()


@pytest.mark.slow
def test_a_true_comparison(qtbot, start, true, tmp_path, monkeypatch):
    page = start(true)
    add(page, 1, "kv_kind")
    page.tokens.setValue(4)
    page.rounds.setValue(1)
    page.set_prompts(["What is a page?"])
    press(page, "compare.prompts.chat")
    compare(qtbot, page)
    assert page.note.text() == ""
    told = page.result.told
    assert [kind.kind for kind in told.kinds] == ["this chat"]
    assert told.columns[1].set == {"kv_kind": "int8"}
    assert texts(page, "compare.median")[0] != "0"
    assert len(texts(page, "compare.text")) == 1
    report = tmp_path / "report.html"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(report), ""))
    press(page, "compare.save.html")
    assert "What is a page?" in report.read_text()
