"""The Models page for models of this machine: imported, watched, described, and what they take on the disk."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QMessageBox, QPushButton

from app.models import words
from app.models.page import ModelsPage
from app.models.state.library import ModelLibrary
from app.models.state.watcher import FolderWatcher
from app.theme.theme import Theme
from engine.library import roots
from engine.library.paths import bundled_folder
from engine.protocol import ModelFolder, StoredModel
from tests.app.pressing import press
from tests.kit.operations import RealOperations

COMMAND = [sys.executable, "-m", "engine.doors.cli.main", "models"]
PATIENCE_MS = 60_000


@pytest.fixture
def page(qtbot, qapp) -> Iterator[ModelsPage]:
    library = ModelLibrary(RealOperations(), COMMAND)
    page = ModelsPage(library, Theme("dark", 1.0, True))
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show()
    qtbot.waitUntil(lambda: len(page.stored_rows) >= 3, timeout=PATIENCE_MS)
    yield page
    page.details.close_model()
    page.hide()
    library.close_down()


def guide(folder: Path) -> Path:
    shutil.copytree(bundled_folder() / "kvasir-guide", folder, ignore=shutil.ignore_patterns("heads"))
    return folder


def drop(page: ModelsPage, *paths: Path) -> bool:
    """Drop files on the page; whether it takes them."""
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    where = (Qt.DropAction.CopyAction, mime, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    entering = QDragEnterEvent(page.rect().center(), *where)
    entering.ignore()
    page.dragEnterEvent(entering)
    page.dropEvent(QDropEvent(QPointF(page.rect().center()), *where))
    return entering.isAccepted()


def stored(page: ModelsPage) -> list[str]:
    return [row.title.text() for row in page.stored_rows]


def confirm(page: ModelsPage, text: str) -> str:
    """Press that button of the question; returns what it asked."""
    box = page.findChild(QMessageBox, "models.remove")
    next(button for button in box.buttons() if button.text() == text).click()
    return box.text()


@pytest.mark.slow
def test_a_dropped_folder_is_used_where_it_is(qtbot, page, tmp_path):
    folder = guide(tmp_path / "here" / "mine")
    assert drop(page, folder)
    assert page.note.text() == f"Looking into {folder}…"
    qtbot.waitUntil(lambda: "mine" in stored(page), timeout=PATIENCE_MS)
    assert "linked,\xa0stays\xa0in\xa0its\xa0folder" in page.stored_rows[stored(page).index("mine")].about.text()
    assert page.note.text() == ""


@pytest.mark.long
def test_a_dropped_file_that_is_no_model(qtbot, page, tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    drop(page, tmp_path / "notes.txt")
    qtbot.waitUntil(lambda: "is a file. Choose a GGUF file" in page.note.text(), timeout=PATIENCE_MS)


@pytest.mark.slow
def test_what_comes_and_goes_is_seen_without_a_press(qtbot, page, tmp_path):
    folder = guide(tmp_path / "here" / "mine")
    roots.change(lambda now: roots.ModelRoots(references=[roots.Reference("mine", str(folder))]))
    page._library.refresh()
    qtbot.waitUntil(lambda: "mine" in stored(page), timeout=PATIENCE_MS)
    folder.rename(tmp_path / "away")
    qtbot.waitUntil(lambda: any(row.badge.text() == "missing" for row in page.stored_rows), timeout=PATIENCE_MS)
    (tmp_path / "away").rename(folder)
    qtbot.waitUntil(lambda: all(row.badge.text() != "missing" for row in page.stored_rows), timeout=PATIENCE_MS)
    press(page, "models.stored.mine.remove")
    assert "Its files stay where they are" in confirm(page, "Forget")
    qtbot.waitUntil(lambda: "mine" not in stored(page), timeout=PATIENCE_MS)
    assert (folder / "model.safetensors").is_file()


@pytest.mark.long
def test_a_folder_is_looked_into_and_what_is_put_there_appears(qtbot, page, tmp_path, monkeypatch):
    root = tmp_path / "disk"
    (root / "inner").mkdir(parents=True)
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(root))
    page.show_view("disk")
    press(page, "models.disk.add")
    qtbot.waitUntil(lambda: str(root) in page._library.watched, timeout=PATIENCE_MS)
    shutil.move(guide(tmp_path / "other"), root / "inner" / "other")
    qtbot.waitUntil(lambda: "other" in stored(page), timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: any(row.title.text() == "other" for row in page.disk.rows), timeout=PATIENCE_MS)
    row = next(row for row in page.disk.rows if row.title.text() == str(root))
    assert row.about.text().startswith("1 model, 5.9 MB · ")
    shutil.rmtree(root)
    qtbot.waitUntil(lambda: "other" not in stored(page), timeout=PATIENCE_MS)
    row = next(row for row in page.disk.rows if row.title.text() == str(root))
    assert row.about.text().startswith("not there")
    press(page, f"models.disk.folder.{root}.remove")
    qtbot.waitUntil(lambda: [each.store for each in page._library.folders] == [True], timeout=PATIENCE_MS)


@pytest.mark.long
def test_all_models_are_moved_to_another_folder(qtbot, page, tmp_path, monkeypatch, own_folders):
    target = tmp_path / "disk"
    guide(own_folders / "kvasir" / "data" / "models" / "mine")
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(target))
    said: list[str] = []
    page._library.working.connect(said.append)
    page._library.refresh()
    qtbot.waitUntil(lambda: "mine" in stored(page), timeout=PATIENCE_MS)
    page.show_view("disk")
    (store,) = page._library.folders
    press(page, f"models.disk.folder.{store.path}.move")
    box = page.findChild(QMessageBox, "models.disk.move")
    next(button for button in box.buttons() if button.text() == "Move").click()
    qtbot.waitUntil(lambda: [each.path for each in page._library.folders] == [str(target)], timeout=PATIENCE_MS)
    assert (target / "mine" / "model.safetensors").is_file()
    assert not Path(store.path).exists()
    assert said[-2:] == [f"Moving the models to {target}: 5.9 MB of 5.9 MB", ""]
    assert "mine" in stored(page)


@pytest.mark.long
def test_what_a_load_kept_is_deleted_from_the_disk_view(qtbot, page, own_folders):
    kept = own_folders / "kvasir" / "cache" / "quantised" / ("0" * 32 + ".packed")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(3_000_000))
    page.show_view("disk")
    name = f"models.disk.leftover.{kept.name}.delete"
    qtbot.waitUntil(lambda: page.findChild(QPushButton, name) is not None, timeout=PATIENCE_MS)
    press(page, name)
    qtbot.waitUntil(lambda: not page._library.leftovers, timeout=PATIENCE_MS)
    assert not kept.exists()


@pytest.mark.slow
def test_the_details_of_a_model_and_its_tokenizer(qtbot, page):
    details = page.details
    press(page, "models.stored.kvasir-guide.details")
    qtbot.waitUntil(lambda: details._tokens is not None, timeout=PATIENCE_MS)
    facts = [details._facts.itemAt(index).widget().text() for index in range(details._facts.count())]
    assert facts[facts.index("Layers") + 1] == "8, 256 wide"
    assert "<|im_start|>" in details.template.toPlainText()
    rows = {details.metadata.item(row, 0).text(): row for row in range(details.metadata.rowCount())}
    assert details.metadata.item(rows["quantization_config.bits"], 1).text() == "4"
    details.text.setPlainText("Hello pages")
    qtbot.waitUntil(lambda: details.count.text() == "2 tokens of 11 characters", timeout=PATIENCE_MS)
    ids = [token.id for token in details._tokens.tokens]
    assert all(str(id) in details.pieces.toPlainText() for id in ids)
    details.text.setPlainText("")
    qtbot.waitUntil(lambda: details.count.text() == "0 tokens of 0 characters", timeout=PATIENCE_MS)
    press(page, "models.details.back")
    assert details._reading is None
    assert page.add.isVisible()


@pytest.mark.long
def test_a_model_that_cannot_be_opened_says_why(qtbot, page, tmp_path):
    page._act("details", StoredModel(name="x", path=str(tmp_path / "nothing"), format="gguf", bytes=0))
    qtbot.waitUntil(lambda: "There is no model" in page.details.said.text(), timeout=PATIENCE_MS)
    assert page.details._inside.isHidden()
    page.show_view("here")


def test_a_watcher_waits_until_it_is_quiet(qtbot, tmp_path):
    watcher, folder = FolderWatcher(), tmp_path / "watched"
    folder.mkdir()
    told: list[int] = []
    watcher.changed.connect(lambda: told.append(len(list(folder.iterdir()))))
    watcher.watch([str(folder), str(folder / "nothing")])
    for number in range(20):
        (folder / f"{number}.gguf").write_bytes(b"x")
        qtbot.wait(5)
    qtbot.waitUntil(lambda: bool(told), timeout=PATIENCE_MS)
    assert told[-1] == 20
    watcher.watch([])
    (folder / "more.gguf").write_bytes(b"x")
    assert not watcher._watcher.directories()
    assert not watcher._quiet.isActive()


def test_words():
    model = StoredModel(name="x", path="/a/x", format="gguf", bytes=10**9, held="copied")
    assert "Nothing brings it back." in words.removing(model)[1]
    gone = StoredModel(name="x", path="/a/x", format="gguf", bytes=0, held="referred", missing=True)
    assert words.removing(gone)[1] == "Forget x? It is not there any more."
    assert words.removal(StoredModel(name="x", path="/a", format="gguf", bytes=1)) == ()
    folder = ModelFolder(path="/a", models=3, bytes=10**9, free=10**9, total=10**10)
    assert words.folder(folder) == "3 models, 1.0 GB · 1.0 GB of 10.0 GB free"
