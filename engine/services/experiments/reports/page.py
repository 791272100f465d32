"""A comparison as one HTML file: tables, single runs as dots, texts side by side. Nothing is fetched by it."""

from __future__ import annotations

from typing import NamedTuple

from jinja2 import Environment
from markupsafe import Markup

from engine.protocol.compared import cells, quality_lines, text_verdict
from engine.protocol.lab import KindFigures, LabCompared, LabFigure
from engine.services.answers.continuing import common

WIDTH, HEIGHT, MARGIN = 260, 14, 6
"""Of a picture of single runs, in pixels."""

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Kvasir: {{ names | join(" against ") }}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 24px auto; padding: 0 16px; }
body { color: #1c1e21; background: #fff; }
h1 { font-size: 20px } h2 { font-size: 16px; margin-top: 28px }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: 4px 10px; vertical-align: top }
tr + tr > td { border-top: 1px solid #d9dce1 } .small { color: #60666f; font-size: 12px }
.texts { display: grid; grid-template-columns: repeat({{ names | length }}, 1fr); gap: 12px }
.texts div { white-space: pre-wrap; border: 1px solid #d9dce1; border-radius: 6px; padding: 8px }
mark { background: #ffd9a8 } circle { fill: #2b6fd6; fill-opacity: .6 } line { stroke: #1c1e21 }
@media (prefers-color-scheme: dark) {
  body { color: #e6e8eb; background: #17191c } tr + tr > td, .texts div { border-color: #34383e }
  .small { color: #9aa1ab } mark { background: #6b4a16; color: #fff } line { stroke: #e6e8eb }
}
</style>
<h1>{{ names | join(" against ") }}</h1>
<p class="small">{{ found.date }} · Kvasir {{ found.version }} · {{ found.device }} · {{ found.machine }} ·
seed {{ found.seed }}</p>
<table><tr><th>column</th><th>model</th><th>settings</th></tr>
{% for column in found.columns %}<tr><td>{{ column.name }}</td><td>{{ found.models[loop.index0] }}
{%- if column.quantise != "none" %}, quantised to {{ column.quantise }} at load{% endif %}</td>
<td>{% for key, value in column.set.items() %}{{ key }} = {{ value }}<br>{% endfor %}</td></tr>{% endfor %}</table>
{% for kind in kinds %}<h2>{{ kind.name }}</h2>
<table><tr><th></th>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in kind.rows %}<tr><td>{{ row.title }}</td>
{% for cell in row.cells %}<td>{{ cell.value }}<br>{{ cell.dots }}<br><span class="small">{{ cell.verdict }}</span></td>
{% endfor %}</tr>{% endfor %}</table>
{% for text in kind.texts %}<p class="small">{{ text.prompt }}</p>
<div class="texts">{% for part in text.parts %}<div>{{ part.same }}
{%- if part.rest %}<mark>{{ part.rest }}</mark>{% endif %}
<br><span class="small">{{ part.verdict }}</span></div>{% endfor %}</div>{% endfor %}{% endfor %}
<h2>Quality</h2>
{% for line in quality %}<p>{{ line }}</p>{% endfor %}
<h2>How it was taken</h2>
<p>{{ found.taken }}</p>{% for line in found.absent %}<p>{{ line }}</p>{% endfor %}
</html>
"""


class _Cell(NamedTuple):
    value: str
    dots: str
    verdict: str


class _Part(NamedTuple):
    """A text up to where it differs from the first column's, and the rest."""

    same: str
    rest: str
    verdict: str


def html(found: LabCompared) -> str:
    """The report."""
    environment = Environment(autoescape=True)
    names = [column.name for column in found.columns]
    kinds = [
        {
            "name": kind.kind,
            "rows": [{"title": _title(figure), "cells": _cells(figure)} for figure in kind.figures],
            "texts": [
                {"prompt": prompt, "parts": _parts(kind, place, found)} for place, prompt in enumerate(kind.prompts)
            ],
        }
        for kind in found.kinds
    ]
    return environment.from_string(_PAGE).render(found=found, names=names, kinds=kinds, quality=quality_lines(found))


def _title(figure: LabFigure) -> str:
    return figure.effects[0].metric.title


def _cells(figure: LabFigure) -> list[_Cell]:
    return [
        _Cell(value, _dots(runs, figure), said) for (value, said), runs in zip(cells(figure), figure.runs, strict=True)
    ]


def _dots(runs: list[float], figure: LabFigure) -> str:
    """The single runs as dots, on one scale for all columns."""
    every = [value for side in figure.runs for value in side]
    low, high = min(every), max(every)
    room = WIDTH - 2 * MARGIN
    places = [MARGIN + (room / 2 if high == low else room * (value - low) / (high - low)) for value in runs]
    circles = "".join(f'<circle cx="{place:.1f}" cy="{HEIGHT / 2:g}" r="3"/>' for place in places)
    return Markup(f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{circles}</svg>')


def _parts(kind: KindFigures, place: int, found: LabCompared) -> list[_Part]:
    texts = kind.texts[place]
    first = texts[0].texts[0]
    parts = [_Part(first, "", "")]
    for number, text in enumerate(texts):
        mine = text.texts[1]
        at = common(first, mine)
        parts.append(_Part(mine[:at], mine[at:], text_verdict(found, number, text)))
    return parts
