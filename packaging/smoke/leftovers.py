"""What a package leaves behind, on the system and in the home."""

from __future__ import annotations

from pathlib import Path

from smoke.listing import (
    MADE_BY_TRIGGERS,
    OTHERS_CACHES,
    Listing,
    compare,
    files_only,
    listing,
    naming,
    unexplained,
)
from smoke.report import Report

WORD = b"kvasir"
OURS = tuple(f"/{folder}/kvasir/" for folder in (".config", ".local/share", ".local/state", ".cache"))
"""Where a user's Kvasir keeps what it keeps (docs/using.md, "Where files are"), seen from the home."""


def check_gone(report: Report, root: Path, before: Listing, shipped: set[str]) -> None:
    """Nothing of what the package had installed, ``shipped``, is left."""
    left = sorted(path for path in shipped & listing(root).keys() if path not in before)
    report.check(not left, "every file and folder of the package is gone", few(left))


def check_system(report: Report, root: Path, before: Listing) -> None:
    """Outside homes the system is as it was."""
    after = listing(root)
    difference = compare(before, after)
    strange = unexplained(difference.added)
    report.check(not strange, "nothing new is on the system", few(sorted(strange)))
    gone = unexplained(difference.removed)
    report.check(not gone, "nothing of the system is missing", few(gone))
    altered = unexplained(difference.changed)
    report.check(not altered, "nothing of the system was changed", few(altered))
    touched = [path for path in difference.added + difference.changed if MADE_BY_TRIGGERS.search(path)]
    ours = naming(root, files_only(touched, after), WORD)
    report.check(not ours, "no cache of menus, types or icons names Kvasir", few(ours))


def check_home(report: Report, home: Path, before: Listing, empty: bool) -> None:
    """The home holds what the user has made and no more; nothing at all if ``empty``. What is there is printed."""
    after = listing(home)
    difference = compare(before, after)
    files = [path for path in files_only(difference.added, after) if not OTHERS_CACHES.search(path)]
    report.note("left in the home:\n" + ("\n".join(f"{after[path].size:9,} ~{path}" for path in files) or "nothing"))
    if empty:
        folders = [path for path in difference.added if (path + "/") in OURS]
        report.check(not files and not folders, "the home is as it was", few(files + folders))
    else:
        kept = any(path.endswith("/history.db") for path in files)
        report.check(kept, "the chats are kept", few(files))
        strange = [path for path in files if not path.startswith(OURS)]
        report.check(not strange, "nothing lies beside Kvasir's own folders", few(strange))
    lost = difference.removed + difference.changed
    report.check(not lost, "nothing else of the home was touched", few(lost))


def few(paths: list[str], most: int = 25) -> str:
    return "\n".join(paths[:most]) + (f"\n… and {len(paths) - most} more" if len(paths) > most else "")
