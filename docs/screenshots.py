"""Take the screenshots of the documentation: the real program, offscreen, with the real engine and the bundled model.

    python docs/screenshots.py [FOLDER]

Writes dark.png and light.png (1440 x 900) to FOLDER, by default docs/screenshots. Nothing in them is drawn: the window
loads the bundled model, asks it a question with the draft model guessing ahead, measures what that bought, and is
grabbed as it stands.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZE = (1440, 900)
QUESTIONS = ("What is Kvasir?", "What is a page?", "Why is decoding bound by memory?")
PATIENCE_S = 180.0


def wait(what: str, done: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Run the event loop until ``done`` is true; ends the program with a sentence when it does not come to pass."""
    from PySide6.QtTest import QTest

    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise SystemExit(f"No screenshot: {what} took longer than {seconds:.0f} seconds.")
        QTest.qWait(30)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory(prefix="kvasir-screenshots-") as home:
        os.environ["KVASIR_HOME"] = home
        _shoot(folder, Path(home))
    return 0


def _shoot(folder: Path, home: Path) -> None:
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QApplication

    from app.program import Program
    from engine.protocol import Compared, Set

    app = QApplication(["kvasir"])
    program = Program(app, home / "kvasir.log")
    window, link = program.window, program.link
    measured: list[Compared] = []
    link.compared.connect(measured.append)
    failures: list[str] = []
    link.failed.connect(lambda error: failures.append(error.message))
    try:
        program.theme.set_mode("dark")
        window.resize(*SIZE)
        window.show()
        wait("loading the bundled model", lambda: link.card is not None)
        for index, question in enumerate(QUESTIONS):
            if index == len(QUESTIONS) - 1 and link.card is not None and link.card.draft:
                link.send(Set(key="speculation", value="draft"))
            ended: list[object] = []
            link.finished.connect(ended.append)
            program.chat.send(question)
            wait("the answer", lambda: ended or failures)  # noqa: B023
            link.finished.disconnect(ended.append)
        window.panel.measure_requested.emit("speculation")
        wait("measuring speculation", lambda: measured or failures)
        window.panel.row("speculation").toggle_explanation()
        window.panel.set_tint(True)
        window.panel.tint_changed.emit(True)
        if failures:
            raise SystemExit(f"No screenshot: {failures[0]}")
        for mode in ("dark", "light"):
            program.theme.set_mode(mode)
            QTest.qWait(600)
            window.resize(*SIZE)
            window.grab().save(str(folder / f"{mode}.png"))
            sys.stdout.write(f"{folder / f'{mode}.png'}\n")
    finally:
        program.close()


if __name__ == "__main__":
    sys.exit(main())
