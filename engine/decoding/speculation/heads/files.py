"""Heads in files that draft for a model: where they are, of which kind, whether they fit.

They come in the layouts of their authors' hub repositories: a folder with config.json and one file of weights,
``pytorch_model.bin`` among them, which are read once (engine/formats/heads/pickled.py).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.decoding.speculation.heads.kind import HeadFiles, HeadKind
from engine.decoding.speculation.technique import drafting
from engine.formats.heads.pickled import SUFFIXES, converted, copy_of, read_tensors
from engine.formats.safetensors import TensorFiles, read_header

_STEMS = ("model", "pytorch_model")
"""Names of the file with the weights, where a folder has several; after those that a kind has for its own."""
_INDEX = "model.safetensors.index.json"


def head_kinds() -> dict[str, HeadKind]:
    """The kinds of heads of the registered techniques, by name."""
    kinds: list[HeadKind] = [import_module(each.files).HEADS for each in drafting() if each.files]
    return {kind.name: kind for kind in kinds}


def find_heads(kind: str, model: Path, given: Path | None, kept: Path | None, copies: Path) -> Path | None:
    """The first place that has heads of the kind for a model; None: there are none.

    Looked at: the path ``given`` to the load in place of a draft model's; the folder ``heads/{kind}`` of the model
    (next to the file, if it is one); ``{kept}/{kind}``, where heads that the user trained for it lie; and the folder
    next to the model's that the kind has its name for. ``copies`` as in :func:`open_heads`.
    """
    if given is not None and kind_of(given, copies) == kind:
        return given
    own = model if model.is_dir() else model.parent
    for folder in (own / "heads" / kind, *((kept / kind,) if kept is not None else ())):
        if _weight_files(folder):
            return folder
    neighbour = head_kinds()[kind].neighbour(own)
    return neighbour if neighbour is not None and kind_of(neighbour, copies) == kind else None


def kind_of(path: Path, copies: Path) -> str | None:
    """Name of the kind of heads in a folder or file; None: no heads. ``copies`` as in :func:`open_heads`; writes
    nothing."""
    try:
        found = _kind(path, copies)
    except CheckpointError:
        return None  # whoever opens it, as heads or as a model, says what is wrong
    return found.name if found is not None else None


def open_heads(path: Path, target: ModelConfig, copies: Path, kind: str | None = None) -> HeadFiles:
    """The heads of a folder or file, checked against the model that they are to draft for.

    A pickle is copied to safetensors first, next to itself or in the folder ``copies``. ``kind``: the one expected.
    Raises :class:`CheckpointError` with a sentence about what is missing, damaged, or made for another model.
    """
    if not path.exists():
        raise CheckpointError(f"There are no heads at {path}. Check the path.")
    found, kinds = _kind(path, copies), head_kinds()
    if found is None or (kind is not None and found.name != kind):
        wanted = " or ".join(
            one.title for one in ([kinds[kind]] if kind is not None else kinds.values()) if not one.own
        )
        raise CheckpointError(f"{path} does not hold {wanted}. Choose the folder of such heads.")
    folder, _ = _folder_and_file(path)
    config, files = _config(folder), _tensor_files(path, copies)
    layout, notices = found.layout(files, config, target, path.name)
    return HeadFiles(found, folder, config, files, layout, notices)


def _kind(path: Path, copies: Path) -> HeadKind | None:
    """The kind of heads, by config.json, else by the names of the tensors."""
    folder, file = _folder_and_file(path)
    config, kinds = _config(folder), head_kinds().values()
    for kind in kinds:
        if kind.in_config(config):
            return kind
    stem = (file or _weight_file(path)).stem
    for kind in kinds:
        if kind.stem == stem:
            return kind
    names = _names(path, copies)
    return next((kind for kind in kinds if kind.in_names(names)), None)


def _folder_and_file(path: Path) -> tuple[Path, Path | None]:
    return (path.parent, path) if path.is_file() else (path, None)


def _config(folder: Path) -> RawConfig:
    file = folder / "config.json"
    return RawConfig(read_json(file) or {}, file)


# --- files -------------------------------------------------------------------------------------------------------


def _weight_files(folder: Path) -> list[Path]:
    """Files that may hold the weights, safetensors and pickles of one name once; [] where there is no such folder."""
    if not folder.is_dir():
        return []
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    pickles = [file for file in files if file.suffix in SUFFIXES]
    stems = {file.stem for file in pickles}
    tensors = [file for file in files if file.suffix == ".safetensors"]
    # A safetensors file with a pickle's name is its copy, asked for by the pickle: it may be of an older one.
    return [file for file in tensors if file.stem not in stems] or pickles


def _weight_file(path: Path) -> Path:
    """The file with the weights, an index where they are in several."""
    folder, file = _folder_and_file(path)
    if file is not None:
        return file
    if (folder / _INDEX).is_file():
        return folder / _INDEX
    files = _weight_files(folder)
    stems = (*(kind.stem for kind in head_kinds().values() if kind.stem), *_STEMS)
    named = [file for stem in stems for file in files if file.stem == stem] or files
    if not named:
        raise CheckpointError(f"{folder} holds no weights of heads. Download the whole folder.")
    if len(named) > 1 and named[0].stem not in stems:
        names = ", ".join(file.name for file in named[:4])
        raise CheckpointError(f"{folder} has several files of weights ({names}). Give the path of one of them.")
    return named[0]


def _tensor_files(path: Path, copies: Path) -> TensorFiles:
    file = _weight_file(path)
    if file.name == _INDEX:
        return TensorFiles.open(file.parent)
    if file.suffix in SUFFIXES:
        file = converted(file, copies)
    return TensorFiles({entry.name: entry for entry in read_header(file)})


def _names(path: Path, copies: Path) -> list[str]:
    """The names of all tensors, without writing anything."""
    file = _weight_file(path)
    if file.name == _INDEX:
        return list(TensorFiles.open(file.parent).entries)
    copy = copy_of(file, copies) if file.suffix in SUFFIXES else file
    return list(read_tensors(file)) if copy is None else [entry.name for entry in read_header(copy)]
