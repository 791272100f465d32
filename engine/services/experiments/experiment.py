"""Definition of an experiment and its inputs: a loaded model, a seed, and what pairs of runs may take.

An experiment is a fixed workload that is run with a technique and without it (pairs.py). It yields progress and
pictures, and returns what it found.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol

from engine.loading.model import LoadedModel
from engine.protocol import OptionSpec, Value
from engine.protocol.lab import LabFigure, LabPage, LabPicture, LabProgress, LabText, Picture, Plot
from engine.services.client import EngineClient
from engine.services.experiments.sides import Switched

RunEvent = LabProgress | LabPicture


class Refusal(NamedTuple):
    """Reason a model cannot show an experiment, and what can, each a sentence."""

    why: str
    instead: str


class Found(NamedTuple):
    """Findings of an experiment; the rest of a :class:`~engine.protocol.LabResult` is the same for all."""

    headline: str
    figures: list[LabFigure]
    text: LabText | None
    taken: str
    same: list[str]
    other: list[str]
    why: list[str]
    settings: dict[str, Value]
    pictures: list[Picture] = []
    plots: list[Plot] = []
    sides: list[str] = []
    """Those that ran, where the model lacks some of the page's."""
    told_of: int = -1
    lesson: str = ""
    """What is said instead of the page's lesson, where the run cannot show that."""
    asked: int = 0
    second: str = ""
    others: float | None = None


Run = Generator[RunEvent, None, Found]


class Lab(NamedTuple):
    """``pairs``: the most pairs of runs, 0 for as many as a verdict takes. ``budget``: seconds that they may take in
    all: past it no further pair begins, once there are :data:`~engine.decoding.telemetry.pairs.LEAST` and their range
    says something; past :data:`PATIENCE` times as many none at all, or :data:`LONGER` on a busy computer, and then
    there may be too few for a verdict."""

    client: EngineClient
    seed: int = 1
    pairs: int = 0
    budget: float = 40.0
    chosen: Mapping[str, int] = {}
    """Settings of the experiment that are other than usual."""

    @property
    def model(self) -> LoadedModel:
        return self.client.model

    @property
    def random(self) -> random.Random:
        """The same numbers for the same seed."""
        return random.Random(f"lab {self.seed}")

    def switched(self, values: Mapping[str, Value]) -> Switched:
        """Switches of the engine for a while; what they were comes back."""
        return Switched(self.client, values)


class Experiment(Protocol):
    """One of the Lab."""

    page: LabPage

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        """Return the refusal of a loaded model that cannot show it, or None; ``state``: engine switches by key."""

    def run(self, lab: Lab) -> Run:
        """Run it: progress and pictures, at last what was found. Raises EngineError, LabError."""


class LabError(RuntimeError):
    """Raised if an experiment could not be run; the message is the reason, as a sentence."""
