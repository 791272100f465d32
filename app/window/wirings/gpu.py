"""Connects GPU packs to the engine, the card above the pages and the part of Settings."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFileDialog

from app.chat.session.answers import Answers
from app.gpu import words
from app.gpu.card import PackCard
from app.gpu.packs import Action, Packs
from app.gpu.section import PackSection
from app.gpu.words import CardContent, Situation, Waiting
from app.language import tr
from app.link.link import EngineLink, LinkState
from app.settings.store import SettingsStore
from app.theme.question import ask
from app.theme.widgets import named
from app.window.wirings.measure import MeasureWiring
from engine import protocol

CHECK_MS = 1500
"""Delay after the engine's greeting: the look for a GPU must not slow the first load down."""
WITHOUT_PACK = {"KVASIR_GPU_PACK": "off"}
"""Added to the environment of an engine that must not run from a pack."""
FELL_BACK = tr(
    "The engine of the GPU pack stopped again and again, so the processor computes now. "
    "Repair the pack, or look into the log file for the reason."
)
STILL_CPU = tr("The pack is installed, but the engine computes on the processor. Test the pack in Settings to see why.")


class GpuWiring(QObject):
    """Lives as long as the window. A start of the engine waits for ``answers`` and comparisons, which it would break;
    ``show_settings`` brings the part of Settings on screen."""

    def __init__(
        self,
        link: EngineLink,
        store: SettingsStore,
        packs: Packs,
        card: PackCard,
        section: PackSection,
        answers: Answers,
        measuring: MeasureWiring,
        show_settings: Callable[[], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._store, self._packs, self._card, self._section = link, store, packs, card, section
        self._answers, self._measuring, self._show_settings = answers, measuring, show_settings
        self._notice = ""
        self._done = ""
        self._waiting: Waiting = ""
        self._environment: dict[str, str] = {}
        """The environment of the start that is waited for."""
        self._then: Callable[[], None] | None = None
        """Called when that start has happened."""
        self._installed = False
        """True if that start is the first one from a new pack."""
        self._fell_back = False
        self._cancelled = False
        self._hidden: set[str] = set()
        """Cards that the person closed, until the program ends."""
        self._soon = named(QTimer(self, singleShot=True, interval=CHECK_MS), "gpu-check")
        self._soon.timeout.connect(packs.check)
        link.welcomed.connect(self._on_welcome)
        link.state_changed.connect(self._on_state)
        packs.changed.connect(self._on_packs)
        packs.ended.connect(self._on_ended)
        packs.checked.connect(self._on_checked)
        card.acted.connect(self._act)
        section.acted.connect(self._act)
        section.seen.connect(packs.check)
        for over in (answers.ended, answers.refused, measuring.changed, link.failed):
            over.connect(self._settle)
        self._show()

    def close_down(self) -> None:
        """Before the program ends."""
        self._soon.stop()
        self._packs.close_down()

    @property
    def _cpu(self) -> bool:
        """True if the engine computes on a CPU; False before it has said so."""
        return self._link.welcome is not None and self._link.welcome.device.kind == "cpu"

    def situation(self) -> Situation:
        packs = self._packs
        progress = packs.progress
        return Situation(
            status=packs.status,
            trouble=packs.trouble,
            action=packs.action,
            progress=progress,
            rate=packs.pace.rate,
            left=packs.pace.left(progress.total) if progress is not None else None,
            paused=packs.paused,
            failed=packs.failed,
            failure=packs.failure,
            cpu=self._cpu,
            device=self._link.welcome.device.name if self._link.welcome is not None else "",
            notice=self._notice,
            waiting=self._waiting,
            done=self._done,
        )

    # --- the engine ------------------------------------------------------------------------------------------------

    def _on_welcome(self, welcome: protocol.Welcome) -> None:
        cpu = welcome.device.kind == "cpu"
        self._notice = FELL_BACK if self._fell_back and cpu else welcome.notice
        then = None
        if self._waiting == "engine":  # else it died and came back by itself
            self._waiting = ""
            then, self._then = self._then, None
            if self._installed and cpu:
                self._done, self._notice = "", self._notice or STILL_CPU
            self._installed = False
        if then is not None:
            self._notice = ""  # that it is not in use is no news
            then()
        elif cpu:
            self._soon.start()
        self._show()

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is LinkState.DEAD and self._waiting == "engine":
            self._waiting, self._done, self._then, self._installed = "", "", None, False
            self._show()
        if state is LinkState.DEAD and not self._fell_back:
            self._fell_back = True
            self._packs.check()  # `_on_checked` does the rest

    def _on_checked(self) -> None:
        status = self._packs.status
        if self._fell_back and self._link.state is LinkState.DEAD and status is not None and status.active:
            self._link.restart(WITHOUT_PACK)

    def _settle(self, *_: object) -> None:
        """Restart an engine that waits for work that a start would break, if that has ended."""
        if self._waiting == "answer" and not (self._answers.busy or self._measuring.measuring):
            self._restart()

    def _start_engine(self, environment: dict[str, str], then: Callable[[], None] | None = None) -> None:
        """Start the engine again when nothing runs any more."""
        self._environment, self._then = environment, then
        self._waiting = "answer"
        self._settle()
        self._show()

    def _restart(self) -> None:
        self._waiting = "engine"
        self._fell_back = False
        self._link.restart(self._environment)
        self._show()

    # --- packs -----------------------------------------------------------------------------------------------------

    def _on_packs(self) -> None:
        if self._cancelled and self._packs.paused:
            self._cancelled = False
            self._leave()
        self._show()

    def _on_ended(self, action: Action, result: protocol.PackResult) -> None:
        self._cancelled = False
        if result.ok and action in ("install", "repair", "test"):
            self._done, self._installed = result.sentence, True
            self._start_engine({})
        elif result.ok and action == "remove" and self._packs.status is not None:
            # Who removes a pack does not want it offered in the next moment; Settings has it.
            self._store.update(gpu_dismissed=words.offer_key(self._packs.status))

    def _aside(self, act: Callable[[], None]) -> None:
        """Change a pack that the engine runs from: the engine goes on without it first."""
        status = self._packs.status
        if status is not None and (status.active or status.former) and not self._cpu:
            self._start_engine(WITHOUT_PACK, act)
        else:
            act()

    # --- the person ------------------------------------------------------------------------------------------------

    def _act(self, key: str) -> None:
        packs = self._packs
        acts: dict[str, Callable[[], None]] = {
            "install": packs.install,
            "again": lambda: self._aside(packs.again),
            "repair": lambda: self._aside(packs.repair),
            "test": packs.test,
            "pause": packs.pause,
            "cancel": self._cancel,
            "check": packs.check,
            "remove": self._ask_remove,
            "remove_old": packs.remove_old,
            "file": self._choose_file,
            "now": self._restart,
            "dismiss": self._dismiss,
            "close": self._close,
            "settings": self._show_settings,
        }
        acts[key]()
        self._show()

    def _cancel(self) -> None:
        self._cancelled = True
        self._packs.pause()

    def _dismiss(self) -> None:
        content = words.card(self.situation())
        if content is not None:
            self._store.update(gpu_dismissed=content.key)

    def _close(self) -> None:
        content = words.card(self.situation())
        if self._packs.paused or self._packs.failed:
            self._leave()
        elif self._done:
            self._done = ""
        elif content is not None:
            self._hidden.add(content.key)

    def _leave(self) -> None:
        """Nothing more of what was stopped or failed, nor the offer to begin again, until the next start."""
        self._packs.forget()
        content = words.card(self.situation())
        if content is not None:
            self._hidden.add(content.key)

    def _ask_remove(self) -> None:
        if (status := self._packs.status) is not None:
            window, question = self._card.window(), words.removal(status)
            ask(window, "gpu.remove", tr("GPU pack"), question, tr("Remove"), lambda: self._aside(self._packs.remove))

    def _choose_file(self) -> None:
        if file := QFileDialog.getOpenFileName(self._card.window(), tr("Install a GPU pack from a file"))[0]:
            self._packs.install(file)

    def _show(self) -> None:
        situation = self.situation()
        content = words.card(situation)
        self._card.show_content(None if content is None or self._is_hidden(content) else content)
        self._section.show_content(words.section(situation), situation.status)

    def _is_hidden(self, content: CardContent) -> bool:
        return content.key in self._hidden or content.key == self._store.settings.gpu_dismissed
