"""Which model computed something: a name for its weights and its configuration."""

from __future__ import annotations

from engine.checkpoints.load import Checkpoint
from engine.checkpoints.repacked import content_key


def fingerprint(checkpoint: Checkpoint, *what: str) -> str:
    """32 hexadecimal digits that are others for another model, or for other words ``what`` else makes a difference.

    From names, sizes and times of the weights' files, all of their headers' entries, bytes of each tensor
    (:func:`engine.checkpoints.repacked.content_key`), from the configuration as it holds for this load, rotary factors
    and all, and from what the weights are quantised to meanwhile. Milliseconds; reads no whole tensor. A model that was
    copied elsewhere with its files' times is the same. Raises :class:`CheckpointError` if the files cannot be read.
    """
    return content_key(
        checkpoint.files.entries.values(), "model", repr(checkpoint.config), str(checkpoint.quantise), *what
    )
