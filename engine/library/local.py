"""All models of this machine, whoever brought them here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from engine.checkpoints.gguf.find import PART, is_gguf
from engine.library import others, store
from engine.protocol import KnownModel
from engine.protocol.library import StoredModel


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
    )


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
