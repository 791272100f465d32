"""An experiment through the page with the real `kvasir lab` and the bundled model."""

from __future__ import annotations

import sys

import pytest
from PySide6.QtWidgets import QLabel

from app.lab.compare.page import ComparePage
from app.lab.page import LabView
from app.lab.runs import LabRuns
from app.theme.theme import Theme
from tests.app.pressing import press


@pytest.mark.long
def test_prefixes_through_the_page(qtbot, theme: Theme) -> None:
    command = [sys.executable, "-m", "engine.cli.main", "lab"]
    runs = LabRuns(command, ["--pairs", "1"])
    view = LabView(runs, ComparePage([], theme), theme)
    qtbot.addWidget(view)
    view.resize(1200, 800)
    view.show()
    try:
        qtbot.waitUntil(lambda: runs.index is not None)
        view.show_experiment("prefixes")
        press(view, "lab.run")
        qtbot.waitUntil(lambda: not runs.running)
        result = runs.results["prefixes"]
        users, text, question = (int(result.settings[key]) for key in ("users", "text", "question"))
        shown = [label.text() for label in view.view.found.figures[1].findChildren(QLabel)]
        assert shown[2] == f"{users * (text + question):,}"  # each prompt read whole
        once = text + users * question
        computed = int(shown[4].replace(",", ""))
        assert once <= computed <= once + users * 16  # a page of the text that is not full is read again
        assert view.findChild(QLabel, "lab.text").text().startswith("The same text: identical, ")
        assert view.findChild(QLabel, "lab.headline").text() == result.headline
        assert view.findChild(QLabel, "lab.lesson").text() == runs.pages["prefixes"].lesson
        assert not view.view.note.isVisibleTo(view)
    finally:
        runs.close_down()
    again = LabRuns(command)
    try:
        again.refresh()
        qtbot.waitUntil(lambda: "prefixes" in again.results)
        assert again.results["prefixes"] == result
    finally:
        again.close_down()
