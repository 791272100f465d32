"""Page of a conversation before its first word: three things to do, and for the bundled model some questions."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal, SignalInstance
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.get_card import GetCard, Line
from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, keep_place, named
from engine.protocol import ModelCard

BUNDLED = "kvasir-guide"
"""The model that comes with Kvasir."""
QUESTIONS = (
    "What is Kvasir good for?",  # not shown in another language
    "What can I do with the panel beside the chat?",  # not shown in another language
    "How do I get a better model?",  # not shown in another language
)
"""Questions for that model: all are in the texts that it learned from (assets/demo/knowledge), which are English."""
ASK, CHOOSE = tr("Ask something to begin"), tr("Choose a model to begin")
LOCAL = tr("What you write stays on this computer.")
TINY = tr("The model that comes with Kvasir is tiny and knows only its manual. For anything else get another model.")
GUIDE = tr("Or ask the model that comes with Kvasir. It is tiny and knows only its manual:")
FIND = tr("Get a model…")
OPEN = tr("Open a file…")
SWITCHES = tr("Show switches and plots")
WHY = tr("Every optimisation is a switch. Flip one and watch what it does; measure what it buys on this computer.")
_WIDTH = 800
_STACKED = 620
"""Below this width, pixels, the cards stand one above the other."""
_GAP = 24


class WelcomeCard(QFrame):
    """A title, a sentence and one button."""

    def __init__(self, title: str, action: str, name: str) -> None:
        super().__init__()
        named(self, name, card="choice")
        self.title = named(QLabel(title), role="figure")
        self.about = named(
            QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft), role="caption"
        )
        self.button = named(QPushButton(button_text(action)), title=f"{title}: {action}")
        self._grid = fill(QGridLayout(self), margins=(16, 12, 16, 12), spacing=(16, 8), wide=0)
        self.stack(False)
        self.show_sentence(True)

    def stack(self, stacked: bool) -> None:
        """Stacked, the button stands next to the words, else below them."""
        for part in (self.title, self.about, self.button):
            self._grid.removeWidget(part)
        fill(self._grid, (self.title, 0, 0), (self.about, 1, 0))
        if stacked:
            self._grid.addWidget(self.button, 0, 1, 2, 1, Qt.AlignmentFlag.AlignVCenter)
        else:
            self._grid.addWidget(self.button, 2, 0)

    def show_sentence(self, shown: bool) -> None:
        self.about.setVisible(shown)
        self._grid.setRowStretch(1, int(shown))


class WelcomeView(QWidget):
    """Lies in the middle of ``place``, as much of it as there is room for. ``chosen`` carries a question.

    Where no model is here but those that come with Kvasir, a card offers some that suit this computer.
    """

    chosen = Signal(str)
    write_asked = Signal()
    open_asked = Signal()
    """The person wants to open a file."""
    models_asked = Signal()
    """The person wants to see which models there are."""
    why_asked = Signal()

    def __init__(self, place: QWidget, theme: Theme) -> None:
        super().__init__(place)
        self._theme = theme
        self._empty = self._guide = self._first = self._waits = False
        self._why = True
        """True if the switches and the plots are offered."""
        self.setObjectName("welcome")
        self.title = named(QLabel(), role="title")
        self.caption = named(QLabel(LOCAL), role="caption")
        self.chat = WelcomeCard(tr("Chat"), tr("Write a message"), "welcome.chat")
        self.more = WelcomeCard(tr("Get a model"), tr("Choose a model…"), "welcome.more")
        self.why = WelcomeCard(tr("See why it is fast"), SWITCHES, "welcome.why")
        self.why.about.setText(WHY)
        self.get = GetCard(theme)
        self.get.all_asked.connect(self.models_asked)
        self.seek = _link(FIND, "welcome.find", self.models_asked)
        self.open = _link(OPEN, "welcome.open", self.open_asked)
        self.switches = _link(SWITCHES, "welcome.switches", self.why_asked)
        for card, signal in ((self.chat, self.write_asked), (self.more, self.models_asked), (self.why, self.why_asked)):
            card.button.clicked.connect(signal)
        self.show_suiting(0)
        self._column = column = QVBoxLayout(self)
        fill(column, self.title, margins=0, spacing=8)
        self._cards = QWidget()
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self._cards)
        fill(self._row, margins=(0, 8, 0, 8), spacing=12)
        self._all = (self.chat, self.more, self.why)
        for card in self._all:
            self._row.addWidget(card, 1)
        fill(column, self._cards, self.get)
        self._questions = self._make_questions()
        column.addWidget(self._questions)
        links = fill(QHBoxLayout(), 1, self.seek, self.open, self.switches, 1, spacing=16)
        fill(column, links, self.caption)
        for label in (self.title, self.caption):
            named(label, wordWrap=True, alignment=Qt.AlignmentFlag.AlignCenter)
        place.installEventFilter(self)
        theme.changed.connect(self._fit)  # once all parts have their new style
        self.hide()

    def show_for(self, card: ModelCard | None, empty: bool, without: bool = False) -> None:
        """``empty``: nothing was said yet; ``without``: no model will come by itself.

        Only the bundled model's questions are known.
        """
        self._empty = empty
        self.title.setText(CHOOSE if without else ASK)
        self._guide = card is not None and card.name == BUNDLED
        self._waits = card is None and not without
        self.chat.about.setText(TINY if self._guide else _about(card, without))
        self.chat.button.setEnabled(not without)
        self._fit()

    def show_first(self, first: bool) -> None:
        """Offer models in place of the cards, or the cards again."""
        if first != self._first:
            self._first = first
            self._fit()

    def show_models(self, lines: Sequence[Line], judged: bool) -> None:
        """The models that are offered then."""
        if self.get.show_lines(lines, judged):
            self._fit()

    def show_why(self, shown: bool) -> None:
        """Offer to show the switches and the plots, or not."""
        self._why = shown
        self.why.setVisible(shown)
        self._fit()

    def show_suiting(self, count: int) -> None:
        """Show the number of models of the list that suit this computer; 0 if it is not known."""
        if count > 1:
            words = tr(
                "{count} models that suit this computer, each with its strengths, or any on Hugging Face.", count=count
            )
        else:
            words = tr("Models that suit this computer, each with its strengths, or any on Hugging Face.")
        self.more.about.setText(words)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Resize:
            self._fit()
        return super().eventFilter(watched, event)

    def _make_questions(self) -> QWidget:
        box = QWidget()
        rows = fill(QVBoxLayout(box), margins=(0, 8, 0, 8), spacing=4)
        self._lead = named(QLabel(GUIDE), role="caption")
        rows.addWidget(self._lead, 0, Qt.AlignmentFlag.AlignHCenter)
        for question in QUESTIONS:
            button = QPushButton(button_text(question))
            named(button, title=tr("Ask: {question}", question=question), kind="quiet")
            button.clicked.connect(lambda _=False, words=question: self.chosen.emit(words))
            rows.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        return box

    def _fit(self) -> None:
        wanted = (
            (True, True, True, True),
            (True, True, False, True),
            (True, False, False, True),
            (False, False, False, True),
            (False, False, False, False),
        )
        awaited = self._first and self._waits  # no other model is here than the one that the questions are for
        rows = [row for row in wanted if self._guide or awaited or not row[2]]
        self.setVisible(self._empty and any(self._fits(*row) for row in rows))

    def _fits(self, cards: bool, sentences: bool, questions: bool, links: bool) -> bool:
        """Show these parts and return True if they fit. Without cards a link stands for the one that leads to
        models; questions whose model is still to come have only their room, so that nothing moves when it is there."""
        self._cards.setVisible(cards and not self._first)
        self.get.setVisible(cards and self._first)
        for card in self._all:
            card.show_sentence(sentences)
        self.get.show_sentences(sentences)
        keep_place(self._questions, questions)
        self._questions.setVisible(questions and self._guide)
        for part in (self._questions, *self._questions.findChildren(QWidget)):
            part.ensurePolished()  # else it is measured without its style until it is shown
        self._lead.setVisible(self._first)  # else the first card says it
        self.seek.setVisible(links and not cards)
        self.open.setVisible(links)
        self.switches.setVisible(cards and self._first and self._why)
        parent = self.parentWidget()
        assert parent is not None, "it stands in the transcript"
        room = parent.size()
        width = min(max(_WIDTH, self._theme.px(_WIDTH)), room.width() - 2 * _GAP)
        self._stack(width < _STACKED)
        self._settle()
        if self._column.totalMinimumSize().width() > width:  # larger text
            self._stack(True)
        self._settle()
        height = self._column.totalHeightForWidth(width)
        top = (
            room.height() - height - parent.y()
        ) // 2  # in the middle also of what stands above, which comes and goes
        self.setGeometry((room.width() - width) // 2, max(0, top), width, height)
        return height + 2 * _GAP <= room.height() and self._column.totalMinimumSize().width() <= width

    def _settle(self) -> None:
        """Layouts of layouts would else answer as before the last change, until the next event."""
        for layout in self.findChildren(QLayout):
            layout.invalidate()
        for widget in (*self._all, self._cards, *self.get.lines, self.get, self._questions):
            widget.updateGeometry()

    def _stack(self, stacked: bool) -> None:
        direction = QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight
        if self._row.direction() != direction:
            self._row.setDirection(direction)
            for card in self._all:
                card.stack(stacked)


def _link(text: str, name: str, pressed: SignalInstance) -> QPushButton:
    return named(QPushButton(button_text(text)), name, title=text, clicked=lambda _=False: pressed.emit(), kind="quiet")


def _about(card: ModelCard | None, without: bool) -> str:
    if card is not None:
        return tr("{name} is loaded and answers on this computer.", name=card.name)
    return tr("No model is loaded.") if without else tr("A model is being loaded.")
