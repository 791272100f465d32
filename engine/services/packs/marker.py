"""The file that says that the window's engine is being started from a GPU pack. Standard library only.

It is written before, and removed once the engine is ready: found at the next start, it says that the engine died. The
window starts an engine several times; the third start in a row is the CPU engine's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from types import FrameType

from engine.base.files import UnreadableFileError, read_text

MAX_DEATHS = 2
FORGIVEN_S = 45.0
"""The window waits 60 s for the ready line."""


def deaths(packs: Path) -> int:
    """Number of starts in a row, of the packs in the folder ``packs``, that did not come to an end."""
    try:
        said = read_text(packs / "starting", 100)
        return 0 if said is None else int(said)
    except (UnreadableFileError, ValueError):
        return 1  # half written: it was being started


def begin(packs: Path) -> None:
    """Raises OSError where it cannot be written."""
    (packs / "starting").write_text(str(deaths(packs) + 1), "ascii")


def clear(packs: Path) -> None:
    """The engine is ready, or the pack was tested: what was before is forgotten."""
    with contextlib.suppress(OSError):
        (packs / "starting").unlink(missing_ok=True)


def forgive_termination(packs: Path, seconds: float = FORGIVEN_S) -> None:
    """A window that is closed while its engine starts ends it by SIGTERM, which is no fault of the pack's.

    One that has waited for long enough does the same: after ``seconds`` it counts as a death.
    """
    patience_ends = time.monotonic() + seconds

    def end(number: int, frame: FrameType | None) -> None:
        if time.monotonic() < patience_ends:
            clear(packs)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
