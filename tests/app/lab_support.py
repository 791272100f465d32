"""The Lab's operations behind the page, which the fixture `state` tells what to do, and what the page says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.lab.page import LabView
from app.link.link import EngineLink, LinkState
from engine import protocol
from engine.protocol.calls import Operation
from engine.protocol.lab import RunExperiment
from tests.app import fake_lab
from tests.app.fake_lab import Steps, write


class FakeCall:
    """One call: what its ``steps`` yield is told by and by."""

    def __init__(
        self,
        operation: Operation[Any, Any, Any],
        steps: Steps,
        on_answer: Callable[[Any], object],
        on_error: Callable[[protocol.Error], object],
        on_event: Callable[[Any], object],
    ) -> None:
        self._operation, self._steps = operation, steps
        self._on_answer, self._on_error, self._on_event = on_answer, on_error, on_event
        self._timer = QTimer(singleShot=True)
        self._timer.timeout.connect(self._step)
        self._timer.start(0)

    def cancel(self) -> None:
        self._timer.stop()

    def stop(self) -> None:
        """Its end is heard in the next turn of the event loop."""
        self._steps = failing("It was stopped before its end.")
        self._timer.start(0)

    def answer(self, answer: Any) -> None:
        self.cancel()
        self._on_answer(self._operation.read_answer(msgspec.json.encode(answer)))

    def _step(self) -> None:
        try:
            told = next(self._steps)
        except StopIteration as end:
            self.answer(end.value)
        except RuntimeError as error:
            self._on_error(protocol.Error(code="failed", message=str(error)))
        else:
            self._timer.start(round(1000 * told) if isinstance(told, float | int) else 0)
            if not isinstance(told, float | int):
                self._on_event(self._operation.read_event(msgspec.json.encode(told)))


def failing(sentence: str) -> Steps:
    raise RuntimeError(sentence)
    yield


class FakeCaller:
    """Performs operations as ``performed`` says, by their names."""

    def __init__(self, performed: dict[str, Callable[[Any], Steps]]) -> None:
        self._performed = performed

    def call(
        self,
        operation: Operation[Any, Any, Any],
        request: Any,
        on_answer: Callable[[Any], object] = lambda _: None,
        on_error: Callable[[protocol.Error], object] = lambda _: None,
        on_event: Callable[[Any], object] = lambda _: None,
    ) -> Any:
        return FakeCall(operation, self._performed[operation.name](request), on_answer, on_error, on_event)


def lab_of(state: Path) -> FakeCaller:
    """A Lab that does what the file says."""
    return FakeCaller({"lab.list": partial(fake_lab.experiments, state), "lab.run": partial(fake_lab.run, state)})


@contextlib.contextmanager
def true_engine(qtbot: QtBot) -> Iterator[EngineLink]:
    """The engine itself, without a model."""
    link = EngineLink()
    link.start()
    try:
        qtbot.waitUntil(lambda: link.state is LinkState.CONNECTED)
        yield link
    finally:
        link.shutdown()


def change(path: Path, **facts: Any) -> None:
    write(path, {**json.loads(path.read_text()), **facts})


def asked(path: Path) -> list[RunExperiment]:
    """The runs that were asked for."""
    return msgspec.convert(json.loads(path.read_text())["asked"], list[RunExperiment])


def said(lab: LabView, name: str) -> str:
    found = lab.findChild(QLabel, name)
    return found.text() if found is not None and found.isVisibleTo(lab) else ""
