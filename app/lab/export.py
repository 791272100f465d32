"""A result as a file of its own: HTML with its pictures inside, or the page as a picture; and the button for it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from html import escape
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, Signal
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtWidgets import QFileDialog, QWidget

from app.lab import words
from app.lab.experiment import ExperimentView
from app.lab.pictures import PlotView
from app.language import code, known, tr
from app.panel.verdicts import headline_of
from app.theme.menus import MenuButton
from app.theme.theme import LIGHT
from app.theme.widgets import named
from engine.protocol.lab import LabFigure, LabPage, LabResult, LabText, PaperFigure

_MARGIN = 24


class SaveButton(MenuButton):
    """Button that saves the result of ``view``. ``said``: the outcome, as a sentence and its role on the page."""

    said = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.view: ExperimentView | None = None
        named(self, "lab.save", title=tr("Save the result as a file"))
        html, png = "HTML (*.html)", "PNG (*.png)"  # not shown
        self.offer(tr("HTML, with its pictures…"), "lab.save.html", lambda: self._save(".html", html, save_html))
        self.offer(tr("Picture of this page (PNG)…"), "lab.save.png", lambda: self._save(".png", png, save_png))
        self.show_title(tr("Save as"))

    def _save(self, ending: str, kinds: str, write: Callable[[ExperimentView, Path], None]) -> None:
        view = self.view
        if view is None or view.result is None:
            return
        start = str(Path.home() / (words.file_name(view.result) + ending))
        path, _ = QFileDialog.getSaveFileName(self, tr("Save the result"), start, kinds)
        view = self.view  # made anew, where the theme changed meanwhile
        if not path or view is None or view.result is None:
            return
        view.player.finish()
        try:
            write(view, Path(path))
        except OSError as error:
            self.said.emit(words.unwritten(error), "bad")
        else:
            self.said.emit(words.saved(path), "caption")


def save_png(view: ExperimentView, path: Path) -> None:
    """The page as it is shown, all of it, under its title. Raises OSError."""
    path.write_bytes(_png(view, words.heading(view.page)))


def save_html(view: ExperimentView, path: Path) -> None:
    """Write what a view shows of its result as HTML. Raises OSError."""
    assert view.result is not None
    pictures = [_figure(each, side) for each, side in zip(view.pictures, view.sides, strict=True)]
    plots = [_image(each, tr("A plot")) for each in view.findChildren(PlotView)]
    path.write_text(page_of(view.page, view.result, pictures, plots), encoding="utf-8")


def page_of(page: LabPage, result: LabResult, pictures: list[str], plots: list[str]) -> str:
    """The whole file; ``pictures`` and ``plots`` are elements of HTML."""
    heads = "".join(f"<th>{escape(known(side))}</th>" for side in result.sides)
    rows = "".join(_row(figure) for figure in result.figures if figure.effects)
    text = _texts(result.text, result.sides) if result.text is not None else ""
    lists = "".join(
        f"{_h2(title)}<ul>{''.join(f'<li>{escape(known(each))}</li>' for each in sentences)}</ul>"
        for title, sentences in (
            (words.PAPER_ALIKE, result.same),
            (words.PAPER_OTHER, result.other),
            (words.PAPER_WHY, result.why[1:]),
        )
        if sentences
    )
    title, problem, lesson = escape(known(page.title)), escape(known(page.problem)), escape(known(result.lesson))
    runs = escape(tr("single runs"))
    return (
        f'<!doctype html><html lang="{code()}"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_style()}</style></head><body><h1>{escape(words.heading(page))}</h1><p>{problem}</p>"
        f"<div class=sides>{''.join(pictures)}</div><p class=headline>{escape(headline_of(result))}</p>"
        f"{_second(result)}{_chosen(page, result)}"
        f"<p><strong>{lesson}</strong> {escape(''.join(result.why[:1]))}</p>"
        f"{_h2(tr('Figures'))}<table><tr><th></th>{heads}<th></th><th>{runs}</th></tr>{rows}</table>"
        f"{text}<div class=sides>{''.join(plots)}</div>{''.join(_paper(each) for each in page.papers)}{lists}"
        f"{_h2(tr('When it does not help'))}<p>{escape(known(page.fails))}</p>{_h2(tr('How it was taken'))}"
        f"<p>{escape(words.taken(result))}</p></body></html>\n"  # not shown
    )


def _h2(title: str) -> str:
    return f"<h2>{escape(title)}</h2>"


def _second(result: LabResult) -> str:
    """Paragraphs below the headline."""
    said = [known(result.second), words.quiet(result).text]
    return "".join(f"<p>{escape(each)}</p>" for each in said if each)


def _chosen(page: LabPage, result: LabResult) -> str:
    told = words.chosen(page, result)
    return f"<p>{escape(words.otherwise(told))}</p>" if told else ""


def _style() -> str:
    t = LIGHT
    return (
        f"body {{ font: 15px/1.5 system-ui, sans-serif; color: {t.text}; max-width: 960px; margin: 32px auto; }} "
        "h1 { font-size: 20px; } h2 { font-size: 15px; margin-top: 28px; } "
        ".headline { font-size: 20px; font-weight: 700; } .sides { display: flex; flex-wrap: wrap; gap: 16px; } "
        f"th, td {{ text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid {t.line}; }} "
        "td { vertical-align: top; } pre { white-space: pre-wrap; } figure { margin: 0; } img { max-width: 460px; } "
        f"figcaption {{ color: {t.mute}; }}"  # not shown
    )


def _row(figure: LabFigure) -> str:
    metric = figure.effects[0].metric
    medians = figure.medians
    each = "".join(f"<td>{escape(words.value(median, metric))}</td>" for median in medians)
    gains = "<br>".join(escape(words.verdict(effect).text) for effect in figure.effects)
    runs = "<br>".join(escape(", ".join(words.value(value, metric) for value in side)) for side in figure.runs)
    return f"<tr><td>{escape(words.named(metric))}</td>{each}<td>{gains}</td><td>{runs}</td></tr>"


def _texts(text: LabText, sides: list[str]) -> str:
    """The verdict, and what was written: once where all sides wrote the same."""
    if text.same:
        written = "".join(f"<pre>{escape(each)}</pre>" for each in text.texts[:1])
    else:
        of_sides = words.written(text, sides)
        written = "".join(f"<h3>{escape(known(side))}</h3><pre>{escape(each)}</pre>" for side, each in of_sides)
    return f"{_h2(tr('The text'))}<p>{escape(words.text_verdict(text, sides).text)}</p>{written}"


def _paper(paper: PaperFigure) -> str:
    return (
        f'<p>{escape(words.source(paper))}: <a href="{escape(paper.address)}">{escape(paper.title)}</a>. '
        f"{escape(known(paper.claim))} {escape(known(paper.setting))} {escape(known(paper.place))}</p>"
    )


def _figure(view: QWidget, side: str) -> str:
    """Under the name that it was made with."""
    name = known(side)
    return f"<figure>{_image(view, name)}<figcaption>{escape(name)}</figcaption></figure>"


def _image(view: QWidget, about: str) -> str:
    return (
        f'<img alt="{escape(about)}" src="data:image/png;base64,{base64.b64encode(_png(view)).decode()}">'  # not shown
    )


def _png(view: QWidget, title: str = "") -> bytes:
    """On the page's own ground, as what paints none can be seen on no other; with a margin below a title."""
    seen, ratio = view.grab(), view.devicePixelRatioF()
    margin = _MARGIN if title else 0
    above = margin + 2 * view.fontMetrics().height() if title else 0
    whole = QPixmap(seen.width() + round(2 * margin * ratio), seen.height() + round((above + margin) * ratio))
    whole.setDevicePixelRatio(ratio)
    whole.fill(view.palette().base().color())
    painter = QPainter(whole)
    font = view.font()
    font.setBold(True)
    painter.setFont(font)
    painter.setPen(view.palette().text().color())
    painter.drawText(margin, above - view.fontMetrics().height(), title)
    painter.drawPixmap(margin, above, seen)
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    whole.save(buffer, "PNG")
    return bytes(buffer.data().data())
