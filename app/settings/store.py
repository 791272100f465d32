"""The settings file: one small JSON object, written atomically, versioned; keys we do not know are kept."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from PySide6.QtCore import QObject, Signal

from app.files import UNREADABLE, read_small
from app.language import tr
from app.paths import SETTINGS_BYTES
from app.theme.theme import Mode
from engine.protocol import DeviceName, LoadOptions, Quantise, Sampling
from engine.protocol.serving import PORT

log = logging.getLogger(__name__)

VERSION = 1
PresetName = Annotated[str, Meta(min_length=1, max_length=80)]
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Version -> the function that turns a file of that version into one of the next. Never edit a released one."""


class Preset(msgspec.Struct, frozen=True):
    """Settings for the answers of chats, under a name."""

    system: Annotated[str, Meta(max_length=1_000_000)] = ""
    sampling: Sampling = Sampling()


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings to load one model with. None: the same as for all models."""

    context: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    device: DeviceName | None = None
    quantise: Quantise | None = None
    draft: Annotated[str, Meta(max_length=4096)] | None = None
    """The path of a draft model or of heads; "": none."""
    kv_kind: Annotated[str, Meta(max_length=80)] | None = None
    """A value of the switch of that key."""
    preset: Annotated[str, Meta(max_length=80)] = ""
    """The preset that a new chat with it begins with; "": none."""


class RememberedState(msgspec.Struct, frozen=True, kw_only=True):
    """State that the window comes back in."""

    model: Annotated[str, Meta(max_length=4096)] = ""
    """The model loaded last, by name or path; empty: the first one the engine knows."""
    options: dict[str, Any] = {}
    """The switches that the user changed, by the engine's keys; what cannot be in force now is kept too."""
    recent: Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=50)] = []
    """The paths of the models that were loaded, the last one first."""
    folder: Annotated[str, Meta(max_length=4096)] = ""
    """Folder in which a model was last looked for."""
    kv_kind_before: str = ""
    """The value to go back to after a model with one of its own; "": that model is not loaded."""
    tint: bool = False
    panel_open: bool = False
    panel_all: bool = False
    """The panel shows all switches, not only the common ones."""
    plots_open: bool = False
    cache_open: bool = False
    sidebar_open: bool = True
    commands: Annotated[list[Annotated[str, Meta(max_length=4200)]], Meta(max_length=50)] = []
    """Names of the commands that were run last from the palette, the last one first."""
    gpu_dismissed: str = ""
    """Key of the card about GPU packs that is not wanted again (a key of app.gpu.words)."""
    geometry: str = ""
    """QWidget.saveGeometry(), base64."""


class LoadingSettings(RememberedState, frozen=True, kw_only=True):
    """How models are loaded. ``memory``: at most 1 a fraction of what is free, above it bytes, None the default."""

    memory: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    context: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    device: DeviceName = "auto"
    quantise: Quantise = "none"
    draft: bool = True
    unload_after: Annotated[int, Meta(ge=0, le=1440)] = 0
    """Minutes without a request after which the model is unloaded; 0: never."""
    models: dict[Annotated[str, Meta(max_length=4096)], ModelSettings] = {}
    """By the path of the model."""

    def load_options(self, path: str = "") -> LoadOptions:
        """Return the options that load the model at ``path``; "": a model without settings of its own."""
        own = self.of(path)
        return LoadOptions(
            memory=self.memory,
            context=own.context or self.context,
            device=own.device or self.device,
            quantise=own.quantise or self.quantise,
        )

    def draft_of(self, path: str) -> str | None:
        """The draft of the model at ``path`` as a Load names it."""
        own = self.of(path).draft
        return own if own is not None else None if self.draft else ""

    def of(self, path: str) -> ModelSettings:
        return self.models.get(path, ModelSettings())


