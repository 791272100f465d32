"""Bringing a model into memory, in three stages so that the model before it can be kept until the new one is read."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from engine.core.commands import LoadModel
from engine.core.loaded import LoadedModel
from engine.core.options import EngineOptions
from engine.protocol import Fit

Progress = Callable[[str, float], None]


class LoadFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """The model is not served. ``code`` is for programs, the message one sentence what happened and one what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OpenedModel(Protocol):
    """A model whose files were checked and whose memory was estimated; nothing large was read."""

    @property
    def fit(self) -> Fit:
        """What it will take."""

    def fits_beside(self) -> bool:
        """Whether its weights fit into what is free now, with the present model still in memory."""

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> Any:
        """Read the weights. Raises LoadFailed, or engine.checkpoints.errors.LoadCancelled."""

    def assemble(self, weights: Any, progress: Progress) -> LoadedModel:
        """Give what was read its arenas, out of what is free now. Raises LoadFailed."""


class Loader(Protocol):
    """Where models come from."""

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> OpenedModel:
        """Check the files and whether they fit once ``resident`` has made room. Raises LoadFailed."""


def load_name(path: str) -> str:
    """What to call the model of a folder before its card exists."""
    return Path(path).name or path


def release_memory() -> None:
    """Give back what a dropped model held."""
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def spare_the_collector() -> None:
    """Take all that lives now out of the garbage collector's rounds, which would go through it during steps."""
    gc.collect()
    gc.freeze()
