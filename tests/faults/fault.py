"""A fault: one change of one file, as a programmer may make it by mistake."""

from __future__ import annotations

from typing import NamedTuple


class Stale(Exception):  # noqa: N818 - what a fault is when the code has gone on without it
    """A fault's old text does not occur exactly once in its file; the message says which and how often."""


class Fault(NamedTuple):
    """``old`` occurs exactly once in ``file``, a path from the root of the tree, and ``new`` takes its place."""

    name: str
    """Lower case words with hyphens."""
    kind: str
    file: str
    old: str
    new: str
    breaks: str
    """One sentence: what goes wrong."""
    origin: str
    """The commit that mended it, or the test or property that names it."""
    module: str = ""
    """For a file that is not Python: the module (a path, too) by whose importers its tests are chosen."""

    def applied(self, text: str) -> str:
        """The text of the file with the fault in it. Raises `Stale`."""
        count = text.count(self.old)
        if count != 1 or self.old == self.new:
            raise Stale(f"{self.name}: its old text occurs {count} times in {self.file}, and not once")
        return text.replace(self.old, self.new)

    @property
    def compiled(self) -> bool:
        """Whether the native code must be built again with it."""
        return self.file.endswith((".c", ".h"))
