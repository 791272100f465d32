"""Recommended models, filters and drafts on the Models page, with the real `kvasir models` and a hub of the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec
import pytest
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from app.gpu.words import Button
from app.models import advice
from app.models.drafts import NOTHING, DraftList
from app.models.filters import Filters
from app.models.page import ModelsPage
from app.models.recommended import FIRST, RecommendedView
from app.models.rows import HubRow
from app.models.state.library import ModelLibrary
from app.theme.theme import Theme
from engine.protocol import (
    CuratedDraft,
    CuratedModel,
    Download,
    DraftOffer,
    HubModel,
    HubRepository,
    HubVariant,
    Recommendation,
    Recommended,
    StoredModel,
)
from engine.protocol.operations import ADD_DOWNLOAD, SearchModels
from engine.services.operations import OperationFailed
from tests.app.pressing import press
from tests.hub_server import Hub, stock
from tests.kit.operations import RealOperations, ScriptedOperations

COMMAND = [sys.executable, "-m", "engine.doors.cli.main", "models"]
PATIENCE_MS = 120_000


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    hub.repositories = stock()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    yield hub
    hub.close()


@pytest.fixture
def theme(qapp) -> Theme:
    return Theme("dark", 1.0, True)


def entry(name: str, verdict: str = "fits", draft: str = "", purpose: str = "chat") -> Recommendation:
    half = CuratedDraft(kind="model", repository=draft, variant="Q8_0", bytes=6 * 10**8) if draft else None
    model = CuratedModel(
        repository=name, variant="Q4_K_M", format="gguf", family="Qwen3ForCausalLM", parameters=8 * 10**9,
        bytes=5 * 10**9, context=32768, licence="mit", purposes=[purpose], about="A test.", taken="2026-11-25",
        source="test", draft=half,
    )  # fmt: skip
    return Recommendation(model=model, verdict=verdict, need=6 * 10**9, fastest=50.0)


@pytest.mark.slow
def test_what_is_recommended_is_there_before_anything_is_asked(qtbot, theme, hub):
    library = ModelLibrary(RealOperations(), COMMAND)
    page = ModelsPage(library, theme)
    qtbot.addWidget(page)
    page.show()
    page.show_view("hub")
    assert len(page.recommended.rows) == FIRST, "before any process has answered"
    rows = page.recommended.rows
    library.verdicts.show(Recommended(models=[entry("a/b"), entry("a/c", "tight")]))
    assert [row.badge.text() for row in page.recommended.rows] == ["runs well here", "runs"]
    rows = page.recommended.rows
    library.verdicts.show(
        Recommended(models=[msgspec.structs.replace(each, need=1) for each in library.verdicts.recommended])
    )
    assert page.recommended.rows == rows, "rows stay where no verdict changed"
    assert not hub.asked
    assert page._lists.currentIndex() == 0
    page.field.setText("model")
    page.search()
    qtbot.waitUntil(lambda: bool(page.hub_rows), timeout=PATIENCE_MS)
    assert page._lists.currentIndex() == 1
    page.filters.sizes.menu().actions()[3].trigger()  # narrows, and searches again
    qtbot.waitUntil(lambda: not library.hub.searching, timeout=PATIENCE_MS)
    _, query = hub.asked[-1]
    assert query["num_parameters"] == ["min:5B,max:10B"]
    page.filters.sizes.menu().actions()[0].trigger()
    page.field.clear()
    assert page._lists.currentIndex() == 0
    library.close_down()


@pytest.mark.slow
def test_without_a_network_what_is_recommended_stays(qtbot, theme, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    library = ModelLibrary(RealOperations(), COMMAND)
    page = ModelsPage(library, theme)
    qtbot.addWidget(page)
    page.show()
    page.show_view("hub")
    page.field.setText("model")
    page.search()
    assert page._lists.currentIndex() == 1
    qtbot.waitUntil(lambda: bool(library.hub.trouble), timeout=PATIENCE_MS)
    assert page.said.text().startswith("You are offline: hub.invalid cannot be reached.")
    assert (page.said.isVisible(), page.recommended.isVisible()) == (True, True)
    page.field.clear()
    assert (page.said.isVisible(), page.recommended.isVisible()) == (False, True)
    assert (library.hub.trouble, library.hub.found) == ("", [])
    library.close_down()


def test_a_model_is_fetched_with_its_draft_or_without(qtbot, theme):
    view = RecommendedView(theme)
    qtbot.addWidget(view)
    asked: list[tuple[str, str, bool]] = []
    view.get_asked.connect(lambda *what: asked.append(what))
    view.show_models([entry("a/b", draft="a/draft"), entry("a/c")], [], [])
    first, second = view.rows
    assert not first.draft.isHidden()
    assert second.draft.isHidden()
    press(first, "models.recommended.a/b.get")
    assert asked == [("a/b", "Q4_K_M", False), ("a/draft", "Q8_0", True)]
    asked.clear()
    first.draft.setChecked(False)
    press(first, "models.recommended.a/b.get")
    assert asked == [("a/b", "Q4_K_M", False)]
    model = StoredModel(name="x", path="/m/b-Q4_K_M.gguf", format="gguf", bytes=1, repository="a/b")
    coming = Download(id="1", repository="a/c", variant="c-Q4_K_M.gguf", state="running")
    models = [entry("a/b", draft="a/draft"), entry("a/c")]
    view.show_models(models, [model], [coming])
    assert first.findChild(QPushButton, "models.recommended.a/b.get") is None
    asked.clear()
    press(first, "models.recommended.a/b.draft")  # the model is here, its draft is not
    assert asked == [("a/draft", "Q8_0", True)]
    with qtbot.waitSignal(view.load_asked) as load:
        press(first, "models.recommended.a/b.load")
    assert load.args == ["/m/b-Q4_K_M.gguf"]
    get = second.findChild(QPushButton, "models.recommended.a/c.get")
    assert (get.text(), get.isEnabled(), get.toolTip()) == ("Downloading…", False, "It is on its way.")
    view.show_models(models, [model], [coming], "/m/b-Q4_K_M.gguf")
    load = first.findChild(QPushButton, "models.recommended.a/b.load")
    assert (load.isEnabled(), load.toolTip()) == (False, "It is loaded.")


def test_why_a_model_does_not_come_is_said_in_its_row(qtbot, theme):
    engine = ScriptedOperations()
    library = ModelLibrary(engine, ["nothing"])
    page = ModelsPage(library, theme)
    qtbot.addWidget(page)
    page.show()
    library.verdicts.show(Recommended(models=[entry("a/b", draft="a/draft"), entry("a/c")]))
    first, second = page.recommended.rows
    press(first, "models.recommended.a/b.get")
    for call in engine.of(ADD_DOWNLOAD):  # the model and what drafts for it
        engine.answer(ADD_DOWNLOAD, OperationFailed("You are offline."), call)
    assert (first.trouble.text(), second.trouble.isHidden()) == ("You are offline.", True)
    assert page.note.isHidden(), "it is said once"
    again = first.findChild(QPushButton, "models.recommended.a/b.get")
    assert (again.text(), again.isEnabled()) == ("Try again", True)
    again.click()
    assert engine.requests(ADD_DOWNLOAD)[2:] == engine.requests(ADD_DOWNLOAD)[:2]
    assert first.trouble.isHidden()
    failed = Download(id="1", repository="a/c", variant="c-Q4_K_M.gguf", state="failed", sentence="The disk is full.")
    library.downloads.merge({"1": failed})
    assert (second.trouble.text(), second.trouble.isHidden()) == ("The disk is full.", False)
    press(second, "models.recommended.a/c.get")
    assert len(engine.requests(ADD_DOWNLOAD)) == 4, "it goes on, and nothing is asked of the hub"
    assert library.downloads.jobs["1"].state != "failed"
    library.close_down()


def test_why_a_file_of_a_repository_does_not_come_is_said_below_it(qtbot, theme):
    row = HubRow(HubModel(repository="a/b"), theme)
    qtbot.addWidget(row)
    files = [HubVariant(name=name, format="gguf", quantisation="Q8_0", bytes=1) for name in ("x.gguf", "y.gguf")]
    inside = HubRepository(model=HubModel(repository="a/b"), revision="main", variants=files)
    buttons = {each.name: Button("get", "Download") for each in files}
    row.show_inside(inside, buttons, {}, False, {"x.gguf": "You are offline.", "y.gguf": ""})
    said = [label.text() for label in row.findChildren(QLabel) if label.property("role") == "bad"]
    assert said == ["You are offline."]


def test_few_at_first_and_by_purpose(qtbot, theme):
    view = RecommendedView(theme)
    qtbot.addWidget(view)
    many = [entry(f"a/{number}") for number in range(FIRST + 2)]
    view.show_models([*many, entry("a/code", "tight", purpose="code"), entry("a/big", "too large")], [], [])
    assert len(view.rows) == FIRST
    assert view.more.text() == "Show 4 more, 1 of them too large for this machine"
    press(view.purposes, "models.purpose.code")
    assert [(row.title.text(), row.badge.text(), row.badge.property("badge")) for row in view.rows] == [
        ("a/code", "runs", "warn")
    ]
    assert view.more.isHidden()
    press(view.purposes, "models.purpose.")
    view.more.click()
    assert [row.badge.text() for row in view.rows][-1] == "too large"
    assert len(view.rows) == FIRST + 4
    assert all(row.isAncestorOf(row.draft) for row in view.rows), "nothing is left of a row that goes"


def test_filters_are_options_of_the_command(qtbot, theme):
    filters = Filters(theme)
    qtbot.addWidget(filters)
    assert filters.narrowed("", "") == SearchModels()
    with qtbot.waitSignals([filters.changed] * 3):
        filters.sizes.menu().actions()[1].trigger()
        filters.licence.menu().actions()[2].trigger()
        filters.fits.setChecked(True)
    filters.author.setText(" Qwen ")
    assert filters.narrowed("a", "gguf") == SearchModels(
        text="a", format="gguf", size="-2B", licence="mit", author="Qwen", fits=True
    )
    assert filters.sizes.text() == "up to 2B ▾"


@pytest.mark.slow
def test_drafts_below_a_model(qtbot, theme, hub):
    library = ModelLibrary(RealOperations(), COMMAND)
    page = ModelsPage(library, theme)
    qtbot.addWidget(page)
    page.show()
    qtbot.waitUntil(lambda: len(page.stored_rows) >= 3, timeout=PATIENCE_MS)
    press(page, "models.stored.kvasir-hybrid.drafts")
    qtbot.waitUntil(lambda: bool(library.drafts.answers), timeout=PATIENCE_MS)
    with qtbot.waitSignal(page.draft_asked) as asked:
        press(page, "models.draft.the model's own layers.load")
    assert asked.args[0].endswith("kvasir-hybrid")
    assert asked.args[1] == ""
    library.close_down()


def test_offers_in_words(qtbot):
    far = DraftOffer(name="a/draft Q8_0", kind="model", repository="a/draft", variant="Q8_0", bytes=6 * 10**8)
    drafts = DraftList([far])
    qtbot.addWidget(drafts)
    drafts.show_downloads([])
    with qtbot.waitSignal(drafts.get_asked) as asked:
        press(drafts, "models.draft.a/draft Q8_0.get")
    assert asked.args == ["a/draft", "Q8_0", True]
    drafts.show_downloads([], {("a/draft", "Q8_0"): "You are offline."})
    trouble = drafts.findChild(QLabel, "models.draft.a/draft Q8_0.trouble")
    assert (trouble.text(), trouble.isHidden()) == ("You are offline.", False)
    assert drafts.findChild(QPushButton, "models.draft.a/draft Q8_0.get").text() == "Try again"
    drafts.show_downloads([Download(id="1", repository="a/draft", variant="draft-Q8_0.gguf", state="waiting")])
    get = drafts.findChild(QPushButton, "models.draft.a/draft Q8_0.get")
    assert (get.text(), get.isEnabled()) == ("Queued", False)
    assert advice.offer(far) == "draft model · 600 MB"
    near = DraftOffer(name="x", kind="eagle", path="/x", cost=0.128)
    assert advice.offer(near) == "EAGLE head · pays when more than 13 % of its tokens are accepted"
    assert advice.offer(DraftOffer(name="x", kind="eagle", path="/x", cost=1.2)).endswith("than the model itself")
    nothing = DraftList([])
    qtbot.addWidget(nothing)
    assert NOTHING in [label.text() for label in nothing.findChildren(QWidget) if hasattr(label, "text")]


def test_verdicts_in_words():
    fits = entry("a/b", draft="a/draft")
    assert advice.with_draft(fits) == "with its draft model, a/draft (600 MB)"
    assert advice.about(fits.model) == "A test.\n8B parameters · Q4_K_M · 5.0 GB · context 32k · licence mit"
    assert advice.verdict(fits).startswith(
        "It takes about 6.0 GB with a chat of the usual length. Memory allows about 50"
    )
    assert advice.verdict(Recommendation(model=fits.model, verdict="")) == ""
