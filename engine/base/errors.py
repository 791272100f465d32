"""Errors of checkpoints and devices, worded for people: one sentence what happened, one what to do."""

from __future__ import annotations

import re

MOST = 1000
"""Characters of a message."""
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, what begins a line or turns the direction of writing, and halves of characters."""


def plain(text: str, *, keep: str = "", instead: str = "\N{REPLACEMENT CHARACTER}", most: int = 0) -> str:
    """Make untrusted text (names, tags, reasons) safe to show: it controls no terminal and can be sent.

    Control characters but those in ``keep`` become ``instead``. ``most``: characters that are left of a longer text, of
    its beginning and its end; 0 for all.
    """
    shown = _UNFIT.sub(lambda found: found[0] if found[0] in keep else instead, text)
    return shown if not most or len(shown) <= most else f"{shown[: most // 2]} … {shown[-most // 2 :]}"


def is_text(name: str) -> bool:
    """Return True if a file's name is valid Unicode text: systems take any bytes, and JSON and messages do not."""
    return not re.search("[\ud800-\udfff]", name)


class CheckpointError(Exception):
    """The checkpoint cannot be used; the message says why and what to do.

    What it quotes of a hostile file is made fit to be shown: not endless, and of characters that can be sent.
    """

    def __init__(self, text: str) -> None:
        super().__init__(plain(text, most=MOST))


class LoadCancelled(Exception):  # noqa: N818 - the user asked for it, it is no error
    """The load was cancelled; nothing of it is kept."""


class DeviceLost(RuntimeError):  # noqa: N818 - what happened to the device
    """The device failed in a way that this process does not recover from; the message says how."""


_LOST = ("cuda error", "hip error", "cudnn_status_execution_failed", "cublas_status_execution_failed")
_OF_ONE_CALL = ("invalid argument", "invalid configuration", "no kernel image", "too many resources", "not permitted")
"""Driver errors of a call that it did not make: the next one may succeed."""
_KERNEL_FAILED = ("illegal", "misaligned", "launch fail", "assert", "ecc", "unspecified", "timed out")
"""Driver errors after a kernel failed, where Triton passes them on; its other errors leave the device as it is."""


def lost_device(error: BaseException) -> DeviceLost | None:
    """The error as a lost device, if it is one: after a CUDA error other than "out of memory" (an illegal address, a
    GPU that was reset or slept) every later call of the process fails too (CUDA C++ Programming Guide, Error Checking).
    """
    if isinstance(error, DeviceLost):
        return error
    text = str(error).strip()
    said = text.lower()
    known = type(error).__name__ == "AcceleratorError" or any(words in said for words in _LOST)
    if said.startswith("triton error"):
        known = any(words in said for words in _KERNEL_FAILED)
    if not isinstance(error, RuntimeError) or not known or is_out_of_memory(error):
        return None
    if any(words in said for words in _OF_ONE_CALL):
        return None
    return DeviceLost(text.splitlines()[0][:200] if text else "no reason was given")


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the error says that the device or the host had no memory left."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in text for words in _NO_MEMORY)
    )


class OperationFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """An operation cannot be performed; the message is a sentence for a person."""
