"""The log that is read afterwards: checks as they pass and fail, figures, and the table at the end."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Part:
    name: str
    seconds: float = 0.0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)


class Report:
    """Checks count for the part that is open."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What goes wrong inside fails the part and no more than that; an interruption goes on outwards."""
        part = Part(name)
        self.parts.append(part)
        self.line(f"\n== {name} ==")
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            self.failed(f"{type(error).__name__} at {place}: {error}")
        finally:
            part.seconds = time.monotonic() - began

    @staticmethod
    def line(text: str) -> None:
        print(text, flush=True)

    def note(self, text: str) -> None:
        self.line("     " + text.replace("\n", "\n     "))

    def figure(self, name: str, value: str) -> None:
        self.parts[-1].figures[name] = value
        self.line(f"     {name}: {value}")

    def check(self, holds: bool, what: str, seen: str = "") -> bool:
        """``what`` should hold; ``seen`` is shown where it does not."""
        if holds:
            self.parts[-1].passed += 1
            self.line(f"  ok {what}")
        else:
            self.failed(what + (f"; seen: {seen}" if seen else ""))
        return holds

    def failed(self, what: str) -> None:
        self.parts[-1].failures.append(what)
        self.line("FAIL " + what.replace("\n", "\n     "))

    @property
    def ok(self) -> bool:
        return all(not part.failures for part in self.parts)

    def summary(self) -> str:
        """One row a part, then the failures once more."""
        width = max((len(part.name) for part in self.parts), default=4)
        rows = [f"{'part':<{width}}  checks  failed  seconds"]
        for part in self.parts:
            count = part.passed + len(part.failures)
            figures = "  ".join(f"{name} {value}" for name, value in part.figures.items())
            rows.append(f"{part.name:<{width}}  {count:6}  {len(part.failures):6}  {part.seconds:7.0f}  {figures}")
        rows += [f"FAIL {part.name}: {failure}" for part in self.parts for failure in part.failures]
        return "\n".join(rows)

    def finish(self) -> int:
        """Print the table; the exit code."""
        self.line("\n" + self.summary())
        if not self.ok:
            sys.stderr.write("The package does not do what it should; see above.\n")
        return 0 if self.ok else 1
