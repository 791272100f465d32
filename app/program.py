"""Assembles the program from its parts and takes it apart again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, SignalInstance
from PySide6.QtWidgets import QApplication

from app import paths, version
from app.cache.view import CacheView
from app.chat.page import ChatPage
from app.documents.meaning import USUAL
from app.gpu.packs import Packs
from app.help.page import HelpPage
from app.history.leaving import Leaving
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.history.upgrading import in_sight
from app.lab.kept import kept_index
from app.lab.tools import COMPARE
from app.language import known
from app.link.link import EngineLink, LinkState
from app.models.page import ModelsPage
from app.models.selector import ModelSelector
from app.models.state.choice import LoadChoice
from app.models.state.library import ModelLibrary
from app.models.state.loads import ModelLoads
from app.opening import Opener
from app.panel.panel import OptimisationPanel
from app.plots.strip import PlotStrip
from app.server.state import ServerState
from app.settings.appearance import Appearance
from app.settings.page import SettingsPage
from app.settings.store import SettingsStore
from app.theme.icons import app_icon
from app.theme.sheet import dress, prepare
from app.theme.theme import Theme
from app.window.busy import Busy
from app.window.desktop import Desktop
from app.window.lazy import LazyPage
from app.window.window import MainWindow
from app.window.wirings.cache import CacheWiring
from app.window.wirings.desktop import DesktopWiring
from app.window.wirings.elsewhere import ElsewhereWiring
from app.window.wirings.engine import EngineWiring
from app.window.wirings.getting import GettingWiring
from app.window.wirings.gpu import GpuWiring
from app.window.wirings.links import LinksWiring
from app.window.wirings.load_settings import LoadSettingsWiring
from app.window.wirings.measure import MeasureWiring
from app.window.wirings.model import ModelWiring
from app.window.wirings.palette import PaletteWiring
from app.window.wirings.passages import PassagesWiring
from app.window.wirings.preset import PresetWiring
from app.window.wirings.quick import QuickWiring
from app.window.wirings.server import ServerWiring
from app.window.wirings.switch import SwitchWiring
from app.window.wirings.why import WhyWiring
from engine.base.installation import engine_command
from engine.protocol import Loaded, RemoteModel

if TYPE_CHECKING:
    from app.lab.compare.page import ComparePage
    from app.lab.compare.run import ComparisonRun
    from app.lab.page import LabView
    from app.lab.runs import LabRuns
    from app.server.page import ServerPage

log = logging.getLogger(__name__)

LAB_MS = 15_000
"""After the first load, when nothing is written any more, most likely."""


class WindowProgram:
    """The window with everything behind it.

    ``engine`` is the command that starts the engine; None is Kvasir's own. ``gpu``, ``models`` and ``quantise`` are
    those of `kvasir gpu`, `kvasir models` and so on; None is Kvasir's own with its own engine, and none with another.
    ``link`` is one that was started with that command already.
    """

    def __init__(
        self,
        app: QApplication,
        log_path: Path,
        engine: Sequence[str] | None = None,
        gpu: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        quantise: Sequence[str] | None = None,
        link: EngineLink | None = None,
    ) -> None:
        self.closed = False
        self.store = SettingsStore(paths.settings_file())
        settings = self.store.settings
        data = paths.data_dir()
        self.theme = Theme(settings.theme, settings.text_scale, settings.reduced_motion)
        self.history = HistoryStore(data / "history.db", upgrading=lambda work: in_sight(work, self.theme, app))
        version.remember(data)  # everything could be opened
        self.link = EngineLink(engine) if link is None else link
        if link is None:
            self.link.start()
        prepare(self.theme, app)
        plots = PlotStrip(self.theme)
        own = [] if engine is not None else engine_command()
        self.library = ModelLibrary(
            self.link,
            models if models is not None else [*own, "models"] if own else [],
            quantise if quantise is not None else [*own, "quantise"] if own else [],
        )
        self.library.store_moved.connect(self.store.move_models)
        self.library.downloads.limit = lambda: self.store.settings.download_limit
        loads = ModelLoads(self.link, LoadChoice(self.link, self.store, self.library))
        self.chat = ChatPage(self.link, self.history, loads, self.theme)
        self.selector = ModelSelector(self.link, loads, self.theme)
        self.sidebar = Sidebar(self.history, self.theme)  # after the chat, which says what of the history is unreadable
        self.lab: LabRuns | None = None
        self.compare: ComparisonRun | None = None
        self.lab_page: LazyPage[LabView] = LazyPage(self._make_lab)
        self.server = ServerState(self.link, self.store)
        self._lab_index = paths.data_dir() / "lab" / "index.kept"
        help_page = HelpPage(paths.docs_dir(), self.theme)
        self.window = MainWindow(
            selector=self.selector,
            sidebar=self.sidebar,
            chat=self.chat,
            panel=OptimisationPanel(self.theme),
            plots=plots,
            cache=CacheView(self.theme, plots.hues),
            models_page=ModelsPage(self.library, self.theme),
            lab_page=self.lab_page,
            server_page=LazyPage(self._make_server),
            help_page=help_page,
            settings_page=SettingsPage(self.store, self.theme, log_path, data),
            appearance=Appearance(self.store, self.theme),
            theme=self.theme,
            log_file=log_path,
        )
        dress(self.theme, app)
        self.packs = Packs(gpu if gpu is not None else [*own, "gpu"] if own else [])
        self._connect_engine()
        self._connect_chats()
        LinksWiring(self.store, self.window, help_page, lambda: self.lab_page.inner)
        PaletteWiring(
            self.link,
            self.store,
            self.library,
            self.history,
            help_page,
            self.opener.open,
            self._experiments,
            self._show_experiment,
            self.window,
        )
        self._later = QTimer(self.window, singleShot=True, interval=LAB_MS)
        self._later.timeout.connect(self._look_at_lab)
        self.link.loaded.connect(lambda _: None if self._lab_index.exists() else self._later.start())

    def _connect_engine(self) -> None:
        """The parts of the window with the engine, the settings and the history."""
        link, store, window, chat = self.link, self.store, self.window, self.chat
        notice, panel, plots, settings_page = window.notice, window.panel, window.plots, window.settings_page
        EngineWiring(link, window.bar, settings_page.engine, window)
        # Before the models: what a welcome says of the switches is known when the first model is asked for.
        switches = SwitchWiring(link, store, panel, chat, plots, notice, window)
        models = ModelWiring(link, store, chat.loads, settings_page.engine, plots, notice, window)
        PresetWiring(link, store, chat, window)
        WhyWiring(link, plots, panel, self.theme, window)
        self.measuring = measuring = MeasureWiring(link, panel, chat, notice, window)
        self.cache_wiring = CacheWiring(
            link, window.cache, plots, chat, self.sidebar, self.history, window.open_chat, window
        )
        card, section = window.gpu_card, settings_page.gpu
        self.gpu_wiring = GpuWiring(
            link, store, self.packs, card, section, chat.answers, measuring, window.show_gpu_settings, window
        )
        self.busy = busy = Busy(chat, measuring, window)
        busy.lab = lambda: (part for part in (self.lab, self.compare) if part is not None)
        window.presence.unfinished = busy.lost
        chat.titles.allowed = lambda: store.settings.titles and not busy.measures
        self.opener = opener = Opener(notice, models.open, busy.ends)
        for over in (chat.answers.ended, chat.answers.refused, measuring.changed):
            over.connect(opener.settle)
        self.opener.opened.connect(lambda: window.show_page(MainWindow.CHAT))
        window.models_page.load_asked.connect(self.opener.open)
        window.models_page.draft_asked.connect(self._load_with)
        window.models_page.remote_asked.connect(self._chat_with)
        chat.several.remotes = self.library.remotes
        chat.several.compare_asked.connect(window.simple.unless_hidden(lambda: self._show_experiment(COMPARE)))
        ElsewhereWiring(chat.session, self.selector, (panel, plots, window.cache), window)
        GettingWiring(
            link, store, self.library, chat, self.selector, notice, self.opener.open, self._find_models, window
        )
        PassagesWiring(store, self.library, self.history, chat.session, settings_page, self._find_embedder, window)
        ServerWiring(link, self.server, window)
        self.desktop = Desktop(window, app_icon(), window)
        DesktopWiring(store, self.desktop, window, self.history, self.library)
        self.quick = QuickWiring(store, self.desktop, settings_page.desktop, window, self.theme)
        loading = LoadSettingsWiring(link, chat.loads, self.opener.open, self.theme, window)
        for asked in (window.models_page.settings_asked, self.selector.load_settings_asked):
            asked.connect(loading.open)
        link.loaded.connect(self._on_loaded)
        link.unloaded.connect(lambda _: window.models_page.set_loaded(""))
        link.state_changed.connect(self._on_link)
        chat.loads.guard = switches.guard = self.opener.guard
        chat.why_asked.connect(window.show_why_fast)

    def _make_lab(self) -> LabView:
        """The Lab, which many never open."""
        from app.lab.page import LabView
        from app.window.wirings.lab import LabWiring

        window, runs = self.window, self._lab_runs()
        view = LabView(runs, self._make_compare, self.theme)
        LabWiring(self.link, runs, view, window.panel, self.chat, self.measuring, self.library, window)
        self._settle_on(runs.changed)
        return view

    def _make_compare(self) -> ComparePage:
        """The Lab's page Compare, which many never open."""
        from app.lab.compare.page import ComparePage

        page = ComparePage(self.link, self.theme)
        page.comparison.device = self._lab_runs().device
        self.compare = page.comparison
        self._settle_on(page.changed)
        return page

    def _settle_on(self, changed: SignalInstance) -> None:
        """What waited for the end of a measurement may go on."""
        changed.connect(self.busy.settle)
        changed.connect(self.opener.settle)

    def _make_server(self) -> ServerPage:
        """The page Server, which many never open."""
        from app.server.page import ServerPage

        return ServerPage(self.server, self.theme)

    def _lab_runs(self) -> LabRuns:
        """Return the runs that the Lab's page shows, made when they are first needed."""
        if self.lab is None:
            from app.lab.runs import LabRuns

            self.lab = LabRuns(self.link, parent=self.window, kept=self._lab_index)
            self.lab.device = lambda: self.store.settings.device
        return self.lab

    def _experiments(self) -> dict[str, str]:
        """Titles of the Lab's experiments, by name; none before its index was made once."""
        index = self.lab.index if self.lab is not None else kept_index(self._lab_index)
        return {page.name: known(page.title) for page in index.pages} if index is not None else {}

    def _show_experiment(self, name: str) -> None:
        self.window.show_page(MainWindow.LAB)
        if self.lab_page.inner is not None:
            self.lab_page.inner.show_experiment(name)

    def _look_at_lab(self) -> None:
        """The list of experiments takes seconds to be made: once, while nothing is asked, so that it is kept."""
        if not (self.closed or self._lab_index.exists() or self.chat.answers.busy):
            self._lab_runs().refresh()

    def _find_models(self) -> None:
        """The page Models, where others than those of this machine are found."""
        self.window.show_page(MainWindow.MODELS)
        self.window.models_page.show_view("hub")

    def _find_embedder(self) -> None:
        """The page Models, where the small embedding model that most programs use is found."""
        self.window.show_page(MainWindow.MODELS)
        self.window.models_page.look_for(USUAL)

    def _load_with(self, model: str, draft: str) -> None:
        """Load a model with what was chosen to draft for it; "": with what it has of its own."""
        self.window.show_page(MainWindow.CHAT)
        self.chat.loads.load(model, draft or None, chosen=bool(draft))

    def _chat_with(self, remote: RemoteModel) -> None:
        """Have a model of another server answer in the chat on screen."""
        self.window.show_page(MainWindow.CHAT)
        self.chat.session.set_remote(remote)

    def _on_loaded(self, message: Loaded) -> None:
        self.window.models_page.set_loaded(message.card.path, message.fit.weights + message.fit.draft_weights)

    def _on_link(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:  # an engine that is gone has nothing loaded
            self.window.models_page.set_loaded("")

    def _connect_chats(self) -> None:
        """The list of chats and the chat on screen."""
        sidebar, chat = self.sidebar, self.chat
        sidebar.chat_selected.connect(chat.open_chat)
        sidebar.hit_selected.connect(chat.open_hit)
        sidebar.search_changed.connect(self._on_search)
        sidebar.typed.connect(chat.type)
        sidebar.new_chat.connect(chat.new_chat)
        sidebar.new_chat_in.connect(chat.new_chat)
        sidebar.documents_asked.connect(chat.dialogs.show_folder_documents)
        for chosen in (sidebar.chat_selected, sidebar.hit_selected, sidebar.new_chat, sidebar.new_chat_in):
            chosen.connect(self.window.close_overlay)
        chat.background.changed.connect(sidebar.model.set_marks)
        chat.background.tell()
        chat.chat_changed.connect(sidebar.select)
        self.leaving = Leaving(self.history, self.window)
        chat.news.export_asked.connect(self.leaving.export)

    def _on_search(self, words: str) -> None:
        if not words.strip():
            self.chat.clear_found()

    def raise_for(self, model: str) -> None:
        """Another start of the program ends here, with the path of the model it was to open, or ""."""
        self.window.presence.to_front()
        if model:
            self.opener.open(model)

    def close(self) -> None:
        """Everything written, the engine ended. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        self.leaving.stop()
        self._later.stop()
        self.quick.close_down()
        self.window.presence.leave()
        self.gpu_wiring.close_down()
        self.library.close_down()
        if self.lab is not None:
            self.lab.close_down()
        if self.compare is not None:
            self.compare.close_down()
        self.cache_wiring.close_down()
        self.sidebar.close_down()
        self.chat.close_down()
        self.selector.close_down()
        self.desktop.close_down()
        self.link.shutdown()
        self.history.close()
