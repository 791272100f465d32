"""The models that Kvasir recommends: assets/models.json. `python assets/check_models.py` compares it with the hub."""

from __future__ import annotations

from pathlib import Path

from engine.base.files import UnreadableFileError, decode_file
from engine.protocol.recommended import CuratedList, CuratedModel


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
