"""The models that Kvasir recommends: assets/models.json. `python assets/check_models.py` compares it with the hub."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.files import UnreadableFileError, decode_file
from engine.protocol.recommended import CuratedModel


class CuratedList(msgspec.Struct, forbid_unknown_fields=True):
    """The file. ``sources``: what the names in ``CuratedModel.source`` stand for."""

    sources: dict[str, str]
    models: list[CuratedModel]

    def __post_init__(self) -> None:
        seen: set[tuple[str, str]] = set()
        for model in self.models:
            if (what := (model.repository, model.variant)) in seen:
                raise ValueError(f"{' '.join(what)} stands there twice")
            seen.add(what)
            if model.source not in self.sources:
                raise ValueError(f"{model.repository} is taken from {model.source!r}, which is no source of the list")
            draft = model.draft
            if draft is not None and (draft.kind == "mtp") == bool(draft.repository and draft.variant):
                raise ValueError(f"the draft of {model.repository} needs a repository and a variant, unless it is mtp")


def read(file: Path) -> CuratedList:
    """The list of a file. Raises :class:`UnreadableFileError`; who shows it wants :func:`models`."""
    held = decode_file(file, CuratedList)
    if held is None:
        raise UnreadableFileError(f"{file} is not there.", "Install Kvasir again.")
    return held


def models(file: Path) -> list[CuratedModel]:
    """The recommended models; none where the file is missing or broken, which keeps nothing else from working."""
    try:
        return read(file).models
    except UnreadableFileError:
        return []
