"""What can go wrong with a checkpoint, said to a person: one sentence what happened, one what to do."""

from __future__ import annotations


class CheckpointError(Exception):
    """The checkpoint cannot be used; the message says why and what to do."""


class LoadCancelled(Exception):  # noqa: N818 - the user asked for it, it is no error
    """The load was cancelled; nothing of it is kept."""
