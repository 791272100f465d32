"""All models of this machine, whoever brought them here."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from engine.base.errors import CheckpointError, is_text, plain
from engine.base.fetching import room
from engine.base.files import POOLING_FILE, SAFETENSORS_HEADER, decode_file, read_json, regular_size
from engine.formats.gguf.find import PART, is_gguf, projectors_beside
from engine.library import bundled as brought
from engine.library import others, roots, store
from engine.library.variants import QUANTISATION
from engine.protocol import KnownModel, MakeReport
from engine.protocol.library import Held, ModelFolder, ModelFormat, StoredModel
from engine.protocol.recommended import CuratedModel

MOST_WATCHED = 500
"""Folders, and files: systems allow some thousands to all programs together."""
OTHERS_DEPTH = 3

REPORT = "kvasir-report.json"
"""Report of a model that Kvasir made, next to it: an `engine.protocol.MakeReport`."""


def stored_models(known: Iterable[KnownModel], bundled: Path) -> list[StoredModel]:
    """Kvasir's own (``known``), then those of other programs. ``bundled``: the folder of those that came with it."""
    ours = [_of_ours(model, bundled) for model in known]
    paths = {model.path for model in ours}
    theirs = [
        StoredModel(
            name=model.name,
            path=str(model.path),
            format="gguf" if is_gguf(model.path) else "safetensors",
            bytes=size_of(model.path),
            origin=model.origin,
            repository=model.repository,
            revision=model.revision,
            **_packing(model.path),
        )
        for model in others.models_of_others()
        if str(model.path) not in paths
    ]
    gone = [
        StoredModel(
            name=each.name,
            path=each.path,
            format="gguf" if is_gguf(Path(each.path)) else "safetensors",
            bytes=0,
            held="referred",
            missing=True,
        )
        for each in roots.read().references
        if not roots.is_there(each)
    ]
    return ours + gone + theirs


def _of_ours(model: KnownModel, bundled: Path) -> StoredModel:
    path = Path(model.path)
    fetched = store.variants_at(path)
    receipt = store.receipt_of(path)
    revision = next((receipt.revisions.get(each.name, "") for _, each in fetched if receipt), "")
    held: Held = "fetched" if revision else "copied" if fetched else "found"
    report = report_of(path)
    if any(each.path == model.path for each in roots.read().references):
        held = "referred"
    return StoredModel(
        name=model.name,
        path=model.path,
        format=_format(path),
        bytes=size_of(path),
        bundled=bundled in path.parents,
        repository=receipt.repository if receipt and revision else "",
        revision=revision,
        draft=model.draft,
        held=held,
        made_of=report.source if report is not None else "",
        report=report,
        **_packing(path),
    )


def with_purposes(found: Iterable[StoredModel], recommended: Iterable[CuratedModel]) -> list[StoredModel]:
    """The models, each with what it is for where that is known: those of the list by their repository."""
    about = {model.repository: model.about for model in recommended}

    def clause(model: StoredModel) -> str:
        return brought.ABOUT.get(model.name, "") if model.bundled else about.get(model.repository, "")

    return [msgspec.structs.replace(model, about=clause(model)) for model in found]


def _format(path: Path) -> ModelFormat:
    return "gguf" if is_gguf(path) or not (path / "config.json").is_file() else "safetensors"


IN_LAYER = re.compile(r"(^|\.)(layers|h|blocks)\.\d+\.")
TOWER = re.compile(r"vision|visual|audio|projector|multi_modal")
_ENCODERS = ("BertModel", "RobertaModel", "XLMRobertaModel")
_POOLING = re.compile(rb"\.pooling_type\x04\x00\x00\x00(.{4})", re.DOTALL)
"""Key of a GGUF file, the type of its value (uint32), and that: 1 mean, 2 cls, 3 the last token."""
_BEGINNING = 16 << 10
"""Bytes of a GGUF file that are looked at: the tokens, which are many, come after the model's shape."""


def _packing(path: Path) -> dict[str, Any]:
    """``quantisation``, ``embedding_bytes``, ``sees``…, by the name and the folder of a file or config.json."""
    if is_gguf(path):
        label = QUANTISATION.search(path.stem)
        return {
            "quantisation": label[1].upper() if label else "",
            "sees": bool(projectors_beside(path)[0]),
            "embeds": _gguf_embeds(path),
        }
    # The loader says what is wrong.
    with contextlib.suppress(
        CheckpointError, AttributeError, TypeError, ValueError, ArithmeticError, KeyError, OSError
    ):
        config = read_json(path / "config.json") or {}
        text = config.get("text_config") or config
        dtype = next((str(each["dtype"]) for each in (config, text) if each.get("dtype")), "")
        dtype = dtype or str(config.get("torch_dtype") or text.get("torch_dtype") or "")
        method = (config.get("quantization_config") or config.get("compression_config") or {}).get("quant_method")
        if (path / "quantize_config.json").is_file():
            method = method or "gptq"
        tables = 2 if config.get("tie_word_embeddings", text.get("tie_word_embeddings")) is False else 1
        width = 4 if dtype == "float32" else 2
        size = tables * width * int(text.get("vocab_size", 0)) * int(text.get("hidden_size", 0))
        packable = 0 if method else _packable_bytes(path)
        return {
            "quantisation": plain(str(method or dtype), most=40),
            "embedding_bytes": size,
            "packable_bytes": packable,
            "sees": bool(config.get("vision_config")),
            "embeds": _embeds(path, config),
        }
    return {}


