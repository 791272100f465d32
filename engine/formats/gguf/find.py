"""Search for GGUF models: files, told by their names alone. Imports nothing large, because model lists need it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from engine.base.errors import CheckpointError
from engine.base.files import unreadable

RECEIPT = "kvasir.json"
"""File that Kvasir writes into a folder of models that it downloaded."""
PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE | re.DOTALL)
"""File names of the parts of a model in several files, counted from 1."""
_PROJECTOR = re.compile(r"(?:.*[-_.])?mmproj.*", re.IGNORECASE | re.DOTALL)
"""Files that hold only a model's eyes or ears."""
_BLOB = re.compile(r"sha256-[0-9a-f]{64}")
"""Names that Ollama gives the GGUF files that it keeps."""
_IMATRIX = re.compile(r"(?!.*[-_.](?:I?Q\d|B?F16|MXFP))(?:.*[-_.])?imatrix\w*\.gguf", re.IGNORECASE | re.DOTALL)
"""Files of what a quantiser measured; models quantised by it have the word next to the name of their type."""


_TYPE = re.compile(r"[-_.](?:UD[-_])?(?:I?Q\d|TQ\d|B?F16|F32|MXFP\d).*", re.IGNORECASE | re.DOTALL)
"""End of a file's name: the type of its weights, and which part it is."""


def is_gguf(path: PurePath) -> bool:
    return path.suffix.lower() == ".gguf" or _BLOB.fullmatch(path.name) is not None


def accompanies(name: str) -> bool:
    """Return True if a file of that name is no model, but belongs to one: a projector, or an importance matrix."""
    return bool(_PROJECTOR.fullmatch(name) or _IMATRIX.fullmatch(name))


def gguf_models(folder: Path) -> list[Path]:
    """The models in a folder, by name; of one in several files the first. OSError when it cannot be listed."""
    found = []
    for path in sorted(folder.iterdir()):
        part = PART.fullmatch(path.name)
        first = part is None or int(part["number"]) == 1
        if is_gguf(path) and first and not accompanies(path.name) and path.is_file():
            found.append(path)
    return found


def projectors_beside(model: Path) -> tuple[list[Path], bool]:
    """The files with a vision tower in the folder of a model; where there are such, those alone that bear its name.

    And whether they do. A repository that Kvasir fetched may keep them above the folder of a type of weights.
    """
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = _projectors(model.parent)
        if not found and (model.parent.parent / RECEIPT).is_file():
            found = _projectors(model.parent.parent)
    names = alike(model.name, [path.name for path in found])
    return [path for path in found if not names or path.name in names], bool(names)


def alike(model: str, projectors: Sequence[str]) -> list[str]:
    """Select the ``projectors``, by file name, that bear the name of a model's file, less the type of its weights."""
    stem = _TYPE.sub("", model.removesuffix(".gguf")).lower()
    return [name for name in projectors if stem in name.lower()]


def is_projector(name: str) -> bool:
    """Return True if a GGUF file of that name has a vision tower alone."""
    return name.lower().endswith(".gguf") and _PROJECTOR.fullmatch(name) is not None


def _projectors(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_projector(path.name) and path.is_file())


def gguf_model(path: Path) -> Path | None:
    """The model that a file or a folder is in GGUF; None for a folder with safetensors, or with no GGUF at all.

    Raises :class:`CheckpointError` where a folder has several.
    """
    if path.is_file():
        return path if is_gguf(path) else None
    try:
        if any(path.glob("*.safetensors")):
            return None
        models = gguf_models(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(models) > 1:
        names = ", ".join(model.name for model in models[:3]) + (" …" if len(models) > 3 else "")
        raise CheckpointError(f"{path} holds {len(models)} GGUF models ({names}). Choose one of the files.")
    return models[0] if models else None
