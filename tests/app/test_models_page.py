"""The Models page with the real `kvasir models` behind it, and a hub on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel, QMessageBox, QPushButton, QSpinBox, QWidget

from app.models import words
from app.models.fit_bar import FitBar, Parts, parts_of
from app.models.page import ModelsPage
from app.models.state.library import ModelLibrary
from app.theme.theme import Theme
from engine.library.paths import bundled_folder
from engine.protocol import Download, Fit, FitReport, HubModel, KindFit
from engine.protocol.library import DraftSpeed, Suggestion
from tests.app.pressing import button_of, press
from tests.hub_server import Hub, Repository, stock
from tests.kit.operations import RealOperations

COMMAND = [sys.executable, "-m", "engine.doors.cli.main", "models"]
PATIENCE_MS = 60_000


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    hub.repositories = stock()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    yield hub
    hub.close()


@pytest.fixture
def page(qtbot, qapp, hub: Hub) -> Iterator[ModelsPage]:
    library = ModelLibrary(RealOperations(), COMMAND)
    page = ModelsPage(library, Theme("dark", 100, True))
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show()
    qtbot.waitUntil(lambda: len(page.stored_rows) >= 3, timeout=PATIENCE_MS)
    yield page
    library.close_down()


def stored(page: ModelsPage) -> list[str]:
    return [row.title.text() for row in page.stored_rows]


def look(qtbot, page: ModelsPage, text: str = "model") -> None:
    page.show_view("hub")
    qtbot.waitUntil(lambda: not page._library.hub.searching, timeout=PATIENCE_MS)
    page.field.setText(text)
    page.search()
    qtbot.waitUntil(lambda: not page._library.hub.searching, timeout=PATIENCE_MS)


def open_row(qtbot, page: ModelsPage, repository: str) -> QWidget:
    row = next(row for row in page.hub_rows if row.repository == repository)
    press(row, f"models.hub.{repository}.open")
    qtbot.waitUntil(lambda: repository in page._library.hub.repositories.answers, timeout=PATIENCE_MS)
    return row


def test_what_is_here_and_what_can_be_done_with_it(qtbot, page):
    assert "kvasir-guide" in stored(page)
    row = next(row for row in page.stored_rows if row.title.text() == "kvasir-guide")
    assert "comes\xa0with\xa0Kvasir" in row.about.text(), "on one line"
    assert button_of(row, "models.stored.kvasir-guide.remove") is None
    with qtbot.waitSignal(page.load_asked) as asked:
        press(row, "models.stored.kvasir-guide.load")
    page.set_loaded(asked.args[0])
    row = next(row for row in page.stored_rows if row.title.text() == "kvasir-guide")
    assert row.badge.text() == "loaded"
    assert not row.findChild(QPushButton, "models.stored.kvasir-guide.load").isEnabled()


@pytest.mark.slow
def test_from_a_search_to_a_model_and_back(qtbot, page, hub):
    look(qtbot, page)
    assert [row.repository for row in page.hub_rows] == ["some/model", "some/model-GGUF", "closed/model"]
    assert "8B parameters" in page.hub_rows[1].about.text()
    assert page.hub_rows[2].badge.text() == "gated"
    row = open_row(qtbot, page, "some/model-GGUF")
    hub.pause = 0.02
    press(row, "models.variant.model-Q4_K_M.gguf.get")
    qtbot.waitUntil(lambda: bool(page.download_rows) and not page._tray.isHidden(), timeout=PATIENCE_MS)
    hub.pause = 0.0
    qtbot.waitUntil(lambda: "model-Q4_K_M.gguf" in stored(page), timeout=PATIENCE_MS)
    assert page._tray.isHidden()
    with qtbot.waitSignal(page.load_asked) as asked:
        press(row, "models.variant.model-Q4_K_M.gguf.load")
    assert asked.args[0].endswith("model-Q4_K_M.gguf")
    assert row.findChild(QLabel, "models.best.model-Q4_K_M.gguf").text() == "recommended"
    page.show_view("here")
    fetched = next(row for row in page.stored_rows if row.title.text() == "model-Q4_K_M.gguf")
    press(fetched, "models.stored.model-Q4_K_M.gguf.remove")
    box = page.findChild(QMessageBox, "models.remove")
    next(button for button in box.buttons() if button.text() == "Delete").click()
    qtbot.waitUntil(lambda: "model-Q4_K_M.gguf" not in stored(page), timeout=PATIENCE_MS)


@pytest.mark.slow
def test_a_download_is_paused_resumed_and_cancelled(qtbot, page, hub):
    hub.pause = 0.2
    look(qtbot, page)
    row = open_row(qtbot, page, "some/model")
    press(row, "models.variant.safetensors.get")
    library = page._library

    def state() -> list[str]:
        return [each.state for each in library.downloads.jobs.values()]

    # More than all but the largest file: so it is paused in the middle of that, whatever the order.
    qtbot.waitUntil(lambda: any(each.done > 150_000 for each in library.downloads.jobs.values()), timeout=PATIENCE_MS)
    (shown,) = page.download_rows.values()
    press(shown, "models.download.some/model.pause")
    qtbot.waitUntil(lambda: state() == ["paused"] and not library.downloads.running, timeout=PATIENCE_MS)
    (shown,) = page.download_rows.values()
    assert "paused" in shown.about.text()
    again = ModelLibrary(RealOperations(), COMMAND)  # as the next start of the program finds it
    again.refresh()
    qtbot.waitUntil(lambda: [each.state for each in again.downloads.jobs.values()] == ["paused"], timeout=PATIENCE_MS)
    again.close_down()
    hub.pause = 0.0
    press(shown, "models.download.some/model.resume")
    qtbot.waitUntil(lambda: "some/model" in stored(page), timeout=PATIENCE_MS)
    assert any(start > 0 for _, start in hub.starts)  # it went on
    hub.pause = 0.05
    row = open_row(qtbot, page, "some/model-GGUF")
    press(row, "models.variant.Q8_0/model-Q8_0.gguf.get")
    qtbot.waitUntil(lambda: any(each.done > 20_000 for each in library.downloads.jobs.values()), timeout=PATIENCE_MS)
    (shown,) = page.download_rows.values()
    press(shown, "models.download.some/model-GGUF.cancel")
    qtbot.waitUntil(lambda: not library.downloads.jobs, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: not library.findChildren(QWidget) and not library.downloads.running, timeout=PATIENCE_MS)


@pytest.mark.slow
def test_what_goes_wrong_is_said_where_it_was_asked(qtbot, page, hub):
    look(qtbot, page, "nothing like this")
    assert page.said.text() == "Nothing is found. Try fewer words."
    look(qtbot, page, "closed")
    row = open_row(qtbot, page, "closed/model")
    press(row, "models.variant.safetensors.get")
    qtbot.waitUntil(
        lambda: [each.state for each in page._library.downloads.jobs.values()] == ["failed"], timeout=PATIENCE_MS
    )
    (shown,) = page.download_rows.values()
    assert "Agree on" in shown.about.text()
    hub.page = b"<html>Please log in.</html>"
    look(qtbot, page)
    assert "is not the hub" in page.said.text()


@pytest.mark.slow
def test_whether_it_fits_stands_next_to_each(qtbot, page, hub):
    guide = Path(bundled_folder()) / "kvasir-guide"
    files = {file.name: file.read_bytes() for file in guide.iterdir() if file.is_file()}
    hub.repositories["kvasir/guide"] = Repository(files, tags=["safetensors"])
    look(qtbot, page, "guide")
    open_row(qtbot, page, "kvasir/guide")
    qtbot.waitUntil(lambda: page.findChild(QLabel, "models.fit.safetensors") is not None, timeout=PATIENCE_MS)
    badge = page.findChild(QLabel, "models.fit.safetensors")
    assert badge.text() == "fits"
    bar = page.findChild(FitBar)
    assert bar.toolTip() == badge.toolTip()
    assert 0 < bar.parts.weights < bar.parts.needed < bar.parts.budget
    assert "Tokens that have room" in badge.toolTip()


@pytest.mark.parametrize("budget", [800, 400])
def test_a_fit_in_the_colours_of_the_memory_plot(qtbot, budget: int):
    theme = Theme("dark", 100, True)
    bar = FitBar(theme, Parts(400, 200, 100, budget))
    qtbot.addWidget(bar)
    drawn, whole = bar.grab().toImage(), max(700, budget)
    seen = [drawn.pixelColor(bar.width() * part // whole, 4).name() for part in (200, 500, 650)]
    assert seen == [theme.tokens.accent, theme.tokens.teal, theme.tint("mute", 0.5, "panel")]
    ends = drawn.pixelColor(min(round(bar.width() * budget / whole), bar.width() - 1), 0).name()
    assert ends == theme.color("bad" if budget == 400 else "mute").name()


def test_what_a_fit_says():
    fit = Fit(weights=10**9, draft_weights=0, kv=0, kv_tokens=0, activations=10**8, budget=8 * 10**9, free=10**10)
    kinds = [
        KindFit(kind="16bit", bytes_per_token=100_000, tokens=3000),
        KindFit(kind="int4", bytes_per_token=30_000, tokens=10_000),
    ]
    report = FitReport(
        name="x",
        verdict="tight",
        sentence="There is little room.",
        parameters=1,
        context=3000,
        longest=32_768,
        fit=fit,
        kinds=kinds,
        decode=23.7,
        prefill=180.2,
        source="from your runs of x",
        draft=DraftSpeed(proposer="ngram", tokens_per_step=2.31, rate=41.0),
        suggestions=[Suggestion(kind="kv_kind", sentence="Set KV cache precision to int4.", value="int4")],
    )
    assert parts_of(report) == (10**9, 8192 * 100_000, 10**8, 8 * 10**9)
    assert words.fitting(report).split("\n") == [
        "There is little room.",
        "1.0 GB for weights; 8.0 GB may be used.",
        "Tokens that have room: 3,000 in 16 bits, 10,000 in int4.",
        "About 24 tokens/s, reading 180, from your runs of x.",
        "With ngram: 2.3 tokens a step, 41 tokens/s, from your runs of it.",
        "Set KV cache precision to int4.",
    ]
    assert words.speed(report) == "≈ 24 tokens/s"


def test_words():
    model = HubModel(repository="a/b", parameters=8_190_000_000, downloads=1_234_567, formats=["gguf"], gated=True)
    assert words.found(model) == "8.19B parameters · GGUF · 1.2M downloads"
    running = Download(id="x", repository="a/b", variant="v", state="running", done=10**9, total=4 * 10**9, rate=1e8)
    assert words.download(running) == "1.0 GB of 4.0 GB · 100 MB/s · 30 s left"
    assert [words.count(number) for number in (870, 34_100, 340_000, 5_600_000)] == ["870", "34k", "340k", "5.6M"]


def test_a_download_keeps_the_pace_that_the_settings_want(qtbot, start, tmp_path: Path) -> None:
    program = start()
    program.window.settings_page.findChild(QSpinBox, "settings.download_limit").setValue(3)
    said = tmp_path / "said"
    script = f"import sys; open({str(said)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    library = program.library
    library.downloads._command = [sys.executable, "-S", "-c", script]
    for limit, words_said in ((3, "resume --json --limit 3 x"), (0, "resume --json x")):
        program.store.update(download_limit=limit)
        library.downloads.merge({"x": Download(id="x", repository="a/b", variant="c", state="paused")})
        library.downloads.resume("x")
        qtbot.waitUntil(lambda: not library.downloads.running, timeout=PATIENCE_MS)
        assert said.read_text().splitlines()[-1] == words_said
