"""What stands in a conversation before its first word: three things to do, and for the bundled model some questions."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QFrame, QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.protocol import ModelCard

BUNDLED = "kvasir-guide"
"""The model that comes with Kvasir."""
QUESTIONS = (
    "What is Kvasir good for?",
    "What can I do with the panel beside the chat?",
    "How do I get a better model?",
)
"""Questions for that model: all are in the texts that it learned from (assets/demo/knowledge)."""
LENT = "The Lab has the model for now"
ASK, CHOOSE = "Ask something to begin", "Choose a model to begin"
LOCAL = "What you write stays on this computer."
TINY = "The model that comes with Kvasir is tiny and knows only this manual. For anything else use a model of your own."
OWN = "Open the folder of a model in safetensors, GPTQ, AWQ or NF4, or a GGUF file."
WHY = "Every optimisation is a switch. Flip one and watch what it does; measure what it buys on this computer."
_WIDTH = 760
_STACKED = 620
"""Below this width, pixels, the cards stand one above the other."""
_GAP = 24


class WelcomeCard(QFrame):
    """A title, a sentence and one button."""

    def __init__(self, title: str, action: str, name: str) -> None:
        super().__init__()
        self.setProperty("card", "choice")
        self.setObjectName(name)
        self.title = QLabel(title)
        self.title.setProperty("role", "figure")
        self.about = QLabel()
        self.about.setProperty("role", "caption")
        self.about.setWordWrap(True)
        self.about.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.button = QPushButton(action)
        self.button.setAccessibleName(f"{title}: {action}")
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(16, 12, 16, 12)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(6)
        self._grid.setColumnStretch(0, 1)
        self.stack(False)
        self.show_sentence(True)

    def stack(self, stacked: bool) -> None:
        """Stacked, the button stands next to the words, else below them."""
        for part in (self.title, self.about, self.button):
            self._grid.removeWidget(part)
        self._grid.addWidget(self.title, 0, 0)
        self._grid.addWidget(self.about, 1, 0)
        if stacked:
            self._grid.addWidget(self.button, 0, 1, 2, 1, Qt.AlignmentFlag.AlignVCenter)
        else:
            self._grid.addWidget(self.button, 2, 0)

    def show_sentence(self, shown: bool) -> None:
        self.about.setVisible(shown)
        self._grid.setRowStretch(1, int(shown))


class WelcomeView(QWidget):
    """Lies in the middle of ``place``, as much of it as there is room for. ``chosen`` carries a question."""

    chosen = Signal(str)
    write_asked = Signal()
    open_asked = Signal()
    why_asked = Signal()

    def __init__(self, place: QWidget) -> None:
        super().__init__(place)
        self._empty = self._guide = False
        self.setObjectName("welcome")
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.caption = QLabel(LOCAL)
        self.caption.setProperty("role", "caption")
        self.chat = WelcomeCard("Chat", "Write a message", "welcome.chat")
        self.own = WelcomeCard("Use a model of your own", "Open a model…", "welcome.own")
        self.why = WelcomeCard("See why it is fast", "Show switches and plots", "welcome.why")
        self.own.about.setText(OWN)
        self.why.about.setText(WHY)
        for card, signal in (
            (self.chat, self.write_asked),
            (self.own, self.open_asked),
            (self.why, self.why_asked),
        ):
            card.button.clicked.connect(signal)
        self._column = column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.title)
        self._cards = QWidget()
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self._cards)
        self._row.setContentsMargins(0, 8, 0, 8)
        self._row.setSpacing(12)
        self._all = (self.chat, self.own, self.why)
        for card in self._all:
            self._row.addWidget(card, 1)
        column.addWidget(self._cards)
        self._questions = self._make_questions()
        column.addWidget(self._questions)
        column.addWidget(self.caption)
        for label in (self.title, self.caption):
            label.setWordWrap(True)
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        place.installEventFilter(self)
        self.hide()

    def show_for(self, card: ModelCard | None, empty: bool, without: bool = False, lent: bool = False) -> None:
        """``empty``: nothing was said yet; ``without``: no model will come by itself; ``lent``: the
        Lab has it for now.

        Only the bundled model's questions are known.
        """
        self._empty = empty
        self.title.setText(CHOOSE if without else ASK)
        self._guide = card is not None and card.name == BUNDLED
        self.chat.about.setText(
            TINY
            if self._guide
            else f"{LENT}. It comes back when the run ends."
            if lent and card is None
            else _about(card, without)
        )
        self.chat.button.setEnabled(not without)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Resize:
            self._fit()
        return super().eventFilter(watched, event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() is QEvent.Type.StyleChange:  # another size of the text
            self._fit()

    def _make_questions(self) -> QWidget:
        box = QWidget()
        rows = QVBoxLayout(box)
        rows.setContentsMargins(0, 0, 0, 8)
        rows.setSpacing(4)
        for question in QUESTIONS:
            button = QPushButton(question)
            button.setProperty("kind", "quiet")
            button.setAccessibleName(f"Ask: {question}")
            button.clicked.connect(lambda _=False, words=question: self.chosen.emit(words))
            rows.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        return box

    def _fit(self) -> None:
        wanted = ((True, True, True), (True, True, False), (True, False, False), (False, False, False))
        rows = [row for row in wanted if self._guide or not row[2]]
        self.setVisible(self._empty and any(self._fits(*row) for row in rows))

    def _fits(self, cards: bool, sentences: bool, questions: bool) -> bool:
        """Whether there is room for these parts."""
        self._cards.setVisible(cards)
        for card in self._all:
            card.show_sentence(sentences)
        self._questions.setVisible(questions)
        parent = self.parentWidget()
        assert parent is not None, "it stands in the transcript"
        room = parent.size()
        width = min(_WIDTH, room.width() - 2 * _GAP)
        self._stack(width < _STACKED)
        self._settle()
        if self._column.totalMinimumSize().width() > width:  # larger text
            self._stack(True)
        self._settle()
        height = self._column.totalHeightForWidth(width)
        self.setGeometry((room.width() - width) // 2, (room.height() - height) // 2, width, height)
        return height + 2 * _GAP <= room.height() and self._column.totalMinimumSize().width() <= width

    def _settle(self) -> None:
        """Layouts of layouts would else answer as before the last change, until the next event."""
        for widget in (*self._all, self._cards):
            layout = widget.layout()
            assert layout is not None
            layout.invalidate()
            widget.updateGeometry()

    def _stack(self, stacked: bool) -> None:
        direction = QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight
        if self._row.direction() != direction:
            self._row.setDirection(direction)
            for card in self._all:
                card.stack(stacked)


def _about(card: ModelCard | None, without: bool) -> str:
    if card is not None:
        return f"{card.name} is loaded and answers on this computer."
    return "No model is loaded." if without else "A model is being loaded."
