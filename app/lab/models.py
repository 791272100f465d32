"""Model the experiments run with: the bundled one, or the person's own that is loaded."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.lab import words
from app.lab.layout import label
from app.lab.runs import Subject
from app.language import tr
from app.theme.widgets import Segments, fill
from engine.protocol.lab import LabPage

_BUNDLED, _OWN = "bundled", "own"


class ModelChoice(QWidget):
    """Hidden while there is nothing to choose. ``changed``: another one is taken, or can be."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._own: Subject | None = None
        self._bundled = ""
        self.own_taken = False
        """True if the person took the own one."""
        self._buttons = Segments(tr("Model of the experiments"), (), (), "lab.model")
        self._buttons.chosen.connect(self._on_chosen)
        self._memory = label("", "caption", "lab.memory")
        self._memory.hide()
        fill(QVBoxLayout(self), self._buttons, self._memory, margins=0, spacing=10)
        self.hide()

    def set_own(self, own: Subject | None) -> None:
        """The person's own model that is loaded, None for none."""
        before, self._own = self._own, own
        self.own_taken &= own is not None
        if own is not None and (before is None or own.name != before.name):  # else the keyboard would lose its place
            self._offer()
        self._show()
        self.changed.emit()

    def set_bundled(self, name: str) -> None:
        """Set the name of the bundled model, "" while that is not known."""
        if name != self._bundled:
            self._bundled = name
            self._offer()
            self._show()

    @property
    def taken(self) -> Subject:
        return self._own if self.own_taken and self._own is not None else Subject()

    def subject(self, page: LabPage) -> Subject | None:
        """Model an experiment runs with; None if the chosen one cannot show it and the experiment brings none."""
        if self.own_taken or not page.refused:
            return self.taken
        return Subject(name=page.brings, path=page.brings) if page.brings else None

    def _offer(self) -> None:
        if self._own is not None and self._bundled:
            self._buttons.offer((_BUNDLED, _OWN), (self._bundled, self._own.name))

    def _show(self) -> None:
        self._buttons.choose(_OWN if self.own_taken else _BUNDLED)
        self._memory.setText(words.memory(self.taken.name) if self.own_taken else "")
        self._memory.setVisible(self.own_taken)
        self.setVisible(self._own is not None and bool(self._bundled))

    def _on_chosen(self, key: str) -> None:
        self.own_taken = key == _OWN
        self._show()
        self.changed.emit()
