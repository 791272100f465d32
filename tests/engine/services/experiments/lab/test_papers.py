"""The papers' figures: whole, told apart, cited as the documentation cites them, and drawable."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec
import pytest

from engine.base.files import UnreadableFileError
from engine.catalogue import BY_KEY
from engine.library.paths import papers_folder
from engine.protocol.lab import PaperFigure, Plot
from engine.services.experiments import papers
from engine.services.experiments.lab import BY_NAME

NAMES = {
    "kv_cache", "weights", "paging", "kivi", "quest", "window", "prefixes", "batching", "batch_size",
    "chunked", "mlfq", "speculation", "heads",
}  # fmt: skip
"""The experiments."""
FILES = sorted(papers_folder().glob("*"))
FIGURES = [pytest.param(figure, id=figure.name) for file in FILES for figure in papers.figures(file.stem)]
ARXIV = re.compile(r"\d{4}\.\d{5}")
REFERENCES = [part for entry in BY_KEY.values() for part in entry.reference.split("; ")]
PLACE = re.compile(r"github\.com/[\w.-]+/[\w.-]+ [0-9a-f]{7}\b|The paper's text|The text of arXiv")


def test_there_are_files_and_each_is_an_experiments() -> None:
    assert len(FILES) >= 8
    assert {file.name for file in FILES} <= {f"{name}.json" for name in NAMES}
    assert set(BY_NAME) <= NAMES, "figures are found by the experiment's name"
    assert papers.figures("kv_cache") == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_word_of_a_file_is_passed_over(file: Path) -> None:
    figures = papers.figures(file.stem)
    assert figures
    assert json.loads(msgspec.json.encode(figures)) == json.loads(file.read_bytes())


def test_a_broken_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "papers_folder", lambda: tmp_path)
    (tmp_path / "kivi.json").write_text('[{"name": "no more than that"}]')
    with pytest.raises(UnreadableFileError):
        papers.figures("kivi")


def test_names_are_unique() -> None:
    names = [param.id for param in FIGURES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_says_what_where_and_how_it_was_read(figure: PaperFigure) -> None:
    assert re.fullmatch(r"[A-Z][\w-]+ et al\. 20\d\d", figure.paper)
    assert figure.title
    assert figure.figure
    assert figure.address.startswith("https://")
    assert re.search(r"\d", figure.claim)
    assert figure.claim.endswith(".")
    assert figure.setting.endswith(".")
    assert PLACE.search(figure.checked)
    assert figure.place.endswith(".")
    assert "github.com" not in figure.place, "whose copy was read is not shown"


@pytest.mark.parametrize("figure", FIGURES)
def test_a_paper_is_called_what_the_catalogue_calls_it(figure: PaperFigure) -> None:
    number = ARXIV.search(figure.address)
    cited = [part for part in REFERENCES if number and number[0] in part]
    if not cited:
        assert figure.paper == "Yu et al. 2022", "a paper of no switch"
    author, year = figure.paper.rsplit(" ", 1)
    assert all(part.startswith(author) and year in part for part in cited)


def test_a_paper_has_one_name_and_one_title() -> None:
    figures = [figure for file in FILES for figure in papers.figures(file.stem)]
    assert len({(each.paper, each.title, each.address) for each in figures}) == len({each.address for each in figures})


@pytest.mark.parametrize("figure", [param for param in FIGURES if param.values[0].plot is not None])
def test_a_plot_can_be_drawn_and_shows_what_the_claim_says(figure: PaperFigure) -> None:
    plot = figure.plot
    assert plot is not None
    assert plot.series
    assert len({series.name for series in plot.series}) == len(plot.series)
    for series in plot.series:
        assert series.points
        assert all(math.isfinite(number) for point in series.points for number in point)
        assert len(series.low) == len(series.high)
        assert len(series.low) in (0, len(series.points))
        assert all(x > 0 for x, _ in series.points) or not plot.x.log
        assert all(y > 0 for _, y in series.points) or not plot.y.log
        _check_places(plot, [x for x, _ in series.points])
    told = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", figure.claim)}
    assert told & {number for series in plot.series for _, number in series.points}


def _check_places(plot: Plot, places: list[float]) -> None:
    if plot.bars:
        assert places == list(range(1, len(plot.categories) + 1))
    else:
        assert not plot.categories
        assert places == sorted(set(places)), "a line goes to the right"
