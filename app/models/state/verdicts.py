"""Verdicts of the engine on the recommended models, and on those of this machine."""

from __future__ import annotations

import logging

from PySide6.QtCore import QObject, Signal

from app import paths
from app.files import decode_file
from app.link.calls import Caller
from engine.protocol import CuratedList, Recommendation, Recommended, SizeFit, operations

log = logging.getLogger(__name__)

MOST_LISTED = 4 << 20
"""Bytes of the list of recommended models."""


class Verdicts(QObject):
    changed = Signal()

    def __init__(self, engine: Caller, parent: QObject) -> None:
        super().__init__(parent)
        self._engine = engine
        self.recommended: list[Recommendation] = _unjudged()
        """The recommended models; best first once they are judged."""
        self.stored: dict[str, SizeFit] = {}
        """By path, whether the models of this machine run here, where that was told."""
        self._judging = False
        self.judged = False
        """True if the engine has judged them for this machine."""

    def ask(self) -> None:
        """Have the engine judge which models suit this machine."""

        def done(judged: Recommended | None) -> None:
            self._judging = False
            if judged is not None:
                self.show(judged)

        if not self._judging:
            self._judging = True
            self._engine.call(operations.RECOMMEND, operations.Recommend(), done, lambda _: done(None))

    def show(self, judged: Recommended) -> None:
        """Take in what the engine judged."""
        self.recommended, self.stored, self.judged = judged.models, judged.stored, True
        self.changed.emit()


def _unjudged() -> list[Recommendation]:
    """The list of recommended models as it is installed; none where it is missing or broken."""
    file = paths.assets_dir() / "models.json"
    listed = decode_file(file, CuratedList, MOST_LISTED)
    if listed is None:
        log.error("the list of recommended models cannot be read: %s", file)
        return []
    return [Recommendation(model=model, verdict="") for model in listed.models]
