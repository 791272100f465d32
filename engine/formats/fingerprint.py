"""Fingerprint of a model, by its weights and its configuration, to name the model that computed something."""

from __future__ import annotations

from engine.formats.gguf.find import is_gguf
from engine.formats.load import Checkpoint
from engine.formats.quantised.repacked import content_key


def fingerprint(checkpoint: Checkpoint, *what: str) -> str:
    """32 hexadecimal digits that differ for another model, or for other words in ``what``, which may name more.

    From names, sizes and times of the weights' files, all of their headers' entries, bytes of each tensor
    (``content_key`` of quantised/repacked.py), from the configuration as it holds for this load with rotary factors,
    and from the method that the load quantises them by. Milliseconds; reads no whole tensor. A model that was copied
    elsewhere with its files' times is the same. Raises :class:`CheckpointError` if the files cannot be read.
    """
    words = ["model", repr(checkpoint.config), str(checkpoint.quantise), *what, *_towers(checkpoint)]
    return content_key(checkpoint.files.entries.values(), *words)


def _towers(checkpoint: Checkpoint) -> list[str]:
    """Name, size and time of a file with a vision tower alone, as GGUF's is: with another one pictures are others."""
    entries = checkpoint.vision.files.entries.values() if checkpoint.vision is not None else ()
    found = [(file.name, file.stat()) for file in {entry.file for entry in entries if is_gguf(entry.file)}]
    return [f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in sorted(found)]
