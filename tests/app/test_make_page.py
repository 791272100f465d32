"""A smaller model made from the Models page, with a fake `kvasir quantise` behind it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMessageBox, QPushButton

from app.models import make_words, words
from app.models.page import ModelsPage
from app.models.rows import JobRow
from app.models.state.library import ModelLibrary
from app.theme.theme import Theme
from app.theme.widgets import FillBar
from engine.protocol import LayerError, MakeProgress, MakeReport, ModelQuality, StoredModel
from engine.protocol.operations import ModelList
from tests.app.fake_quantise import LAYERS, editing
from tests.app.naming import nameless
from tests.app.pressing import button_of, press
from tests.app.tabbing import tab_reaches_all
from tests.kit.operations import ScriptedOperations

FAKE = Path(__file__).with_name("fake_quantise.py")
BIG = {
    "name": "Qwen3-0.6B", "path": "/models/Qwen3-0.6B", "format": "safetensors", "bytes": 1_500_000_000,
    "quantisation": "bfloat16", "embedding_bytes": 300_000_000,
}  # fmt: skip
SMALL = {"name": "a-Q4_0.gguf", "path": "/a-Q4_0.gguf", "format": "gguf", "bytes": 10_000_000, "quantisation": "Q4_0"}
GPTQ = "models.make.Qwen3-0.6B.gptq"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"stored": [BIG, SMALL], "makes": {}, "reports": {}, "steps": 0.01, "fails": ""}))
    return path


def change(path: Path, **facts: Any) -> None:
    with editing(path) as state:
        state.update(facts)


def library_of(state: Path) -> ModelLibrary:
    fake = [sys.executable, "-S", str(FAKE), str(state)]
    answers = {
        "models.list": lambda _: listed(state),
        "models.unfinished": lambda asked: unfinished(state, asked.discard),
    }
    return ModelLibrary(ScriptedOperations(answers), quantise=[*fake, "quantise"])


def listed(state: Path) -> ModelList:
    with editing(state) as now:
        return ModelList(
            models=msgspec.convert([{"type": "StoredModel", **each} for each in now["stored"]], list[StoredModel])
        )


def unfinished(state: Path, discard: str) -> list[MakeProgress]:
    with editing(state) as now:
        if discard:
            del now["makes"][discard]
        makes = [{"type": "MakeProgress", **each} for each in now["makes"].values()]
    return msgspec.convert(makes, list[MakeProgress])


@pytest.fixture
def start(qtbot, qapp, state: Path) -> Iterator[Callable[[], ModelsPage]]:
    """A page as a start of the program makes it."""
    libraries = []

    def begin() -> ModelsPage:
        library = library_of(state)
        libraries.append(library)
        page = ModelsPage(library, Theme("dark", 100, True))
        qtbot.addWidget(page)
        page.resize(900, 700)
        page.show()
        qtbot.waitUntil(lambda: len(page.stored_rows) >= 2)
        return page

    yield begin
    for library in libraries:
        library.close_down()


@pytest.fixture
def page(start) -> ModelsPage:
    return start()


def test_tab_reaches_all_of_the_form(qtbot, page):
    press(page, "models.stored.Qwen3-0.6B.make")
    press(page, "models.make.format.gguf")
    tab_reaches_all(qtbot, page)


def make(page: ModelsPage, *choices: str) -> None:
    press(page, "models.stored.Qwen3-0.6B.make")
    for choice in choices:
        press(page, choice)
    press(page, "models.make.go")


def states(page: ModelsPage) -> list[str]:
    return [job.state for job in page._library.maker.jobs.values()]


def rows(page: ModelsPage) -> list[JobRow]:
    return list(page._tray.makes.values())


def begun(qtbot, page: ModelsPage) -> None:
    """Waits until the first layer is done; the second takes as long as the test wants."""
    qtbot.waitUntil(lambda: any(f"1 of {LAYERS} layers" in row.about.text() for row in rows(page)))


def test_from_the_form_to_the_report(qtbot, page):
    assert button_of(page, "models.stored.a-Q4_0.gguf.make") is None
    make(page)
    assert page.form is None
    (row,) = rows(page)
    assert row.title.text() == "GPTQ of Qwen3-0.6B"
    qtbot.waitUntil(lambda: not rows(page) and len(page.stored_rows) == 3)
    assert page._tray.isHidden()
    made = page.stored_rows[-1]
    assert "made of Qwen3-0.6B" in made.about.text()
    press(page, "models.stored.Qwen3-0.6B-gptq.report")
    qtbot.waitUntil(page.report.isVisible)
    said = {label.text() for label in page.report.findChildren(QLabel)}
    assert {"1.5 GB", "540 MB", "12.50", "12.80", "+2.4 %", "20.0", "36.0", "0.031 nats", "94.2 %"} <= said
    assert "one run each, no verdict" in said
    assert {"layers.27.mlp.down_proj", "2.1 %", "5.0 %"} <= said
    ours, rounded = (bar.fraction for bar in page.report.findChildren(FillBar)[2:4])  # after the legend's
    assert (ours, rounded) == (pytest.approx(1 / 2.4), 1.0)
    assert nameless(page) == []
    with qtbot.waitSignal(page.load_asked) as asked:
        press(page, "models.report.load")
    page.set_loaded(asked.args[0])
    assert not page.findChild(QPushButton, "models.report.load").isEnabled()
    press(page, "models.report.back")
    assert not page.report.isVisible()
    assert page.stored_rows[-1].badge.text() == "loaded"


def test_it_is_paused_found_again_and_goes_on(qtbot, start, state):
    change(state, steps=-0.01)
    page = start()
    make(page)
    begun(qtbot, page)
    press(page, f"{GPTQ}.pause")
    assert not page.findChild(QPushButton, f"{GPTQ}.pause").isEnabled()
    assert "stopping" in rows(page)[0].about.text()
    qtbot.waitUntil(lambda: states(page) == ["paused"] and not page._library.maker.running)
    assert rows(page)[0].about.text() == f"paused · 1 of {LAYERS}"
    page._library.close_down()
    again = start()  # as the next start of the program finds it
    qtbot.waitUntil(lambda: states(again) == ["paused"])
    change(state, steps=0.01)
    press(again, f"{GPTQ}.resume")
    qtbot.waitUntil(lambda: len(again.stored_rows) == 3)
    assert not states(again)


def test_what_is_made_goes_on_after_the_window_was_closed(qtbot, start, state, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("words")
    change(state, steps=-0.01)
    page = start()
    press(page, "models.stored.Qwen3-0.6B.make")
    page.form.text.setText(str(text))
    press(page, "models.make.go")
    begun(qtbot, page)
    page._library.close_down()
    assert [each["state"] for each in json.loads(state.read_text())["makes"].values()] == ["paused"]
    change(state, steps=0.01)
    again = start()
    qtbot.waitUntil(lambda: states(again) == ["paused"])
    press(again, f"{GPTQ}.resume")
    qtbot.waitUntil(lambda: again._library.maker.jobs and states(again) != ["paused"])
    (key,) = again._library.maker.jobs
    assert key == (BIG["path"], "gptq", "--text", str(text))  # with the same text
    qtbot.waitUntil(lambda: len(again.stored_rows) == 3)


def test_one_at_a_time(qtbot, start, state):
    change(state, steps=-0.01)
    page = start()
    make(page)
    make(page, "models.make.format.nf4")
    begun(qtbot, page)
    assert [row.about.text() for row in rows(page)][1] == "queued"
    press(page, "models.make.Qwen3-0.6B.nf4.cancel")
    assert len(rows(page)) == 1
    make(page, "models.make.format.gguf", "models.make.type.gguf-q8_0")
    change(state, steps=0.01)
    press(page, f"{GPTQ}.cancel")
    box = page.findChild(QMessageBox, "models.discard")
    assert box.text() == "Discard GPTQ of Qwen3-0.6B? What was done of it is deleted."
    next(button for button in box.buttons() if button.text() == "Discard").click()
    qtbot.waitUntil(lambda: [row.name for row in page._library.stored][2:] == ["Qwen3-0.6B-gguf-q8_0"])
    qtbot.waitUntil(lambda: not page._library.maker.jobs)
    assert json.loads(state.read_text())["makes"] == {}  # the first was deleted


def test_a_failure_says_why_and_can_be_tried_again(qtbot, start, state):
    change(state, fails="The disk is full. Make room, then try again.")
    page = start()
    make(page)
    qtbot.waitUntil(lambda: states(page) == ["failed"] and not page._library.maker.running)
    (row,) = rows(page)
    assert row.about.text() == "The disk is full. Make room, then try again."
    assert row.about.property("role") == "bad"
    making = page._library.maker
    for makes in (
        {key: {**each, "state": "paused"} for key, each in json.loads(state.read_text())["makes"].items()},
        {},
    ):
        change(state, makes=makes)  # it is listed as paused, and not at all
        with qtbot.waitSignal(making.changed):
            page._library.maker.refresh()  # as when the page is shown again
        assert row.about.text() == "The disk is full. Make room, then try again."
    change(state, fails="")
    press(page, f"{GPTQ}.resume")
    qtbot.waitUntil(lambda: len(page.stored_rows) == 3)


def test_a_command_that_dies_without_a_word_is_a_failure(qtbot, start, state):
    page = start()
    make(page)
    change(state, makes=[])  # the fake falls over it
    qtbot.waitUntil(lambda: states(page) == ["failed"])
    assert "kvasir quantise stopped (exit code 1)" in rows(page)[0].about.text()


def test_the_form(qtbot, page, monkeypatch, tmp_path):
    press(page, "models.stored.Qwen3-0.6B.make")
    form = page.form
    assert form.room.text() == "about 612 MB (an estimate), now 1.5 GB"
    assert "minutes to hours" in form.about.text()
    assert nameless(page) == []
    form.text.setText("/nowhere/text.txt")
    press(page, "models.make.go")
    assert "There is no file /nowhere/text.txt." in form.wrong.text()
    assert states(page) == []
    text = tmp_path / "text.txt"
    text.write_text("words")
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(text), ""))
    press(page, "models.make.choose")
    assert form.text.text() == str(text)
    assert form.wrong.isHidden()
    press(page, "models.make.format.int8")
    assert not form.text.isEnabled()
    press(page, "models.make.format.gguf")
    assert form.to == "gguf-q4_0"
    assert form.text.isHidden()
    assert "takes seconds to minutes" in form.about.text()
    press(page, "models.make.format.awq")
    (tmp_path / "link.txt").symlink_to(text)
    form.text.setText(str(tmp_path / "link.txt"))
    with qtbot.waitSignal(form.asked) as asked:
        press(page, "models.make.go")
    assert asked.args == ["awq", str(text.resolve())]  # as the command names it


def test_the_keyboards_way(qtbot, qapp, page):
    page.activateWindow()
    button = page.findChild(QPushButton, "models.stored.Qwen3-0.6B.more")
    button.setFocus()
    press(page, "models.stored.Qwen3-0.6B.make")
    assert QApplication.focusWidget().objectName() == "models.make.format.gptq"
    page._library.refresh()  # the row stays, and the form in it
    with qtbot.waitSignal(page._library.stored_changed):
        pass
    assert QApplication.focusWidget().objectName() == "models.make.format.gptq"
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert page.form is None
    assert QApplication.focusWidget() is button


def test_a_model_that_was_made_can_be_deleted(qtbot, start, state):
    change(state, stored=[SMALL, {**BIG, "made_of": "another", "repository": "made/a", "held": "copied"}])
    page = start()
    press(page, "models.stored.Qwen3-0.6B.remove")
    box = page.findChild(QMessageBox, "models.remove")
    assert "It can be made again." in box.text()
    box.reject()


def report(**changes: Any) -> MakeReport:
    quality = ModelQuality(bytes=1000, perplexity=10.0, tokens_per_second=10.0)
    usual: dict[str, Any] = {
        "name": "a-nf4", "path": "/a-nf4", "source": "a", "to": "nf4", "before": quality, "after": quality, "kl": 0.0,
        "same_top": 1.0, "tokens": 4000,
    }  # fmt: skip
    return MakeReport(**{**usual, **changes})


def test_the_sentence_that_sums_up():
    slower = ModelQuality(bytes=300, perplexity=9.9, tokens_per_second=8.0)
    assert make_words.summary(report(after=slower, same_top=0.97)) == (
        "It takes 30 % of the room; its perplexity is 1.0 % lower, and it picks a different top token 3.0 % of the "
        "time."
    )
    few = report(tokens=93, after=slower)
    assert make_words.summary(few) == (
        "It takes 30 % of the room. The 93 tokens that it was measured on are too few to say what it lost."
    )
    assert [(line.change, line.tone) for line in make_words.figures(few)[1:3]] == [
        ("too few tokens", "caption"),
        ("one run each, no verdict", "caption"),
    ], "neither is a promise"
    fast = report(after=ModelQuality(bytes=300, perplexity=9.9, tokens_per_second=1222.7))
    assert make_words.figures(fast)[2].after == "1,222.7"
    strange = ModelQuality(bytes=300, perplexity=9279973.07, tokens_per_second=8.0)
    told = report(before=strange, after=strange)
    assert make_words.figures(told)[1].before == "9,279,973"
    assert "not what the model was made for" in make_words.summary(told)
    unmeasured = ModelQuality(bytes=300, perplexity=10.0, tokens_per_second=0.0)
    assert "writes" not in make_words.summary(report(after=unmeasured))
    names = [line.name for line in make_words.figures(report(after=unmeasured))]
    assert names == ["Size", "Perplexity", "KL divergence", "Same top token"]
    unknown = report(after=ModelQuality(bytes=300), tokens=0, unmeasured="It does not fit.")
    assert make_words.summary(unknown) == "It takes 30 % of the room; what it lost was not measured. It does not fit."
    assert [line.name for line in make_words.figures(unknown)] == ["Size"]
    assert "measured" not in make_words.about(unknown)


def test_a_report_without_calibration_has_no_bars(qtbot, page):
    page.report.show_report("/a-nf4", report())
    assert page.report.findChildren(FillBar) == []
    assert "without a calibration text" in page.report.findChild(QLabel, "models.report.nothing").text()
    page.report.show_report("/a-nf4", report(worst=[LayerError(name="model.layers.0.x", error=0.0, rounded=0.0)]))
    assert len(page.report.findChildren(FillBar)) == 4  # a pair, and the legend's


def test_words():
    model = StoredModel(**BIG)
    assert words.stored(model) == "1.5 GB · bfloat16 safetensors"
    assert make_words.can_be_made_smaller(model)
    assert not make_words.can_be_made_smaller(StoredModel(**SMALL))
    assert make_words.expected_bytes(model, "nf4") == pytest.approx(3e8 + 1.2e9 * 4.5 / 16)
    assert make_words.expected_bytes(model, "gguf-q4_0") == pytest.approx(3e8 * 8.5 / 16 + 1.2e9 * 4.5 / 16)
    tower = StoredModel(**{**BIG, "packable_bytes": 700_000_000})
    assert make_words.expected_bytes(tower, "nf4") == pytest.approx(8e8 + 7e8 * 4.5 / 16), "a tower stays as it is"
    assert [make_words.title(to) for to in ("awq", "gguf-q5_0", "gguf-q4_1")] == ["AWQ", "GGUF Q5_0", "GGUF Q4_1"]
    job = MakeProgress(id="x", model="/a", to="gptq", state="measuring", done=3, total=8, left_s=125.0)
    assert make_words.progress(job, False) == "measuring what it lost · 3 of 8 texts · 2 min left"
    assert [make_words.percent(share) for share in (0.0, 0.000123, 0.0084, 0.05, 0.36, 1.2)] == [
        "0 %", "0.012 %", "0.84 %", "5.0 %", "36 %", "120 %",
    ]  # fmt: skip
