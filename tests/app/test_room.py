"""The window on every screen and scale that desktops offer: the message box is there, and nothing needed is cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QScreen
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton, QToolButton, QWidget

from app.commands.dialog import ShortcutsDialog
from app.help.about import AboutDialog
from app.help.log_view import LogDialog
from app.models.load_settings import LoadSettingsDialog, Offers
from app.paths import licences_dir
from app.program import WindowProgram
from app.settings.store import ModelSettings
from app.texts.side_by_side import Side, SideBySide
from app.window.window import MainWindow
from tests.app.conftest import answer, unfold
from tests.app.cutting import cut

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)

SCREENS = ((800, 600), (1024, 768), (1366, 768), (1920, 1080), (3840, 2160))
SCALES = (1, 1.25, 1.5, 2, 3)
SMALLEST = (400, 300)
"""A desktop offers no scale at which less than this is left of a screen."""
SIZES = sorted(
    {size for w, h in SCREENS for scale in SCALES if (size := (round(w / scale), round(h / scale))) >= SMALLEST}
)


def inside(window: QWidget, part: QWidget) -> bool:
    """Whether all of a part can be seen in the window."""
    corners = (part.rect().topLeft(), part.rect().bottomRight())
    return part.isVisible() and all(window.rect().contains(part.mapTo(window, corner)) for corner in corners)


def roomy(screen_size: QSize):
    """A screen with that many pixels at its scale."""
    return lambda _screen: screen_size


@pytest.fixture
def program(qtbot, start) -> WindowProgram:
    made = start("--rate", "4000")
    unfold(made)
    answer(made, qtbot, "show me code")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("text", [1.0, 1.5])
def test_the_message_box_is_there_on_every_screen(qtbot, qapp, program, monkeypatch, text):
    window, chat = program.window, program.chat
    program.theme.set_scale(text)
    for size in SIZES:
        if text > 1 and size < (640, 360):
            continue
        monkeypatch.setattr(QScreen, "availableSize", roomy(QSize(*size)))
        window._fit_screen()
        window.resize(window.minimumSize())
        window.resize(QSize(*size).boundedTo(QSize(size[0], size[1] - 40)))
        for draft in ("", "\n".join(["words to send"] * 12)):
            chat.composer.edit.setPlainText(draft)
            window.sides.close_overlay()
            qapp.processEvents()
            qapp.processEvents()
            assert window.width() <= size[0]
            assert window.height() <= size[1]
            needed = [chat.composer, chat.composer.edit, chat.composer.button, program.selector.model, window.bar]
            tabs = [tab for tab in window.bar.tabs if tab.isVisible()]
            assert tabs or window.bar.menu.isVisible(), size
            folds = [window.findChild(QToolButton, f"top.{name}") for name in ("sidebar", "panel")]
            for part in (*needed, *tabs, *folds):
                assert inside(window, part), (size, part.objectName() or part.text(), bool(draft))
            assert chat.composer.edit.height() >= chat.composer.edit.fontMetrics().height()
            assert all(tab.width() >= tab.sizeHint().width() for tab in tabs), size


@pytest.mark.slow
@pytest.mark.parametrize("text", [1.0, 1.5])
def test_what_opens_over_the_window_stays_on_a_small_screen(qtbot, qapp, program, monkeypatch, text):
    program.theme.set_scale(text)
    screen = QSize(640, 360)
    monkeypatch.setattr(QScreen, "availableSize", roomy(screen))
    window, settings = program.window, program.chat.settings
    one = Side("One", "", "what it wrote " * 200)
    dialogs = [
        ShortcutsDialog(window.commands.keymap, window),
        LogDialog(window.dialogs.log_file, program.theme, window),
        AboutDialog(licences_dir(), program.theme, window),
        SideBySide(one, one._replace(text="something else"), "", program.theme, window),
        LoadSettingsDialog(
            "tiny", ModelSettings(), program.store.settings, Offers(["auto"], {}, None, []), True, program.theme, window
        ),
    ]
    program.chat.dialogs.open_settings()
    for dialog in (*dialogs, settings):
        dialog.show()
        qapp.processEvents()
        assert dialog.width() <= screen.width(), dialog
        assert dialog.height() <= screen.height(), dialog
    assert inside(dialogs[-1], dialogs[-1].findChild(QPushButton, "load.save_and_load"))
    settings.system.setFocus()
    for _ in range(12):
        if settings.inputs["temperature"].hasFocus():
            break
        qtbot.keyClick(qapp.focusWidget(), Qt.Key.Key_Tab)
    qapp.processEvents()
    assert inside(settings, settings.inputs["temperature"])
    for dialog in (*dialogs, settings):
        dialog.close()


def test_other_pages_are_scrolled_where_they_have_no_room(qapp, program):
    window = program.window
    window.setMinimumSize(1, 1)
    for page in (MainWindow.MODELS, MainWindow.LAB, MainWindow.SERVER, MainWindow.HELP, MainWindow.SETTINGS):
        window.resize(420, 320)
        window.show_page(page)
        qapp.processEvents()
        assert window.size().toTuple() == (420, 320)
        inner, area = window._pages[page], window._stack.currentWidget()
        least = inner.minimumSizeHint()
        assert inner.width() >= least.width()
        assert area.horizontalScrollBar().maximum() >= least.width() - area.viewport().width()


def test_no_word_is_cut_at_twice_the_text_size(qtbot, qapp, program):
    window = program.window
    program.theme.set_scale(2.0)
    window.resize(1000, 700)
    sides = {name: window.findChild(QToolButton, f"top.{name}") for name in ("sidebar", "panel", "plots")}
    for name, fold in sides.items():
        fold.setChecked(True)
        qtbot.waitUntil(lambda: name != "plots" or bool(window.plots.charts))  # noqa: B023
        QTest.qWait(1)
        assert cut(window) == [], name
        fold.setChecked(False)
    for page in range(MainWindow.CHAT, MainWindow.SETTINGS + 1):
        window.show_page(page)
        QTest.qWait(1)
        assert cut(window) == [], page


def test_the_search_for_cut_words_finds_them(qtbot, theme):
    holder = QWidget()
    qtbot.addWidget(holder)
    holder.resize(400, 200)
    places = {"in order": (0, 0, 200, 40), "much too long": (0, 60, 20, 40), "out": (350, 60, 90, 40)}
    for text, place in places.items():
        QLabel(text, holder).setGeometry(*place)
    QLabel("several words in too low a place", holder, wordWrap=True).setGeometry(100, 10, 60, 10)
    holder.show()
    assert [found.partition(":")[0] for found in cut(holder)] == ["too small", "too low", "outside", "over each other"]


def test_plots_and_cache_wait_for_a_higher_window(qapp, program):
    window, plots = program.window, program.window.plots
    window.setMinimumSize(1, 1)
    cache, fold = window.findChild(QToolButton, "top.cache"), window.findChild(QToolButton, "top.plots")
    for height, open_plots in ((900, True), (330, False), (900, True)):
        window.resize(1000, height)
        qapp.processEvents()
        assert (not plots.collapsed, fold.isEnabled()) == (open_plots, open_plots)
        assert fold.isChecked()
        assert program.store.settings.plots_open
    window.resize(1000, 330)
    qapp.processEvents()
    assert not cache.isEnabled()
    assert "too low" in " ".join(cache.toolTip().split())


CHILD = """
import json, os, sys
from pathlib import Path
from PySide6.QtWidgets import QApplication
from app.program import WindowProgram
app = QApplication([])
sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
program = WindowProgram(app, Path(os.environ["KVASIR_HOME"]) / "log", sleeps)
window = program.window
window.show()
for _ in range(5):
    app.processEvents()
