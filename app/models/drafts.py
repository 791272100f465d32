"""Drafts for a model of this machine, below its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gpu.card import Buttons
from app.gpu.words import Button
from app.language import tr
from app.models import advice
from app.models.state import getting
from app.theme.sheet import set_role
from app.theme.widgets import ElidedLabel, as_written, caption, fill, named, say
from engine.protocol import Download, DraftOffer

NOTHING = tr(
    "No draft model or heads for it are on this machine. N-grams and some of its own layers draft for it without any."
)


class DraftList(QWidget):
    """``load_asked`` carries the path of what drafts, "" for what the model has of its own; ``get_asked`` a repository,
    a variant and that it drafts."""

    load_asked = Signal(str)
    get_asked = Signal(str, str, bool)

    def __init__(self, offers: Sequence[DraftOffer] | str | None) -> None:
        """``offers`` None: they are being looked for; a sentence says why there are none."""
        super().__init__()
        self.offers = offers
        self._fetched: list[tuple[DraftOffer, Buttons, QLabel]] = []
        """Drafts to download, with their buttons and what tells why they are not coming."""
        self._column = fill(QVBoxLayout(self), margins=0, spacing=8)
        if offers is None or isinstance(offers, str):
            said = caption(offers or tr("Checking what can draft for it…"))
            set_role(said, "bad" if offers else "caption")
            self._column.addWidget(said)
            return
        if not offers:
            self._column.addWidget(caption(NOTHING))
        for offer in offers:
            self._add(offer)

    def show_downloads(self, downloads: Iterable[Download], refused: getting.Refused | None = None) -> None:
        """Show which of the offers are being downloaded, and which could not be."""
        downloads = list(downloads)
        for offer, buttons, trouble in self._fetched:
            at = getting.place(offer.repository, offer.variant, (), downloads)
            why = (refused or {}).get((offer.repository, offer.variant))
            buttons.show_buttons((getting.button(at, "", tr("Download"), why),))
            say(trouble, getting.trouble(at, why))

    def _add(self, offer: DraftOffer) -> None:
        line = fill(QHBoxLayout(), spacing=12)
        name = named(ElidedLabel(offer.name, ""), tooltip=as_written(offer.path or offer.repository or offer.name))
        trouble = named(caption(), f"models.draft.{offer.name}.trouble", role="bad")
        trouble.hide()
        lines = fill(QVBoxLayout(), name, caption(advice.offer(offer)), trouble, spacing=0)
        buttons = Buttons(f"models.draft.{offer.name}")
        if offer.repository:
            self._fetched.append((offer, buttons, trouble))
            buttons.pressed.connect(lambda _: self.get_asked.emit(offer.repository, offer.variant, True))
        else:
            buttons.show_buttons((Button("load", tr("Load with it")),))
            buttons.pressed.connect(lambda _: self.load_asked.emit(offer.path))
        fill(line, (lines, 1), (buttons, 0, Qt.AlignmentFlag.AlignVCenter))
        self._column.addLayout(line)
