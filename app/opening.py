"""A model given on the command line, by a second start, or by the desktop: which path that is, and loading it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

from app.language import tr
from app.notice import NoticeBar

OPENING = "open"
_WRONG = "wrong path"  # not shown


def path_of(arguments: Sequence[str]) -> str:
    """The absolute path of the model that the arguments name, without the program's own; "" for none.

    A file:// URL is a path as well. What begins with a dash is an option and no path.
    """
    given = next((argument for argument in arguments if argument and not argument.startswith("-")), "")
    if not given:
        return ""
    with contextlib.suppress(ValueError):  # no URL after all
        if given.lower().startswith("file:"):
            parts = urlsplit(given)
            host = parts.netloc if parts.netloc.lower() != "localhost" else ""
            given = url2pathname(parts.path) if not host else f"//{host}{unquote(parts.path)}"
    with contextlib.suppress(RuntimeError):  # the home of nobody: a name that begins with ~
        return str(Path(given).expanduser().absolute())
    return str(Path(given).absolute())


def trouble(path: str) -> str:
    """Reason no model can be loaded from there, as a sentence; "" if one may be."""
    place = Path(path)
    try:
        if place.is_dir():
            if any((place / name).exists() for name in ("config.json", "params.json")) or any(
                file.suffix.lower() == ".gguf" for file in place.iterdir()
            ):
                return ""
            return tr("{path} holds no model. Choose a folder with config.json in it, or a GGUF file.", path=path)
        if not place.exists():
            return tr("There is no {path}. Choose a GGUF file or the folder of a model with the model menu.", path=path)
        if not place.is_file():  # reading a pipe would wait for ever
            return tr(
                "{path} is not a file. Choose a GGUF file or the folder of a model with the model menu.", path=path
            )
        with place.open("rb") as file:
            if place.suffix.lower() == ".gguf" or file.read(4) == b"GGUF":
                return ""
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return tr("{path} cannot be read ({why}). Allow reading it, then open it again.", path=path, why=why)
    return tr(
        "{name} is not a GGUF file. Choose a .gguf file, or the folder of a model that has several files.",
        name=place.name,
    )


class Application(QApplication):
    """``file_opened``: macOS tells a running application by an event which file it is to open."""

    file_opened = Signal(str)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent):
            self.file_opened.emit(path_of([event.file() or event.url().toString()]))
            return True
        return super().event(event)


class Opener(QObject):
    """``load`` loads a model once the engine is there, in place of the one of last time; ``ends`` says what is under
    way and would end, without a full stop; "" where nothing is."""

    opened = Signal()
    """A load begins, which is shown where one chats."""

    def __init__(self, notice: NoticeBar, load: Callable[[str], None], ends: Callable[[], str]) -> None:
        super().__init__(notice)
        self._notice, self._load, self._ends = notice, load, ends

    def open(self, path: str) -> None:
        """Load the model at ``path``, or say why not; ask before that ends or spoils something."""
        notice = self._notice
        if sentence := trouble(path):
            notice.say(sentence, "bad", topic=_WRONG)
        else:
            self.guard(tr("Opening {name}", name=Path(path).name), tr("Open it now"), lambda: self._begin(path))

    def guard(self, what: str, title: str, act: Callable[[], object]) -> None:
        """Do ``act``; where that would end an answer or a measurement, ask first. ``what``: "Opening Qwen3", say."""
        notice = self._notice
        if busy := self._ends():
            question = tr("{busy}. {what} ends it.", busy=busy, what=what)
            notice.say(question, topic=OPENING, action=title, act=act)
        else:
            notice.clear(_WRONG)
            notice.clear(OPENING)
            act()

    def settle(self) -> None:
        """Withdraw the question if the work it asked about is over."""
        if not self._ends():
            self._notice.clear(OPENING)

    def _begin(self, path: str) -> None:
        self._notice.clear(OPENING)
        self.opened.emit()
        self._load(path)
