"""The Models page: what is on this machine, what the hub has, and what is on its way from there to here."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import model_dialog
from app.dropped import accept_copy
from app.language import tr
from app.models import words
from app.models.details import DetailsView
from app.models.disk import DiskView
from app.models.drafts import DraftList
from app.models.filters import Filters
from app.models.form import MakeForm
from app.models.recommended import RecommendedView
from app.models.remotes import RemotesView
from app.models.report import ReportPage
from app.models.rows import HubRow, StoredRow
from app.models.state import getting
from app.models.state.library import ModelLibrary
from app.models.state.watcher import FolderWatcher
from app.models.tray import Tray
from app.theme.question import ask
from app.theme.room import scrolling
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, PageTitle, Segments, caption, clear, fill, keep_place, named, say, take_out
from engine.protocol import MakeReport, StoredModel
from engine.protocol.operations import SearchModels

LOOKING = tr("Looking for models on this computer…")
_WIDTH = 820
_HERE, _HUB, _DISK, _OTHER = "here", "hub", "disk", "other"
_VIEWS = (_HERE, _HUB, _DISK, _OTHER)
_TITLES = (tr("On this machine"), tr("Find on Hugging Face"), tr("Disk"), tr("Other servers"))


class ModelsPage(FocusFirst):
    """``load_asked`` and ``settings_asked`` carry a model's path, ``draft_asked`` that and the path of what is to draft
    for it ("" for its own layers). It asks the library whenever it is shown."""

    load_asked = Signal(str)
    settings_asked = Signal(str)
    """The person wants to see how the model is loaded."""
    draft_asked = Signal(str, str)
    remote_asked = Signal(object)
    """A model of another server is to answer in the chat on screen."""

    def __init__(self, library: ModelLibrary, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._library = library
        self._loaded = ""
        self._open = ""
        """The repository whose files are shown."""
        self._drafting = ""
        """The path of the model below which it is shown what can draft for it."""
        named(self, surface="bg")
        self.views = Segments(tr("Models"), _VIEWS, _TITLES, "models.view")
        self.views.choose(_HERE)
        self.views.chosen.connect(self.show_view)
        self.first = self.views
        self.add = QPushButton(tr("Add a model…"))
        named(
            self.add,
            "models.add",
            tooltip=tr("Use a model of another folder where it is. You can also drop it here."),
        )
        self.add.clicked.connect(self._add)
        self.setAcceptDrops(True)
        self.watcher = FolderWatcher(self)
        self.disk = DiskView(library)
        self.remotes = RemotesView(library.remotes)
        self.remotes.chosen.connect(self.remote_asked)
        self.details = DetailsView(library, theme)
        self.note = caption(name="models.note")
        self.note.hide()
        self._make_search(theme)
        self.stored_rows: list[StoredRow] = []
        self.hub_rows: list[HubRow] = []
        self.form: MakeForm | None = None
        """Form in the row of the model that it is about."""
        self.report = ReportPage(theme)
        self.report.load_asked.connect(self.load_asked)
        self.report.closed.connect(self._close_report)
        self._tray = Tray(library)
        self.download_rows = self._tray.downloads
        self._lay_out()
        self._connect(library)
        theme.changed.connect(self._fit)
        self._theme = theme
        self._fit()

    def _make_search(self, theme: Theme) -> None:
        """The parts by which models are found."""
        self.field = QLineEdit()
        self.field.setObjectName("models.search")
        self.field.setPlaceholderText(tr("Search models, e.g. qwen3"))
        named(self.field, title=tr("Search for models"), clearButtonEnabled=True)
        self.field.returnPressed.connect(self.search)
        self.field.textChanged.connect(self._on_typed)
        titles = (tr("all"), "GGUF", "safetensors")
        self.format = Segments(tr("Format"), ("", "gguf", "safetensors"), titles, "models.format")
        self.format.choose("")
        self._format = ""
        self.format.chosen.connect(self._on_format)
        self.filters = Filters(theme)
        self.filters.changed.connect(self.search)
        self.filters.author.textChanged.connect(self._on_typed)
        self.recommended = RecommendedView(theme)
        self.recommended.get_asked.connect(self._library.downloads.get)
        self.recommended.load_asked.connect(self.load_asked)
        self.go = named(QPushButton(tr("Search")), clicked=self.search, kind="primary")
        self.said = caption(name="models.said")

    def _connect(self, library: ModelLibrary) -> None:
        library.stored_changed.connect(self._show_stored)
        library.hub.found_changed.connect(self._show_found)
        library.hub.repository_changed.connect(self._show_repository)
        library.verdicts.changed.connect(self._show_recommended)
        library.verdicts.changed.connect(self._show_fits)
        library.stored_changed.connect(self._show_recommended)
        library.downloads.changed.connect(self._show_recommended)
        library.downloads.changed.connect(lambda: self._show_repository(self._open))
        library.drafts.changed.connect(self._show_drafts)
        library.downloads.changed.connect(self._show_drafts)
        library.failed.connect(self._say)
        library.working.connect(self._on_working)
        library.maker.failed.connect(self._say)
        self.watcher.changed.connect(self._on_files)
        self.disk.delete_asked.connect(self._ask_removal)
        self.details.closed.connect(lambda: self.show_view(_HERE))

    def set_loaded(self, path: str, held: int = 0) -> None:
        """The path of the model that is loaded, "" for none, and the bytes that it holds."""
        self._loaded = path
        self.disk.set_loaded(path)
        self.report.set_loaded(path)
        self._library.hub.set_loaded(held, self._open)
        self._show_stored()
        self._show_recommended()

    def show_view(self, key: str) -> None:
        """ "here", "hub", "disk" or "other"."""
        self.details.close_model()
        self.views.choose(key)
        self._views.setCurrentIndex(_VIEWS.index(key))
        self.add.setVisible(key == _HERE)
        if key == _DISK:
            self.disk.show_all()
            self._library.look_at_disk()
        if key == _HUB:
            self.field.setFocus()
            if not self._library.hub.found and not self._library.hub.searching:
                self.search()
        self._place_recommended()

    def look_for(self, text: str) -> None:
        """Look on the hub for models with these words in their names."""
        self.field.setText(text)
        self.show_view(_HUB)
        self.search()

    def search(self) -> None:
        """Look on the hub; where nothing is asked for show what is recommended."""
        self._open = ""
        self._say("")
        self._library.hub.search(self._asked() if self._asks() else None)

    def _asks(self) -> bool:
        """True if something is searched for."""
        return self._asked() != SearchModels()

    def _asked(self) -> SearchModels:
        return self.filters.narrowed(self.field.text().strip(), self._format)

    def _on_typed(self, _: str) -> None:
        """Show the recommended models at once if everything is emptied; else Enter searches."""
        if not self._asks():
            self.search()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._say("")
        self._show_recommended()
        self._library.refresh()
        self._library.maker.refresh()
        self._library.verdicts.ask()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.watcher.watch([])

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            accept_copy(event)

    def dropEvent(self, event: QDropEvent) -> None:
        accept_copy(event)
        self._say("")
        for url in event.mimeData().urls():
            if url.isLocalFile():
                self._library.bring(url.toLocalFile())

    def _lay_out(self) -> None:
        self._body = body = QWidget()
        column = fill(QVBoxLayout(body), margins=(24, 16, 24, 16), spacing=12)
        keep_place(self.add)  # the views below stay where they are
        head = fill(QHBoxLayout(), PageTitle(tr("Models")), 1, self.add)
        fill(column, head, (self.views, 0, Qt.AlignmentFlag.AlignLeft), self.note)
        self._views = QStackedWidget()
        self._here, here = _list()
        self._looking = caption(LOOKING, "models.looking")
        self._here.insertWidget(0, self._looking)
        self._views.addWidget(here)
        finding = QWidget()
        find = fill(QVBoxLayout(finding), margins=0, spacing=10)
        bar = fill(QHBoxLayout(), (self.field, 1), self.format, self.go, spacing=8)
        fill(find, bar, self.filters, self.said)
        self._lists = QStackedWidget()
        self._home, home = _list()
        self._home.insertWidget(0, self.recommended)
        self._lists.addWidget(home)
        self._hub, hub = _list()
        self._lists.addWidget(hub)
        find.addWidget(self._lists, 1)
        self._views.addWidget(finding)
        for view in (self.disk, self.remotes, self.details):
            self._views.addWidget(scrolling(view))
        self._views.addWidget(self.report)
        fill(column, (self._views, 1), self._tray)
        fill(QHBoxLayout(self), 1, (body, 1000), 1, margins=0)

    def _fit(self) -> None:
        self._body.setMaximumWidth(self._theme.px(_WIDTH) + 48)

    def _show_stored(self) -> None:
        """A row stays as long as its model, so that none is lost under the mouse, the keyboard or an open form."""
        self._looking.setText(self._library.unlisted or LOOKING)
        self._looking.setVisible(not self._library.listed)
        old = {(row.model.path, row.model.name): row for row in self.stored_rows}
        self.stored_rows = []
        if self.isVisible():
            self.watcher.watch(self._library.watched)
        for place, model in enumerate(self._library.stored):
            told = model, model.path == self._loaded, self._library.verdicts.stored.get(model.path)
            if row := old.pop((model.path, model.name), None):
                row.show_model(*told)
            else:
                row = StoredRow(*told)
                row.acted.connect(lambda key, row=row: self._act(key, row.model))
            self.stored_rows.append(row)
            self._here.insertWidget(place, row)
        if self.form is not None and any(row.isAncestorOf(self.form) for row in old.values()):
            self._close_form()
        clear(self._here, list(old.values()))
        self._show_drafts()
        self._place_recommended()
        if self._open:
            self._show_repository(self._open)

    def _show_fits(self) -> None:
        """Show whether the models of this machine run here."""
        for row in self.stored_rows:
            row.show_model(row.model, row.model.path == self._loaded, self._library.verdicts.stored.get(row.model.path))

    def _place_recommended(self) -> None:
        """Below the models of this machine where these are the bundled ones alone, else where models are found."""
        library = self._library
        below = self._views.currentIndex() == _VIEWS.index(_HERE) and library.listed and library.bundled_alone
        column = self._here if below else self._home
        if column.indexOf(self.recommended) < 0:
            self.recommended.setContentsMargins(0, 16 if below else 0, 0, 0)
            column.insertWidget(column.count() - 1, self.recommended)
            self.recommended.show()  # a layout would else do it in the next turn of the event loop

    def _act(self, key: str, model: StoredModel) -> None:
        if key == "load":
            self.load_asked.emit(model.path)
        elif key == "make":
            self._toggle_form(model)
        elif key == "report" and model.report is not None:
            self._show_report(model.path, model.report)
        elif key == "settings":
            self.settings_asked.emit(model.path)
        elif key == "drafts":
            self._drafting = "" if self._drafting == model.path else model.path
            if isinstance(self._library.drafts.answers.get(model.path), str):  # it is asked for again
                del self._library.drafts.answers[model.path]
            self._show_drafts()
        elif key == "details":
            self._views.setCurrentIndex(len(_VIEWS))
            self.add.hide()
            self.details.show_model(model)
        else:
            self._ask_removal(model)

    def _toggle_form(self, model: StoredModel) -> None:
        row = next(row for row in self.stored_rows if row.model == model)
        shown = self.form is not None and row.isAncestorOf(self.form)
        self._close_form()
        if shown:
            return
        self.form = form = MakeForm(model)
        form.asked.connect(lambda to, text: self._make(model, to, text))
        form.closed.connect(self._close_form)
        row.column.addWidget(form)
        form.setFocus()

    def _close_form(self) -> None:
        if self.form is None:
            return
        button = self.findChild(QPushButton, f"models.stored.{self.form.model.name}.more")
        if button is not None:
            button.setFocus()
        take_out(self.form)
        self.form = None

    def _make(self, model: StoredModel, to: str, text: str) -> None:
        self._say("")
        self._close_form()
        self._library.maker.make(model.path, to, text)

    def _show_report(self, path: str, report: MakeReport) -> None:
        self.details.close_model()
        self.report.show_report(path, report)
        self._views.setCurrentWidget(self.report)
        self.add.hide()
        self.report.setFocus()

    def _close_report(self) -> None:
        self.show_view(_HERE)
        self.views.setFocus()

    def _ask_removal(self, model: StoredModel) -> None:
        title, question, button = words.removing(model)
        ask(self.window(), "models.remove", title, question, button, lambda: self._library.remove(model.path))

    def _show_drafts(self) -> None:
        """Show the drafts for the model they were asked for; earlier ones are shown until they are known again."""
        library, path = self._library, self._drafting
        for row in self.stored_rows:
            if row.model.path != path:
                row.show_drafts(None)
                continue
            if path not in library.drafts.answers:
                library.drafts.ask(path)
            offers = library.drafts.answers.get(path)
            if row.drafts is None or (offers is not None and offers is not row.drafts.offers):
                drafts = DraftList(offers)
                drafts.load_asked.connect(lambda draft: self.draft_asked.emit(path, draft))
                drafts.get_asked.connect(library.downloads.get)
                row.show_drafts(drafts)
            assert row.drafts is not None
            row.drafts.show_downloads(library.downloads.coming, library.downloads.refused)

    def _show_recommended(self) -> None:
        """Unseen, rows would be made and styled at every start and after every load."""
        if not self.isVisible():
            return
        library = self._library
        self.recommended.show_models(
            library.verdicts.recommended,
            library.stored,
            library.downloads.coming,
            self._loaded,
            library.downloads.refused,
        )

    def _add(self) -> None:
        self._say("")
        if path := model_dialog.ask(self.window(), tr("Add a model"), "", model_dialog.MODELS, model_dialog.is_model):
            self._library.bring(path)

    def _on_files(self) -> None:
        """Models may have come or gone."""
        if self.isVisible():
            self._library.refresh()

    def _on_format(self, key: str) -> None:
        self._format = key
        self.search()

    def _show_found(self) -> None:
        library = self._library
        self.go.setEnabled(not library.hub.searching)
        bad = bool(library.hub.trouble) and not library.hub.searching
        nothing = "" if library.hub.found else tr("Nothing is found. Try fewer words.")
        self._lists.setCurrentIndex(int(self._asks() and not bad))  # what is recommended needs no network
        self.said.setText(tr("Searching…") if library.hub.searching else library.hub.trouble or nothing)
        self.said.setVisible(bool(self.said.text()) and self._asks())
        set_role(self.said, "bad" if bad else "caption")
        if library.hub.searching:
            return
        clear(self._hub, self.hub_rows)
        self.hub_rows = []
        for model in library.hub.found:
            row = HubRow(model, self._theme)
            row.acted.connect(lambda key, row=row: self._on_hub(key, row))
            self.hub_rows.append(row)
            self._hub.insertWidget(self._hub.count() - 1, row)

    def _on_hub(self, key: str, row: HubRow) -> None:
        act, _, variant = key.partition(" ")
        if act == "get":
            self._library.downloads.get(row.repository, variant)
            return
        if act == "load":
            if (model := self._place(row.repository, variant).here) is not None:
                self.load_asked.emit(model.path)
            return
        for other in self.hub_rows:
            if other.repository == self._open:
                other.close_up()
        self._open = row.repository if key == "open" else ""
        if self._open:
            row.wait()
            self._library.hub.repositories.ask(row.repository)

    def _show_repository(self, repository: str) -> None:
        answer = self._library.hub.repositories.answers.get(repository)
        if repository != self._open or answer is None:
            return
        variants = [] if isinstance(answer, str) else answer.variants
        buttons, troubles = {}, {}
        for each in variants:
            at, why = self._place(repository, each.name), self._library.downloads.refused.get((repository, each.name))
            buttons[each.name] = getting.button(at, self._loaded, tr("Download"), why)
            troubles[each.name] = getting.trouble(at, why)
        for row in self.hub_rows:
            if row.repository == repository:
                fits = self._library.hub.fits_of(repository)
                row.show_inside(answer, buttons, fits, self._library.hub.fitting == repository, troubles)

    def _place(self, repository: str, variant: str) -> getting.Place:
        library = self._library
        return getting.place(repository, variant, library.stored, library.downloads.coming)

    def _on_working(self, sentence: str) -> None:
        """The end of one thing does not take away why another was refused."""
        if sentence or self.note.property("role") != "bad":
            self._say(sentence, "caption")

    def _say(self, sentence: str, role: str = "bad") -> None:
        say(self.note, sentence, role)


def _list() -> tuple[QVBoxLayout, QScrollArea]:
    inside = QWidget()
    column = fill(QVBoxLayout(inside), 1, margins=(0, 0, 6, 0), spacing=8)
    return column, scrolling(inside, sideways=True)
