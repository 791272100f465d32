"""The ways to what explains a switch or an answer: an experiment, a page of the help. No widget is made here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.chat.session.conversation import title_of
from app.chat.transcript.offered import lesson
from app.help.page import HelpPage
from app.history.records import StoredMessage
from app.settings.store import SettingsStore
from app.window.window import MainWindow

if TYPE_CHECKING:
    from app.lab.page import LabView


class LinksWiring(QObject):
    """Lives as long as the window. ``lab`` gives the Lab once its page has been shown. Whether the panel shows all
    switches is kept."""

    def __init__(
        self, store: SettingsStore, window: MainWindow, help_page: HelpPage, lab: Callable[[], LabView | None]
    ) -> None:
        super().__init__(window)
        self._window, self._help, self._lab = window, help_page, lab
        panel = window.panel
        panel.show_all(store.settings.panel_all)
        panel.unfolded.connect(lambda on: store.update(panel_all=on))
        panel.learn_requested.connect(self.show_experiment)
        panel.help_requested.connect(self._show_help)
        asked = window.chat.message_actions.lesson_asked
        asked.connect(lambda message: window.simple.unless_hidden(lambda: self._show_lesson(message))())

    def show_experiment(self, name: str) -> LabView | None:
        """Show the Lab's experiment of that name; returns the Lab."""
        self._window.show_page(MainWindow.LAB)
        view = self._lab()
        if view is not None:
            view.show_experiment(name)
        return view

    def _show_help(self, key: str) -> None:
        self._window.show_page(MainWindow.HELP)
        self._help.show_switch(key)

    def _show_lesson(self, message: StoredMessage) -> None:
        """The experiment that explains the figures of an answer, with that answer."""
        from app.lab import answer  # the Lab, which many never open

        branch = self._window.chat.session.talk.tree.path(message.id)
        asked = next((each.content for each in reversed(branch) if each.role == "user"), "")
        found, view = answer.of(message.stats, title_of(asked)), self.show_experiment(lesson(message))
        if view is not None and found is not None:
            view.show_answer(lesson(message), found)
