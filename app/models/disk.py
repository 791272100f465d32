"""Disk use of models, folder by folder, and what could be deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QMessageBox, QPushButton, QVBoxLayout, QWidget

from app.gpu.words import Button
from app.language import tr
from app.models import words
from app.models.rows import Row
from app.models.state.library import ModelLibrary
from app.theme.question import ask
from app.theme.sheet import set_role
from app.theme.widgets import as_written, caption, clear, fill, named
from app.words import size
from engine.protocol import Download, ModelFolder, StoredModel


class DiskView(QWidget):
    """``delete_asked`` carries a model that is to be deleted or forgotten, after a question."""

    delete_asked = Signal(object)

    def __init__(self, library: ModelLibrary, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._library = library
        self._loaded = ""
        self.rows: list[Row] = []
        self._shown: object = None
        """State that the rows show."""
        self.total = caption(name="models.disk.total")
        self.add = QPushButton(tr("Add a folder…"))
        named(self.add, "models.disk.add", tooltip=tr("Look for models in another folder, and below it."))
        self.add.clicked.connect(self._add_folder)
        head = fill(QHBoxLayout(), (self.total, 1), self.add)
        self._column = fill(QVBoxLayout(self), head, margins=(0, 0, 6, 0), spacing=8)
        self._list = fill(QVBoxLayout(), spacing=6)
        fill(self._column, self._list, 1)
        for changed in (library.stored_changed, library.disk_changed, library.downloads.changed):
            changed.connect(self._on_changed)

    def set_loaded(self, path: str) -> None:
        """The path of the model that is loaded, which is not deleted."""
        self._loaded = path
        self._on_changed()

    def _on_changed(self) -> None:
        if self.isVisible():
            self.show_all()

    def show_all(self) -> None:
        """Show the library's state. Progress of downloads changes words alone, so that no button is lost meanwhile."""
        library = self._library
        coming = [each for each in library.downloads.jobs.values() if each.state != "done"]
        now = library.folders, library.stored, library.leftovers, self._loaded, [each.id for each in coming]
        if now != self._shown:
            self._shown = now
            self._fill(coming)
        rows = {row.objectName(): row for row in self.rows}
        for each in coming:
            rows[f"models.disk.download.{each.id}"].show_about(words.download(each))
        taken = sum(model.bytes for model in library.stored) + sum(each.done for each in coming)
        taken += sum(left.bytes for left in library.leftovers)
        self.total.setText(tr("{size} of models, downloads and kept weights on this machine.", size=size(taken)))

    def _fill(self, coming: list[Download]) -> None:
        library = self._library
        clear(self._list)
        self.rows = []
        self._section(tr("Folders"))
        for folder in library.folders:
            self._folder(folder)
        self._section(tr("Models"))
        for model in sorted(library.stored, key=lambda model: -model.bytes):
            self._model(model)
        if coming:
            self._section(tr("Unfinished downloads"))
        for download in coming:
            cancel = (Button("cancel", tr("Delete")),)
            title = f"{download.repository}  {download.variant}"
            self._row(f"download.{download.id}", title, words.download(download), cancel, self._canceller(download.id))
        if library.leftovers:
            self._section(tr("Kept for the next load, and broken off"))
        for left in library.leftovers:
            kept, broken = tr("weights quantised by a load"), tr("it was broken off, and is not finished")
            self._row(
                f"leftover.{Path(left.path).name}",
                left.name,
                f"{size(left.bytes)} · {kept if left.cached else broken}",
                (Button("delete", tr("Delete")),),
                self._deleter(left.path),
            )

    def _folder(self, folder: ModelFolder) -> None:
        away = "" if folder.there else tr("It is not there.")
        buttons = (
            (Button("move", tr("Move all to another folder…"), why_not=away),)
            if folder.store
            else (
                Button("remove", tr("Look here no more")),
                Button("downloads", tr("Download models to it"), why_not=away),
            )
        )
        row = self._row(f"folder.{folder.path}", folder.path, words.folder(folder), buttons, self._for_folder(folder))
        row.show_badge(tr("downloads") if folder.store else "", "mute")
        if not folder.there:
            set_role(row.about, "warn")

    def _model(self, model: StoredModel) -> None:
        why = tr("It is loaded.") if model.path == self._loaded else ""
        buttons = words.removal(model, why)
        row = self._row(
            f"model.{model.name}", model.name, words.stored(model), buttons, lambda _: self.delete_asked.emit(model)
        )
        row.setToolTip(as_written(model.path))
        set_role(row.about, "warn" if model.missing else "caption")

    def _row(self, name: str, title: str, about: str, buttons: tuple[Button, ...], act: Callable[[str], object]) -> Row:
        row = Row(f"models.disk.{name}", title, about)
        row.buttons.show_buttons(buttons)
        row.acted.connect(act)
        self.rows.append(row)
        self._list.addWidget(row)
        return row

    def _section(self, title: str) -> None:
        label = named(QLabel(title), role="section")
        label.setContentsMargins(0, 8 if self._list.count() else 0, 0, 0)
        self._list.addWidget(label)

    def _canceller(self, id: str) -> Callable[[str], object]:
        return lambda _: self._library.downloads.cancel(id)

    def _deleter(self, path: str) -> Callable[[str], object]:
        return lambda _: self._library.look_at_disk(delete=path)

    def _for_folder(self, folder: ModelFolder) -> Callable[[str], object]:
        def act(key: str) -> None:
            if key == "move":
                self._move(folder)
            else:
                self._library.change_folders(key, folder.path)

        return act

    def _add_folder(self) -> None:
        if chosen := QFileDialog.getExistingDirectory(self.window(), tr("Look for models in")):
            self._library.change_folders("add", chosen)

    def _move(self, folder: ModelFolder) -> None:
        chosen = QFileDialog.getExistingDirectory(self.window(), tr("Move all models to an empty folder"))
        if not chosen:
            return
        question = tr(
            "Move {size} from {source} to {target}? Every file is copied and compared before the first one is "
            "deleted. Load no model meanwhile.",
            size=size(folder.bytes),
            source=folder.path,
            target=chosen,
        )
        ask(
            self.window(),
            "models.disk.move",
            tr("Move the models"),
            question,
            tr("Move"),
            lambda: self._library.change_folders("move_to", chosen),
            QMessageBox.ButtonRole.AcceptRole,
        )