class UserSettings(LoadingSettings, frozen=True, kw_only=True):
    """Settings of the user, each a key of the file under its own name."""

    theme: Mode = "system"
    text_scale: Annotated[float, Meta(ge=0.8, le=2.0)] = 1.0
    reduced_motion: bool = False
    language: Annotated[str, Meta(max_length=20)] = ""
    """A key of app.language.LANGUAGES from the next start on; "": the computer's."""
    simple: bool = False
    """Only chats and models are shown, not what measures and explains."""
    notify: bool = True
    """What ended while the window was not in front is told by the desktop."""
    notify_after: Annotated[int, Meta(ge=1, le=3600)] = 20
    """Seconds that an answer must have taken for that."""
    tray: bool = False
    """An icon in the tray, where the desktop has one."""
    close_to_tray: bool = False
    """Closing the window leaves the program in the tray, if its icon is there."""
    quick_keys: Annotated[str, Meta(max_length=80)] = ""
    """Global shortcut of the quick chat, as portable text such as "Ctrl+Alt+Space"; "" for none."""
    serve: bool = False
    """Other programs of this computer can use the engine, on the port ``serve_port``."""
    serve_port: Annotated[int, Meta(ge=1, le=65535)] = PORT
    download_limit: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """MB a second of each download of a model at most; 0: no limit."""
    titles: bool = True
    """The model gives chats their titles."""
    passages: Annotated[str, Meta(max_length=4096)] = "auto"
    """Path of the embedding model by which passages of documents are found; "auto": the smallest that is here, "off":
    none."""
    keys: dict[Annotated[str, Meta(max_length=80)], Annotated[str, Meta(max_length=80)]] = {}
    """The keys that the person chose for commands, by their names (app/shortcuts.py); "" for none."""
    presets: dict[PresetName, Preset] = {}


