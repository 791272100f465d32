"""Heads that draft for a model (Medusa, EAGLE, Gemma 4's assistant): where they are, of which kind, whether they fit.

They come in the layouts of their authors' hub repositories: a folder with config.json and one file of weights,
``medusa_lm_head.pt`` or ``pytorch_model.bin`` among them, which are read once (engine/formats/heads/pickled.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.compute.models.heads.medusa import MedusaLayout
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.formats.heads.assistant_layout import AssistantLayout, is_assistant, read_layout
from engine.formats.heads.medusa_layout import NAME as MEDUSA_NAME
from engine.formats.heads.medusa_layout import OTHER_HEADS, check_vocabulary, check_width, read_medusa
from engine.formats.heads.pickled import SUFFIXES, converted, copy_of, read_tensors
from engine.formats.safetensors import TensorFiles, read_header
from engine.formats.unused import OWN_HEAD, with_own_head

HeadKind = Literal["medusa", "eagle", "assistant"]
TITLES: dict[HeadKind, str] = {
    "medusa": "Medusa heads",
    "eagle": "an EAGLE head",
    "assistant": "an assistant of Gemma 4",
}
KINDS = tuple(TITLES)
_STEMS = ("medusa_lm_head", "model", "pytorch_model")
"""Names of the file with the weights, where a folder has several."""
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """Heads that were opened and fit their model. ``path`` is their folder, ``config`` its config.json."""

    kind: HeadKind
    path: Path
    config: RawConfig
    files: TensorFiles
    medusa: MedusaLayout | None = None
    assistant: AssistantLayout | None = None
    notices: tuple[str, ...] = ()
    """Notices for people about the heads."""

    def resident_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the tensors in a model of that dtype; whole numbers stay as they are."""
        return sum(
            entry.numel * (dtype if entry.dtype.is_floating_point else entry.dtype).itemsize
            for entry in self.files.entries.values()
        )


def find_heads(kind: HeadKind, model: Path, given: Path | None, kept: Path | None, copies: Path) -> Path | None:
    """The first place that has heads of the kind for a model; None: there are none.

    Looked at: the path ``given`` to the load in place of a draft model's; the folder ``heads/{kind}`` of the model
    (next to the file, if it is one); ``{kept}/{kind}``, where heads that the user trained for it lie; for Gemma 4's
    drafter the folder next to the model's that is called as its repository is, ``{model}-assistant``. ``copies`` as in
    :func:`open_heads`.
    """
    if given is not None and kind_of(given, copies) == kind:
        return given
    own = model if model.is_dir() else model.parent
    for folder in (own / "heads" / kind, *((kept / kind,) if kept is not None else ())):
        if _weight_files(folder):
            return folder
    neighbour = own.with_name(f"{own.name}-assistant")
    return neighbour if kind == "assistant" and kind_of(neighbour, copies) == kind else None


def kind_of(path: Path, copies: Path) -> HeadKind | None:
    """Kind of heads in a folder or file; None: no heads. ``copies`` as in :func:`open_heads`; writes nothing."""
    try:
        return _kind(path, copies)
    except CheckpointError:
        return None  # whoever opens it, as heads or as a model, says what is wrong


def open_heads(path: Path, target: ModelConfig, copies: Path, kind: HeadKind | None = None) -> HeadFiles:
    """The heads of a folder or file, checked against the model that they are to draft for.

    A pickle is copied to safetensors first, next to itself or in the folder ``copies``. ``kind``: the one expected.
    Raises :class:`CheckpointError` with a sentence about what is missing, damaged, or made for another model.
    """
    if not path.exists():
        raise CheckpointError(f"There are no heads at {path}. Check the path.")
    found = _kind(path, copies)
    if found is None or (kind is not None and found != kind):
        wanted = " or ".join(TITLES[one] for one in ((kind,) if kind is not None else KINDS))
        raise CheckpointError(f"{path} does not hold {wanted}. Choose the folder of such heads.")
    folder, _ = _folder_and_file(path)
    config, files = _config(folder), _tensor_files(path, copies)
    if found == "medusa":
        medusa = read_medusa(files.entries, config, target, path.name)
        return HeadFiles(found, folder, config, files, medusa, notices=medusa.notices)
    if found == "assistant":
        layout = read_layout(config, target, path.name)
        own = with_own_head(files, layout.config)
        notices = () if own is layout.config else (OWN_HEAD.format(name=path.name),)
        return HeadFiles(found, folder, config, files, assistant=layout._replace(config=own), notices=notices)
    _check_eagle(files, config, target, path.name)
    return HeadFiles(found, folder, config, files)


def _kind(path: Path, copies: Path) -> HeadKind | None:
    """The kind of heads, by config.json, else by the names of the tensors."""
    folder, file = _folder_and_file(path)
    config = _config(folder)
    if is_assistant(config):
        return "assistant"
    if "medusa_num_heads" in config.values or (file or _weight_file(path)).stem == "medusa_lm_head":
        return "medusa"
    names = config.values.get("architectures")
    if isinstance(names, list) and any(isinstance(name, str) and "eagle" in name.lower() for name in names):
        return "eagle"
    tensors = _names(path, copies)
    if tensors and all(MEDUSA_NAME.fullmatch(name) for name in tensors):
        return "medusa"
    layers = any(name.startswith(("midlayer.", "layers.0.")) for name in tensors)
    return "eagle" if layers and "fc.weight" in tensors else None


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
    named = [file for stem in _STEMS for file in files if file.stem == stem] or files
    if not named:
        raise CheckpointError(f"{folder} holds no weights of heads. Download the whole folder.")
    if len(named) > 1 and named[0].stem not in _STEMS:
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


# --- EAGLE -------------------------------------------------------------------------------------------------------


def _check_eagle(files: TensorFiles, config: RawConfig, target: ModelConfig, where: str) -> None:
    """Check the widths and the vocabulary that all three EAGLEs share with their model; the builder checks the rest.

    Raises :class:`CheckpointError`. ``fc`` reads a token's embedding with a state of the target (1 and 2), or three
    states (3).
    """
    fc = files.entries.get("fc.weight")
    if fc is None:
        raise CheckpointError(f"{where} is said to hold an EAGLE head and has no fc.weight. {OTHER_HEADS}")
    states = 3 if "d2t" in files.entries or any(name.startswith("midlayer.") for name in files.entries) else 2
    width, rest = divmod(fc.shape[1] if len(fc.shape) == 2 else 0, states)
    check_width(where, 0 if rest else width, target)
    words = config.integer("vocab_size", target.vocab_size)
    check_vocabulary(where, files.entries["t2d"].numel if "t2d" in files.entries else words, target)
