"""Models that other programs keep on this machine: found where they lie, used from there, never changed.

Each program's layout as its own source or manual has it: Ollama's manifests name blobs that are GGUF files, LM Studio
keeps PUBLISHER/MODEL/FILE.gguf, Jan a ``model.yml`` that says where the file is, GPT4All files in one folder, and the
hub's cache a folder of links for each revision.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.base.errors import is_text
from engine.base.files import UnreadableFileError, read_text
from engine.base.folders import SYSTEM
from engine.formats.gguf.find import gguf_models
from engine.library.roots import json_object, whole_models

_MODEL = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class ForeignModel(NamedTuple):
    """A model of another program's. ``repository`` and ``revision``: where on the hub it is from, if that is known."""

    name: str
    path: Path
    origin: str
    repository: str = ""
    revision: str = ""


def models_of_others() -> list[ForeignModel]:
    """All of them, by program and name. What cannot be read is passed over: it is not ours to complain of."""
    found: dict[Path, ForeignModel] = {}
    for places, models in _PROGRAMS:
        for place in places():
            with contextlib.suppress(OSError, ValueError):  # what they say of their folders may be no path
                for model in models(place):
                    if is_text(f"{model.name}{model.path}"):
                        found.setdefault(model.path, model)
    return sorted(found.values(), key=lambda model: (model.origin, model.name))


def places_of_others() -> list[Path]:
    """The folders of theirs that there are."""
    return [place for places, _ in _PROGRAMS for place in places() if os.path.isdir(place)]


def _hub_places() -> list[Path]:
    if named := os.environ.get("HF_HUB_CACHE", ""):
        return [Path(os.path.expanduser(named))]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    return [Path(os.path.expanduser(os.environ.get("HF_HOME", "") or cache / "huggingface")) / "hub"]


def _hub_models(place: Path) -> Iterator[ForeignModel]:
    """The newest snapshot of each repository, where it holds a whole model."""
    for folder in place.glob("models--*--*"):
        repository = folder.name.removeprefix("models--").replace("--", "/")
        with contextlib.suppress(OSError):
            snapshots = sorted((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime)
            for snapshot in reversed(snapshots):
                models = whole_models(snapshot)
                for path in models:
                    name = repository if path == snapshot else path.name
                    yield ForeignModel(name, path, "Hugging Face", repository, snapshot.name)
                if models:
                    break


def _ollama_places() -> list[Path]:
    if named := os.environ.get("OLLAMA_MODELS", ""):
        return [Path(named)]
    return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]


def _ollama_models(place: Path) -> Iterator[ForeignModel]:
    """manifests/REGISTRY/OWNER/NAME/TAG; the layer of the model's type is a GGUF file, named by its hash."""
    for manifest in place.glob("manifests/*/*/*/*"):
        layers = (json_object(manifest) or {}).get("layers")
        for layer in layers if isinstance(layers, list) else []:
            digest = _DIGEST.fullmatch(str(layer.get("digest", ""))) if isinstance(layer, dict) else None
            if digest is None or layer.get("mediaType") != _MODEL:
                continue
            blob = place / "blobs" / f"sha256-{digest[1]}"
            owner, name, tag = manifest.parts[-3:]
            if os.path.isfile(blob):
                yield ForeignModel(f"{name}:{tag}" if owner == "library" else f"{owner}/{name}:{tag}", blob, "Ollama")


def _lm_studio_places() -> list[Path]:
    home = Path.home()
    with contextlib.suppress(UnreadableFileError):
        if moved := (read_text(home / ".lmstudio-home-pointer") or "").strip():
            return [Path(moved) / "models"]
    return [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]


def _lm_studio_models(place: Path) -> Iterator[ForeignModel]:
    for folder in place.glob("*/*"):
        if os.path.isdir(folder):
            repository = f"{folder.parent.name}/{folder.name}"
            for path in whole_models(folder):
                yield ForeignModel(repository if path == folder else path.name, path, "LM Studio", repository)


def _jan_places() -> list[Path]:
    data = {"win32": _windows("APPDATA") / "Jan", "darwin": Path.home() / "Library/Application Support/Jan"}.get(
        sys.platform, SYSTEM.user_data_path.parent / "Jan"
    )
    moved = [
        Path(str(settings["data_folder"]))
        for place in {data, SYSTEM.user_config_path.parent / "Jan"}
        if isinstance((settings := json_object(place / "settings.json") or {}).get("data_folder"), str)
    ]
    return moved or [data / "data"]


def _jan_models(place: Path) -> Iterator[ForeignModel]:
    """``model_path`` of each model.yml is below the data folder, or a file that was imported from elsewhere."""
    for described in (place / "llamacpp" / "models").glob("**/model.yml"):
        with contextlib.suppress(UnreadableFileError, OSError):
            said = re.search(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", read_text(described) or "", re.MULTILINE)
            path = place / said[1] if said else described.with_name("model.gguf")
            if os.path.isfile(path):
                yield ForeignModel(described.parent.name, path, "Jan")


def _gpt4all_places() -> list[Path]:
    local = {
        "win32": _windows("LOCALAPPDATA"),
        "darwin": Path.home() / "Library/Application Support",
    }.get(sys.platform, SYSTEM.user_data_path.parent)
    return [local / "nomic.ai" / "GPT4All"]


def _gpt4all_models(place: Path) -> Iterator[ForeignModel]:
    for path in gguf_models(place):
        yield ForeignModel(path.name, path, "GPT4All")


def _windows(variable: str) -> Path:
    return Path(os.environ.get(variable, "")) if os.environ.get(variable) else Path.home()


_PROGRAMS: tuple[tuple[Callable[[], list[Path]], Callable[[Path], Iterator[ForeignModel]]], ...] = (
    (_hub_places, _hub_models),
    (_lm_studio_places, _lm_studio_models),
    (_ollama_places, _ollama_models),
    (_jan_places, _jan_models),
    (_gpt4all_places, _gpt4all_models),
)
