"""What stays on the Models page while what it shows changes. No process is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from app.command import End
from app.models.page import ModelsPage
from app.models.state.library import ModelLibrary
from app.theme.theme import Theme
from engine.protocol import (
    Call,
    Download,
    DraftOffer,
    Error,
    FitReport,
    HubModel,
    HubRepository,
    HubVariant,
    MakeProgress,
    MakeReport,
    ModelDetails,
    ModelFolder,
    ModelQuality,
    Recommended,
    SizeFit,
    StoredModel,
    operations,
)
from engine.services.operations import OperationFailed
from tests.app.pressing import press
from tests.kit.operations import ScriptedOperations

BIG = StoredModel(
    name="big", path="/m/big", format="safetensors", bytes=1_500_000_000, quantisation="bfloat16",
    embedding_bytes=300_000_000, made_of="bigger",
)  # fmt: skip
OTHER = StoredModel(name="other", path="/m/other", format="gguf", bytes=10**6)
FAR = DraftOffer(name="far", kind="model", repository="a/far", variant="Q8_0", bytes=10**6)


class Run:
    """A download that runs until the test ends it."""

    def __init__(self, take: Callable[..., object], done: Callable[[End], object]) -> None:
        self.take, self.done = take, done


class Answered(ModelLibrary):
    """The library, whose questions are answered and whose downloads are run by the test."""

    def __init__(self) -> None:
        self.engine = ScriptedOperations()
        super().__init__(self.engine)
        self.runs: list[Run] = []
        self.downloads._begin = self._begin  # type: ignore[method-assign]

    def _begin(self, job: Download, take: Any, done: Any) -> Any:
        self.runs.append(Run(take, done))
        return self.runs[-1]

    def asked(self, name: str) -> list[Call]:
        return self.engine.of(operations.OPERATIONS[f"models.{name}"])

    def answer(self, name: str, answer: object, call: Call | None = None) -> None:
        """End the last question of that name, or this one."""
        self.engine.answer(operations.OPERATIONS[f"models.{name}"], answer, call)

    def list(self, *models: StoredModel) -> None:
        """Answer what models are here."""
        self.answer("list", operations.ModelList(models=[*models]))


@pytest.fixture
def library(qapp) -> Answered:
    return Answered()


@pytest.fixture
def page(qtbot, library: Answered) -> ModelsPage:
    page = ModelsPage(library, Theme("dark", 1.0, True))
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show()
    library.list(BIG, OTHER)
    return page


def download(**changes: Any) -> Download:
    return Download(**{"id": "1", "repository": "a/far", "variant": "far-Q8_0.gguf", "state": "running", **changes})


def get(page: ModelsPage) -> QPushButton:
    button = page.findChild(QPushButton, "models.draft.far.get")
    assert button is not None
    return button


def test_a_form_stays_open_whatever_comes(qtbot, page, library):
    press(page, "models.stored.big.drafts")
    press(page, "models.stored.big.make")
    form = page.form
    form.text.setText("words")
    library.answer("drafts", [FAR])
    page.set_loaded(BIG.path)
    assert page.stored_rows[0].badge.text() == "loaded"
    page.set_loaded("")
    library.refresh()
    library.list(OTHER, BIG)
    assert page.form is form
    assert page.stored_rows[1].isAncestorOf(form)
    qtbot.waitUntil(form.isVisible)
    press(page, "models.stored.big.make")
    assert page.form is None


def test_the_keyboard_stays_where_drafts_are_asked_for(page, library):
    page.activateWindow()
    more = page.findChild(QPushButton, "models.stored.big.more")
    more.setFocus()
    press(page, "models.stored.big.drafts")
    library.answer("drafts", [FAR])
    assert QApplication.focusWidget() is more


def test_a_draft_on_its_way_is_not_fetched_again(page, library):
    press(page, "models.stored.big.drafts")
    library.answer("drafts", [FAR])
    shown = page.stored_rows[0].drafts
    assert get(page).isEnabled()
    library.downloads.merge({"1": download()})
    assert not get(page).isEnabled()
    library.downloads.merge({})
    assert get(page).isEnabled()
    library.refresh()
    library.list(BIG, OTHER)
    assert page.stored_rows[0].drafts is shown


def test_drafts_are_asked_for_again_after_a_failure_and_for_other_models(page, library):
    press(page, "models.stored.big.drafts")
    library.answer("drafts", OperationFailed("No."))
    press(page, "models.stored.big.drafts")
    press(page, "models.stored.big.drafts")
    assert len(library.asked("drafts")) == 2
    library.refresh()
    library.list(BIG)  # while that runs: what it answers is of models that were there
    first, second = library.asked("drafts")[-2:]
    assert first.id in library.engine.cancelled
    library.answer("drafts", [FAR], second)
    library.refresh()
    library.list(StoredModel(**{**_fields(BIG), "bytes": 2 * BIG.bytes}))  # it grows
    assert len(library.asked("drafts")) == 3


def test_the_views_are_chosen_at_one_height(page):
    heights = set()
    for view in ("here", "hub", "disk", "other"):
        page.show_view(view)
        QApplication.processEvents()
        heights.add(page.views.mapTo(page, QPoint()).y())
    assert len(heights) == 1


def test_the_disk_view_keeps_its_rows_while_a_download_goes_on(page, library):
    library.folders = [ModelFolder(path="/m", store=True)]
    library.downloads.merge({"1": download(total=10**9)})
    page.show_view("disk")
    rows = page.disk.rows
    library.downloads.merge({"1": download(done=5 * 10**8, total=10**9)})
    assert page.disk.rows is rows
    assert "500 MB of 1.0 GB" in rows[-1].about.text()
    assert page.disk.total.text().startswith("2.0 GB")
    library.downloads.merge({})
    assert page.disk.rows is not rows


def test_one_text_is_read_for_a_model_asked_for_twice(qtbot, page, library):
    details = ModelDetails(
        name="big", path=BIG.path, format="safetensors", architecture="x", parameters=1, quantisation="", layers=1,
        heads=1, kv_heads=1, head_dim=1, width=1, context=1, vocabulary=1, repository="", revision="",
    )  # fmt: skip
    for _ in range(2):
        press(page, "models.stored.big.details")
        page.show_view("here")
    press(page, "models.stored.big.details")
    for call in library.asked("details"):
        library.answer("details", details, call)
    qtbot.waitUntil(lambda: len(library.asked("tokens")) == 1)
    page.details._typed.stop()
    page.details.pieces.setPlainText("of another model")
    library.answer("tokens", OperationFailed("It has no tokenizer."))
    assert page.details.pieces.toPlainText() == ""
    assert not page.details.metadata.tabKeyNavigation()


def test_a_report_is_there_at_once(page, library):
    quality = ModelQuality(bytes=1000, perplexity=10.0, tokens_per_second=10.0)
    report = MakeReport(
        name="big", path=BIG.path, source="a", to="nf4", before=quality, after=quality, kl=0.0, same_top=1.0, tokens=9,
    )  # fmt: skip
    assert page.findChild(QPushButton, "models.stored.big.report") is None
    library.refresh()
    library.list(msgspec.structs.replace(BIG, report=report), OTHER)
    before = len(library.engine.asked)
    press(page, "models.stored.big.details")
    press(page, "models.stored.big.report")
    assert page.report.isVisible()
    assert [call.operation for call in library.engine.asked[before:]] == ["models.details"]
    assert page.add.isHidden()


def test_a_fit_is_planned_anew_for_what_is_loaded(page, library):
    page.show_view("hub")
    library.hub.search(operations.SearchModels(text="a"))
    library.answer("search", [HubModel(repository="a/b")])
    press(page, "models.hub.a/b.open")
    variant = HubVariant(name="v", format="gguf", quantisation="Q8_0", bytes=1, files=[])
    library.answer("show", HubRepository(model=HubModel(repository="a/b"), revision="", variants=[variant]))
    line = page.findChild(QPushButton, "models.variant.v.get")
    library.stored_changed.emit()
    assert page.findChild(QPushButton, "models.variant.v.get") is line  # nothing to be shown anew
    page.set_loaded(BIG.path, 1000)
    first, _ = library.asked("fit")
    assert first.id in library.engine.cancelled
    assert library.engine.requests(operations.FIT_MODEL)[-1].credit == 1000
    fit = FitReport(name="v", variant="v", verdict="fits", sentence="", parameters=1, context=1, longest=1)
    library.answer("fit", [fit])
    assert page.findChild(QWidget, "models.fit.v") is not None


def test_a_search_is_given_up_when_nothing_is_asked(page, library):
    page.show_view("hub")
    page.field.setText("a")
    page.search()
    page.field.clear()
    assert library.asked("search")[-1].id in library.engine.cancelled
    assert page.said.isHidden()
    assert page.go.isEnabled()


def test_what_came_is_told_once_it_can_be_loaded(qtbot, page, library):
    told: list[tuple[str, str]] = []
    library.arrived.connect(lambda *what: told.append(what))
    library.downloads.get("a/far", "Q8_0", helper=True)
    library.downloads.get("a/new", "new-Q4_0.gguf")
    come = [download(state="done", path="/m/far"), download(id="2", repository="a/new", state="done", path="/m/new")]
    for each in come:
        library.downloads.done.emit(each)
    library.bring("/mine")
    library.answer("import", operations.Imported(name="mine", path="/mine"))
    library.maker.done.emit(MakeProgress(id="3", model="/m/big", to="nf4", state="done", path="/m/made"))
    assert told == [], "not before they are listed"
    new = [StoredModel(name=f"the {name}", path=f"/m/{name}", format="gguf", bytes=1) for name in ("far", "new")]
    library.list(BIG, *new)
    assert told == [("the new", "/m/new")], "what is to draft for another is no news"
    more = [
        StoredModel(name=name, path=path, format="gguf", bytes=1)
        for name, path in (("mine", "/mine"), ("made", "/m/made"))
    ]
    library.list(BIG, *new, *more)
    assert sorted(told[1:]) == [("made", "/m/made"), ("mine", "/mine")]
    library.refresh()
    library.list(BIG, *new, *more)
    assert len(told) == 3


def test_a_finished_download_can_be_loaded_where_it_was_asked_for(qtbot, page, library):
    page.show_view("hub")
    library.hub.search(operations.SearchModels(text="a"))
    library.answer("search", [HubModel(repository="a/b")])
    press(page, "models.hub.a/b.open")
    names = ("b-Q4_K_M.gguf", "b-Q4_K.gguf", "sub/b-Q8_0.gguf")
    variants = [HubVariant(name=name, format="gguf", quantisation=name[-10:-5], bytes=1) for name in names]
    library.answer("show", HubRepository(model=HubModel(repository="a/b"), revision="", variants=variants))
    press(page, "models.variant.sub/b-Q8_0.gguf.get")

    def button(name: str, key: str = "get") -> tuple[str, bool]:
        found = page.findChild(QPushButton, f"models.variant.{name}.{key}")
        return found.text(), found.isEnabled()

    assert button("sub/b-Q8_0.gguf") == ("Queued", False), "at once"
    library.answer("get", download(id="7", repository="a/b", variant="sub/b-Q8_0.gguf", state="waiting"))
    library.runs[-1].take(download(id="7", repository="a/b", variant="sub/b-Q8_0.gguf"))
    assert button("sub/b-Q8_0.gguf") == ("Downloading…", False)
    path = "/m/a/b/sub/b-Q8_0-00001-of-00002.gguf"
    library.runs[-1].take(download(id="7", repository="a/b", variant="sub/b-Q8_0.gguf", state="done", path=path))
    library.runs[-1].done(End(True))
    library.list(StoredModel(name="b", path=path, format="gguf", bytes=1, repository="a/b"))
    assert [button(name) for name in names[:2]] == [("Download", True)] * 2
    with qtbot.waitSignal(page.load_asked) as asked:
        press(page, "models.variant.sub/b-Q8_0.gguf.load")
    assert asked.args == [path]
    page.set_loaded(path)
    assert button("sub/b-Q8_0.gguf", "load") == ("Load", False)


def test_where_only_the_bundled_models_are_others_are_recommended_below(qtbot, library):
    page = ModelsPage(library, Theme("dark", 1.0, True))
    qtbot.addWidget(page)
    page.show()
    assert page.findChild(QLabel, "models.looking").isVisible()
    guide = msgspec.structs.replace(OTHER, bundled=True)
    library.list(guide)
    assert not page.findChild(QLabel, "models.looking").isVisible()
    assert page.recommended.isVisible()
    page.show_view("hub")
    assert page.recommended.isVisible()
    page.show_view("here")
    assert page.recommended.isVisible()
    library.refresh()
    library.list(guide, BIG)
    assert not page.recommended.isVisible()
    library.verdicts.show(
        Recommended(models=[], stored={BIG.path: SizeFit("tight", "Slow."), OTHER.path: SizeFit("fits")})
    )
    assert [row.badge.text() for row in page.stored_rows] == ["runs well here", "runs"]


def test_the_end_of_one_import_leaves_the_refusal_of_another(page, library):
    library.bring("/a")
    library.bring("/b")
    first, second = library.asked("import")
    library.answer("import", OperationFailed("It is no model."), first)
    library.answer("import", operations.Imported(name="b", path="/b"), second)
    assert page.note.text() == "It is no model."
    library.bring("/c")
    library.answer("import", operations.Imported(name="c", path="/c"))
    assert page.note.isHidden()


def test_a_move_says_from_where(qtbot, page, library):
    library.folders = [ModelFolder(path="/m", store=True)]
    library.change_folders("move_to", "/new")
    library.answer("folders", OperationFailed("There is no room."))
    library.change_folders("move_to", "/new")
    with qtbot.waitSignal(library.store_moved) as moved:
        library.answer("folders", operations.Folders(folders=[], store="/new"))
    assert moved.args == ["/m", "/new"]


def test_many_downloads_leave_room_for_the_page(qtbot, page, library):
    library.downloads.merge({str(id): download(id=str(id), state="paused") for id in range(8)})
    (first, *_) = page.download_rows.values()
    qtbot.waitUntil(lambda: first.height() < page._tray.height() < 3.5 * first.height())
    assert page.minimumSizeHint().height() < 600


def _fields(model: StoredModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.__struct_fields__}


def test_what_could_not_be_asked_is_asked_again_when_the_engine_is_there(page, library):
    gone = Error(code="not_connected", message="The engine is not running.", id="")
    press(page, "models.stored.big.drafts")
    library.engine.fail(operations.OFFER_DRAFTS, gone)
    assert library.drafts.answers[BIG.path] == gone.message
    library.refresh()
    library.engine.fail(operations.LIST_MODELS, gone)
    assert page.note.isHidden()
    assert library.unlisted == gone.message
    library.refresh()
    library.list(BIG, OTHER)
    assert len(library.asked("drafts")) == 2
    assert library.unlisted == ""
