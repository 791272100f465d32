"""LoRA adapters of the model that is loaded."""

from __future__ import annotations

from engine.protocol.base import Message, Part


class LoadAdapter(Message, tag="load_adapter", frozen=True):
    """Bring the adapter of a folder (PEFT's format) into memory, to be asked for by a new ``name`` -> Adapters."""

    name: str
    path: str


class UnloadAdapter(Message, tag="unload_adapter", frozen=True):
    """Drop an adapter; answers that it is writing end -> Adapters."""

    name: str


class ListAdapters(Message, tag="list_adapters", frozen=True):
    """-> Adapters."""


class AdapterCard(Part, frozen=True):
    """``rank`` is the largest of its ``modules``, ``bytes`` what it takes next to the model, ``base`` the model that it
    was trained for, as its file says."""

    name: str
    path: str
    rank: int
    modules: int
    bytes: int
    base: str = ""


class Adapters(Message, tag="adapters", frozen=True):
    """The adapters in memory, whenever these change, and after a :class:`Loaded` of a model that has some."""

    adapters: list[AdapterCard]
