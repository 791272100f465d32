"""What the window offers and says of models that come while it runs, with a library that the test answers for."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QPushButton

from app import paths
from app.program import WindowProgram
from app.window.window import MainWindow
from engine.protocol import CuratedModel, Download, Load, Recommendation, Recommended, StoredModel
from engine.protocol.operations import ADD_DOWNLOAD, AddDownload
from engine.services.operations import OperationFailed
from tests.app.pressing import press
from tests.kit.operations import ScriptedOperations

KEY = "a/first-GGUF Q4_K_M"
GUIDE = StoredModel(
    name="kvasir-guide", path=str(paths.assets_dir() / "demo" / "kvasir-guide"), format="safetensors", bytes=6_000_000,
    bundled=True, quantisation="gptq",
)  # fmt: skip


@pytest.fixture
def program(start) -> WindowProgram:
    return start()


def judged(*reasons: str) -> Recommended:
    models = []
    for place, reason in enumerate(reasons):
        model = CuratedModel(
            repository=f"a/{('first', 'second', 'third')[place]}-GGUF", variant="Q4_K_M", format="gguf", family="Qwen3",
            parameters=10**9, bytes=(3 - place) * 10**9, purposes=["chat"], about="A test.", taken="2026-11-25",
            source="test",
        )  # fmt: skip
        models.append(Recommendation(model=model, verdict="fits", need=10**9, reason=reason))
    return Recommended(models=models)


def listed(program: WindowProgram, *models: StoredModel) -> None:
    library = program.library
    library.stored, library.listed = list(models), True
    library.stored_changed.emit()


def gguf(folder: Path, name: str) -> StoredModel:
    file = folder / name
    file.write_bytes(b"GGUF")
    return StoredModel(
        name=name, path=str(file), format="gguf", bytes=2 * 10**9, quantisation="Q4_K_M", sees=True,
        repository="a/first-GGUF",
    )  # fmt: skip


def menu(program: WindowProgram) -> dict[str, QAction]:
    program.selector.fill_menu()
    return {action.text(): action for action in program.selector.model.menu().actions() if action.text()}


def test_the_menu_knows_what_came_since_the_start(qtbot, program: WindowProgram, tmp_path: Path) -> None:
    new = gguf(tmp_path, "new & better.gguf")
    gone = StoredModel(name="gone", path="/gone", format="gguf", bytes=1, missing=True)
    listed(program, GUIDE, new, gone)
    entries = menu(program)
    assert list(entries)[1:5] == [
        "kvasir-guide\t6.0 MB · GPTQ",
        "new && better.gguf\t2.0 GB · GGUF Q4_K_M · sees pictures",
        "Get a model…",
        "Open a file…",
    ]
    entries["new && better.gguf\t2.0 GB · GGUF Q4_K_M · sees pictures"].trigger()
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.path == new.path)
    assert menu(program)["new && better.gguf\t2.0 GB · GGUF Q4_K_M · sees pictures"].isChecked()
    menu(program)["Get a model…"].trigger()
    assert program.window.page == MainWindow.MODELS
    assert program.window.models_page.field.isVisible()


def test_a_model_that_came_is_a_click_away_on_every_page(qtbot, program: WindowProgram, tmp_path: Path) -> None:
    window, new = program.window, gguf(tmp_path, "new-Q4_K_M.gguf")
    window.show_page(MainWindow.SETTINGS)
    program.library.arrived.emit(new.name, new.path)
    assert window.notice.text == "new-Q4_K_M.gguf is here."
    press(window.notice, "window.notice.action")
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.path == new.path)
    assert window.page == MainWindow.CHAT
    program.library.arrived.emit(new.name, new.path)
    program.chat.loads.load_now(new.path)  # as it may be loaded elsewhere
    qtbot.waitUntil(lambda: not window.notice.text)


def test_the_first_screen_from_get_to_chat(qtbot, program: WindowProgram, tmp_path: Path) -> None:
    library, welcome = program.library, program.chat.welcome
    listed(program, GUIDE)
    assert welcome.get.isVisible()
    program.library.verdicts.show(judged("the best answers", "a small download", ""))
    assert [(line.name.text(), line.about.text()) for line in welcome.get.lines] == [
        ("second", "A small download. A test."),
        ("first", "The best answers. A test."),
    ]
    about = welcome.get.lines[1].about
    for width, said in ((about.sizeHint().width(), about.text()), (about.sizeHint().width() - 9, "The best answers.")):
        about.resize(width, about.height())
        assert about.elided == said, "no sentence is cut in a narrow window"
    library.downloads._engine = engine = ScriptedOperations()
    first = welcome.get.lines[1]
    press(first, f"get.{KEY}.get")
    assert engine.requests(ADD_DOWNLOAD) == [AddDownload(repository="a/first-GGUF", variant="Q4_K_M")]
    assert (first.about.text(), first.about.short) == ("Asking Hugging Face…", "")
    engine.answer(ADD_DOWNLOAD, OperationFailed("You are offline: huggingface.co cannot be reached."))
    assert (first.trouble.isVisible(), first.about.isVisible()) == (True, False)
    assert first.trouble.text() == "You are offline: huggingface.co cannot be reached."
    assert program.window.notice.text == "", "it is said where it was asked, and there alone"
    assert first.trouble.height() >= first.trouble.heightForWidth(first.trouble.width())
    welcome.get.show_sentences(False)
    assert (first.trouble.isVisible(), first.about.isVisible()) == (False, True), "one line has room everywhere"
    welcome.get.show_sentences(True)
    again = first.findChild(QPushButton, f"get.{KEY}.get")
    assert again.text() == "Try again"
    again.click()
    assert len(engine.requests(ADD_DOWNLOAD)) == 2
    assert (first.trouble.isVisible(), first.about.text()) == (False, "Asking Hugging Face…")
    engine.answer(ADD_DOWNLOAD, OperationFailed("You are offline: huggingface.co cannot be reached."))
    coming = Download(id="1", repository="a/first-GGUF", variant="first-Q4_K_M.gguf", state="running", done=1, total=4)
    library.downloads.merge({"1": coming})
    library.downloads.changed.emit()
    assert (first.bar.fraction, first.findChild(QPushButton, f"get.{KEY}.cancel").isVisible()) == (0.25, True)
    failed = Download(id="1", repository="a/first-GGUF", variant="first-Q4_K_M.gguf", state="failed", sentence="No.")
    library.downloads.merge({"1": failed})
    assert (first.about.text(), first.about.property("role")) == ("No.", "bad")
    assert first.findChild(QPushButton, f"get.{KEY}.resume").text() == "Try again"
    library.downloads.merge({})
    new = gguf(tmp_path, "first-Q4_K_M.gguf")
    listed(program, GUIDE, new)
    assert first.isVisible(), "until it is loaded, though there is more than the bundled models now"
    press(first, f"get.{KEY}.load")
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.path == new.path)
    assert not welcome.get.isVisible()
    assert welcome._cards.isVisible()
    assert "3 models that suit this computer" in welcome.more.about.text()


def test_who_has_a_model_of_his_own_is_offered_none(program: WindowProgram, tmp_path: Path) -> None:
    listed(program, GUIDE, gguf(tmp_path, "mine.gguf"))
    assert not program.chat.welcome.get.isVisible()
    assert program.chat.welcome.more.button.isVisible()
    assert program.chat.findChild(QLabel, "welcome.get.said") is not None


def test_a_document_for_the_bundled_model_leads_to_others(qtbot, start, tmp_path: Path) -> None:
    program = start("--named", "kvasir-guide")
    notice, composer = program.chat.notice, program.chat.composer
    (tmp_path / "a.txt").write_text("The invoice of March is 42 euros.")
    composer.take_files([tmp_path / "a.txt"])
    qtbot.waitUntil(lambda: not composer.documents.reading)
    assert notice.text == "", "another model reads it"
    composer.clear()
    program.link.send(Load(model="kvasir-guide"))
    qtbot.waitUntil(lambda: program.link.card is not None and program.link.card.name == "kvasir-guide")
    composer.take_files([tmp_path / "a.txt"])
    qtbot.waitUntil(lambda: "Another model reads them better" in notice.text)
    composer.clear()
    assert notice.text == ""
    composer.take_files([tmp_path / "a.txt"])
    press(notice, "notice.action")
    assert program.window.page == MainWindow.MODELS
    qtbot.waitUntil(lambda: not composer.documents.reading)