def _embeds(folder: Path, config: dict[str, Any]) -> bool:
    """True for a folder whose model is made for embeddings, by its pooling or, of one without, its architecture."""
    named = config.get("architectures")
    ends = str(named[0]) if isinstance(named, list) and named else ""
    return ends in _ENCODERS or ((folder / POOLING_FILE).is_file() and not ends.endswith("Classification"))


def _gguf_embeds(file: Path) -> bool:
    """The same of a GGUF file, by its pooling, which stands near its beginning."""
    with contextlib.suppress(CheckpointError, OSError):
        regular_size(file)
        with file.open("rb") as opened:
            found = _POOLING.search(opened.read(_BEGINNING))
        return found is not None and int.from_bytes(found[1], "little") in (1, 2, 3)
    return False


class _Tensor(msgspec.Struct):
    """Entry of one tensor in the header of a safetensors file."""

    shape: list[int]
    data_offsets: tuple[int, int]


def _packable_bytes(folder: Path) -> int:
    """Bytes of the matrices in the layers of the language model, by the headers of its files; what stands beside these,
    such as a vision tower, stays as it is. 0 where a file cannot be read so."""
    found = 0
    try:
        for file in folder.glob("*.safetensors"):
            regular_size(file)
            with file.open("rb") as opened:
                length = int.from_bytes(opened.read(8), "little")
                if length > SAFETENSORS_HEADER:
                    return 0
                header = msgspec.json.decode(opened.read(length), type=dict[str, msgspec.Raw])
            packed = (raw for name, raw in header.items() if IN_LAYER.search(name) and not TOWER.search(name))
            tensors = (msgspec.json.decode(raw, type=_Tensor) for raw in packed)
            found += sum(max(0, end - start) for start, end in (t.data_offsets for t in tensors if len(t.shape) > 1))
    except (CheckpointError, OSError, msgspec.MsgspecError, ValueError, RecursionError):
        # The loader says what is wrong.
        return 0
    return found


def report_of(path: Path) -> MakeReport | None:
    """The report of a model that Kvasir made; None for any other."""
    with contextlib.suppress(CheckpointError):
        folder = path if path.is_dir() else path.parent
        report = decode_file(folder / REPORT, MakeReport)
        if report is not None and (path.is_dir() or Path(report.path).name == path.name):
            return report
    return None


def size_of(path: Path) -> int:
    """Bytes of a model's weights and of what lies with them: a file in all its parts, or the files of a folder."""
    total = 0
    with contextlib.suppress(OSError):
        part = PART.fullmatch(path.name)
        if part is not None:
            count = int(part["count"])
            files = [path.with_name(f"{part['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
        else:
            files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
        total = sum(file.stat().st_size for file in files)
    return total


def size_below(folder: Path) -> int:
    """Bytes of all files in a folder and below it."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def model_folders(models: Iterable[StoredModel]) -> list[ModelFolder]:
    """The store and the roots, with what of ``models`` lies in each."""
    store_folder, there = roots.store_folder(), roots.store_is_there()
    found = []
    for path in (store_folder, *map(Path, roots.read().roots)):
        own = path == store_folder
        inside = [model for model in models if path in Path(model.path).parents or model.path == str(path)]
        here = there if own else os.path.isdir(path)
        disk = room.disk_of(path) if here else None
        found.append(
            ModelFolder(
                path=str(path),
                store=own,
                there=here,
                models=len(inside),
                bytes=sum(model.bytes for model in inside),
                free=disk.free if disk else 0,
                total=disk.total if disk else 0,
            )
        )
    return found


def watched(models: Iterable[StoredModel]) -> list[str]:
    """Paths in which models come and go: the folders that are looked into, references, and files that may still grow.

    No more than :data:`MOST_WATCHED` of folders and of files, those of Kvasir's own first.
    """
    folders: dict[str, None] = {}
    referred = [Path(each.path) for each in roots.read().references]
    places = [
        *((roots.store_folder(), 2), *((Path(each), roots.DEPTH) for each in roots.read().roots)),
        *((each, 0) for path in referred for each in (path.parent, path)),
        *((each, OTHERS_DEPTH) for each in others.places_of_others()),
    ]
    for place, depth in places:
        if os.path.isdir(place):
            folders.update((str(each), None) for each in roots.folders_below(place, depth, MOST_WATCHED))
    files = (model.path for model in models if not model.bundled and os.path.isfile(model.path))
    found = [*list(folders)[:MOST_WATCHED], *itertools.islice(files, MOST_WATCHED)]
    return list(filter(is_text, found))
