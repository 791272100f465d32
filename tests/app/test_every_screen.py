"""Every page and state of the window at the sizes and text sizes that screens have; tests/app/screens.py walks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QLabel, QScrollArea, QWidget

from app.program import WindowProgram
from tests.app.screens import LONG, SIZES, TEXTS, faults, found, prepare

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(qtbot, start, state: Path) -> WindowProgram:
    program = start("--rate", "4000", model=False, shown=False)
    prepare(program, state)
    program.window.show()
    qtbot.waitUntil(lambda: program.link.card is not None and not program.chat.composer.reason)
    return program


@pytest.mark.slow
def test_nothing_is_cut_from_the_smallest_screen_to_4k(program: WindowProgram) -> None:
    assert [*faults(program, [SIZES[0], SIZES[-1]], [100])] == []


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_cut_at_any_size_of_text(language: str) -> None:
    texts = [part for percent in TEXTS for part in ("--text", str(percent))]
    command = [sys.executable, "-m", "tests.app.screens", "--language", language, *texts]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=800)
    assert (ran.stdout, ran.returncode) == ("", 0), ran.stderr


def test_the_search_for_faults_finds_them(qtbot, theme) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    holder.resize(3000, 300)
    label = QLabel(LONG, holder, wordWrap=True)
    label.setGeometry(QRect(0, 0, 2900, 40))
    area = QScrollArea(holder, widgetResizable=True)
    wide = QWidget()
    wide.setMinimumWidth(500)
    area.setWidget(wide)
    area.setGeometry(0, 50, 200, 100)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
    holder.show()
    qtbot.wait(1)
    assert [each.partition(" ")[0] for each in found(holder)] == ["sideways", str(len(LONG))]
