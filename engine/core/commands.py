"""What other threads may ask of the engine; see :meth:`engine.core.engine.Engine.submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.protocol import LoadOptions, Sampling, Value


class AddRequest(NamedTuple):
    """Generate ``n`` answers to a prompt. Events name the answers 0 to n - 1.

    ``continues``: the answer goes on from plain text (no chat template), so that its first space belongs to it.
    """

    id: str
    prompt_ids: Sequence[int]
    sampling: Sampling = Sampling()
    n: int = 1
    optimisations: Mapping[str, Value] = {}
    continues: bool = False


class CancelRequest(NamedTuple):
    """End every answer of a request within one step; what was generated stays."""

    id: str


class SetOption(NamedTuple):
    key: str
    value: Value


class LoadModel(NamedTuple):
    """Load the model folder at ``path``; ``draft`` is the folder of a draft model or ""."""

    path: str
    draft: str = ""
    options: LoadOptions = LoadOptions()


class UnloadModel(NamedTuple):
    pass


class Shutdown(NamedTuple):
    pass


Command = AddRequest | CancelRequest | SetOption | LoadModel | UnloadModel | Shutdown
