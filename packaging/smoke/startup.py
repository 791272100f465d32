"""``make measure-startup``: how long a cold start takes, of the packaged program and of this checkout, side by side.

Both run on this machine's own system, closed off in the same way (sandbox.py), in turns, each time with an empty home
and after the kernel has forgotten what it read from the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from smoke import parts, source, unpacked
from smoke.dialogue import QUESTION, Talk
from smoke.programs import Programs, from_folder
from smoke.report import Report
from smoke.roots import remove
from smoke.run import obstacles
from smoke.sandbox import Bind, Sandbox
from smoke.screen import Screen

DROP = Path("/proc/sys/vm/drop_caches")
PROMISED = {"window": 2.0, "answer": 8.0}
"""Seconds, from the issue; compared with by whoever reads the figures, not by a test."""


class Start(NamedTuple):
    """Seconds from the start of the program."""

    window: float
    """Until something is to be seen in the window."""
    word: float
    """Until the first word of the answer to a question that was typed at once."""
    answer: float
    """Until the whole of it."""


def forget_files() -> str:
    """Make the next start a cold one; a sentence if that is not allowed here."""
    os.sync()
    try:
        DROP.write_text("3\n")
    except OSError as error:
        return f"The starts are not cold: {DROP} cannot be written ({error.strerror})."
    return ""


def start(sandbox: Sandbox, programs: Programs, screen: Screen) -> Start:
    """One start, from the closed menu entry to the answer."""
    forget_files()
    screen.tool("getdisplaygeometry")  # the tool that looks is not what is measured
    with Talk(sandbox, programs, screen) as talk:
        talk.wait_for_window()
        window = time.monotonic()
        answered = talk.ask(QUESTION, click=False)
        began = talk.running.began
        talk.close()
    return Start(window - began, answered.first_word - began, answered.finished - began)


def table(starts: dict[str, list[Start]]) -> str:
    """Medians with least and most, one row for each way to start."""
    lines = [f"{'seconds, median (least to most)':<34}" + "".join(f"{name:<22}" for name in Start._fields)]
    for name, rows in starts.items():
        cells = [
            f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
            for values in zip(*rows, strict=True)
        ]
        lines.append(f"{name:<34}" + "".join(f"{cell:<22}" for cell in cells))
    return "\n".join(lines)


def packaged(archive: Path, folder: Path, home: Path) -> tuple[Sandbox, Programs]:
    """The archive, unpacked below ``folder``."""
    place = folder / "unpacked"
    remove(place)
    program = unpacked.unpack(archive, place)
    return source.on_this_machine(home, (Bind(place, str(place)),)), from_folder(str(program))


def empty_home(sandbox: Sandbox) -> None:
    home = sandbox.outside(sandbox.home)
    for path in home.iterdir():
        remove(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dist", type=Path, default=parts.ROOT / "dist", help="where the built archive is")
    parser.add_argument("--build", type=Path, default=parts.ROOT / "build", help="where it is unpacked")
    parser.add_argument("--python", type=Path, default=parts.ROOT / ".venv/bin/python", help="of this checkout")
    arguments = parser.parse_args()
    if problems := obstacles():
        sys.stderr.write("\n".join(problems) + "\n")
        return 2
    print(forget_files() or "Every start is cold: the kernel's cache of files is dropped before.", flush=True)
    with tempfile.TemporaryDirectory(prefix="kvasir-smoke-") as name, Screen() as screen:
        homes, build = Path(name), arguments.build.resolve() / "startup"
        trial = parts.Trial(Report(), arguments.dist, build, arguments.python, False, ())
        for part in ("package", "source"):
            (homes / part).mkdir()
        ways = {
            "package": packaged(trial.archive, build, homes / "package"),
            "source": source.checkout(arguments.python.absolute(), parts.ROOT, homes / "source"),
        }
        starts: dict[str, list[Start]] = {name: [] for name in ways}
        for number in range(arguments.rounds):
            for name, (sandbox, programs) in ways.items():
                empty_home(sandbox)
                seen = start(sandbox, programs, screen)
                starts[name].append(seen)
                figures = ", ".join(f"{key} {value:.2f} s" for key, value in seen._asdict().items())
                print(f"{number + 1} {name:<8} {figures}; load {os.getloadavg()[0]:.1f}", flush=True)
        remove(build / "unpacked")
    print("\n" + table(starts))
    print("promised: " + ", ".join(f"{name} in {limit:.0f} s" for name, limit in PROMISED.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
