"""Documents of the message that is being written: a chip for each, with what is known of it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QToolButton, QVBoxLayout, QWidget

from app.documents.ahead import ReadAhead
from app.documents.plan import DocumentCount
from app.documents.records import kind_of, size_of
from app.history.records import Attached
from app.language import tr
from app.theme.icons import icon
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, named, take_out, tip

CHIP_PX = 280
NO_ROOM = tr("The conversation leaves no room for it: begin a new chat.")
TOO_LONG = tr("Too long to send whole: passages that fit your question will be sent.")
GONE = tr("The file is gone; its text is kept.")


class AttachedDocuments(QScrollArea):
    """A row of chips, hidden where there are none."""

    changed = Signal()
    dropped = Signal(object)
    """The Attached that the person took out."""
    text_asked = Signal(object)
    """The Attached, a text that was pasted, which is to stand in the message."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shown: tuple[tuple[Attached, bool], ...] = ()
        self._chips: list[_Chip] = []
        named(self, "attached-documents", title=tr("Documents of this message"), frameShape=QFrame.Shape.NoFrame)
        named(self, widgetResizable=True, verticalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._page = QWidget(self)
        self._row = fill(QHBoxLayout(self._page), 1, margins=0, spacing=8)
        self.setWidget(self._page)
        theme.changed.connect(self._fit)
        self.hide()

    @property
    def attached(self) -> tuple[Attached, ...]:
        return tuple(each for each, _ in self._shown)

    @property
    def reading(self) -> bool:
        """True while one of them is still read."""
        return any(not read for _, read in self._shown)

    def show_attached(self, attached: Sequence[Attached]) -> None:
        shown = tuple((each, each.document is not None) for each in attached)
        if shown == self._shown:
            return
        self._shown = shown
        for chip in self._chips:
            self._row.removeWidget(chip)
            take_out(chip)
        self._chips = [_Chip(each, self._theme, self._page) for each in attached]
        for place, chip in enumerate(self._chips):
            self._row.insertWidget(place, chip)
            chip.cross.clicked.connect(lambda _=False, each=chip.attached: self._drop(each))
            chip.text.clicked.connect(lambda _=False, each=chip.attached: self.text_asked.emit(each))
        self.setVisible(bool(shown))
        self._fit()
        self.changed.emit()

    def show_counts(self, counts: Sequence[DocumentCount | None]) -> None:
        """Tokens of each, None where they are not known."""
        for chip, count in zip(self._chips, counts, strict=False):
            chip.show_count(count)
        self._fit()

    def show_ahead(self, known: Sequence[ReadAhead | None]) -> None:
        """How far the passages of each are read by meaning; None where nothing is to be said of that."""
        for chip, each in zip(self._chips, known, strict=False):
            chip.show_ahead(each)
        self._fit()

    def say_notes(self) -> None:
        """Say again what is to be said of each: more is known."""
        for chip in self._chips:
            chip.show_count(chip.count)
        self._fit()

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.height())

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        self._fit()

    def _fit(self) -> None:
        """As high as the chips, and the bar where they do not fit side by side."""
        for chip in self._chips:
            chip.setFixedWidth(chip.width_px)
        high = max((chip.sizeHint().height() for chip in self._chips), default=0)
        wide = sum(chip.width_px + self._row.spacing() for chip in self._chips) - self._row.spacing()
        bar = self.horizontalScrollBar().sizeHint().height() if wide > self.width() else 0
        if self.height() != high + bar:
            self.setFixedHeight(high + bar)
            self.updateGeometry()

    def _drop(self, attached: Attached) -> None:
        self.dropped.emit(attached)
        self.show_attached([each for each in self.attached if each is not attached])


def ahead_words(known: ReadAhead) -> str:
    """How far the passages of a document are read by meaning."""
    if known.reason:
        return tr("Not read by meaning yet: {reason}", reason=known.reason)
    if known.over:
        return tr("Its passages can be found by meaning.")
    return tr("Reading by meaning: {done:,} of {count:,}", done=known.done, count=known.total)


class _Chip(QFrame):
    """Name, size and tokens of a document, and what of it was left out."""

    def __init__(self, attached: Attached, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.attached, self._theme = attached, theme
        self.count: DocumentCount | None = None
        self._known: ReadAhead | None = None
        named(self, "document-chip", card="choice")
        self._name = named(ElidedLabel(attached.name, "figure"), "document-name")
        self._facts = named(ElidedLabel("", "caption"), "document-facts")
        self._notes = named(ElidedLabel("", "warn"), "document-notes")
        self._ahead = named(ElidedLabel("", "caption"), "document-ahead")
        help_text = tr("Take out {name}", name=attached.name)
        self.cross = named(QToolButton(self), "document-close", title=help_text, tooltip=tip(help_text), kind="quiet")
        self.cross.setIcon(icon(theme, "close", 12))
        self.cross.setIconSize(QSize(12, 12))
        self.text = named(QPushButton(tr("As text"), self), "document-text", kind="link")
        named(self.text, title=tr("Put the pasted text into the message"))
        self.text.setToolTip(tip(tr("Put it into the message as text")))
        document = attached.document
        cut = document is not None and document.is_cut
        self.text.setVisible(attached.pasted and document is not None and not cut)
        top = fill(QHBoxLayout(), (self._name, 1), self.text, self.cross, margins=0, spacing=4)
        fill(QVBoxLayout(self), top, self._facts, self._notes, self._ahead, 1, margins=(10, 6, 6, 8), spacing=2)
        self.show_count(None)

    @property
    def width_px(self) -> int:
        return self._theme.px(CHIP_PX)

    def show_ahead(self, known: ReadAhead | None) -> None:
        if known != self._known:
            self._known = known
            self._show()

    def show_count(self, count: DocumentCount | None) -> None:
        self.count = count
        self._show()

    def _show(self) -> None:
        count, ahead = self.count, ahead_words(self._known) if self._known is not None else ""
        document = self.attached.document
        if document is None:
            facts, notes = tr("reading…"), list[str]()
        else:
            facts = f"{kind_of(document.facts)} · {size_of(document.facts)}"
            notes = [*([GONE] if self.attached.gone else []), *document.facts.notes]
        if count is not None:
            facts = f"{facts} · {tr('{tokens:,} tokens', tokens=count.tokens)}"
            notes[:0] = [] if count.whole else [TOO_LONG if count.passages else NO_ROOM]
        self._facts.setText(facts)
        self._notes.setText(" ".join(notes))
        self._notes.setVisible(bool(notes))
        set_role(self._notes, "warn")
        self._ahead.setText(ahead)
        self._ahead.setVisible(bool(ahead))
        said = [*notes, ahead] if self._known is not None and self._known.over else notes  # no figure that goes on
        self.setAccessibleName(f"{self.attached.name}, {facts}. {' '.join(said)}".strip())
        self.setToolTip(tip("\n".join(filter(None, (self.attached.name, facts, *notes, ahead)))))
