"""The road to a model: what the first screen and the model menu offer, and what is said when one has come.

No widget is made here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject

from app import paths
from app.chat.get_card import Line
from app.chat.page import ChatPage
from app.chat.welcome import BUNDLED
from app.gpu.words import Button
from app.language import known, tr
from app.link.link import EngineLink
from app.models import advice, words
from app.models.selector import ModelSelector
from app.models.state import getting
from app.models.state.library import ModelLibrary
from app.notice import NoticeBar
from app.settings.store import SettingsStore
from app.words import hardware, size
from engine import protocol

ARRIVED = "arrived"
FAILED = "getting"
TINY = "tiny model"  # not shown


class GettingWiring(QObject):
    """Lives as long as the window. ``load`` opens a model by its path, ``find`` shows where models are found."""

    def __init__(
        self,
        link: EngineLink,
        store: SettingsStore,
        library: ModelLibrary,
        chat: ChatPage,
        selector: ModelSelector,
        notice: NoticeBar,
        load: Callable[[str], None],
        find: Callable[[], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._store, self._library, self._chat, self._notice = link, store, library, chat, notice
        self._load = load
        self._arrived = ""
        """The path of the model of which it is said that it is here."""
        self._asked = False
        """True if the first screen was asked for a model that is not loaded yet."""
        welcome = chat.welcome
        selector.menu_shown.connect(library.refresh)  # of what came by itself the next opening knows
        for asked in (chat.models_asked, selector.get_asked):
            asked.connect(find)
        chat.file_asked.connect(selector.open_file)
        chat.composer.documents.changed.connect(self._on_documents)
        welcome.get.acted.connect(self._act)
        library.arrived.connect(self._on_arrived)
        library.failed.connect(self._on_failed)
        link.welcomed.connect(self._on_welcome)
        link.loaded.connect(self._on_loaded)
        link.failed.connect(self._on_load_failed)
        link.unloaded.connect(lambda _: self._show())
        library.verdicts.changed.connect(self._on_judged)
        for changed in (library.stored_changed, library.downloads.changed):
            changed.connect(self._show)
        self._show()

    def _on_welcome(self, message: protocol.Welcome) -> None:
        device = message.device
        total = size(device.total_bytes)
        memory = tr("{size} RAM", size=total) if device.kind == "cpu" else tr("{size} memory", size=total)
        self._chat.welcome.get.machine.setText(f"{hardware(device.name)} · {memory}")
        self._library.refresh()
        if message.loaded is not None or not message.models:  # else once the first model is loaded, which takes a while
            self._library.verdicts.ask()

    def _on_loaded(self, message: protocol.Loaded) -> None:
        if message.card.path == self._arrived:
            self._notice.clear(ARRIVED)
        if not self._is_bundled(message.card.path):
            self._asked = False
            self._chat.notice.clear(TINY)
        self._library.verdicts.ask()
        self._show()

    def _on_load_failed(self, error: protocol.Error) -> None:
        if not (error.id or self._library.verdicts.judged):  # no model comes after which it would be asked
            self._library.verdicts.ask()

    def _is_bundled(self, path: str) -> bool:
        return any(model.bundled and model.path == path for model in self._library.stored)

    def _on_judged(self) -> None:
        if self._library.verdicts.judged:
            self._chat.welcome.show_suiting(sum(each.verdict == "fits" for each in self._library.verdicts.recommended))
        self._show()

    def _on_arrived(self, name: str, path: str) -> None:
        self._arrived = path
        text = tr("{name} is here.", name=name)
        self._notice.say(text, topic=ARRIVED, action=tr("Chat with it"), act=lambda: self._load(path))

    def _on_documents(self) -> None:
        """Say what the bundled model makes of a document before it is asked."""
        card, documents = self._link.card, self._chat.composer.documents.attached
        notice = self._chat.notice
        if documents and card is not None and card.name == BUNDLED and not notice.text:
            text = tr(
                "The model that comes with Kvasir is tiny and knows only its manual: what it says about documents is "
                "often wrong. Another model reads them better."
            )
            notice.say(text, topic=TINY, action=tr("Get a model…"), act=self._chat.models_asked.emit)
        elif not documents or card is None or card.name != BUNDLED:
            notice.clear(TINY)

    def _on_failed(self, sentence: str) -> None:
        """Report a failure that has no place in a model's row; pages report theirs themselves."""
        if self._asked and self._chat.isVisible():
            self._notice.say(sentence, "bad", topic=FAILED)

    def _show(self) -> None:
        """The first screen."""
        library, welcome = self._library, self._chat.welcome
        if library.listed:
            alone = library.bundled_alone
        else:  # what was used before is known sooner than what is here
            bundled = paths.assets_dir() / "demo"
            alone = all(Path(path).parent == bundled for path in self._store.settings.recent)
        welcome.show_first(alone or self._asked)
        chosen = [each for each in library.verdicts.recommended if each.reason]
        chosen.sort(key=lambda each: each.model.bytes)
        welcome.show_models([self._line(each) for each in chosen], self._library.verdicts.judged)

    def _line(self, each: protocol.Recommendation) -> Line:
        model, library = each.model, self._library
        at = getting.place(model.repository, model.variant, library.stored, library.downloads.coming)
        word, tone = advice.VERDICTS[each.verdict]
        line = Line(
            key=f"{model.repository} {model.variant}",
            name=advice.short_name(model),
            size=size(model.bytes),
            verdict=word,
            tone=tone,
            why=advice.verdict(each),
            about="",
            buttons=(Button("get", tr("Get")),),
        )
        if at.here is not None:
            loaded = self._link.card is not None and self._link.card.path == at.here.path
            why = getting.LOADED if loaded else ""
            return line._replace(about=tr("It is here."), buttons=(Button("load", tr("Chat with it"), True, why),))
        if (job := at.coming) is None:
            if why := library.downloads.refused.get((model.repository, model.variant), ""):
                again = getting.button(at, "", tr("Get"), why)
                return line._replace(about=why, buttons=(again,), failed=True)
            reason = known(each.reason)
            short = f"{reason[:1].upper()}{reason[1:]}."
            return line._replace(about=f"{short} {known(model.about)}", short=short)
        if not job.id:  # the hub is being asked for its files
            return line._replace(
                about=tr("Asking Hugging Face…"), buttons=(getting.button(at, "", tr("Get")),), share=0.0
            )
        rests = job.state in ("paused", "failed")
        again = Button("resume", getting.AGAIN if job.state == "failed" else tr("Resume"))
        return line._replace(
            about=words.download(job),
            buttons=(Button("cancel", tr("Cancel")), *((again,) if rests else ())),
            share=job.done / job.total if job.total else 0.0,
            failed=job.state == "failed",
        )

    def _act(self, act: str, key: str) -> None:
        repository, _, variant = key.partition(" ")
        library = self._library
        at = getting.place(repository, variant, library.stored, library.downloads.coming)
        self._notice.clear(FAILED)
        if act == "get":
            self._asked = True
            library.downloads.get(repository, variant)
        elif act == "load" and at.here is not None:
            self._load(at.here.path)
        elif at.coming is not None:
            {"cancel": library.downloads.cancel, "resume": library.downloads.resume}[act](at.coming.id)
