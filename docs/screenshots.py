"""Take the screenshots of the documentation: the real program, offscreen, with the real engine and the bundled model.

    python docs/screenshots.py [--language CODE] [FOLDER [PART...]]

Writes dark.png and light.png (1440 x 900) to FOLDER, by default docs/screenshots. Nothing in them is drawn: the window
loads the bundled model, asks it a question with the draft model drafting ahead, measures what that bought, and is
grabbed as it stands. With a FOLDER all pictures are taken in both themes and also with text of 150 %, without one
those that the documentation has. The parts are chat, documents, tinted, cache, models, lab and pages; all, if none is
named. With QT_SCALE_FACTOR=2 in the environment they have twice as many pixels each way. With a language other than
English those of the documentation go to docs/screenshots/CODE.

speculation-dark.png and speculation-light.png show tinted words: a question is asked twice, and tokens are drafted from
what the chat repeats and by whatever else the bundled model has for it.

cache-dark.png and cache-light.png show the view of the cache with two chats that have one system prompt. One of them is
still being answered, in the background: its answer is made to go on, so that there is time to take the picture.

models-*.png show the page Models with a hub on this machine, whose repositories are examples: a model that is
a tight fit for this machine in 8 bits and too large in 16 (no more than its header is there), and the bundled one.
Whether they fit, how fast they are, the 4-bit model made of the bundled hybrid one and its report are real.

lab-*.png show the Lab: all experiments, and each with its result.

page-*.png show every page and what opens over it at a first start, also in the smallest window (800 x 600).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.protocol import keys

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication, QWidget

    from app.program import WindowProgram
    from tests.hub_server import Hub

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "screenshots"
SIZE = (1440, 900)
LAB_SIZE = (1200, 1500)
SMALL = (800, 600)
QUESTIONS = ("What is Kvasir?", "What is a page?", "Why is decoding bound by memory?")
PATIENCE_S = 180.0
SYSTEM = (
    "You are the guide of Kvasir, a program that runs language models on its reader's own machine. Answer briefly, in "
    "plain words, and say so where you do not know. Name the switch that a question is about. Give figures a unit."
)
REPEATED = "What is speculation?"
CHATS = (
    ("What is a page?", "What is prefill?", "What is speculation?"),
    ("What is the KV cache?", "Why is decoding bound by memory?", "What is speculation?"),
)
"""Questions of the two chats; the last one of the first is answered at length."""
LONG = 1500
"""Tokens of that answer."""
SHOWN = {
    *(f"{name}{mode}" for name in ("", "speculation-", "cache-") for mode in ("dark", "light")),
    "lab-dark",
    "lab-prefixes-dark",
    *(f"models-{state}-dark" for state in ("recommended", "repository", "making", "report")),
}
"""The pictures of the documentation."""
KINDS = ("Q4_K_M", "Q8_0", "BF16")
"""Of the example model's files."""
EXAMPLE, GUIDE = "example/large-GGUF", "example/kvasir-guide"
READ = 25 << 20
"""Bytes of a file that are there; no more are read to plan a load."""


