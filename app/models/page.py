"""The Models page: what is on this machine, what the hub has, and what is on its way from there to here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.models.form import MakeForm
from app.models.library import Library
from app.models.report import ReportPage
from app.models.rows import HubRow, StoredRow
from app.models.tray import Tray
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import Segments, caption
from app.words import size
from engine.protocol import HubVariant, MakeReport, StoredModel

_WIDTH = 820
_HERE, _HUB = "here", "hub"


class ModelsPage(QWidget):
    """``load_asked`` carries a model's path. It asks the library whenever it is shown."""

    load_asked = Signal(str)

    def __init__(self, library: Library, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._library = library
        self._loaded = ""
        self._open = ""
        """The repository whose files are shown."""
        self.setProperty("surface", "bg")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.views = Segments("Models", (_HERE, _HUB), ("On this machine", "Find on Hugging Face"), "models.view")
        self.views.choose(_HERE)
        self.views.chosen.connect(self.show_view)
        self.setFocusProxy(self.views)
        self.note = caption(name="models.note")
        self.note.hide()
        self.field = QLineEdit()
        self.field.setObjectName("models.search")
        self.field.setPlaceholderText("Name of a model, as qwen3 or gemma")
        self.field.setAccessibleName("Search for models")
        self.field.setClearButtonEnabled(True)
        self.field.returnPressed.connect(self.search)
        self.format = Segments("Format", ("", "gguf", "safetensors"), ("all", "GGUF", "safetensors"), "models.format")
        self.format.choose("")
        self._format = ""
        self.format.chosen.connect(self._on_format)
        self.go = QPushButton("Search")
        self.go.setProperty("kind", "primary")
        self.go.clicked.connect(self.search)
        self.said = caption(name="models.said")
        self.stored_rows: list[StoredRow] = []
        self.hub_rows: list[HubRow] = []
        self.form: MakeForm | None = None
        """In the row of the model that it is about."""
        self._report_asked = ""
        self.report = ReportPage(theme)
        self.report.load_asked.connect(self.load_asked)
        self.report.closed.connect(self._close_report)
        self._tray = Tray(library)
        self._tray.downloads_changed.connect(lambda: self._show_repository(self._open))
        self.download_rows = self._tray.downloads
        self._lay_out()
        library.stored_changed.connect(self._show_stored)
        library.found_changed.connect(self._show_found)
        library.repository_changed.connect(self._show_repository)
        library.failed.connect(self._say)
        library.maker.reported.connect(self._show_report)
        library.maker.failed.connect(self._say)
        theme.changed.connect(self._fit)
        self._theme = theme
        self._fit()

    def set_loaded(self, path: str) -> None:
        """The path of the model that is loaded, "" for none."""
        self._loaded = path
        self.report.set_loaded(path)
        self._show_stored()

    def show_view(self, key: str) -> None:
        """ "here" or "hub"."""
        self._report_asked = ""
        self.views.choose(key)
        self._views.setCurrentIndex((_HERE, _HUB).index(key))
        if key == _HUB:
            self.field.setFocus()
            if not self._library.found and not self._library.searching:
                self.search()

    def search(self) -> None:
        self._open = ""
        self._say("")
        self._library.search(self.field.text().strip(), self._format)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._say("")
        self._library.refresh()
        self._library.maker.refresh()

    def _lay_out(self) -> None:
        self._body = body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(24, 16, 24, 16)
        column.setSpacing(12)
        head = QHBoxLayout()
        title = QLabel("Models")
        title.setProperty("role", "title")
        head.addWidget(title)
        head.addSpacing(12)
        head.addWidget(self.views)
        head.addStretch(1)
        column.addLayout(head)
        column.addWidget(self.note)
        self._views = QStackedWidget()
        self._here, here = _list()
        self._views.addWidget(here)
        finding = QWidget()
        find = QVBoxLayout(finding)
        find.setContentsMargins(0, 0, 0, 0)
        find.setSpacing(10)
        bar = QHBoxLayout()
        bar.setSpacing(8)
        bar.addWidget(self.field, 1)
        bar.addWidget(self.format)
        bar.addWidget(self.go)
        find.addLayout(bar)
        find.addWidget(self.said)
        self._hub, hub = _list()
        find.addWidget(hub, 1)
        self._views.addWidget(finding)
        self._views.addWidget(self.report)
        column.addWidget(self._views, 1)
        column.addWidget(self._tray)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addStretch(1)
        row.addWidget(body, 12)
        row.addStretch(1)

    def _fit(self) -> None:
        self._body.setMaximumWidth(self._theme.px(_WIDTH) + 48)

    def _show_stored(self) -> None:
        """Rows of which nothing changed stay, so that none is lost under the mouse, the keyboard or an open form."""
        old = {(row.model, row.loaded): row for row in self.stored_rows}
        self.stored_rows = []
        for place, model in enumerate(self._library.stored):
            row = old.pop((model, model.path == self._loaded), None)
            if row is None:
                row = StoredRow(model, model.path == self._loaded)
                row.acted.connect(lambda key, model=model: self._act(key, model))
            self.stored_rows.append(row)
            self._here.insertWidget(place, row)
        gone = list(old.values())
        if self.form is not None and any(row.isAncestorOf(self.form) for row in gone):
            self._close_form()
        _clear(self._here, gone)
        if self._open:
            self._show_repository(self._open)

    def _act(self, key: str, model: StoredModel) -> None:
        if key == "load":
            self.load_asked.emit(model.path)
        elif key == "make":
            self._toggle_form(model)
        elif key == "report":
            self._report_asked = model.path
            self._library.maker.ask(model.path)
        else:
            self._ask_to_remove(model)

    def _toggle_form(self, model: StoredModel) -> None:
        about = self.form.model if self.form is not None else None
        self._close_form()
        if about == model:
            return
        row = next(row for row in self.stored_rows if row.model == model)
        self.form = form = MakeForm(model)
        form.asked.connect(lambda to, text: self._make(model, to, text))
        form.closed.connect(lambda: self._toggle_form(model))
        row.column.addWidget(form)
        form.setFocus()

    def _close_form(self) -> None:
        if self.form is None:
            return
        button = self.findChild(QPushButton, f"models.stored.{self.form.model.name}.make")
        if button is not None:
            button.setFocus()
        self.form.hide()
        self.form.setParent(None)
        self.form.deleteLater()
        self.form = None

    def _make(self, model: StoredModel, to: str, text: str) -> None:
        self._say("")
        self._close_form()
        self._library.maker.make(model.path, to, text)

    def _show_report(self, path: str, report: MakeReport) -> None:
        if path == self._report_asked:
            self._report_asked = ""
            self.report.show_report(path, report)
            self._views.setCurrentWidget(self.report)
            self.report.setFocus()

    def _close_report(self) -> None:
        self.show_view(_HERE)
        self.views.setFocus()

    def _ask_to_remove(self, model: StoredModel) -> None:
        again = "made" if model.made_of else "fetched"
        box = QMessageBox(
            QMessageBox.Icon.Question,
            "Delete a model",
            f"Delete {model.name} from this machine? {size(model.bytes)} become free. It can be {again} again.",
            QMessageBox.StandardButton.Cancel,
            self.window(),
        )
        box.setObjectName("models.remove")
        box.addButton("Delete", QMessageBox.ButtonRole.DestructiveRole).clicked.connect(
            lambda: self._library.remove(model.path)
        )
        box.finished.connect(box.deleteLater)
        box.open()

    def _on_format(self, key: str) -> None:
        self._format = key
        self.search()

    def _show_found(self) -> None:
        library = self._library
        self.go.setEnabled(not library.searching)
        bad = bool(library.trouble) and not library.searching
        nothing = "" if library.found else "Nothing is found. Try fewer words."
        self.said.setText("Searching…" if library.searching else library.trouble or nothing)
        self.said.setVisible(bool(self.said.text()))
        set_role(self.said, "bad" if bad else "caption")
        if library.searching:
            return
        _clear(self._hub, self.hub_rows)
        self.hub_rows = []
        for model in library.found:
            row = HubRow(model)
            row.acted.connect(lambda key, row=row: self._on_hub(key, row))
            self.hub_rows.append(row)
            self._hub.insertWidget(self._hub.count() - 1, row)

    def _on_hub(self, key: str, row: HubRow) -> None:
        if key.startswith("get "):
            self._library.get(row.repository, key.removeprefix("get "))
            return
        for other in self.hub_rows:
            if other.repository == self._open:
                other.close_up()
        self._open = row.repository if key == "open" else ""
        if self._open:
            row.wait()
            self._library.ask(row.repository)

    def _show_repository(self, repository: str) -> None:
        answer = self._library.repositories.get(repository)
        if repository != self._open or answer is None:
            return
        stored = [model for model in self._library.stored if model.repository == repository]
        variants = [] if isinstance(answer, str) else answer.variants
        here = {each.name for each in variants if any(_is(model, each) for model in stored)}
        coming = {each.variant for each in self._library.downloads.values() if each.repository == repository}
        for row in self.hub_rows:
            if row.repository == repository:
                row.show_inside(answer, here, coming, self._library.fits.get(repository))

    def _say(self, sentence: str) -> None:
        self.note.setText(sentence)
        self.note.setVisible(bool(sentence))
        set_role(self.note, "bad")


def _is(model: StoredModel, variant: HubVariant) -> bool:
    """Whether a stored model of a repository is that variant of it."""
    if model.format != variant.format:
        return False
    first = variant.files[0].name if variant.files else variant.name
    return model.format == "safetensors" or model.path.replace("\\", "/").endswith("/" + first)


def _list() -> tuple[QVBoxLayout, QScrollArea]:
    inside = QWidget()
    column = QVBoxLayout(inside)
    column.setContentsMargins(0, 0, 6, 0)
    column.setSpacing(8)
    column.addStretch(1)
    scroll = QScrollArea()
    scroll.setWidgetResizable(True)
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(inside)
    return column, scroll


def _clear(column: Any, rows: Sequence[QWidget]) -> None:
    for row in rows:
        column.removeWidget(row)
        row.hide()
        row.setObjectName("")  # it lives until the event loop has its turn, and must not be found
        row.deleteLater()
