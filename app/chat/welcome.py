"""What stands in a conversation before its first word: what can be asked, a click away."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from engine.protocol import ModelCard

BUNDLED = "kvasir-guide"
"""The model that comes with Kvasir."""
QUESTIONS = (
    "What is Kvasir good for?",
    "What can I do with the panel beside the chat?",
    "How do I get a better model?",
)
"""For that model: all are in the texts that it learned from (assets/demo/knowledge)."""
ASK, CHOOSE = "Ask something to begin", "Choose a model to begin"
LOCAL = "What you write stays on this computer."
_WIDTH = 440
_GAP = 24


class Welcome(QWidget):
    """Lies in the middle of ``place``, as much of it as there is room for. ``chosen`` carries a question."""

    chosen = Signal(str)

    def __init__(self, place: QWidget) -> None:
        super().__init__(place)
        self._empty = self._guide = False
        self.setObjectName("welcome")
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.caption = QLabel()
        self.caption.setProperty("role", "caption")
        self._questions = QWidget()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        for label in (self.title, self.caption):
            label.setWordWrap(True)
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            column.addWidget(label)
        rows = QVBoxLayout(self._questions)
        rows.setContentsMargins(0, 8, 0, 0)
        rows.setSpacing(8)
        for question in QUESTIONS:
            button = QPushButton(question)
            button.setAccessibleName(f"Ask: {question}")
            button.clicked.connect(lambda _=False, words=question: self.chosen.emit(words))
            rows.addWidget(button)
        column.addWidget(self._questions)
        place.installEventFilter(self)
        self.hide()

    def show_for(self, card: ModelCard | None, empty: bool, without: bool = False) -> None:
        """``empty``: nothing was said yet; ``without``: no model will come by itself.

        Only the bundled model's questions are known.
        """
        self._empty = empty
        self.title.setText(CHOOSE if without else ASK)
        self._guide = card is not None and card.name == BUNDLED
        about = "The model that comes with Kvasir answers questions about Kvasir. For others choose a model above."
        self.caption.setText(f"{about} {LOCAL}" if self._guide else LOCAL)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Resize:
            self._fit()
        return super().eventFilter(watched, event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() is QEvent.Type.StyleChange:  # another size of the text
            self._fit()

    def _fit(self) -> None:
        self.setVisible(self._empty and ((self._guide and self._fits(True)) or self._fits(False)))

    def _fits(self, questions: bool) -> bool:
        """Whether there is room; without the questions it may do."""
        self._questions.setVisible(questions)
        room = self.parentWidget().size()
        width = min(_WIDTH, room.width() - 2 * _GAP)
        height = self.layout().totalHeightForWidth(width)
        self.setGeometry((room.width() - width) // 2, (room.height() - height) // 2, width, height)
        return height + 2 * _GAP <= room.height() and self.layout().totalMinimumSize().width() <= width