def wait(what: str, done: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Run the event loop until ``done`` is true; ends the program with a sentence when it does not come to pass."""
    from PySide6.QtCore import QEventLoop, QTimer

    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise SystemExit(f"No screenshot: {what} took longer than {seconds:.0f} seconds.")
        loop = QEventLoop()  # Python threads have their turn meanwhile, which QTest.qWait does not give them
        QTimer.singleShot(30, loop.quit)
        loop.exec()


def main() -> int:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    sys.path.insert(0, str(ROOT))
    from PySide6.QtWidgets import QApplication

    from app import language

    parts = {
        "chat": _shoot,
        "documents": _shoot_documents,
        "tinted": _shoot_speculation,
        "cache": _shoot_cache,
        "models": _shoot_models,
        "lab": _shoot_lab,
        "pages": _shoot_pages,
        "daily": _shoot_daily,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="en", choices=language.LANGUAGES)
    parser.add_argument("folder", metavar="FOLDER", type=Path, nargs="?")
    parser.add_argument("parts", metavar="PART", nargs="*", choices=[*parts, []])
    asked = parser.parse_args()
    code = asked.language
    folder = asked.folder.resolve() if asked.folder is not None else PLACE / ("" if code == "en" else code)
    folder.mkdir(parents=True, exist_ok=True)
    language.choose(code)  # before modules that hold texts
    app = QApplication(["kvasir"])
    language.install(app)
    for shoot in [parts[name] for name in asked.parts] or parts.values():
        with tempfile.TemporaryDirectory(prefix="kvasir-screenshots-") as home:
            os.environ["KVASIR_HOME"] = home
            shoot(app, folder, Path(home))
    return 0


def _is_documentation(folder: Path) -> bool:
    """True for the folder of the documentation's pictures, or that of a language below it."""
    return PLACE in (folder, folder.parent)


@contextmanager
def _opened(app: QApplication, home: Path) -> Iterator[tuple[WindowProgram, list[str]]]:
    """The program with the bundled model, and what the engine has refused by now."""
    from app.program import WindowProgram

    program = WindowProgram(app, home / "kvasir.log")
    failures: list[str] = []
    program.link.failed.connect(lambda error: failures.append(error.message))
    try:
        program.theme.set_mode("dark")
        program.window.resize(*SIZE)
        program.window.show_why_fast()
        program.window.show()
        wait("loading the bundled model", lambda: program.link.card is not None or failures)
        yield program, failures
    finally:
        program.close()


def _shoot(app: QApplication, folder: Path, home: Path) -> None:
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QScrollArea

    from engine.protocol import Compared, Set

    with _opened(app, home) as (program, failures):
        window, link = program.window, program.link
        measured: list[Compared] = []
        link.compared.connect(measured.append)
        for index, question in enumerate(QUESTIONS):
            if index == len(QUESTIONS) - 1 and link.card is not None and link.card.draft:
                link.send(Set(key=keys.SPECULATION, value="draft"))
            ended: list[object] = []
            link.finished.connect(ended.append)
            program.chat.send(question)
            wait("the answer", lambda: ended or failures)  # noqa: B023
            link.finished.disconnect(ended.append)
        window.panel.measure_requested.emit(keys.SPECULATION)
        wait("measuring speculation", lambda: measured or failures)
        row, scroll = window.panel.row(keys.SPECULATION), window.panel.findChild(QScrollArea)
        assert scroll is not None
        QTest.qWait(100)
        scroll.verticalScrollBar().setValue(row.y() - 60)
        window.panel.set_tint(True)
        window.panel.tint_changed.emit(True)
        _grab(program, folder, "", failures)


def _shoot_documents(app: QApplication, folder: Path, home: Path) -> None:
    """Two documents next to a message, one of them longer than the context; then their cards, unfolded, and a second
    chat about the short one."""
    if _is_documentation(folder):
        return
    short, long = home / "What a page is.md", home / "Using Kvasir.md"
    short.write_text("A page holds the keys and values of sixteen tokens. Chats that begin alike share pages.\n" * 12)
    long.write_text((ROOT / "docs" / "using.md").read_text())

    with _opened(app, home) as (program, failures):
        chat, composer, ended = program.chat, program.chat.composer, list[object]()
        program.link.finished.connect(ended.append)
        for name, files, question in (
            ("", [short, long], "How do I see which chats share pages?"),
            ("read-before-", [short], "What is a page?"),
        ):
            chat.new_chat()
            composer.take_files(files)
            wait("reading the documents", lambda: not composer.documents.reading)
            composer.edit.setPlainText(question)
            shown = [each.document for each in composer.documents.attached if each.document is not None]
            wait("counting", lambda: all(chat.session.tokens.of(each) for each in shown) or failures)  # noqa: B023
            if not name:
                _grab(program, folder, "documents-composer-", failures)
            ended.clear()
            chat.sending.send(question)
            wait("the answer", lambda: ended or failures)
            asked = chat.session.talk.last("user")
            view = chat.transcript.view(asked.id) if asked is not None else None
            for fold in [fold for fold in view.folds if not name and fold.objectName() == "document"] if view else ():
                fold.toggle()
            chat.transcript.verticalScrollBar().setValue(0)
            _grab(program, folder, f"documents-{name}", failures)


def _shoot_speculation(app: QApplication, folder: Path, home: Path) -> None:
    """The second answer repeats the first, so that its words are drafted in two ways."""
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QScrollArea

    from engine.protocol import Sampling, Set

    with _opened(app, home) as (program, failures):
        window, link, talk = program.window, program.link, program.chat
        assert link.card is not None
        kind = next(iter(link.card.heads), "draft" if link.card.draft else "ngram")
        for key, value in ((keys.SPECULATION, kind), (keys.NGRAM_FIRST, True)):
            link.send(Set(key=key, value=value))
        talk.session.talk.set_settings("", Sampling(temperature=0.0))
        for _ in range(2):
            talk.send(REPEATED)
            wait("the answer", lambda: not talk.streaming or failures)
        talk.toggle_tint()
        row, scroll = window.panel.row(keys.SPECULATION), window.panel.findChild(QScrollArea)
        assert scroll is not None
        QTest.qWait(100)
        scroll.verticalScrollBar().setValue(row.y() - 60)
        _grab(program, folder, "speculation-", failures)


def _shoot_cache(app: QApplication, folder: Path, home: Path) -> None:
    """Two chats that begin with the same instructions; while one is on screen the other is answered."""
    from PySide6.QtCore import QPoint
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QToolButton

    from engine.protocol import Sampling

    with _opened(app, home) as (program, failures):
        window, talk = program.window, program.chat

        def ask(question: str) -> None:
            talk.send(question)
            wait("the answer", lambda: not talk.streaming or failures)

        button = window.findChild(QToolButton, "top.cache")
        assert button is not None
        button.click()
        panes = window.cache.panes
        assert panes is not None
        behind, front = CHATS
        chats = []
        for questions in (behind[:-1], front):
            talk.new_chat()
            talk.session.talk.set_settings(SYSTEM, Sampling())
            for question in questions:
                ask(question)
            chats.append(talk.chat_id)
        talk.open_chat(chats[0])
        talk.session.talk.set_settings(SYSTEM, Sampling(ignore_eos=True, max_tokens=LONG))
        talk.send(behind[-1])
        wait("the long answer's first pages", lambda: any(row.node.locks for row in panes.tree.rows.rows))
        talk.open_chat(chats[1])
        QTest.qWait(1500)
        QTest.mouseMove(panes.map.body, QPoint(40, 2))
        wait("what the page holds", lambda: panes.card.words)
        _grab(program, folder, "cache-", failures)


def _shoot_models(app: QApplication, folder: Path, home: Path) -> None:
    """The states of the page Models, in the order in which somebody meets them."""
    from tests.app.pressing import press

    with _hub(home) as hub, _opened(app, home) as (program, failures):
        page, library = program.window.models_page, program.library
        library.failed.connect(failures.append)
        library.maker.failed.connect(failures.append)
        making = library.maker

        def take(state: str) -> None:
            _grab(program, folder, f"models-{state}-", failures, (1000, 760))

        program.window.show_page(program.window.MODELS)
        wait("the list of models", lambda: page.stored_rows or failures)
        page.show_view("hub")
        wait("what suits this computer", lambda: any(each.verdict for each in library.verdicts.recommended) or failures)
        take("recommended")

        page.field.setText("example")
        page.search()
        wait("the search", lambda: page.hub_rows or failures)
        press(page, f"models.hub.{EXAMPLE}.open")
        wait("whether its files fit", lambda: (library.hub.fits_of(EXAMPLE) and not library.hub.fitting) or failures)
        hub.pause = 0.2
        library.downloads.get(GUIDE, "safetensors")
        wait(
            "a download",
            lambda: any(8 * each.done > each.total > 0 for each in library.downloads.jobs.values()) or failures,
        )
        take("repository")
        hub.pause = 0.0
        wait("the download's end", lambda: not library.downloads.jobs or failures)

        page.show_view("here")
        press(page, "models.stored.kvasir-hybrid.make")
        take("form")
        press(page, "models.make.go")
        wait("a layer", lambda: any(each.done for each in making.jobs.values()) or failures)
        take("making")
        wait("the smaller model", lambda: not making.jobs or failures)
        wait("the list of models", lambda: any(each.made_of for each in library.stored) or failures)
        made = next(each for each in library.stored if each.made_of)
        press(page, f"models.stored.{made.name}.report")
        wait("the report", lambda: page.report.isVisible() or failures)
        take("report")

        page.show_view("here")
        press(page, f"models.stored.{made.name}.details")
        wait("the tokens", lambda: page.details.count.text() or failures)
        take("details")
        page.show_view("disk")
        take("disk")


def _shoot_lab(app: QApplication, folder: Path, home: Path) -> None:
    """The Lab: all experiments, each with its result, the roofline, and a comparison of two kinds of cache."""
    from PySide6.QtWidgets import QScrollArea

    from app.lab.page import LabView
    from app.lab.tools import COMPARE, ROOFLINE
    from tests.app.pressing import press

    with _opened(app, home) as (program, failures):
        program.window.show_page(program.window.LAB)
        view = program.lab_page.findChild(LabView)
        runs = program.lab
        assert view is not None
        assert runs is not None
        wait("the experiments", lambda: runs.index is not None or runs.trouble)
        names = [page.name for page in runs.pages.values()]
        if _is_documentation(folder):
            names = [name for name in names if f"lab-{name}-dark" in SHOWN]
        for name in names:
            view.show_experiment(name)
            if view.view is None or not view.view.run.isEnabled():
                continue
            press(view, "lab.run")
            wait(name, lambda: not runs.running)
            for scroll in view.findChildren(QScrollArea):
                scroll.verticalScrollBar().setValue(0)
            _grab(program, folder, f"lab-{name}-", failures, LAB_SIZE)
        view.show_experiment("")
        _grab(program, folder, "lab-", failures)
        if _is_documentation(folder):
            return
        view.show_experiment(ROOFLINE)
        press(view, "lab.roofline.run")
        wait("the roofline", lambda: not runs.running)
        _grab(program, folder, "lab-roofline-", failures)
        view.show_experiment(COMPARE)
        view.compare.run()
        wait("the comparison", lambda: not view.compare.busy)
        _grab(program, folder, "lab-compare-", failures, LAB_SIZE)


def _shoot_pages(app: QApplication, folder: Path, home: Path) -> None:
    """Each page and each thing that opens over one, in a window of the usual size and in the smallest."""
    from PySide6.QtWidgets import QDialog, QLineEdit

    if _is_documentation(folder):
        return
    with _opened(app, home) as (program, failures):
        window = program.window
        pages = ("chat", "models", "lab", "server", "help", "settings")
        for name, (at, page) in itertools.product(("", "small-"), enumerate(pages)):
            window.show_page(at)
            _grab(program, folder, f"page-{name}{page}-", failures, SMALL if name else SIZE)
        window.show_page(window.SETTINGS)
        window.settings_page.field.setText("model")
        _grab(program, folder, "page-settings-found-", failures)
        window.settings_page.field.clear()
        window.show_page(window.CHAT)
        for name, size in (("", SIZE), ("small-", SMALL)):
            window.dialogs.show_palette()
            palette = window.findChild(QLineEdit, "palette.field")
            assert palette is not None
            palette.setText("cache")
            _grab(program, folder, f"page-{name}palette-", failures, size)
            window.dialogs.show_palette()
        program.store.update(simple=True)
        _grab(program, folder, "page-simple-", failures)
        program.store.update(simple=False)
        for name, show in (("shortcuts", window.dialogs.show_shortcuts), ("log", window.dialogs.show_log)):
            show()
            dialog = window.findChild(QDialog, name)
            assert dialog is not None
            _grab(program, folder, f"page-{name}-", failures, dialog.size().toTuple(), dialog)
            dialog.close()


def _shoot_daily(app: QApplication, folder: Path, home: Path) -> None:
    """Work on a chat: an answer that was cut, another version of it, words found in it, and three answers
    side by side."""
    if _is_documentation(folder):
        return
    from app.chat.side_by_side.chooser import SeveralDialog
    from engine.protocol import Sampling
    from tests.app.pressing import press

    with _opened(app, home) as (program, failures):
        chat, sizes = program.chat, {"": SIZE, "small-": SMALL}

        def grab(state: str) -> None:
            for name, size in sizes.items():
                _grab(program, folder, f"chat-{name}{state}-", failures, size)

        for question, most in zip(QUESTIONS, (None, None, 20), strict=True):
            chat.session.set_settings("", Sampling(temperature=0.0, max_tokens=most))
            chat.send(question)
            wait("the answer", lambda: not chat.streaming or failures)
        grab("cut")
        chat.message_actions.act_on_last("assistant", "edit")
        grab("edit")
        chat.composer.clear()
        chat.transcript.verticalScrollBar().setValue(0)
        grab("scrolled")
        chat.finding.begin()
        chat.finding.bar.field.setText("page")
        grab("found")
        chat.finding.close()
        chat.session.set_settings("", Sampling())
        chat.composer.edit.setPlainText(QUESTIONS[0])
        chat.several.choose()
        dialog = program.window.findChild(SeveralDialog)
        assert dialog is not None
        _grab(program, folder, "chat-several-", failures, (560, 460), dialog)
        press(dialog, "several.count.3")
        press(dialog, "several.ask")
        wait("three answers", lambda: not chat.streaming or failures)
        grab("side-by-side")


@contextmanager
def _hub(home: Path) -> Iterator[Hub]:
    """Of this machine, with two repositories; and nobody's models but Kvasir's."""
    import torch

    from engine.library import paths
    from engine.loading.memory.probe import free_bytes
    from engine.services.experiments.workloads.shapes import Shape
    from tests.bench.gguf_files import gguf_header
    from tests.hub_server import Hub, Repository

    # As large in 8 bits as three fifths of what is free: with 8,192 tokens that is a tight fit.
    shape = Shape("example", layers=1, hidden=5120, ffn=13824, heads=40, kv_heads=40, vocabulary=32000, context=8192)
    header = home / "header.gguf"
    layer = gguf_header(replace(shape, layers=2), header, "Q8_0") - gguf_header(shape, header, "Q8_0")
    shape = replace(shape, layers=int(0.6 * free_bytes(torch.device("cpu")) / layer))
    # The last header stays: that of the first kind, from which the others are planned.
    sizes = {f"model-{kind}.gguf": gguf_header(shape, header, kind) for kind in reversed(KINDS)}
    begins = header.read_bytes().ljust(READ, b"\0")

    class Declared(Repository):
        """One whose files are said to be larger than what is there of them."""

        def described(self, name: str, blobs: bool) -> dict[str, Any]:
            told = super().described(name, blobs)
            for sibling in told["siblings"]:
                sibling |= {"size": sizes[sibling["rfilename"]]} if blobs else {}
            return told

    hub = Hub()
    guide = Path(paths.bundled_folder()) / "kvasir-guide"
    hub.repositories = {
        EXAMPLE: Declared(
            dict.fromkeys(sizes, begins),
            tags=["gguf", "license:apache-2.0"],
            gguf={"total": shape.vocabulary * shape.hidden + sum(k * n for _, k, n in shape.linears())},
        ),
        GUIDE: Repository(
            {each.name: each.read_bytes() for each in guide.iterdir() if each.is_file()},
            tags=["safetensors", "license:apache-2.0"],
        ),
    }
    changed = {"HOME": str(home), "HF_ENDPOINT": hub.address, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    gone = ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "KVASIR_MODELS", "OLLAMA_MODELS", "XDG_DATA_HOME")
    before = dict(os.environ)
    try:
        os.environ.update(changed)
        for name in gone:
            os.environ.pop(name, None)
        yield hub
    finally:
        os.environ.clear()
        os.environ.update(before)
        hub.close()


def _grab(
    program: WindowProgram,
    folder: Path,
    name: str,
    failures: list[str],
    size: tuple[int, int] = SIZE,
    over: QWidget | None = None,
) -> None:
    """The window, or what is ``over`` it, in both themes, as ``name``dark.png and ``name``light.png; no picture where
    something failed.

    Those that are not for the documentation also with text of 150 %, as ``name``dark-150.png, and in high contrast.
    """
    from PySide6.QtTest import QTest

    if failures:
        raise SystemExit(f"No screenshot: {failures[0]}")

    shown = over or program.window
    for scale, mode in itertools.product((1.0, 1.5), ("dark", "light", "contrast")):
        if _is_documentation(folder) and (scale > 1 or f"{name}{mode}" not in SHOWN):
            continue
        program.theme.set_mode(mode)
        program.theme.set_scale(scale)
        shown.resize(*size)
        QTest.qWait(600)  # what was cut anew is laid out and painted
        path = folder / f"{name}{mode}{'-150' if scale > 1 else ''}.png"
        shown.grab().save(str(path))
        sys.stdout.write(f"{path}\n")
    program.theme.set_scale(1.0)


if __name__ == "__main__":
    sys.exit(main())
