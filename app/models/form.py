"""Form in a model's row: the smaller model that is to be made of it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFileDialog, QGridLayout, QHBoxLayout, QLabel, QLineEdit, QPushButton, QWidget

from app.language import tr
from app.models import make_words
from app.models.make_words import FORMATS
from app.theme.sheet import restyle
from app.theme.widgets import FocusFirst, Segments, caption, fill, named, say
from engine.protocol import StoredModel

_TEXT = tr("Calibration text")
_GGUF = [key for key in FORMATS if key.startswith("gguf-")]


class MakeForm(FocusFirst):
    """``asked`` carries the format and the path of the calibration text, "" for the bundled one."""

    asked = Signal(str, str)
    closed = Signal()

    def __init__(self, model: StoredModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("models.make")
        self.model = model
        self.to = next(iter(FORMATS))
        plain = {key: each.title for key, each in FORMATS.items() if key not in _GGUF}
        self.formats = Segments(tr("Format"), [*plain, "gguf"], [*plain.values(), "GGUF"], "models.make.format")
        self.formats.chosen.connect(lambda key: self.choose(_GGUF[0] if key == "gguf" else key))
        titles = [FORMATS[key].title.removeprefix("GGUF ") for key in _GGUF]
        self.types = Segments(tr("Type of GGUF"), _GGUF, titles, "models.make.type")
        self.types.chosen.connect(self.choose)
        self.first = self.formats
        self.about = caption(name="models.make.about")
        self.about.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.about.setMinimumHeight(2 * self.about.fontMetrics().lineSpacing())
        self.room = named(QLabel(wordWrap=True), "models.make.size")
        place = QLabel(tr("Kvasir's models, next to the downloaded ones; the original stays"))
        named(place, "models.make.place", wordWrap=True)
        self.text = QLineEdit()
        self.text.setObjectName("models.make.text")
        self.text.setPlaceholderText(tr("Kvasir's manual"))
        named(self.text, title=tr("Calibration text: path of a file"), clearButtonEnabled=True)
        self.text.textChanged.connect(lambda: self._say(""))
        self._browse = QPushButton(tr("Choose…"))
        named(self._browse, "models.make.choose", title=tr("Choose a file of calibration text"))
        self._browse.clicked.connect(self._on_browse)
        self.wrong = named(caption(name="models.make.wrong"), role="bad")
        self.wrong.hide()
        cancel = named(QPushButton(tr("Cancel")), "models.make.cancel", clicked=self.closed, kind="quiet")
        self.go = QPushButton(tr("Make"))
        named(self.go, "models.make.go", title=tr("Make a smaller model of {name}", name=model.name), kind="primary")
        self.go.clicked.connect(self._on_go)
        self._choice = _label(_TEXT)
        self._choice.setMinimumWidth(self._choice.sizeHint().width())  # so that no row moves when it says less
        grid = fill(QGridLayout(self), margins=(0, 4, 0, 0), spacing=(16, 8), wide=1)
        text = fill(QHBoxLayout(), (self.text, 1), self._browse, self.types, spacing=8)
        text.addStretch()
        last = fill(QHBoxLayout(), (self.wrong, 1), spacing=8)
        last.addStretch()
        fill(last, cancel, self.go)
        fill(grid, (_label(tr("Format")), 0, 0), (self.formats, 0, 1, Qt.AlignmentFlag.AlignLeft), (self.about, 1, 1))
        fill(grid, (self._choice, 2, 0), (text, 2, 1))
        grid.setRowMinimumHeight(2, self.text.sizeHint().height())
        grid.addWidget(_label(tr("On the disk")), 3, 0)
        fill(grid, (self.room, 3, 1), (_label(tr("Goes to")), 4, 0), (place, 4, 1), (last, 5, 0, 1, 2))
        self.choose(self.to)

    def choose(self, to: str) -> None:
        """Show what a format means for this model."""
        self.to = to
        gguf = to in _GGUF
        self.formats.choose("gguf" if gguf else to)
        self.types.choose(to)
        self.types.setVisible(gguf)
        self._choice.setText(tr("Type") if gguf else _TEXT)
        self.about.setText(FORMATS[to].about)
        self.room.setText(make_words.expected(self.model, to))
        for widget in (self.text, self._browse):
            widget.setVisible(not gguf)
            widget.setEnabled(FORMATS[to].calibrated)
        self._say("")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)

    def _on_browse(self) -> None:
        if file := QFileDialog.getOpenFileName(self.window(), _TEXT)[0]:
            self.text.setText(file)

    def _on_go(self) -> None:
        text = self.text.text().strip() if FORMATS[self.to].calibrated else ""
        try:
            path = str(Path(text).expanduser().resolve()) if text else ""
            there = not path or Path(path).is_file()
        except (OSError, RuntimeError, ValueError):
            there = False
        if there:
            self.asked.emit(self.to, path)
        else:
            self._say(tr("There is no file {path}. Choose another, or leave it empty.", path=text))
            self.text.setFocus()

    def _say(self, sentence: str) -> None:
        say(self.wrong, sentence)
        self.text.setProperty("wrong", "true" if sentence else "")
        restyle(self.text)


def _label(text: str) -> QLabel:
    return named(QLabel(text), role="mute")
