"""The settings tab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gpu.section import PackSection
from app.settings.store import SettingsStore
from app.theme.numbers import Fraction, WholeNumber
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, Segments, Toggle, caption, fill, named, say, switched
from engine.protocol import Device

_WIDTH = 640
_GB = 1e9
QUANTISE = {"none": "off", "nf4": "NF4", "int4": "int4", "int8": "int8"}
MODEL_MAXIMUM = "Model maximum"
_QUANTISE = (
    "Packs models that come in 16 or 32 bits a weight while they are loaded. Four bits (NF4, int4) take "
    "about a third of the memory and change the text a little; int8 takes half and changes it hardly."
)
_DEVICES = {"auto": "automatic", "cpu": "CPU", "cuda": "CUDA", "mps": "Metal"}
_NEXT_LOAD = "Takes effect when a model is next loaded."


class SettingsPage(FocusFirst):
    """Writes every change to the store at once. ``reload_requested``: load the present model again, with them."""

    reload_requested = Signal()

    def __init__(
        self, store: SettingsStore, theme: Theme, log_file: Path, data: Path, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._theme = theme
        named(self, surface="bg")
        self._column = self._lay_out()
        self._appearance()
        self._engine()
        self.gpu = PackSection()
        self._column.addWidget(self.gpu)
        self._files(log_file, data)
        self._column.addStretch(1)
        theme.changed.connect(self._fit)
        self._fit()

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
            self._device.refuse(key, f"The engine found no {'such' if ':' in key else _DEVICES[key]} device.")

    def show_gpu(self) -> None:
        """Scroll to what is said about GPU packs."""
        self._scroll.ensureWidgetVisible(self.gpu)

    def _lay_out(self) -> QVBoxLayout:
        body = self._body = QWidget()
        column = fill(QVBoxLayout(body), margins=(24, 16, 24, 24), spacing=10)
        title = named(QLabel("Settings"), role="title")
        column.addWidget(title)
        holder = QWidget()
        fill(QHBoxLayout(holder), 1, (body, 10), 1, margins=0)
        self._scroll = scrolling(holder, sideways=True)
        fill(QVBoxLayout(self), self._scroll, margins=0)
        return column

    def _appearance(self) -> None:
        settings = self._store.settings
        self._section("Appearance")
        mode = Segments("Theme", ("system", "light", "dark"), ("system", "light", "dark"), "settings.theme")
        mode.choose(settings.theme)
        self.first = mode
        mode.chosen.connect(self._set_theme)
        self._row("Theme", "System follows the desktop's own light or dark setting.", mode)
        size = WholeNumber()
        size.setRange(80, 160)
        named(size, singleStep=10, suffix=" %")
        size.setValue(round(100 * settings.text_scale))
        size.valueChanged.connect(self._set_scale)
        self._row("Text size", "", size)
        still = Toggle(self._theme)
        still.setChecked(settings.reduced_motion)
        switched(still, self._set_motion)
        self._row("Reduced motion", "Switches and panels change without sliding.", still)

    def _engine(self) -> None:
        settings = self._store.settings
        self._section("Engine")
        self._memory_rows(settings.memory)
        context = _number(settings.context or 0, 1_048_576, 1024, MODEL_MAXIMUM)
        context.valueChanged.connect(lambda value: self._set(context=value or None))
        self._row(
            "Longest context, tokens",
            f"A shorter one needs less memory; some models can go beyond their own. {_NEXT_LOAD}",
            context,
        )
        known = ("auto", "cpu", "cuda")  # until the engine says what it has
        self._device = Segments("Device", known, [_DEVICES[key] for key in known], "settings.device")
        self._device.choose(settings.device)
        self._device.chosen.connect(lambda key: self._set(device=key))
        about = "Automatic takes a GPU where there is one, and of several the one with the most free memory."
        self._row("Device", f"{about} {_NEXT_LOAD}", self._device)
        self._computing = caption(name="settings.computing")
        self._computing.hide()
        self._column.addWidget(self._computing)
        quantise = Segments(
            "Quantise 16-bit models on load", list(QUANTISE), list(QUANTISE.values()), "settings.quantise"
        )
        quantise.choose(settings.quantise)
        quantise.chosen.connect(lambda key: self._set(quantise=key))
        self._row("Quantise 16-bit models on load", f"{_QUANTISE} {_NEXT_LOAD}", quantise)
        draft = Toggle(self._theme)
        draft.setChecked(settings.draft)
        switched(draft, lambda on: self._set(draft=on))
        self._row("Load the draft model too", f"If the model comes with one. {_NEXT_LOAD}", draft)
        idle = named(_number(settings.unload_after, 1440, 5, "Never", " min"), "settings.unload_after")
        idle.valueChanged.connect(lambda value: self._set(unload_after=value))
        about = "Frees its memory when nothing has been asked of it for so long. The next message loads it again."
        self._row("Unload the model when idle", about, idle)
        limit = named(_number(settings.download_limit, 100_000, 1, "No limit", " MB/s"), "settings.download_limit")
        limit.valueChanged.connect(lambda value: self._set(download_limit=value))
        self._row(
            "Download speed limit", "Per download. Running downloads use it after they are paused and resumed.", limit
        )
        reload = named(
            QPushButton("Reload model"), "settings.reload", title="Reload model", clicked=self.reload_requested
        )
        line = fill(QHBoxLayout(), 1, reload)
        self._column.addLayout(line)

    def _memory_rows(self, memory: float | None) -> None:
        """None is automatic, at most 1 a share of the free memory, above it bytes."""
        kind = "auto" if memory is None else "share" if memory <= 1 else "fixed"
        self._memory = Segments(
            "Memory for the engine", ("auto", "share", "fixed"), ("automatic", "share", "fixed"), "settings.memory"
        )
        self._memory.choose(kind)
        self._share = self._number(" % of free", 10, 100, 100 * memory if memory is not None and memory <= 1 else 85)
        self._fixed = self._number(" GB", 0.1, 4096, memory / _GB if memory is not None and memory > 1 else 8)
        self._memory.chosen.connect(self._set_memory)
        self._share.valueChanged.connect(lambda: self._set_memory("share"))
        self._fixed.valueChanged.connect(lambda: self._set_memory("fixed"))
        box = QWidget()
        fill(QHBoxLayout(box), self._share, self._fixed, self._memory, margins=0)
        self._row("Memory for the engine", f"Automatic takes 85 % of what is free. {_NEXT_LOAD}", box)
        self._show_memory(kind)

    def _number(self, suffix: str, low: float, high: float, value: float) -> Fraction:
        box = Fraction()
        box.setRange(low, high)
        named(box, title=f"Memory for the engine,{suffix}", decimals=1 if suffix == " GB" else 0, suffix=suffix)
        box.setValue(value)
        return box

    def _files(self, log_file: Path, data: Path) -> None:
        self._section("Files")
        for name, path in (("Log file", log_file), ("Chats", data), ("Settings", self._store.path)):
            folder = path if path.is_dir() else path.parent
            button = QPushButton("Open folder")
            button.setAccessibleName(f"Open the folder of: {name}")
            button.clicked.connect(lambda _=False, f=folder: QDesktopServices.openUrl(QUrl.fromLocalFile(str(f))))
            self._row(name, str(path), button)

    def _fit(self) -> None:
        self._body.setMaximumWidth(self._theme.px(_WIDTH))

    def _section(self, text: str) -> None:
        label = named(QLabel(text), role="section")
        label.setContentsMargins(0, 16, 0, 0)
        self._column.addWidget(label)

    def _row(self, name: str, about: str, control: QWidget) -> None:
        if not control.accessibleName():
            control.setAccessibleName(name)
        words = fill(QVBoxLayout(), QLabel(name), spacing=2)
        if about:
            words.addWidget(caption(about))
        line = QHBoxLayout()
        fill(line, (words, 1), (control, 0, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), spacing=16)
        self._column.addLayout(line)

    def _set(self, **changes: Any) -> None:
        self._store.update(**changes)

    def _set_theme(self, mode: str) -> None:
        self._store.update(theme=mode)
        self._theme.set_mode(self._store.settings.theme)

    def _set_scale(self, percent: int) -> None:
        self._store.update(text_scale=percent / 100)
        self._theme.set_scale(percent / 100)

    def _set_motion(self, still: bool) -> None:
        self._store.update(reduced_motion=still)
        self._theme.set_reduced_motion(still)

    def _set_memory(self, kind: str) -> None:
        values = {"auto": None, "share": self._share.value() / 100, "fixed": self._fixed.value() * _GB}
        self._store.update(memory=values[kind])
        self._show_memory(kind)

    def _show_memory(self, kind: str) -> None:
        self._share.setVisible(kind == "share")
        self._fixed.setVisible(kind == "fixed")


def device_title(key: str) -> str:
    """A setting of Device for people."""
    return _DEVICES.get(key) or key.replace("cuda:", "GPU ")


def device_key(device: Device, among: Sequence[Device]) -> str:
    """The setting that takes a GPU: its kind, or its number where there are several."""
    several = sum(other.kind == device.kind for other in among) > 1
    return f"{device.kind}:{device.index}" if several else device.kind


def _number(value: int, most: int, step: int, none: str, unit: str = "") -> WholeNumber:
    """A field for 0 to ``most``; ``none`` is shown for 0."""
    field = WholeNumber(grouped=True)
    field.setRange(0, most)
    named(field, singleStep=step, suffix=unit, specialValueText=none)
    field.setValue(value)
    return field
