"""Trials of kernels that passed, remembered on this machine, so that the next start does not make them again.

They stand in trials.json in the user's cache, by a hash of all that could change the outcome: every source that
kernels, their definitions and their trials are made of, PyTorch, Triton, the GPU and its driver. So whatever changes is
tried anew, and a trial that failed is made again at every start. ``KVASIR_TRIALS=always`` makes all of them every time,
as `kvasir doctor` and a GPU pack's self-test do with what they try.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import torch

from engine.base import folders
from engine.base.devices import traits
from engine.base.drivers import drivers_and_gpus
from engine.base.files import UnreadableFileError, read_json

SOURCES = Path(__file__).parents[2]
ROOMS = ("base", "cache", "compute", "config")
"""What a trial runs through."""
MOST = 8
"""States of this machine whose trials are kept, the latest."""
ALWAYS = os.environ.get("KVASIR_TRIALS", "") == "always"

_lock = threading.Lock()
_afresh = False


@contextmanager
def afresh() -> Iterator[None]:
    """Inside, nothing is taken as tried."""
    global _afresh
    before, _afresh = _afresh, True
    try:
        yield
    finally:
        _afresh = before


def agrees(trial: str, device: torch.device) -> bool:
    """Return True if this trial has passed on such a device, with all else as it is now."""
    state = None if _afresh or ALWAYS else state_of(device)
    with _lock:
        return state is not None and trial in _read().get(state, ())


def keep(trial: str, device: torch.device) -> None:
    """Remember that it has passed. Where the file cannot be written, the next start tries again."""
    state = state_of(device)
    if state is None:
        return
    with _lock, contextlib.suppress(OSError):
        passed = _read()
        passed[state] = sorted({*passed.pop(state, ()), trial})  # the latest state comes last
        kept = dict(list(passed.items())[-MOST:])
        place = _place()
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(kept, indent=1), "utf-8")
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)


def _place() -> Path:
    return folders.cache_place() / "trials.json"


def _read() -> dict[str, list[str]]:
    """The trials that passed, by state; none where the file is missing or makes no sense."""
    try:
        found = read_json(_place()) or {}
    except UnreadableFileError:
        return {}
    whole = {state: trials for state, trials in found.items() if isinstance(trials, list)}
    return {state: [trial for trial in trials if isinstance(trial, str)] for state, trials in whole.items()}


@functools.cache
def state_of(device: torch.device) -> str | None:
    """Hash of all that could change a trial's outcome; None where the driver is not known, or there is no GPU."""
    drivers = drivers_and_gpus() if traits(device).kernels else []
    if not drivers:
        return None
    card = torch.cuda.get_device_properties(device)
    known = (card.name, card.major, card.minor, card.multi_processor_count, card.total_memory)
    versions = torch.__version__, _triton_version()
    return hashlib.sha256(repr((sources_hash(SOURCES), drivers, known, versions)).encode()).hexdigest()


def _triton_version() -> str:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:  # PyTorch's builds for AMD have one of another name, which goes with them
        return ""


def sources_hash(folder: Path) -> str:
    """Hash of the sources that a trial runs through, with their names."""
    made = hashlib.sha256()
    for room in ROOMS:
        for source in sorted((folder / room).rglob("*.py")):
            content = hashlib.sha256(source.read_bytes()).hexdigest()
            made.update(f"{source.relative_to(folder).as_posix()} {content}\n".encode())
    return made.hexdigest()
