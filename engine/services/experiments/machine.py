"""What figures were taken on, for people."""

from __future__ import annotations

import datetime
import platform
from typing import Any

import torch

from engine.compute.native.library import find as native_library
from engine.library.paths import version
from engine.loading.memory.probe import probe
from engine.loading.model import LoadedModel
from engine.services.client import EngineClient


def native_code() -> str:
    """Name Kvasir's native code that computes here, for people."""
    library = native_library()[0]
    return f"native code in {library.instructions}" if library else "no native code"


def device_of(model: LoadedModel) -> str:
    """The name of what computes."""
    return probe(model.device).name


def taken_on(client: EngineClient) -> dict[str, Any]:
    """Fields of a result: what computes, the machine as far as it decides the speed, Kvasir's version, and now."""
    threads = torch.get_num_threads()
    return {
        "device": device_of(client.model),
        "machine": f"{platform.machine()}, {threads} {'thread' if threads == 1 else 'threads'}, {native_code()}, "
        f"torch {torch.__version__}",
        "version": version(),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
