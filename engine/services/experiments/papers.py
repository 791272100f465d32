"""The papers' figures that experiments are shown beside: assets/papers/NAME.json, one file an experiment.

Every number was read where ``checked`` says, and none is shown that could not be read.
"""

from __future__ import annotations

from engine.base.files import decode_file
from engine.library.paths import papers_folder
from engine.protocol.lab import PaperFigure


def figures(name: str) -> list[PaperFigure]:
    """Read one experiment's paper figures; none without the file. Raises :class:`UnreadableFileError` for a bad one."""
    return decode_file(papers_folder() / f"{name}.json", list[PaperFigure]) or []
