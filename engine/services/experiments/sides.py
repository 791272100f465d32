"""What sides are told: how an answer is drawn, switches that are set for a while, another model or other options."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from engine.loading.model import LoadedModel
from engine.protocol import KnownModel, LoadOptions, Sampling, Value, keys
from engine.services.client import EngineClient

PLAIN: Mapping[str, Value] = {keys.SPECULATION: "off"}
"""Switches of an answer without drafts, whose prompt is read from its first token as :class:`EngineClient` has it."""
SHARING: Mapping[str, Value] = {**PLAIN, keys.PREFIX_CACHE: True}
"""Those of one that goes on from what is in the cache."""


def greedy(tokens: int, *, ends: bool = False) -> Sampling:
    """The likeliest tokens, so many whatever they are; up to the answer's own end if ``ends``."""
    return Sampling(temperature=0.0, ignore_eos=not ends, seed=1, max_tokens=tokens)


def with_cache(model: LoadedModel, size: float, context: int) -> LoadOptions:
    """The options that the model was loaded with, but for a cache of so many bytes and this context."""
    fit = model.fit
    memory = fit.weights + fit.draft_weights + fit.states + fit.activations + size
    return structs.replace(model.command.options, memory=memory, context=context)


class Switched:
    """A context in which switches have other values."""

    def __init__(self, client: EngineClient, values: Mapping[str, Value]) -> None:
        self._client, self._values = client, values
        self._before: dict[str, Value] = {}

    def __enter__(self) -> None:
        state = self._client.state()
        self._before = {key: state[key].value for key in self._values}
        for key, value in self._values.items():
            self._client.set(key, value)

    def __exit__(self, *_: object) -> None:
        with self._client.uninterrupted():
            for key, value in reversed(self._before.items()):
                self._client.set(key, value)


class Reloaded:
    """A context in which the model is loaded with other options, or another one is; what was loaded before comes back.

    Entering it raises EngineError where the engine refuses.
    """

    def __init__(self, client: EngineClient, options: LoadOptions, other: KnownModel | None = None) -> None:
        model = client.model  # which is not held, so that its memory is free meanwhile
        self._client = client
        self._before = model.command
        self._meanwhile = (*((other.path, other.draft) if other is not None else self._before[:2]), options)

    def __enter__(self) -> None:
        self._client.load(*self._meanwhile)

    def __exit__(self, *_: object) -> None:
        with self._client.uninterrupted():
            self._client.load(*self._before)
