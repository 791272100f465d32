"""While words are tinted: what each colour means, in one line below the header."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.chat.tint import SHARE, TOKENS
from app.history.records import Tint
from app.theme.theme import Theme

MEANINGS: tuple[tuple[Tint, str], ...] = (
    ("accepted", "guessed and kept"),
    ("corrected", "corrected"),
    ("", "the model's own"),
)
HINT = "Rest the mouse on a tinted word to see who guessed it. The colours change the view only."


class TintLegend(QLabel):
    """Each meaning is written on its own colour, as the words of the answers are."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setObjectName("tint-legend")
        self.setProperty("role", "caption")
        self.setAccessibleName("What the colours mean: " + ", ".join(words for _, words in MEANINGS))
        self.setToolTip(HINT)
        self.setTextFormat(Qt.TextFormat.RichText)
        self.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.setContentsMargins(24, 6, 24, 4)
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setVisible(False)
        theme.changed.connect(self._fill)
        self._fill()

    def _fill(self) -> None:
        self.setText("&nbsp; &nbsp;".join(self._sample(tint, words) for tint, words in MEANINGS))

    def _sample(self, tint: Tint, words: str) -> str:
        theme, whole = self._theme, f"&nbsp;{words}&nbsp;".replace(" ", "&nbsp;")
        if not tint:
            return whole
        colour = theme.tint(TOKENS[tint], SHARE)
        return f'<span style="background-color: {colour}; color: {theme.tokens.text}">{whole}</span>'