edit, room = program.chat.composer.edit, window.screen().availableSize()
at = edit.mapTo(window, edit.rect().bottomRight())
print(json.dumps([window.devicePixelRatio(), window.width() <= room.width(), window.height() <= room.height(),
                  window.rect().contains(at), edit.width() > 100, list(room.toTuple())]))
program.close()
"""


@pytest.mark.long
@pytest.mark.parametrize(("pixels", "scale"), [((1920, 1080), 3), ((1366, 768), 1.5), ((3840, 2160), 2)])
def test_a_scaled_start_stays_on_its_screen(tmp_path, pixels, scale):
    """As the desktop starts it: the scale is the platform's."""
    screens = tmp_path / "screens.json"
    facts = {"name": "one", "x": 0, "y": 0, "width": pixels[0], "height": pixels[1], "logicalDpi": 96, "dpr": 1}
    screens.write_text(json.dumps({"screens": [facts]}))
    platform = {"QT_QPA_PLATFORM": f"offscreen:configfile={screens}", "QT_SCALE_FACTOR": str(scale)}
    made = subprocess.run([sys.executable, "-c", CHILD], env={**os.environ, **platform}, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    ratio, *fits, room = json.loads(made.stdout.splitlines()[-1])
    assert ratio == scale
    assert fits == [True] * 4, room
