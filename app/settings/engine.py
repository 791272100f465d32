"""Settings of the engine: its memory, its device, and how it loads models."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.language import together, tr
from app.settings.rows import SettingRow, SettingSection, count
from app.settings.store import SettingsStore, UserSettings
from app.theme.numbers import Fraction
from app.theme.theme import Theme
from app.theme.widgets import Segments, fill, named, say
from engine.protocol import Device

_GB = 1e9
QUANTISE = {"none": tr("off"), "nf4": "NF4", "int4": "int4", "int8": "int8"}
MODEL_MAXIMUM = tr("Model maximum")
_QUANTISE = tr(
    "Packs models that come in 16 or 32 bits a weight while they are loaded. Four bits (NF4, int4) take "
    "about a third of the memory and change the text a little; int8 takes half and changes it hardly."
)
_DEVICES = {"auto": tr("automatic"), "cpu": "CPU", "cuda": "CUDA", "mps": "Metal"}
_NEXT_LOAD = tr("Takes effect when a model is next loaded.")


class EngineSection(SettingSection):
    """Most take effect when a model is next loaded; ``reload_requested``: load the present one again, with them."""

    reload_requested = Signal()

    def __init__(self, store: SettingsStore, theme: Theme) -> None:
        super().__init__(tr("Engine"), store, theme)
        self._memory_row()
        context = count(1_048_576, 1024, MODEL_MAXIMUM)
        context.valueChanged.connect(lambda value: store.update(context=value or None))
        about = tr("A shorter one needs less memory; some models can go beyond their own.")
        self.add(SettingRow(tr("Longest context, tokens"), together(about, _NEXT_LOAD), context, ("context",)))
        known = ("auto", "cpu", "cuda")  # until the engine says what it has
        self._device = Segments(tr("Device"), known, [_DEVICES[key] for key in known], "settings.device")
        self._device.chosen.connect(lambda key: store.update(device=key))
        about = tr("Automatic takes a GPU where there is one, and of several the one with the most free memory.")
        self.add(SettingRow(tr("Device"), together(about, _NEXT_LOAD), self._device, ("device",)))
        self._computing = self.add_note("settings.computing")
        quantise = Segments(
            tr("Quantise 16-bit models on load"), list(QUANTISE), list(QUANTISE.values()), "settings.quantise"
        )
        quantise.chosen.connect(lambda key: store.update(quantise=key))
        self.add(
            SettingRow(tr("Quantise 16-bit models on load"), together(_QUANTISE, _NEXT_LOAD), quantise, ("quantise",))
        )
        draft = self.toggle("draft")
        about = together(tr("If the model comes with one."), _NEXT_LOAD)
        self.add(SettingRow(tr("Load the draft model too"), about, draft, ("draft",)))
        reload = named(
            QPushButton(tr("Reload model")), "settings.reload", title=tr("Reload model"), clicked=self.reload_requested
        )
        self.add(SettingRow(tr("Use them now"), tr("Loads the present model again, with the settings above."), reload))

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
        self.add(SettingRow(tr("Memory for the engine"), about, box, ("memory",), self._show_memory))

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
