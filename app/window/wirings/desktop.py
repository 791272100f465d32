"""Tells of what ended while the window was not in front, and lets it live in the tray. No widget is made here."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from app.history.records import StoredMessage
from app.history.store import HistoryStore
from app.language import tr
from app.models.state.jobs import Jobs
from app.models.state.library import ModelLibrary
from app.settings.store import SettingsStore
from app.window.desktop import Desktop
from app.window.window import MainWindow
from engine.protocol import Download, MakeProgress


class DesktopWiring(QObject):
    """Lives as long as the window."""

    def __init__(
        self, store: SettingsStore, desktop: Desktop, window: MainWindow, history: HistoryStore, library: ModelLibrary
    ) -> None:
        super().__init__(window)
        self._store, self._desktop, self._window, self._history = store, desktop, window, history
        self._ran: set[Hashable] = set()
        """Keys of jobs that ran since the start."""
        window.chat.answers.ended.connect(self._on_answer)
        library.arrived.connect(self._on_arrived)
        for jobs in (library.downloads, library.maker):
            jobs.changed.connect(lambda jobs=jobs: self._on_jobs(jobs))
        desktop.show_asked.connect(self._toggle)
        desktop.new_chat_asked.connect(self._new_chat)
        desktop.quit_asked.connect(window.presence.quit)
        window.presence.hides = lambda: self._store.settings.close_to_tray and desktop.shown
        window.left.connect(self._on_left)
        store.changed.connect(lambda names: self._show_icon() if "tray" in names else None)
        self._show_icon()

    def _show_icon(self) -> None:
        self._desktop.show_icon(self._store.settings.tray)

    def _toggle(self) -> None:
        """Bring the window to the front, or hide it where it is there already."""
        if self._window.isVisible() and self._desktop.in_front():
            self._window.presence.put_away()
        else:
            self._window.presence.to_front()

    def _new_chat(self) -> None:
        self._window.presence.to_front()
        self._window.show_page(MainWindow.CHAT)
        self._window.chat.new_chat()

    def _on_answer(self, message: StoredMessage) -> None:
        settings, timings = self._store.settings, message.stats.timings
        if not settings.notify or timings is None or message.stats.reason == "cancelled":
            return
        if timings.total_ms >= 1000 * settings.notify_after:
            chat = self._history.chat(message.chat)
            title = chat.title if chat is not None else ""
            self._desktop.tell(tr("An answer is finished"), title, lambda: self._open_chat(message.chat))

    def _on_arrived(self, name: str, _path: str) -> None:
        self._tell_of_models(tr("A model is here"), name)

    def _on_jobs(self, jobs: Jobs[Download] | Jobs[MakeProgress]) -> None:
        """Tell of each that ran and failed, once."""
        failed = [(key, jobs.jobs[key]) for key in self._ran & jobs.jobs.keys() if jobs.jobs[key].state == "failed"]
        self._ran = (self._ran - {key for key, _ in failed}) | jobs.running.keys()
        for _, job in failed:
            loads = isinstance(job, Download)
            name = job.repository if isinstance(job, Download) else Path(job.model).name
            title = tr("Downloading {name} failed", name=name) if loads else tr("Quantising {name} failed", name=name)
            self._tell_of_models(title, job.sentence)

    def _tell_of_models(self, title: str, words: str) -> None:
        if self._store.settings.notify:
            self._desktop.tell(title, words, self._show_models)

    def _show_models(self) -> None:
        self._window.presence.to_front()
        self._window.show_page(MainWindow.MODELS)

    def _open_chat(self, chat: str) -> None:
        self._window.presence.to_front()
        self._window.open_chat(chat)

    def _on_left(self) -> None:
        """A window that was hidden when it was closed does not end the program by itself."""
        if not QApplication.quitOnLastWindowClosed():
            QApplication.quit()
