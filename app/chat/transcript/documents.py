"""Documents of a message in the transcript: a line each, which unfolds the text that the model reads."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QWidget

from app.chat.session.settling import SPREAD, read_whole
from app.chat.transcript.folded import GAP_PX, INDENT_PX, Folded
from app.documents.records import Document, DocumentPassage, MessageDocument, kind_of, size_of
from app.language import plural, tr
from app.theme.direction import mirror
from app.theme.theme import Theme
from app.theme.widgets import caption, say

MOST_SHOWN = 40_000
"""Characters of a document that are unfolded: more would have to be laid out while somebody waits."""
_PREVIEW = 90
"""Characters of a passage that its line shows."""


class DocumentBlock(Folded):
    """``passages``: those that were sent, each folded on its own, of a document that is not sent whole."""

    elide = Qt.TextElideMode.ElideMiddle

    def __init__(self, each: MessageDocument, theme: Theme, parent: QWidget) -> None:
        help_text = tr("Show or hide what the model reads of this document")
        super().__init__("document", help_text, tr("Text of {name}", name=each.document.name), theme, parent)
        self._document, self._use, self._folder = each
        self._saved = ""
        self._lines = caption(name="document-lines")
        self._note = caption(name="document-note")
        self._hint = caption(name="document-hint")
        for label in (self._lines, self._note, self._hint):
            label.setParent(self)
        found = self._use.passages or [] if self._use is not None else []
        self.passages = [PassageBlock(self._document, passage, theme, self) for passage in found]
        for passage in self.passages:
            passage.refolded.connect(self.refolded)
        self._refresh_lines()
        self.refresh()

    def words(self) -> tuple[str, str]:
        facts = self._document.facts
        name, size = self._document.name, size_of(facts)
        if self._folder:
            spoken = tr("Document {name} of the folder, {kind}, {size}", name=name, kind=kind_of(facts), size=size)
            return f"{name} · {kind_of(facts)}, {size} · {tr('from the folder')}", spoken
        spoken = tr("Document {name}, {kind}, {size}", name=name, kind=kind_of(facts), size=size)
        return f"{name} · {kind_of(facts)}, {size}", spoken

    def wanted(self) -> str:
        if not self._open or self.passages or (self._use is not None and self._use.passages is not None):
            return ""
        return shown(self._document.text)

    def say(self, saved: str) -> bool:
        """Say what the cache saved of reading it; True if that is another height."""
        if saved == self._saved:
            return False
        self._saved = saved
        self._refresh_lines()
        return True

    def natural_width(self) -> int:
        """Pixels that it takes at best."""
        head = self.head.fontMetrics().horizontalAdvance(f"▸ {self.words()[0]}") + 16
        said = [self._lines, *(label for label in (self._note, self._hint) if not label.isHidden())]
        return max([head, *(label.fontMetrics().horizontalAdvance(label.text()) + INDENT_PX + 2 for label in said)])

    def refresh(self) -> None:
        super().refresh()
        for passage in self.passages:
            passage.setVisible(self._open)
        say(self._hint, self._chosen_by() if self._open and self.passages else "")

    def fit(self, width: int) -> int:
        height = super().fit(width)
        inner = width - INDENT_PX
        if not self.body.isHidden():  # the text stands below what is said of it
            said = self._place(self.head.height(), inner)
            self.body.move(self.body.x(), said + GAP_PX)
            return said + GAP_PX + self.body.height()
        height = self._place(height, inner)
        for passage in self.passages if self._open else ():
            high = passage.fit(inner)
            passage.setGeometry(mirror(QRect(INDENT_PX, height + GAP_PX, inner, high), width))
            height += GAP_PX + high
        return height

    def restyle(self) -> None:
        super().restyle()
        self._refresh_lines()

    def _place(self, top: int, width: int) -> int:
        """The lines below the head; returns where they end."""
        for label in (self._lines, self._note, self._hint):
            if not label.isHidden():
                high = label.heightForWidth(width)
                label.setGeometry(mirror(QRect(INDENT_PX, top, width, high), INDENT_PX + width))
                top += high
        return top

    def _chosen_by(self) -> str:
        """How the passages were found, or could have been."""
        use = self._use
        if use is not None and use.note == SPREAD:
            return tr(
                "With an embedding model (Settings, Passages by meaning) those are found that say it in other words."
            )
        if use is None or use.note:
            return ""
        if use.model:
            return tr("Found by their words, and by their meaning with {model}.", model=use.model)
        return tr(
            "Found by their words. With an embedding model (Settings, Passages by meaning) those are found too that "
            "say it in other words."
        )

    def _refresh_lines(self) -> None:
        use = self._use
        if use is None:
            line = ""
        elif use.passages is None:
            line = self._saved or (plural("1 token", "{n:,} tokens", use.tokens) if use.tokens else "")
        else:
            line = plural(
                "1 passage of {of:,} sent, as the whole ({tokens:,} tokens) does not fit the context",
                "{n:,} passages of {of:,} sent, as the whole ({tokens:,} tokens) does not fit the context",
                len(use.passages),
                of=use.of,
                tokens=use.tokens,
            )
        saves = self._saved and use is not None and self._saved != read_whole(use)
        say(self._lines, line, "good" if saves else "caption")
        say(self._note, " ".join([*([use.note] if use and use.note else []), *self._document.facts.notes]), "warn")


class PassageBlock(Folded):
    """A passage under its number."""

    elide = Qt.TextElideMode.ElideRight

    def __init__(self, document: Document, passage: DocumentPassage, theme: Theme, parent: QWidget) -> None:
        help_text, title = tr("Show or hide this passage"), tr("Passage {number}", number=passage.number)
        super().__init__("passage", help_text, title, theme, parent)
        self._place_words = f"[{passage.number}] {document.place(passage.start)}"
        self._text = document.text[passage.start : passage.end].strip()
        self.refresh()

    def words(self) -> tuple[str, str]:
        preview = " ".join(self._text[: 2 * _PREVIEW].split())[:_PREVIEW]
        return f"{self._place_words} · {preview}", tr("Passage {place}", place=self._place_words)

    def wanted(self) -> str:
        return self._text if self._open else ""


def shown(text: str) -> str:
    """The text as it is unfolded, with a word on what is not shown of a long one."""
    if len(text) <= MOST_SHOWN:
        return text
    left = len(text) - MOST_SHOWN
    rest = tr("[{left:,} more characters, which the model reads too, are not shown here]", left=left)
    return f"{text[:MOST_SHOWN]}\n\n{rest}"
