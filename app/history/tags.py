"""The dialog with the tags of a chat."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFrame,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.language import tr
from app.theme.widgets import button_text, caption, fill, named

MOST = 20
"""Tags that a chat can have, each of so many letters at most."""
LETTERS = 40
_ACROSS, _OFFERED = 3, 12


def tags_of(text: str) -> list[str]:
    """The tags of what was typed, each once, without signs that a search would take for its own."""
    tags = (" ".join(part.replace('"', " ").split())[:LETTERS] for part in text.split(","))
    return list({tag.casefold(): tag for tag in tags if tag}.values())[:MOST]


class TagsDialog(QDialog):
    """``chosen`` carries the tags when they are accepted. ``known`` are those of other chats, the commonest first."""

    chosen = Signal(list)

    def __init__(self, tags: Sequence[str], known: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "tags", windowTitle=tr("Tags"))
        self.edit = named(QLineEdit(", ".join(tags)), "tags.edit", title=tr("Tags, separated by commas"))
        self.edit.setPlaceholderText(tr("work, to read"))
        column = fill(QVBoxLayout(self), QLabel(tr("Tags, separated by commas")), self.edit, margins=16, spacing=8)
        self.buttons: list[QPushButton] = []
        self._offered: list[str] = []
        """The tag of each of them."""
        if known:
            column.addWidget(caption(tr("Tags of other chats")))
            column.addWidget(self._offer(known[:_OFFERED]))
        keys = QDialogButtonBox.StandardButton
        box = QDialogButtonBox(keys.Ok | keys.Cancel)
        box.accepted.connect(self.accept)
        box.rejected.connect(self.reject)
        fill(column, 1, box)
        self.edit.textChanged.connect(self._mark)
        self.accepted.connect(lambda: self.chosen.emit(tags_of(self.edit.text())))
        self._mark()
        self.setMinimumWidth(360)

    def _offer(self, known: Sequence[str]) -> QFrame:
        frame = named(QFrame(), segmented="true")
        grid = fill(QGridLayout(frame), margins=2, spacing=(2, 2))
        for number, tag in enumerate(known):
            button = named(
                QPushButton(button_text(tag)), f"tags.{tag}", title=tr("Tag: {tag}", tag=tag), kind="segment"
            )
            button.setCheckable(True)
            button.clicked.connect(lambda on, tag=tag: self._toggle(tag, on))
            self.buttons.append(button)
            self._offered.append(tag)
            grid.addWidget(button, number // _ACROSS, number % _ACROSS)
        return frame

    def _toggle(self, tag: str, on: bool) -> None:
        others = [one for one in tags_of(self.edit.text()) if one.casefold() != tag.casefold()]
        self.edit.setText(", ".join([*others, tag] if on else others))

    def _mark(self) -> None:
        chosen = {tag.casefold() for tag in tags_of(self.edit.text())}
        for button, tag in zip(self.buttons, self._offered, strict=True):
            button.setChecked(tag.casefold() in chosen)
