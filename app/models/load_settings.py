"""Dialogue with settings to load one model that are to differ from those for all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.language import figure, known, tr
from app.settings.engine import MODEL_MAXIMUM, QUANTISE, device_title
from app.settings.store import ModelSettings, UserSettings
from app.theme.menus import ChoiceButton
from app.theme.numbers import WholeNumber
from app.theme.room import Scrolled, room_of
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, caption, fill, named
from engine.protocol import OptionSpec

WIDTH_PX, CHOICE_PX = 560, 260
FOR_ALL = tr("As for all models")
ABOUT = tr("What is set here holds whenever the window loads this model. The rest is as for all models, in Settings.")


class Offers(NamedTuple):
    """Choices on offer. ``devices``: settings of Device. ``drafts``: paths of possible drafts, and their names.
    ``kv_kind``: the switch of the KV cache's precision, None where the engine has not told of it yet."""

    devices: Sequence[str]
    drafts: Mapping[str, str]
    kv_kind: OptionSpec | None
    presets: Sequence[str]


class LoadSettingsDialog(QDialog):
    """``saved`` carries the ModelSettings, and whether the model is to be loaded with them now."""

    saved = Signal(object, bool)

    def __init__(
        self,
        name: str,
        own: ModelSettings,
        settings: UserSettings,
        offers: Offers,
        loaded: bool,
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        """``settings`` are those for all models. ``loaded``: the model is loaded now."""
        super().__init__(parent)
        title = tr("Load settings of {name}", name=name)
        named(self, "load-settings", windowTitle=title)
        self._rows = 0
        inside = QWidget()
        self._grid = fill(QGridLayout(inside), margins=(24, 16, 24, 10), spacing=(24, 10), wide=0)
        self._across(ElidedLabel(title, "title"))
        self._across(caption(ABOUT))
        self.context = WholeNumber(grouped=True)
        self.context.setRange(0, 1_048_576)
        self.context.setSingleStep(1024)
        for_all = f"{FOR_ALL} ({figure(settings.context)})" if settings.context else MODEL_MAXIMUM
        self.context.setSpecialValueText(for_all)
        named(self.context, "load.context", minimumWidth=CHOICE_PX)
        self._row(tr("Context length in tokens"), self.context)
        titles = offers.kv_kind.titles if offers.kv_kind is not None else {}
        kinds = {key: known(title) for key, title in titles.items()}
        self.kv_kind = self._choice(tr("KV cache precision"), "load.kv_kind", kinds, "")
        self.quantise = self._choice(
            tr("Quantise 16-bit models on load"), "load.quantise", QUANTISE, QUANTISE[settings.quantise]
        )
        devices = {key: device_title(key) for key in offers.devices}
        self.device = self._choice(tr("Device"), "load.device", devices, device_title(settings.device))
        for_all = tr("its own") if settings.draft else tr("none", "no draft")
        self.draft = self._choice(
            tr("Draft model or heads"), "load.draft", {"": tr("None", "no draft"), **offers.drafts}, for_all
        )
        presets = {each: each for each in offers.presets}
        self.preset = self._choice(tr("Preset of new chats"), "load.preset", presets, "", tr("None", "no preset"))
        self.show_own(own)
        reset = named(
            QPushButton(tr("Reset to defaults")),
            "load.reset",
            clicked=lambda: self.show_own(ModelSettings()),
            kind="quiet",
        )
        cancel = named(QPushButton(tr("Cancel")), clicked=self.reject)
        save = named(QPushButton(tr("Save")), "load.save", clicked=lambda: self._save(False))
        load = QPushButton(tr("Save and reload") if loaded else tr("Save and load"))
        named(load, "load.save_and_load", kind="primary")
        load.setDefault(True)
        load.clicked.connect(lambda: self._save(True))
        line = fill(QHBoxLayout(), reset, 1, cancel, save, load, margins=(16, 0, 16, 16), spacing=8)
        fill(QVBoxLayout(self), Scrolled(inside), line, margins=0)
        self.setMinimumWidth(min(theme.px(WIDTH_PX), room_of(self).width()))
        self.resize(self.sizeHint().boundedTo(room_of(self)))

    def show_own(self, own: ModelSettings) -> None:
        """Show these settings in place of those that stand there."""
        self.context.setValue(own.context or 0)
        for box, key in (
            (self.kv_kind, own.kv_kind),
            (self.quantise, own.quantise),
            (self.device, own.device),
            (self.draft, own.draft),
            (self.preset, own.preset or None),
        ):
            box.choose(key)

    def values(self) -> ModelSettings:
        chosen = {
            "context": self.context.value() or None,
            "kv_kind": self.kv_kind.key,
            "quantise": self.quantise.key,
            "device": self.device.key,
            "draft": self.draft.key,
            "preset": self.preset.key or "",
        }
        return msgspec.convert(chosen, ModelSettings)

    def _save(self, load: bool) -> None:
        self.saved.emit(self.values(), load)
        self.accept()

    def _choice(
        self, name: str, object_name: str, titles: Mapping[str, str], for_all: str, none: str = FOR_ALL
    ) -> ChoiceButton:
        """A choice of ``titles`` by their keys, below the entry ``none``, whose key is None."""
        by_key: dict[str | None, str] = {None: f"{none} ({for_all})" if for_all else none}
        by_key.update(titles)
        box = named(ChoiceButton(name, by_key), object_name, minimumWidth=CHOICE_PX)
        self._row(name, box)
        return box

    def _row(self, name: str, control: QWidget) -> None:
        control.setAccessibleName(name)
        label = QLabel(name)
        label.setBuddy(control)
        fill(self._grid, (label, self._rows, 0), (control, self._rows, 1))
        self._rows += 1

    def _across(self, widget: QWidget) -> None:
        self._grid.addWidget(widget, self._rows, 0, 1, 2)
        self._rows += 1
