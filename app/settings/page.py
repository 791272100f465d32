"""The settings tab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QSystemTrayIcon,
    QVBoxLayout,
    QWidget,
)

from app.gpu.section import PackSection
from app.language import LANGUAGES, english, plural, together, tr
from app.settings.appearance import SIZES
from app.settings.columns import COLUMN_PX, GAP_PX, SettingColumns
from app.settings.passages import EmbeddingChoice
from app.settings.rows import DEFAULTS, SettingRow, SettingSection, has
from app.settings.store import SettingsStore, UserSettings
from app.theme.keys import HOW, KeyCell, native, unusable
from app.theme.numbers import Fraction, WholeNumber
from app.theme.question import ask
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, Segments, Toggle, caption, fill, named, say, show_checked, switched
from engine.protocol import Device

_GB = 1e9
THEMES = {"system": tr("system"), "light": tr("light"), "dark": tr("dark"), "contrast": tr("high contrast")}
QUANTISE = {"none": tr("off"), "nf4": "NF4", "int4": "int4", "int8": "int8"}
MODEL_MAXIMUM = tr("Model maximum")
_QUANTISE = tr(
    "Packs models that come in 16 or 32 bits a weight while they are loaded. Four bits (NF4, int4) take "
    "about a third of the memory and change the text a little; int8 takes half and changes it hardly."
)
_DEVICES = {"auto": tr("automatic"), "cpu": "CPU", "cuda": "CUDA", "mps": "Metal"}
_NEXT_LOAD = tr("Takes effect when a model is next loaded.")
_GPU_WORDS = tr("gpu pack cuda rocm nvidia amd graphics card")
"""Words by which a search finds the part about GPU packs."""
NOTHING = tr("No setting has these words. Try fewer or other words.")


class SettingsPage(FocusFirst):
    """Writes every change to the store at once, and shows what changes there. ``reload_requested``: load the present
    model again, with them; ``shortcuts_requested`` and ``log_requested``: show those."""

    reload_requested = Signal()
    shortcuts_requested = Signal()
    log_requested = Signal()
    choosing_quick = Signal(bool)
    """The person begins to press keys for the quick chat, or has done so."""

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
        self._appearance()
        self._chats()
        self._desktop()
        self._models()
        self._files(log_file, data)
        self._engine()
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

    def set_computing(self, words: str) -> None:
        """Show the way the loaded model computes, and the reason, if that is worth a word."""
        say(self._computing, words)

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Offer the devices the engine found; the GPU of a choice that it did not find says why it is grey."""
        gpus = {device_key(device, devices): device for device in devices if device.kind != "cpu"}
        chosen = self._store.settings.device
        if chosen == "cuda" and len(gpus) > 1:
            chosen = "auto"  # the same one
        missing = [key for key in ((chosen,) if gpus else ("cuda", chosen)) if key not in (*gpus, "auto", "cpu")]
        keys = ("auto", "cpu", *gpus, *dict.fromkeys(missing))
        self._device.offer(keys, [device_title(key) for key in keys])
        self._device.choose(chosen)
        for key, device in gpus.items():
            self._device.explain(key, device.name)
        for key in missing:
            why = (
                tr("The engine found no such device.")
                if ":" in key
                else tr("The engine found no {kind} device.", kind=_DEVICES[key])
            )
            self._device.refuse(key, why)

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
        title = named(QLabel(tr("Settings")), role="title")
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
        self._section(tr("Appearance"))
        mode = Segments(tr("Theme"), list(THEMES), list(THEMES.values()), "settings.theme")
        mode.chosen.connect(lambda key: self._set(theme=key))
        about = tr("System follows the desktop, light or dark. High contrast is dark.")
        self._add(SettingRow(tr("Theme"), about, mode, ("theme",)))
        size = WholeNumber()
        size.setRange(SIZES[0], SIZES[-1])
        named(size, singleStep=SIZES.step, suffix=" %")
        size.valueChanged.connect(lambda percent: self._set(text_scale=percent / 100))
        about = tr("Of every word in the window. Ctrl and the mouse wheel change it, too.")
        self._add(
            SettingRow(
                tr("Text size"), about, size, ("text_scale",), lambda now: size.setValue(round(100 * now.text_scale))
            )
        )
        still = Toggle(self._theme)
        switched(still, lambda on: self._set(reduced_motion=on))
        about = tr("Switches and panels change without sliding.")
        self._add(SettingRow(tr("Reduced motion"), about, still, ("reduced_motion",)))
        spoken = Segments(tr("Language"), ["", *LANGUAGES], [tr("System"), *LANGUAGES.values()], "settings.language")
        spoken.chosen.connect(lambda key: self._set(language=key))
        about = tr("Of the window, from its next start on. Error messages of the engine and the help stay English.")
        self._add(SettingRow(tr("Language"), about, spoken, ("language",)))
        simple = Toggle(self._theme)
        switched(simple, lambda on: self._set(simple=on))
        about = tr(
            "Hides the optimisations, the plots, the cache, the Lab and the server. What is set there stays in force."
        )
        self._add(SettingRow(tr("Simple mode"), about, simple, ("simple",)))
        keys = named(QPushButton(tr("Choose…")), "settings.keys", title=tr("Keyboard shortcuts"))
        keys.clicked.connect(self.shortcuts_requested)
        self._add(
            SettingRow(
                tr("Keyboard shortcuts"), tr("All commands with their keys, which can be changed."), keys, ("keys",)
            )
        )

    def _models(self) -> None:
        self._section(tr("Models"))
        idle = named(_number(1440, 5, tr("Never"), " min"), "settings.unload_after")
        idle.valueChanged.connect(lambda value: self._set(unload_after=value))
        about = tr("Frees its memory when nothing has been asked of it for so long. The next message loads it again.")
        self._add(SettingRow(tr("Unload the model when idle"), about, idle, ("unload_after",)))
        limit = named(_number(100_000, 1, tr("No limit"), " MB/s"), "settings.download_limit")
        limit.valueChanged.connect(lambda value: self._set(download_limit=value))
        about = tr("Per download. Running downloads use it after they are paused and resumed.")
        self._add(SettingRow(tr("Download speed limit"), about, limit, ("download_limit",)))

    def _chats(self) -> None:
        self._section(tr("Chats"))
        titles = named(Toggle(self._theme), "settings.titles")
        switched(titles, lambda on: self._set(titles=on))
        about = tr(
            "After the first answer of a chat the model is asked for a few words, while nothing else is. Small models "
            "(below half a billion parameters) are not: the first words of the chat stay its title."
        )
        self._add(SettingRow(tr("Titles by the model"), about, titles, ("titles",)))
        self.passages = EmbeddingChoice()
        self.passages.chosen.connect(lambda value: self._set(passages=value))
        about = tr(
            "In a document that does not fit the context, an embedding model finds passages that say in other words "
            "what is asked, besides the search for words. It runs on the processor, next to the chat's model, and is "
            "unloaded after five minutes. Nothing leaves this computer."
        )
        row = tr("Passages by meaning"), about, self.passages, ("passages",)
        self._add(SettingRow(*row, lambda now: self.passages.choose(now.passages)))

    def _desktop(self) -> None:
        self._section(tr("Notifications and tray"))
        tell, tray, close = (
            named(Toggle(self._theme), f"settings.{name}") for name in ("notify", "tray", "close_to_tray")
        )
        after = named(WholeNumber(grouped=True), "settings.notify_after", suffix=" s", singleStep=5)
        after.setRange(1, 3600)

        def show_notify(now: UserSettings) -> None:
            show_checked(tell, now.notify)
            after.setEnabled(now.notify)

        def show_tray(now: UserSettings) -> None:
            show_checked(tray, now.tray)
            close.setEnabled(now.tray)  # without the icon nothing would bring the window back

        switched(tell, lambda on: self._set(notify=on))
        after.valueChanged.connect(lambda value: self._set(notify_after=value))
        switched(tray, lambda on: self._set(tray=on))
        switched(close, lambda on: self._set(close_to_tray=on))
        about = tr(
            "Of an answer that took long, a download, or a model that was made, while the window is not in front."
        )
        self._add(SettingRow(tr("Notify"), about, tell, ("notify",), show_notify))
        self._add(SettingRow(tr("Notify of answers that took longer than"), "", after, ("notify_after",)))
        about = tr("Shows or hides the window, begins a chat, quits.")
        if not QSystemTrayIcon.isSystemTrayAvailable():
            about = together(about, tr("This desktop has no tray now."))
        self._add(SettingRow(tr("Icon in the tray"), about, tray, ("tray",), show_tray))
        about = tr("The command Quit ends it.")
        self._add(SettingRow(tr("Closing the window leaves Kvasir in the tray"), about, close, ("close_to_tray",)))
        self._quick = caption(name="settings.quick")
        self._quick.hide()
        quick = KeyCell("quick", tr("Quick chat"))
        quick.asked.connect(lambda: self.choosing_quick.emit(True))
        quick.asked.connect(lambda: say(self._quick, HOW))
        quick.left.connect(lambda: self.choosing_quick.emit(False))
        quick.pressed.connect(self._choose_quick)
        about = tr("Opens a small window for a question, whichever window is in front.")
        row = tr("Global shortcut of the quick chat"), about, quick, ("quick_keys",)
        self._add(SettingRow(*row, lambda now: quick.show_keys(native(now.quick_keys))))
        self._sections[-1].column.addWidget(self._quick)

    def tell_quick(self, sentence: str) -> None:
        """Say below the global shortcut why it does not work, or other keys do; "": nothing is to be said."""
        say(self._quick, sentence)

    def _choose_quick(self, keys: str) -> None:
        why = unusable(keys) if keys else ""
        if not why:
            self._set(quick_keys=keys)
        self.choosing_quick.emit(False)
        if why:
            say(self._quick, why)

    def _engine(self) -> None:
        self._section(tr("Engine"), right=True)
        self._memory_row()
        context = _number(1_048_576, 1024, MODEL_MAXIMUM)
        context.valueChanged.connect(lambda value: self._set(context=value or None))
        about = tr("A shorter one needs less memory; some models can go beyond their own.")
        self._add(SettingRow(tr("Longest context, tokens"), together(about, _NEXT_LOAD), context, ("context",)))
        known = ("auto", "cpu", "cuda")  # until the engine says what it has
        self._device = Segments(tr("Device"), known, [_DEVICES[key] for key in known], "settings.device")
        self._device.chosen.connect(lambda key: self._set(device=key))
        about = tr("Automatic takes a GPU where there is one, and of several the one with the most free memory.")
        self._add(SettingRow(tr("Device"), together(about, _NEXT_LOAD), self._device, ("device",)))
        self._computing = caption(name="settings.computing")
        self._computing.hide()
        self._sections[-1].column.addWidget(self._computing)
        quantise = Segments(
            tr("Quantise 16-bit models on load"), list(QUANTISE), list(QUANTISE.values()), "settings.quantise"
        )
        quantise.chosen.connect(lambda key: self._set(quantise=key))
        self._add(
            SettingRow(tr("Quantise 16-bit models on load"), together(_QUANTISE, _NEXT_LOAD), quantise, ("quantise",))
        )
        draft = Toggle(self._theme)
        switched(draft, lambda on: self._set(draft=on))
        about = together(tr("If the model comes with one."), _NEXT_LOAD)
        self._add(SettingRow(tr("Load the draft model too"), about, draft, ("draft",)))
        reload = named(
            QPushButton(tr("Reload model")), "settings.reload", title=tr("Reload model"), clicked=self.reload_requested
        )
        self._add(SettingRow(tr("Use them now"), tr("Loads the present model again, with the settings above."), reload))

    def _memory_row(self) -> None:
        """None is automatic, at most 1 a share of the free memory, above it bytes."""
        self._memory = Segments(
            tr("Memory for the engine"),
            ("auto", "share", "fixed"),
            (tr("automatic"), tr("share"), tr("fixed")),
            "settings.memory",
        )
        self._share = self._number(tr(" % of free"), 10, 100, 85)
        self._fixed = self._number(" GB", 0.1, 4096, 8)
        self._memory.chosen.connect(self._set_memory)
        self._share.valueChanged.connect(lambda: self._set_memory("share"))
        self._fixed.valueChanged.connect(lambda: self._set_memory("fixed"))
        box = QWidget()
        fill(QHBoxLayout(box), self._share, self._fixed, self._memory, margins=0)
        about = together(tr("Automatic takes 85 % of what is free."), _NEXT_LOAD)
        self._add(SettingRow(tr("Memory for the engine"), about, box, ("memory",), self._show_memory))

    def _number(self, suffix: str, low: float, high: float, value: float) -> Fraction:
        box = Fraction()
        box.setRange(low, high)
        named(
            box,
            title=tr("Memory for the engine,{unit}", unit=suffix),
            decimals=1 if suffix == " GB" else 0,
            suffix=suffix,
        )
        box.setValue(value)
        return box

    def _files(self, log_file: Path, data: Path) -> None:
        self._section(tr("Files"))
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
            self._add(SettingRow(name, str(path), box))

    def _fit(self) -> None:
        """As wide as both columns may be; and the marks of a search have colours of the theme."""
        self._body.setMaximumWidth(2 * self._theme.px(COLUMN_PX) + GAP_PX)
        self._search(self.field.text())

    def _section(self, title: str, right: bool = False) -> None:
        """Begin a section; in a wide window it may stand at the right."""
        self._sections.append(SettingSection(title))
        self._columns.add(self._sections[-1], right)

    def _add(self, row: SettingRow) -> None:
        """Add a setting to the section."""
        row.reset_asked.connect(lambda values: self._set(**values))
        self._sections[-1].add(row)

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
        found = sum([section.search(words, self._theme) for section in self._sections])
        pack = has(f"{_GPU_WORDS} {english(_GPU_WORDS)}", words)
        self.gpu.setVisible(pack)
        for said in (self._computing, self._quick):
            said.setVisible(bool(said.text()) and not words)
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

    def _set_memory(self, kind: str) -> None:
        values = {"auto": None, "share": self._share.value() / 100, "fixed": self._fixed.value() * _GB}
        self._store.update(memory=values[kind])

    def _show_memory(self, now: UserSettings) -> None:
        memory = now.memory
        kind = "auto" if memory is None else "share" if memory <= 1 else "fixed"
        for box, value, mine in ((self._share, 100, "share"), (self._fixed, 1 / _GB, "fixed")):
            box.blockSignals(True)
            if kind == mine and memory is not None:
                box.setValue(memory * value)
            box.blockSignals(False)
            box.setVisible(kind == mine)
        self._memory.choose(kind)


def device_title(key: str) -> str:
    """A setting of Device for people."""
    return _DEVICES.get(key) or key.replace("cuda:", "GPU ")


def device_key(device: Device, among: Sequence[Device]) -> str:
    """The setting that takes a GPU: its kind, or its number where there are several."""
    several = sum(other.kind == device.kind for other in among) > 1
    return f"{device.kind}:{device.index}" if several else device.kind


def _takes_focus(part: QWidget) -> bool:
    return bool(part.focusPolicy() & Qt.FocusPolicy.TabFocus) and part.isVisibleTo(part.window())


def _number(most: int, step: int, none: str, unit: str = "") -> WholeNumber:
    """A field for 0 to ``most``; ``none`` is shown for 0."""
    field = WholeNumber(grouped=True)
    field.setRange(0, most)
    named(field, singleStep=step, suffix=unit, specialValueText=none)
    return field
