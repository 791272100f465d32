"""All models of this machine, whoever brought them here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from engine.checkpoints.gguf.find import PART, is_gguf
from engine.errors import CheckpointError
from engine.files import MAX_JSON, read_json, read_small
from engine.library import others, store
from engine.library.variants import QUANTISATION
from engine.protocol import KnownModel, MakeReport
from engine.protocol.library import StoredModel

REPORT = "kvasir-report.json"
"""What lies with a model that Kvasir made: an `engine.protocol.MakeReport`."""


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
    return ours + theirs


def _of_ours(model: KnownModel, bundled: Path) -> StoredModel:
    path = Path(model.path)
    receipt = store.receipt_of(path)
    return StoredModel(
        name=model.name,
        path=model.path,
        format="gguf" if is_gguf(path) or not (path / "config.json").is_file() else "safetensors",
        bytes=size_of(path),
        bundled=bundled in path.parents,
        repository=receipt.repository if receipt else "",
        draft=model.draft,
        made_of=_made_of(path),
        **_packing(path),
    )


def _packing(path: Path) -> dict[str, Any]:
    """``quantisation`` and ``embedding_bytes``, as the file's name or config.json has them."""
    if is_gguf(path):
        label = QUANTISATION.search(path.stem)
        return {"quantisation": label[1].upper() if label else ""}
    with contextlib.suppress(CheckpointError, AttributeError, TypeError, ValueError):  # the loader says what is wrong
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
        return {"quantisation": str(method or dtype), "embedding_bytes": size}
    return {}


def _made_of(path: Path) -> str:
    """The name of the model that Kvasir made this of; "" where no report says so."""
    with contextlib.suppress(CheckpointError, msgspec.MsgspecError):
        folder = path if path.is_dir() else path.parent
        report = msgspec.json.decode(read_small(folder / REPORT, MAX_JSON) or b"", type=MakeReport)
        if path.is_dir() or Path(report.path).name == path.name:
            return report.source
    return ""


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
