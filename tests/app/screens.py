"""Every page of the window and its main states, on screens from 800 x 600 to 4k: what is cut, hidden or hard to read.

    python -m tests.app.screens [--language CODE] [--text PERCENT]... [--size WIDTHxHEIGHT]... [--state NAME]...
                                [--pictures FOLDER [--theme NAME]]

The sizes are those that a desktop's scale leaves of a screen: 4k at 300 % has 1280 x 720. Prints each fault with
the state, the size and the text size that it was found at, and exits with 1 if there are any; with a folder each state
is saved there as well. The engine is the fake one, the Lab's results are the fake Lab's; models are listed by the real
operations.
"""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocumentFragment
from PySide6.QtWidgets import QApplication, QDialog, QLabel, QScrollArea, QToolButton, QWidget

if TYPE_CHECKING:
    from app.program import WindowProgram

SIZES = ((800, 600), (1024, 768), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160))
TEXTS = (80, 100, 150, 200)
LETTERS = 160
"""Letters in the longest line of words that wrap."""
ROOM = 640
"""Width at the usual text size from which on no page is scrolled sideways."""
PATIENCE_S = 60.0
LONG = (
    "The answer was stopped because the memory for keys and values is full. Close other chats, or choose a shorter "
    "context in the settings; then ask for the answer again, which goes on from where it was stopped."
)


def settle() -> None:
    for _ in range(3):
        QApplication.sendPostedEvents()
        QApplication.processEvents()


