"""LoRA adapters of the model that is loaded: brought into memory next to it, and dropped again."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.base.devices import release_cached
from engine.base.errors import CheckpointError, is_out_of_memory
from engine.base.sizes import human
from engine.compute.models.adapters import Adapter, parts_of
from engine.compute.models.base import CausalLM
from engine.formats.adapters.read import AdapterFiles, open_adapter
from engine.formats.adapters.sites import Sites, sites_of
from engine.loading.memory.probe import free_bytes
from engine.loading.model import LoadedModel, LoadFailed
from engine.protocol import AdapterCard

_log = logging.getLogger(__name__)

MOST_NAME = 100
MOST_ADAPTERS = 64
SHARE = 0.9
"""Share of the free memory that an adapter may take."""


def adapters_of(model: LoadedModel | None) -> tuple[Adapter, ...]:
    """Adapters of the model that are in memory; for any thread."""
    return () if model is None or model.model is None else model.model.adapters.loaded


def cards(model: LoadedModel | None) -> list[AdapterCard]:
    """The same, as the window is told of them."""
    return [
        AdapterCard(
            name=each.name, path=each.path, rank=each.rank, modules=each.modules, bytes=each.bytes, base=each.base
        )
        for each in adapters_of(model)
    ]


def find_adapter(model: LoadedModel, name: str) -> Adapter | None:
    """Raises :class:`LoadFailed` for a name, other than "", that no adapter has."""
    if not name:
        return None
    found = next((adapter for adapter in adapters_of(model) if adapter.name == name), None)
    if found is None:
        known = ", ".join(adapter.name for adapter in adapters_of(model))
        there = f"Loaded are: {known}." if known else "None is loaded: load it first."
        raise LoadFailed("adapter_not_found", f"No adapter is called {name!r:.120}. {there}")
    return found


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """An adapter that was opened and fits the loaded model. Unlike the other parts it comes when that serves already,
    and what cannot serve is refused."""

    name: str
    files: AdapterFiles
    sites: Sites

    @classmethod
    def find(cls, loaded: LoadedModel, name: str, path: str) -> Self:
        """Raises :class:`LoadFailed`, or :class:`CheckpointError` for invalid files."""
        _check_name(loaded, name)
        model, files = loaded.model, loaded.files
        if model is None or files is None:
            raise LoadFailed("bad_adapter", f"{loaded.card.name} takes no adapters. Load another model.")
        sites = sites_of(files.checkpoint, model)
        folder = Path(os.path.expanduser(path))
        return cls(name, open_adapter(folder, sites, files.checkpoint.config.architecture), sites)

    def size(self, model: CausalLM) -> int:
        """Bytes of its factors."""
        return self.files.size(model.dtype)

    def check_room(self, model: CausalLM) -> None:
        """Raises :class:`LoadFailed` where too little memory is free."""
        size, free = self.size(model), free_bytes(model.device)
        if size > SHARE * free:
            text = f"The adapter {self.name} takes {human(size)}, and {human(free)} are free."
            raise LoadFailed("out_of_memory", f"{text} Close other programs, or load the model with a smaller budget.")

    def attach(self, model: CausalLM) -> Adapter:
        """Read its factors and attach them to the model's layers. Raises :class:`CheckpointError`."""
        factors = self.files.read(model.dtype, model.device)
        adapter = Adapter(
            number=model.adapters.new_number(),
            name=self.name,
            path=str(self.files.folder),
            fingerprint=self.files.fingerprint(),
            rank=max(pair.rank for pair in self.files.pairs.values()),
            modules=len(self.files.pairs),
            bytes=self.size(model),
            base=self.files.config.base,
        )
        model.adapters.attach(adapter, parts_of(self.sites.found, factors))
        _log.info("The adapter %s is loaded: rank %d, %s.", self.name, adapter.rank, human(adapter.bytes))
        return adapter


def load_adapter(loaded: LoadedModel, name: str, path: str) -> Adapter:
    """Bring an adapter into memory under a new name. Raises :class:`LoadFailed` with a sentence."""
    try:
        part = AdapterPart.find(loaded, name, path)
        assert loaded.model is not None
        part.check_room(loaded.model)
        return part.attach(loaded.model)
    except CheckpointError as error:
        raise LoadFailed("bad_adapter", str(error)) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release_cached()
        text = f"Memory ran out while the adapter {name} was being loaded. Close other programs, or unload adapters."
        raise LoadFailed("out_of_memory", text) from error


def unload_adapter(loaded: LoadedModel, name: str) -> Adapter:
    """Drop an adapter, which no step may use any more. Raises :class:`LoadFailed` where there is none."""
    adapter = find_adapter(loaded, name)
    if adapter is None or loaded.model is None:
        raise LoadFailed("adapter_not_found", "An adapter is unloaded by its name. Give one.")
    loaded.model.adapters.detach(adapter)
    return adapter


def _check_name(loaded: LoadedModel, name: str) -> None:
    if not name.strip() or not name.isprintable() or len(name) > MOST_NAME:
        text = f"{name!r:.120} is not a valid name for an adapter. Give one of 1 to {MOST_NAME} printable characters."
        raise LoadFailed("bad_adapter", text)
    if name in (loaded.card.name, *(adapter.name for adapter in adapters_of(loaded))):
        raise LoadFailed("bad_adapter", f"The name {name} is in use already. Give the adapter another one.")
    if len(adapters_of(loaded)) >= MOST_ADAPTERS:
        raise LoadFailed("bad_adapter", f"{MOST_ADAPTERS} adapters are loaded already. Unload one of them first.")
