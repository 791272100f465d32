"""Drafters available for a model: multi-token layers of its own, heads made for it, smaller models of the same
vocabulary.

Told from headers and tokenizers alone. Vocabularies are compared by a hash of every token with its id, which is kept by
the path, size and time of the file that it is in, because building the tokenizer of a large vocabulary takes a second.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from engine.base import folders
from engine.base.errors import CheckpointError
from engine.base.files import UnreadableFileError, decode_file
from engine.compute.models.base import CausalLM
from engine.decoding.speculation.heads.files import kind_of, open_heads
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.library import paths
from engine.library.local import size_of
from engine.loading.advice.recommend import is_here
from engine.loading.files import ModelFiles
from engine.loading.parts.heads import HeadsPart
from engine.protocol import StoredModel
from engine.protocol.recommended import CuratedModel, DraftOffer

SHARE = 5
"""A draft model is at most a fifth of its model."""


def offers(
    path: Path, stored: Sequence[StoredModel], listed: Iterable[CuratedModel], device: torch.device, dtype: torch.dtype
) -> list[DraftOffer]:
    """Drafters available for the model at ``path``, the cheapest first, those still to be downloaded last: of the
    models of this machine (``stored``) and, for a model of the list, what it says. Raises :class:`CheckpointError` for
    a model that cannot be opened."""
    target = ModelFiles.open(str(path), None)
    model = target.checkpoint.planned(dtype, "4bit", device)
    read = model.bytes_read_per_step()
    own = next((each for each in stored if Path(each.path) == path), None)
    found = [
        *_heads(path, target, model, read, stored, device),
        *_models(path, target, read, own, stored, device, dtype),
    ]
    found.sort(key=lambda offer: offer.cost)
    return found + list(_listed(own, stored, listed))


def _heads(
    path: Path, target: ModelFiles, model: CausalLM, read: int, stored: Iterable[StoredModel], device: torch.device
) -> Iterator[DraftOffer]:
    """Heads where a load finds them, the model's own among them, and folders of the machine that fit."""
    copies = paths.copies_folder()
    _, trained = target.heads_folders
    heads = list(HeadsPart.find(target, None, trained).files.values())
    for each in stored:
        place = Path(each.path)
        if each.format == "safetensors" and place != path and kind_of(place, copies) is not None:
            with contextlib.suppress(CheckpointError):
                heads.append(open_heads(place, target.checkpoint.config, copies))
    for one in {files.path: files for files in heads}.values():
        with contextlib.suppress(CheckpointError):
            one, own = replace(one, device=device), one.of.own
            name, where = ("the model's own layers", "") if own else (one.path.name, str(one.path))
            size = one.of.sizes(one, lambda: model)[0] if own else one.resident_bytes(model.dtype)
            cost = one.of.cost(one, model) / read
            yield DraftOffer(name=name, kind=one.kind, path=where, bytes=size, cost=cost)


def _models(
    path: Path,
    target: ModelFiles,
    read: int,
    own: StoredModel | None,
    stored: Iterable[StoredModel],
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[DraftOffer]:
    """Smaller models with the same tokens, and the one that belongs to this model by its name, whatever its size."""
    most = size_of(path) // SHARE
    candidates = {each.path: each.name for each in stored if 0 < each.bytes <= most}
    candidates |= {
        each.draft: Path(each.draft).name for each in stored if each.draft and size_of(Path(each.draft)) <= most
    }
    if own is not None and own.draft:
        candidates[own.draft] = Path(own.draft).name
    candidates.pop(str(path), None)
    if not candidates:
        return
    known = Vocabularies()
    wanted = known.of(target.checkpoint)
    for place, name in candidates.items():
        with contextlib.suppress(CheckpointError):
            checkpoint = open_checkpoint(place)
            if checkpoint.config.recurrent is None and known.of(checkpoint) == wanted:
                cost = checkpoint.planned(dtype, "4bit", device).bytes_read_per_step() / read
                yield DraftOffer(name=name, kind="model", path=place, bytes=size_of(Path(place)), cost=cost)
    known.keep()


def _listed(
    own: StoredModel | None, stored: Sequence[StoredModel], listed: Iterable[CuratedModel]
) -> Iterator[DraftOffer]:
    """Drafters that the list names for it, unless they are here."""
    for model in listed:
        draft = model.draft
        fits = own is not None and is_here(model.repository, model.variant, [own])
        if fits and draft is not None and draft.repository and not is_here(draft.repository, draft.variant, stored):
            yield DraftOffer(
                name=f"{draft.repository} {draft.variant}".removesuffix(" safetensors"),
                kind=draft.kind,
                repository=draft.repository,
                variant=draft.variant,
                bytes=draft.bytes,
            )


class Vocabularies:
    """Hashes of vocabularies, kept in the cache folder."""

    def __init__(self) -> None:
        self._file = folders.cache_place() / "vocabularies" / "hashes.json"
        self._known: dict[str, str] = {}
        self._new = False
        with contextlib.suppress(UnreadableFileError):
            self._known = decode_file(self._file, dict[str, str]) or {}

    def of(self, checkpoint: Checkpoint) -> str:
        """The hash of every token with its id. Raises :class:`CheckpointError` without a usable tokenizer."""
        path = checkpoint.path
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            status = file.stat()
        except OSError:  # a folder with a GGUF file in it
            status = path.stat()
        key = f"{path} {status.st_size} {status.st_mtime_ns}"
        if key not in self._known:
            tokens = sorted(checkpoint.tokenizer().inner.get_vocab(True).items())
            self._known[key] = hashlib.sha256(msgspec.json.encode(tokens)).hexdigest()
            self._new = True
        return self._known[key]

    def keep(self) -> None:
        """Write down what was learnt; where that fails it is told again next time."""
        if not self._new:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = self._file.with_name(self._file.name + ".new")
            new.write_bytes(msgspec.json.encode(self._known))
            new.replace(self._file)
