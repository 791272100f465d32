"""What can draft for a model of this machine, below its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gpu.card import Buttons
from app.gpu.words import Button
from app.models import advice
from app.theme.sheet import set_role
from app.theme.widgets import ElidedLabel, caption
from engine.protocol import Download, DraftOffer

NOTHING = (
    "No draft model or heads for it are on this machine. N-grams and some of its own layers draft for it without any."
)


class DraftList(QWidget):
    """``load_asked`` carries the path of what drafts, "" for what the model has of its own; ``get_asked`` a repository
    and a variant."""

    load_asked = Signal(str)
    get_asked = Signal(str, str)

    def __init__(self, offers: Sequence[DraftOffer] | str | None, downloads: Iterable[Download]) -> None:
        """``offers`` None: they are being looked for; a sentence says why there are none."""
        super().__init__()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(4)
        if offers is None or isinstance(offers, str):
            said = caption(offers or "Looking what can draft for it…")
            set_role(said, "bad" if offers else "caption")
            self._column.addWidget(said)
            return
        if not offers:
            self._column.addWidget(caption(NOTHING))
        downloads = list(downloads)
        for offer in offers:
            self._add(offer, advice.coming(offer.repository, offer.variant, downloads))

    def _add(self, offer: DraftOffer, coming: bool) -> None:
        line = QHBoxLayout()
        line.setSpacing(12)
        name = ElidedLabel(offer.name, "")
        name.setToolTip(offer.path or offer.repository or offer.name)
        about = QLabel(advice.offer(offer))
        about.setProperty("role", "caption")
        buttons = Buttons(f"models.draft.{offer.name}")
        if offer.repository:
            buttons.show_buttons((Button("get", "Download", why_not="It is on its way." if coming else ""),))
            buttons.pressed.connect(lambda _: self.get_asked.emit(offer.repository, offer.variant))
        else:
            buttons.show_buttons((Button("load", "Load with it"),))
            buttons.pressed.connect(lambda _: self.load_asked.emit(offer.path))
        line.addWidget(name, 1)
        line.addWidget(about)
        line.addWidget(buttons)
        self._column.addLayout(line)
