"""Result of an experiment: the headline, its figures, the texts, the plots and the paper beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from app.lab import words
from app.lab.figures import figure_row
from app.lab.layout import ColumnsLayout, PageSection, label
from app.lab.pictures import PlotView
from app.lab.steps import StepRunner
from app.language import known, tr
from app.panel.verdicts import headline_of
from app.texts.side_by_side import BothTexts, Side
from app.theme.theme import Theme
from app.theme.widgets import named
from engine.protocol.lab import LabPage, LabResult, LabText, PaperFigure, Plot

_PLOT_PX = 220
_LINE_PX, _LINE_LETTERS, _MOST_LINES = 20, 40, 8


class ResultView(PageSection):
    """``choice``: what was predicted, -1 for nothing."""

    def __init__(self, page: LabPage, result: LabResult, choice: int, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setObjectName("lab.result")
        self.column.setSpacing(16)
        self.headline = label(headline_of(result), "headline", "lab.headline")
        said, mark = label(known(result.second), "figure", "lab.second"), words.quiet(result)
        quiet = label(mark.text, mark.tone, "lab.quiet")
        predicted = words.prediction(page, choice, result)
        self.prediction = label(predicted.text, predicted.tone, "lab.prediction")
        self.lesson = lesson = PageSection(box=True)
        lesson.setProperty("card", "notice")
        lesson.add(label(known(result.lesson), "figure", "lab.lesson"))
        if result.why:
            lesson.add(label(result.why[0], name="lab.here"))
        head = PageSection().add(self.headline, said, quiet, self.prediction)
        for each in (said, quiet, self.prediction):  # now that they are within another: else they were windows
            each.setVisible(bool(each.text()))
        if told := words.chosen(page, result):
            head.add(label(words.otherwise(told), "warn", "lab.chosen"))
        self.add(head, lesson)
        self.figures: list[PageSection] = []
        self.rest = StepRunner(self._add_rest(page, result), self)
        """Makes what stands below the lesson."""

    def add(self, *widgets: QWidget) -> PageSection:
        """Show them at once; Qt else does so in the next turn of the event loop, and only then asks for room."""
        super().add(*widgets)
        for widget in widgets:
            widget.show()
        return self

    def _add_rest(self, page: LabPage, result: LabResult) -> Iterator[None]:
        for figure in result.figures:
            if figure.effects:
                row = figure_row(figure, result.sides, self._theme)
                self.add(row if self.figures else PageSection(tr("Figures")).add(row))
                self.figures.append(row)
                yield
        if result.text is not None:
            self.add(self._texts(result.text, result.sides))
            yield
        ours = [PageSection(tr("This computer") if page.papers else "", box=True) for _ in result.plots]
        theirs = [PageSection(words.source(each), box=True) for each in page.papers]
        if ours or theirs:
            columns = ColumnsLayout([*ours, *theirs], self._theme, 360, min(2, len(ours) + len(theirs)))
            title = tr("Here, and in the paper") if theirs else tr("On this computer")
            for box in (*ours, *theirs):
                box.hide()  # until it is whole
            self.add(PageSection(title).add(columns))
            yield
        for box, plot in zip(ours, result.plots, strict=True):
            box.column.addWidget(self._drawn(plot, result.sides), 1)
            box.show()
            yield
        for box, paper in zip(theirs, page.papers, strict=True):
            self._tell(box, paper)
            box.show()
            yield
        alike = [
            _list(title, sentences)
            for title, sentences in (
                (words.PAPER_ALIKE, result.same),
                (words.PAPER_OTHER, result.other),
                (words.PAPER_WHY, result.why[1:]),
            )
            if sentences
        ]
        if alike:
            self.add(ColumnsLayout(alike, self._theme, 260, 3))
            yield
        self.add(
            PageSection(tr("When it does not help")).add(label(known(page.fails), name="lab.fails")),
            PageSection(tr("How it was taken")).add(label(words.taken(result), "caption", "lab.taken")),
        )
        yield

    def _texts(self, text: LabText, sides: list[str]) -> PageSection:
        said = words.text_verdict(text, sides)
        part = PageSection(tr("The text")).add(label(said.text, said.tone, "lab.text"))
        if text.same and text.texts:
            part.add(label(words.SAMPLE, "caption"), label(text.texts[0].strip(), "mute"))
        elif of_sides := words.written(text, sides):
            (name, first), (other_name, second) = of_sides[0], of_sides[words.differing(text)]
            one, other = Side(known(name), "", first), Side(known(other_name), "", second)
            both = BothTexts(one, other, "", self._theme)
            both.sentence.hide()  # the verdict says it, in tokens
            for view in both.views:
                lines = min(_MOST_LINES, 2 + max(len(each) for each in text.texts) // _LINE_LETTERS)
                view.setFixedHeight(self._theme.px(_LINE_PX) * lines)
            part.add(both)
        return part

    def _tell(self, box: PageSection, paper: PaperFigure) -> None:
        link = named(
            QLabel(
                f'<a href="{escape(paper.address)}">{escape(paper.title)}</a>',
                textFormat=Qt.TextFormat.RichText,
                openExternalLinks=True,
                wordWrap=True,
                textInteractionFlags=Qt.TextInteractionFlag.LinksAccessibleByMouse
                | Qt.TextInteractionFlag.LinksAccessibleByKeyboard,
            ),
            title=tr("The paper: {title}", title=paper.title),
        )
        box.add(link)
        if paper.plot is not None:
            box.column.addWidget(self._drawn(paper.plot), 1)
        box.add(label(known(paper.claim)), label(known(paper.setting), "caption"))
        if paper.place:
            box.add(label(known(paper.place), "tiny"))
        if paper.plot is None:
            box.column.addStretch(1)

    def _drawn(self, plot: Plot, sides: Sequence[str] = ()) -> QWidget:
        view = named(PlotView(self._theme, sides=sides), minimumHeight=self._theme.px(_PLOT_PX))
        view.show_plot(plot)
        return view


def _list(title: str, sentences: list[str]) -> PageSection:
    part = PageSection(title).add(*(label(known(sentence), "mute") for sentence in sentences))
    part.column.addStretch(1)
    return part
