"""The settings file: one small JSON object, written atomically, versioned; keys we do not know are kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.protocol import LoadOptions, Quantise

log = logging.getLogger(__name__)

VERSION = 1
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Version -> the function that turns a file of that version into one of the next."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose. ``memory``: at most 1 a fraction of what is free, above it bytes, None the default."""

    theme: Literal["system", "light", "dark"] = "system"
    text_scale: float = 1.0
    reduced_motion: bool = False
    memory: float | None = None
    context: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    quantise: Quantise = "none"
    draft: bool = True
    model: str = ""
    """The model loaded last, by name or path; empty: the first one the engine knows."""
    tint: bool = False
    panel_open: bool = True
    plots_open: bool = True
    cache_open: bool = False
    sidebar_open: bool = True
    gpu_dismissed: str = ""
    """What was said about GPU packs and is not wanted again (a key of app.gpu.words)."""
    geometry: str = ""
    """QWidget.saveGeometry(), base64."""

    def load_options(self) -> LoadOptions:
        return LoadOptions(memory=self.memory, context=self.context, device=self.device, quantise=self.quantise)


class SettingsStore(QObject):
    """Holds the settings in force; ``changed`` carries the set of names that changed.

    A file that is no JSON object is set aside as ``settings.json.broken``; a single value that does not fit falls back
    to its default. Either way ``notice`` has a sentence for the person.
    """

    changed = Signal(object)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._unknown: dict[str, Any] = {}
        self.notice = ""
        self.settings = self._read()

    @property
    def path(self) -> Path:
        return self._path

    def update(self, **changes: Any) -> None:
        """Replace some settings and write the file. Raises TypeError for a name that is no setting."""
        new = msgspec.structs.replace(self.settings, **changes)
        names = {name for name in changes if getattr(new, name) != getattr(self.settings, name)}
        if not names:
            return
        self.settings = new
        self._write()
        self.changed.emit(frozenset(names))

    def _read(self) -> Settings:
        try:
            raw = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return Settings()
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
            self._set_aside(error)
            return Settings()
        return self._fit(_migrated(raw))

    def _fit(self, raw: dict[str, Any]) -> Settings:
        kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
        self._unknown = {name: value for name, value in raw.items() if name not in kinds and name != "version"}
        good: dict[str, Any] = {}
        bad: list[str] = []
        for name in kinds.keys() & raw.keys():
            try:
                good[name] = msgspec.convert(raw[name], kinds[name])
            except msgspec.ValidationError:
                bad.append(name)
        if bad:
            self.notice = (
                f"The settings file has a value that does not fit for {', '.join(sorted(bad))}; "
                "the default is used. Choose again in Settings."
            )
        return Settings(**good)

    def _set_aside(self, error: Exception) -> None:
        log.warning("unreadable settings file %s: %s", self._path, error)
        aside = self._path.with_name(self._path.name + ".broken")
        try:
            os.replace(self._path, aside)
            where = f"It was kept as {aside}; the defaults are in force."
        except OSError:
            where = "The defaults are in force."
        self.notice = f"The settings file could not be read. {where}"

    def _write(self) -> None:
        body = {"version": VERSION, **self._unknown, **msgspec.to_builtins(self.settings)}
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(body)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error)
            self.notice = (
                f"The settings could not be written to {self._path}: {error.strerror}. "
                "Free some space or allow writing there."
            )


def _migrated(raw: dict[str, Any]) -> dict[str, Any]:
    version = raw.get("version", VERSION)
    while isinstance(version, int) and version < VERSION and version in MIGRATIONS:
        raw = MIGRATIONS[version](raw)
        version += 1
    return raw