def wait(done: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until
        QApplication.processEvents()
        time.sleep(0.005)


def prepare(program: WindowProgram, state: Path) -> None:
    """Let the Lab answer as the file ``state`` says, and the page Models by the real operations."""
    from tests.app.lab_support import lab_of
    from tests.kit.operations import RealOperations

    lab, models, call = lab_of(state), RealOperations(), program.link.call

    def perform(operation: Any, *details: Any, **named: Any) -> Any:
        room = operation.name.partition(".")[0]
        return {"lab": lab.call, "models": models.call}.get(room, call)(operation, *details, **named)

    program.link.call = perform  # type: ignore[method-assign]


class Stage:
    """The window, and each state that it is put in."""

    def __init__(self, program: WindowProgram) -> None:
        self.program, self.window, self.chat = program, program.window, program.chat
        self._sides: tuple[str, ...] = ()

    def states(self) -> dict[str, Callable[[], object]]:
        """Functions that put the window into a state, by its name; one state follows from no other."""
        from app.lab.tools import COMPARE, ROOFLINE

        window = self.window
        return {
            "empty chat": self._empty,
            "answer": self._answer,
            "chats": lambda: (self._answer(), self._side("sidebar")),
            "panel": lambda: (self._answer(), self._side("panel"), window.panel.show_all(True)),
            "plots": lambda: (self._answer(), self._fold("plots"), wait(lambda: window.plots.charts)),
            "cache": lambda: (self._answer(), self._fold("cache"), wait(lambda: window.cache.panes is not None)),
            "found": lambda: (self._answer(), self.chat.finding.begin(), self.chat.toggle_tint()),
            "notices": self._notices,
            "chat settings": lambda: (self._answer(), self.chat.header.settings_asked.emit()),
            "several": lambda: (self._answer(), self.chat.composer.edit.setPlainText("hello"), self._several()),
            "side by side": self._side_by_side,
            "models": lambda: self._models("here"),
            "hub": lambda: self._models("hub"),
            "disk": lambda: self._models("disk"),
            "other computers": lambda: self._models("other"),
            "lab": lambda: self._lab(""),
            "experiment": lambda: self._lab("prefixes"),
            "result": lambda: self._lab("cache"),
            "run": self._run,
            "compare": lambda: self._lab(COMPARE),
            "roofline": lambda: self._lab(ROOFLINE),
            "server": lambda: window.show_page(window.SERVER),
            "help": lambda: window.show_page(window.HELP),
            "settings": lambda: window.show_page(window.SETTINGS),
            "palette": lambda: (window.show_page(window.CHAT), window.dialogs.show_palette()),
            "shortcuts": window.dialogs.show_shortcuts,
            "log": window.dialogs.show_log,
            "quick chat": self._quick,
            "about": window.dialogs.show_about,
        }

    def reset(self) -> None:
        """Nothing open, no side shown."""
        self._sides = ()
        if self.program.quick.chat is not None:
            self.program.quick.chat.put_away()
        window = self.window
        for dialog in window.findChildren(QDialog):
            dialog.close()
        self.chat.settings.close()
        self.chat.finding.close()
        if self.chat.header.tint.isChecked():
            self.chat.toggle_tint()
        for name in ("sidebar", "panel", "plots", "cache"):
            self._button(name).setChecked(False)
        for bar in (window.notice, self.chat.notice):
            bar.clear()
        palette = window.dialogs.palette
        if palette is not None and palette.isVisible():
            window.dialogs.show_palette()
        self.chat.composer.clear()
        window.show_page(window.CHAT)

    def shown(self) -> list[QWidget]:
        """The window and what is open over it."""
        quick = [self.program.quick.chat] if self.program.quick.chat is not None else []
        found = (*self.window.findChildren(QDialog), self.chat.settings, *quick)
        over = [each for each in found if each.isVisible()]
        return [self.window, *dict.fromkeys(over)]

    def fit(self, width: int, height: int) -> None:
        """Give the window that size, and what is over it no more than fits."""
        self.window.setMinimumSize(1, 1)
        self.window.resize(width, height)
        settle()
        for name in self._sides:  # one that lies over the chat goes with each change of the width
            self._fold(name)
        settle()
        for each in self.shown()[1:]:
            each.resize(each.size().boundedTo(self.window.size()))
        settle()

    def _button(self, name: str) -> QToolButton:
        button = self.window.findChild(QToolButton, f"top.{name}")
        assert button is not None
        return button

    def _fold(self, name: str) -> None:
        self._button(name).setChecked(True)

    def _side(self, name: str) -> None:
        self._sides = (name,)

    def _empty(self) -> None:
        self.chat.new_chat()

    def _answer(self) -> None:
        if not self.chat.streaming and self.chat.chat_id and not self.chat.session.side_by_side:
            return
        self.chat.new_chat()
        self.chat.send("show me code")
        wait(lambda: self.chat.session.talk.leaf and not self.chat.streaming)

    def _notices(self) -> None:
        self._answer()
        self.window.notice.say(LONG, "bad", action="Free the memory", act=int)
        self.chat.notice.say(LONG, action="Answer again", act=int, other=("Show why", int))
        self.window.show_page(self.window.SETTINGS)
        self.window.show_page(self.window.CHAT)

    def _several(self) -> None:
        self.chat.several.choose()

    def _quick(self) -> None:
        """The small window with an answer in it."""
        self.program.quick.open()
        quick = self.program.quick.chat
        quick.edit.setPlainText("hello")
        quick.edit.submitted.emit()
        wait(lambda: len(quick.transcript.views) == 2 and not self.chat.streaming)

    def _side_by_side(self) -> None:
        from app.chat.side_by_side.chooser import SeveralDialog
        from tests.app.pressing import press

        self.chat.new_chat()
        self.chat.composer.edit.setPlainText("hello")
        self._several()
        dialog = self.window.findChildren(SeveralDialog)[-1]
        press(dialog, "several.count.3")
        press(dialog, "several.ask")
        wait(lambda: self.chat.session.side_by_side and not self.chat.streaming)

    def _models(self, view: str) -> None:
        self.window.show_page(self.window.MODELS)
        wait(lambda: self.window.models_page.stored_rows)
        self.window.models_page.show_view(view)

    def _run(self) -> None:
        from tests.app.pressing import press

        self._lab("prefixes")
        view = self.program.lab_page.inner
        assert view is not None
        press(view, "lab.run")
        wait(lambda: not view._runs.running and view.view is not None and view.view.found is not None)
        wait(lambda: not view.lesson.active)

    def _lab(self, name: str) -> None:
        self.window.show_page(self.window.LAB)
        view = self.program.lab_page.inner
        assert view is not None
        wait(lambda: view._runs.index is not None)
        view.show_experiment(name)


def faults(
    program: WindowProgram,
    sizes: Iterable[tuple[int, int]] = SIZES,
    texts: Iterable[int] = TEXTS,
    names: Sequence[str] = (),
    save: Callable[[str, QWidget], object] = lambda *_: None,
) -> Iterator[str]:
    """Each fault, with the text size, the state and the size at which it was found; ``save`` takes each window."""
    stage = Stage(program)
    sizes = [*sizes]
    for percent in texts:
        program.theme.set_scale(percent / 100)
        for name, put in stage.states().items():
            if names and name not in names:
                continue
            stage.window.resize(1440, 900)
            stage.reset()
            put()
            for size in sizes:
                stage.fit(*size)
                for number, root in enumerate(stage.shown()):
                    roomy = root.width() >= ROOM * percent / 100
                    save(f"{name.replace(' ', '-')}-{number}-{size[0]}-{percent}", root)
                    for fault in found(root, roomy):
                        yield f"{percent} % {name} {size[0]} x {size[1]}: {fault}"
        stage.reset()
    program.theme.set_scale(1.0)


def found(root: QWidget, roomy: bool = True) -> Iterator[str]:
    """What is wrong with a window as it stands; only a ``roomy`` one need not be scrolled sideways."""
    from tests.app.cutting import cut

    yield from cut(root)
    if roomy:
        yield from _sideways(root)
    yield from _long_lines(root)


def _sideways(root: QWidget) -> Iterator[str]:
    """Pages and dialogs that one has to scroll sideways."""
    from app.plots.strip import PlotStrip

    for area in root.findChildren(QScrollArea):
        bar = area.horizontalScrollBar()
        charts = isinstance(area.parentWidget(), PlotStrip)  # which are scrolled where they cannot be read
        if not charts and area.window() is root.window() and area.isVisible() and bar.isVisible() and bar.maximum() > 0:
            yield f"sideways by {bar.maximum()}: {area.objectName() or type(area.widget()).__name__}"


def _long_lines(root: QWidget) -> Iterator[str]:
    """Sentences in lines that the eye loses."""
    for label in root.findChildren(QLabel):
        if label.window() is root.window() and label.isVisible() and label.wordWrap():
            said = label.text()
            if label.textFormat() == Qt.TextFormat.RichText:
                said = QTextDocumentFragment.fromHtml(said).toPlainText()
            metrics, longest = label.fontMetrics(), max(said.split("\n"), key=len)
            across = min(label.width(), metrics.horizontalAdvance(longest))
            letters = across / max(1, metrics.horizontalAdvance(longest)) * len(longest)
            if letters > LETTERS:
                yield f"{letters:.0f} letters in a line: {longest[:40]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="en")
    parser.add_argument("--text", type=int, action="append", metavar="PERCENT")
    parser.add_argument("--size", action="append", metavar="WIDTHxHEIGHT")
    parser.add_argument("--state", action="append", default=[], metavar="NAME")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    parser.add_argument("--theme", default="dark", choices=["light", "dark", "contrast"])
    asked = parser.parse_args()
    from app import language

    language.choose(asked.language)  # before modules that hold texts
    from app import proposers
    from app.link import child
    from app.program import WindowProgram
    from engine.decoding.speculation.technique import drafting
    from tests.kit import engine_thread

    proposers.learn(each.style for each in drafting())
    sizes = [(int(w), int(h)) for w, _, h in (size.partition("x") for size in asked.size or ())] or SIZES
    app = QApplication(sys.argv[:1])
    language.install(app)
    child.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": engine_thread.popen})  # type: ignore[assignment]
    count = 0
    with tempfile.TemporaryDirectory(prefix="kvasir-screens-") as home:
        os.environ.update(HOME=home, KVASIR_HOME=home, HF_HUB_OFFLINE="1")
        state = Path(home) / "state.json"
        state.write_text(json.dumps(LAB))
        program = WindowProgram(app, Path(home) / "kvasir.log", [*engine_thread.THREAD, "--rate", "4000"])
        prepare(program, state)
        program.window.resize(1440, 900)
        program.window.show()
        wait(lambda: program.link.card is not None and not program.chat.composer.reason)
        program.theme.set_mode(asked.theme)

        def save(name: str, shown: QWidget) -> None:
            if asked.pictures is not None:
                asked.pictures.mkdir(parents=True, exist_ok=True)
                shown.grab().save(str(asked.pictures / f"{name}-{asked.theme}-{asked.language}.png"))

        for fault in faults(program, sizes, asked.text or TEXTS, asked.state, save):
            count += 1
            sys.stdout.write(f"{fault}\n")
        program.close()
    return int(count > 0)


LAB = {
    "steps": 0.0,
    "fails": "",
    "dies": False,
    "full": False,
    "kept": ["cache"],
    "index_fails": "",
    "same": True,
    "asked": [],
}
"""What the fake Lab does."""


if __name__ == "__main__":
    sys.exit(main())
