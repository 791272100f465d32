"""The settings tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.gpu.section import PackSection
from app.language import LANGUAGES, english, plural, tr
from app.settings.appearance import SIZES
from app.settings.columns import COLUMN_PX, GAP_PX, SettingColumns
from app.settings.desktop import DesktopSection
from app.settings.engine import EngineSection
from app.settings.passages import EmbeddingChoice
from app.settings.rows import DEFAULTS, SettingRow, SettingSection, count, has
from app.settings.store import SettingsStore
from app.theme.keys import held
from app.theme.numbers import WholeNumber
from app.theme.question import ask
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, PageTitle, Segments, caption, fill, named, say

THEMES = {"system": tr("system"), "light": tr("light"), "dark": tr("dark"), "contrast": tr("high contrast")}
_GPU_WORDS = tr("gpu pack cuda rocm nvidia amd graphics card")
"""Words by which a search finds the part about GPU packs."""
NOTHING = tr("No setting has these words. Try fewer or other words.")


class SettingsPage(FocusFirst):
    """Writes every change to the store at once, and shows what changes there. ``shortcuts_requested`` and
    ``log_requested``: show those."""

    shortcuts_requested = Signal()
    log_requested = Signal()

    def __init__(
        self, store: SettingsStore, theme: Theme, log_file: Path, data: Path, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._theme = theme
        named(self, surface="bg")
        self._sections: list[SettingSection] = []
        self._columns = SettingColumns(theme)
        self._lay_out()
        self.desktop, self.engine = DesktopSection(store, theme), EngineSection(store, theme)
        self._appearance()
        self._chats()
        self._add(self.desktop)
        self._models()
        self._files(log_file, data)
        self._add(self.engine, right=True)
        self.gpu = PackSection()
        self._columns.add(self.gpu, right=True)
        store.changed.connect(self._follow)
        theme.changed.connect(self._fit)
        self._follow(frozenset(name for row in self.rows for name in row.fields))
        self._fit()

    @property
    def rows(self) -> list[SettingRow]:
        """All settings, in their order."""
        return [row for section in self._sections for row in section.rows]

    def show_gpu(self) -> None:
        """Scroll to what is said about GPU packs."""
        self.field.clear()
        self._scroll.ensureWidgetVisible(self.gpu)

    def reveal(self, row: SettingRow) -> None:
        """Scroll to a setting and give its control the keyboard."""
        self.field.clear()
        QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)  # the place that it has without a search
        self._scroll.ensureWidgetVisible(row)
        first = next((part for part in (row.control, *row.control.findChildren(QWidget)) if _takes_focus(part)), None)
        if first is not None:
            first.setFocus(Qt.FocusReason.OtherFocusReason)

    def _lay_out(self) -> None:
        body = self._body = QWidget()
        column = fill(QVBoxLayout(body), margins=(24, 16, 24, 24), spacing=10)
        title = PageTitle(tr("Settings"))
        self.field = named(
            QLineEdit(placeholderText=tr("Search the settings"), clearButtonEnabled=True),
            "settings.search",
            title=tr("Search the settings"),
        )
        self.field.textChanged.connect(self._search)
        self.first = self.field
        self.reset = named(QPushButton(tr("Reset all…")), "settings.reset", kind="quiet", clicked=self._ask_reset)
        self.found = caption(name="settings.found")
        self.found.hide()
        fill(column, fill(QHBoxLayout(), (title, 1), (self.field, 2), self.reset, spacing=12), self.found)
        fill(column, self._columns, 1)
        holder = QWidget()
        fill(QHBoxLayout(holder), 1, (body, 100), 1, margins=0)
        self._scroll = scrolling(holder, sideways=True)
        fill(QVBoxLayout(self), self._scroll, margins=0)

    def _appearance(self) -> None:
        section = self._section(tr("Appearance"))
        mode = Segments(tr("Theme"), list(THEMES), list(THEMES.values()), "settings.theme")
        mode.chosen.connect(lambda key: self._set(theme=key))
        about = tr("System follows the desktop, light or dark. High contrast is dark.")
        section.add(SettingRow(tr("Theme"), about, mode, ("theme",)))
        size = WholeNumber()
        size.setRange(SIZES[0], SIZES[-1])
        named(size, singleStep=SIZES.step, suffix=" %")
        size.valueChanged.connect(lambda percent: self._set(text_scale=percent / 100))
        about = tr("Of every word in the window. {key} and the mouse wheel change it, too.", key=held("Ctrl"))
        section.add(
            SettingRow(
                tr("Text size"), about, size, ("text_scale",), lambda now: size.setValue(round(100 * now.text_scale))
            )
        )
        still = section.toggle("reduced_motion")
        about = tr("Switches and panels change without sliding.")
        section.add(SettingRow(tr("Reduced motion"), about, still, ("reduced_motion",)))
        spoken = Segments(tr("Language"), ["", *LANGUAGES], [tr("System"), *LANGUAGES.values()], "settings.language")
        spoken.chosen.connect(lambda key: self._set(language=key))
        about = tr("Of the window, from its next start on. Error messages of the engine and the help stay English.")
        section.add(SettingRow(tr("Language"), about, spoken, ("language",)))
        simple = section.toggle("simple")
        about = tr(
            "Hides the optimisations, the plots, the cache, the Lab and the server. What is set there stays in force."
        )
        section.add(SettingRow(tr("Simple mode"), about, simple, ("simple",)))
        keys = named(QPushButton(tr("Choose…")), "settings.keys", title=tr("Keyboard shortcuts"))
        keys.clicked.connect(self.shortcuts_requested)
        section.add(
            SettingRow(
                tr("Keyboard shortcuts"), tr("All commands with their keys, which can be changed."), keys, ("keys",)
            )
        )

    def _models(self) -> None:
        section = self._section(tr("Models"))
        idle = named(count(1440, 5, tr("Never"), " min"), "settings.unload_after")
        idle.valueChanged.connect(lambda value: self._set(unload_after=value))
        about = tr("Frees its memory when nothing has been asked of it for so long. The next message loads it again.")
        section.add(SettingRow(tr("Unload the model when idle"), about, idle, ("unload_after",)))
        limit = named(count(100_000, 1, tr("No limit"), " MB/s"), "settings.download_limit")
        limit.valueChanged.connect(lambda value: self._set(download_limit=value))
        about = tr("Per download. Running downloads use it after they are paused and resumed.")
        section.add(SettingRow(tr("Download speed limit"), about, limit, ("download_limit",)))

    def _chats(self) -> None:
        section = self._section(tr("Chats"))
        titles = section.toggle("titles")
        about = tr(
            "After the first answer of a chat the model is asked for a few words, while nothing else is. Small models "
            "(below half a billion parameters) are not: the first words of the chat stay its title."
        )
        section.add(SettingRow(tr("Titles by the model"), about, titles, ("titles",)))
        self.passages = EmbeddingChoice()
        self.passages.chosen.connect(lambda value: self._set(passages=value))
        about = tr(
            "In a document that does not fit the context, an embedding model finds passages that say in other words "
            "what is asked, besides the search for words. It runs on the processor, next to the chat's model, and is "
            "unloaded after five minutes. Nothing leaves this computer."
        )
        row = tr("Passages by meaning"), about, self.passages, ("passages",)
        section.add(SettingRow(*row, lambda now: self.passages.choose(now.passages)))

    def _files(self, log_file: Path, data: Path) -> None:
        section = self._section(tr("Files"))
        for name, path in ((tr("Log file"), log_file), (tr("Chats"), data), (tr("Settings"), self._store.path)):
            folder = path if path.is_dir() else path.parent
            button = QPushButton(tr("Open folder"))
            button.setAccessibleName(tr("Open the folder of: {what}", what=name))
            button.clicked.connect(lambda _=False, f=folder: QDesktopServices.openUrl(QUrl.fromLocalFile(str(f))))
            box = QWidget()
            buttons = fill(QHBoxLayout(box), button, margins=0, spacing=8)
            if path == log_file:
                log = named(
                    QPushButton(tr("Show")), "settings.log", title=tr("Show the log"), clicked=self.log_requested
                )
                buttons.insertWidget(0, log)
            section.add(SettingRow(name, str(path), box))

    def _fit(self) -> None:
        """As wide as both columns may be; and the marks of a search have colours of the theme."""
        self._body.setMaximumWidth(2 * self._theme.px(COLUMN_PX) + GAP_PX)
        self._search(self.field.text())

    def _section(self, title: str) -> SettingSection:
        section = SettingSection(title, self._store, self._theme)
        self._add(section)
        return section

    def _add(self, section: SettingSection, right: bool = False) -> None:
        """Add a section; in a wide window it may stand at the right."""
        self._sections.append(section)
        self._columns.add(section, right)

    def _set(self, **changes: Any) -> None:
        self._store.update(**changes)

    def _follow(self, names: frozenset[str]) -> None:
        now = self._store.settings
        for row in self.rows:
            if names.intersection(row.fields):
                row.follow(now)
        self.reset.setEnabled(any(row.is_changed(now) for row in self.rows))

    def _search(self, text: str) -> None:
        words = text.casefold().split()
        found = sum([section.search(words) for section in self._sections])
        pack = has(f"{_GPU_WORDS} {english(_GPU_WORDS)}", words)
        self.gpu.setVisible(pack)
        found += pack
        counted = plural("1 setting found.", "{n} settings found.", found) if found else NOTHING
        say(self.found, counted if words else "")

    def _ask_reset(self) -> None:
        changed = [row.name for row in self.rows if row.is_changed(self._store.settings)]
        question = tr(
            "These get their usual values again: {settings}. Chats, models and presets stay.",
            settings=", ".join(changed),
        )
        role = QMessageBox.ButtonRole.ResetRole
        ask(
            self.window(),
            "settings.reset.ask",
            tr("Reset all settings"),
            question,
            tr("Reset all"),
            self._reset_all,
            role,
        )

    def _reset_all(self) -> None:
        self._set(**{name: getattr(DEFAULTS, name) for row in self.rows for name in row.fields})


def _takes_focus(part: QWidget) -> bool:
    return bool(part.focusPolicy() & Qt.FocusPolicy.TabFocus) and part.isVisibleTo(part.window())
