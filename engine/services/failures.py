"""Failures of operations and commands as one sentence for people."""

from __future__ import annotations

import errno

from engine.base import installation


def sentence_of(error: Exception) -> str:
    """The message of an error meant for people; anything else is a fault of Kvasir's and said to be one."""
    if type(error).__module__.startswith("engine."):
        return str(error)
    if isinstance(error, ImportError):
        return f"A part is missing ({error}). {_mend()}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" of {error.filename}" if error.filename else ""
        return f"The disk{where} is full. Free some room and try again."
    if isinstance(error, OSError) and error.filename:
        return (
            f"{error.filename} cannot be used ({error.strerror}). Check that it is there and that you may write to it."
        )
    if isinstance(error, OSError) and error.strerror:
        return f"The system refused to go on: {error.strerror}. Remove the cause and try again."
    said = " ".join(str(error).split())
    return f"Something failed that should not ({type(error).__name__}: {said}). Set KVASIR_DEBUG=1 to see where."


def _mend() -> str:
    """Say how to restore a missing part, depending on the installation."""
    if installation.pack() is not None:
        return "`kvasir gpu repair` downloads it again."
    return "Install Kvasir again." if installation.packaged() else "Install Kvasir again: pip install kvasir."