class SettingsStore(QObject):
    """Holds the settings in force; ``changed`` carries the set of names that changed.

    A file that is not a JSON object is set aside as ``settings.json.broken``; one value that does not fit falls back
    to its default. A file of an earlier version is kept as ``settings.version-N.json`` when its successor is written. A
    file of a later version is never written to: these settings are then those of ``settings.version-N.json``, this
    version's own, which lie there since the upgrade. In all of these cases but the upgrade ``notice`` has a sentence
    for the person from the beginning.
    """

    changed = Signal(object)
    failed = Signal(str)
    """They could not be written, until :attr:`recovered`; a sentence for people."""
    recovered = Signal()
    """They are written after that had failed."""

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._unknown: dict[str, Any] = {}
        self._earlier: tuple[Path, bytes] | None = None
        """Path that the file of an earlier version is to be kept at, and its content."""
        self.notice = ""
        self._unwritten = False
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

    def move_models(self, old: str, new: str) -> None:
        """Follow models that moved from the folder ``old`` to ``new``: what is kept of them stays theirs."""

        def moved(path: str) -> str:
            inside = Path(path).is_relative_to(old)
            return str(Path(new) / Path(path).relative_to(old)) if inside else path

        now = self.settings
        models = {
            moved(path): msgspec.structs.replace(own, draft=own.draft and moved(own.draft))
            for path, own in now.models.items()
        }
        recent, passages = [moved(path) for path in now.recent], moved(now.passages)
        self.update(model=moved(now.model), recent=recent, models=models, passages=passages)

    def _read(self) -> UserSettings:
        raw = self._decoded()
        if raw is None:
            return UserSettings()
        version = _version(raw)
        if version > VERSION:
            return self._sibling(version)
        if version < VERSION:
            self._earlier = (versioned(self._path, version), read_small(self._path, SETTINGS_BYTES))
            try:
                raw = _migrated(raw, version)
            except Exception as error:
                log.exception("the settings could not be brought from version %d to %d", version, VERSION)
                self.notice = tr(
                    "The settings of an earlier version could not be taken over ({why}); the defaults are in force. "
                    "They will be kept as {path}. Choose again in Settings.",
                    why=type(error).__name__,
                    path=self._earlier[0],
                )
                return UserSettings()
        return self._fit(raw)

    def _decoded(self) -> dict[str, Any] | None:
        """Decode the file; None if there is nothing to read."""
        try:
            # The standard library's decoder takes NaN and Infinity, so that such a value costs only itself.
            return msgspec.convert(json.loads(read_small(self._path, SETTINGS_BYTES)), dict[str, Any])
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            self._set_aside(error)
            return None

    def _sibling(self, version: int) -> UserSettings:
        """A later version's file stays as it is; from now on this version has one of its own."""
        later, self._path = self._path, versioned(self._path, VERSION)
        raw = self._decoded()
        if not self.notice:
            self.notice = tr(
                "{path} was written by a later version of Kvasir (settings {found}, and this is {known}). It is left "
                "as it is; this version reads and writes {name} next to it.",
                path=later,
                found=version,
                known=VERSION,
                name=self._path.name,
            )
        return UserSettings() if raw is None or _version(raw) != VERSION else self._fit(raw)

    def _fit(self, raw: dict[str, Any]) -> UserSettings:
        kinds = {field.name: field.type for field in msgspec.structs.fields(UserSettings)}
        self._unknown = {
            name: value for name, value in raw.items() if name not in {*kinds, "version"} and _writable([name, value])
        }
        good: dict[str, Any] = {}
        bad: list[str] = []
        for name in kinds.keys() & raw.keys():
            try:
                if not _writable(raw[name]):
                    raise msgspec.ValidationError("no JSON can say this")  # not shown
                good[name] = msgspec.convert(raw[name], kinds[name], str_keys=True)
            except msgspec.ValidationError:
                bad.append(name)
        if bad:
            used = tr(
                "The settings file has a value that does not fit for {names}; the default is used.",
                names=", ".join(sorted(bad)),
            )
            self.notice = f"{used} {self._kept()} {tr('Choose again in Settings.')}"
        return UserSettings(**good)

    def _kept(self) -> str:
        """Copy the file that has values which do not fit, before it is written anew."""
        aside = self._path.with_name(self._path.name + ".broken")
        try:
            _replace(aside, read_small(self._path, SETTINGS_BYTES))
        except OSError as error:
            return tr("The file could not be copied ({why}).", why=error.strerror)
        return tr("The file as it was is kept as {path}.", path=aside)

    def _set_aside(self, error: Exception) -> None:
        log.warning("unreadable settings file %s: %s", self._path, error)
        aside = self._path.with_name(self._path.name + ".broken")
        try:
            try:
                _replace(aside, read_small(self._path, SETTINGS_BYTES))  # it may be a link, which stays where it is
            except OSError:
                os.replace(self._path, aside)
            where = tr("It was kept as {path}; the defaults are in force.", path=aside)
        except OSError:
            where = tr("The defaults are in force.")
        self.notice = f"{tr('The settings file could not be read.')} {where}"

    def _write(self) -> None:
        body = {"version": VERSION, **self._unknown, **msgspec.to_builtins(self.settings)}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._earlier is not None:
                _replace(*self._earlier)
                self._earlier = None
            _replace(self._path, msgspec.json.format(_encoded(body)))
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error)
            self._unwritten = True
            self.failed.emit(
                tr(
                    "The settings could not be written to {path}: {why}. Free some space or allow writing there. Until "
                    "then they hold only while Kvasir runs.",
                    path=self._path,
                    why=error.strerror,
                )
            )
            return
        if self._unwritten:
            self._unwritten = False
            self.recovered.emit()


def versioned(path: Path, version: int) -> Path:
    """The file next to ``path`` that holds the settings of one version of the format."""
    return path.with_name(f"{path.stem}.version-{version}{path.suffix}")


def _replace(path: Path, content: bytes) -> None:
    """Whatever ends this early, the file is the old one or the new one; a link to it stays one. Raises OSError."""
    path = path.resolve()
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half of a surrogate pair, which no file can hold, costs itself alone
        return json.dumps(body, ensure_ascii=False).encode(errors="replace")


def _writable(value: Any) -> bool:
    """True if JSON can hold the value; one with half of a surrogate pair cannot be written, for example."""
    try:
        msgspec.json.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
    return True


def _version(raw: dict[str, Any]) -> int:
    version = raw.get("version", VERSION)
    return version if isinstance(version, int) and version > 0 else VERSION


def _migrated(raw: dict[str, Any], version: int) -> dict[str, Any]:
    for number in range(version, VERSION):
        raw = MIGRATIONS[number](raw)
    return raw
