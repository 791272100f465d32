"""``python -m tests.gpu.check first --minutes 25``: the parts of `plan`, each in a process and within its minutes.

    python -m tests.gpu.check first [--minutes 25] [--out FOLDER] [--after FOLDER] [--parts NAME ...] [--dry]

Each part writes its JSON file after every line, and at the end stands a table of decisions. A call with the same folder
(or with ``--after`` that of the call before) goes on where that one stopped: with two calls of nine and of five minutes
the second begins with what is the most important of the rest. It never takes more than its minutes.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.check import apart, notes, wheels
from tests.gpu.check.first import decisions, plan
from tests.gpu.check.first.plan import PARTS, Part
from tests.gpu.check.notes import Measures, Notes, Setting

OUT = Path("build/gpu-check/first")
MINUTES = 25.0
TABLE = 10.0
"""Seconds that are kept for the table at the end, and for a process that is slow to go."""
INTERPRETED = ("one-row", "rows", "attention", "prompts", "chain", "mixture")
"""Parts whose dry run computes with Triton's interpreter."""


MEASURES = {
    "start": "serving.start",
    "memory": "kernels.memory",
    "boundary": "kernels.boundary",
    "one-row": "kernels.one_row",
    "rows": "kernels.some_rows",
    "attention": "kernels.attention",
    "chain": "layers.chain",
    "early": "kernels.early",
    "engine": "serving.engine",
    "prompts": "kernels.prompts",
    "equal": "serving.equal",
    "mixture": "layers.mixture",
}
"""Where each part is measured, in this package."""


def measures(name: str, setting: Setting) -> Measures:
    """What a part measures. Nothing of the engine is imported before: a package that is missing is the part's error."""
    module, _, function = MEASURES[name].partition(".")
    yield from getattr(importlib.import_module(f"tests.gpu.check.first.{module}"), function)(setting)


def run_here(part: Part, out: Path, setting: Setting) -> bool:
    """Go on with a part in this process; whether nothing of it failed."""
    if setting.dry and part.name in INTERPRETED:
        import tests.engine.compute.layers.triton.interpreted  # noqa: F401 - before anything that imports Triton
    written = Notes(out / part.file, part.name, setting, go_on=True)
    return written.take(measures(part.name, setting))


def run_apart(part: Part, out: Path, setting: Setting, limit: float) -> bool:
    """The same in a process of its own, for at most so many seconds."""
    told = ["first", "--out", str(out), "--here", part.name, *["--dry"] * setting.dry]
    return apart.run_apart(told, out / part.file, part.name, limit)


def figures(out: Path) -> dict[str, dict[str, Any]]:
    """What the files of the parts hold, by the names of parts."""
    found = {part.name: notes.read(out / part.file) for part in PARTS}
    return {name: content for name, content in found.items() if content is not None}


def unfinished(parts: Sequence[Part], out: Path) -> list[Part]:
    """Those of which something has not been measured, by this code."""
    known = figures(out)
    ended = {name for name, content in known.items() if content.get("complete") and content.get("code") == notes.code()}
    return [part for part in parts if part.name not in ended]


def run(
    parts: Sequence[Part],
    minutes: float,
    out: Path,
    setting: Setting,
    start: Callable[[Part, Path, Setting, float], bool] = run_apart,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run what is unfinished and fits, then write and print the table."""
    ends = clock() + 60 * minutes - TABLE
    waiting = plan.ordered(unfinished(parts, out), minutes)
    done = [part.name for part in parts if part not in waiting]
    print(told("measured before", done) + told("planned", [each.name for each in plan.planned(waiting, minutes)]))
    while (part := plan.next_part(waiting, (ends - clock()) / 60)) is not None:
        waiting.remove(part)
        limit = min(60 * part.minutes, ends - clock())
        print(f"--- {part.number} {part.name}, at most {limit:.0f} s of {(ends - clock()) / 60:.1f} min", flush=True)
        start(part, out, setting, limit)
    left = [part.name for part in unfinished(parts, out)]
    text = decisions.table(figures(out), notes.code()) + told("left for another call", left)
    (out / "decisions.txt").write_text(text)
    print(text, flush=True)


def told(what: str, names: Sequence[str]) -> str:
    """One line; none without names."""
    return f"{what}: {', '.join(names)}\n" if names else ""


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 without a GPU, or where a part that runs in this process failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.check first",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of this call")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--after", type=Path, help="the folder of a call before, whose figures are taken over")
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    parser.add_argument("--dry", action="store_true", help="on the CPU, in tiny sizes")
    parser.add_argument("--here", choices=names, help="this part alone, in this process, without a limit")
    options = parser.parse_args(list(arguments))
    if not options.dry and not notes.has_gpu():
        print(notes.NO_GPU, file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    setting = Setting(options.dry)
    if options.here:
        return 0 if run_here(plan.BY_NAME[options.here], options.out, setting) else 1
    wheels.bring(wheels.FOLDER)
    if options.after is not None:
        for part in PARTS:
            if (options.after / part.file).is_file() and not (options.out / part.file).exists():
                shutil.copy(options.after / part.file, options.out / part.file)
    run([plan.BY_NAME[name] for name in options.parts], options.minutes, options.out, setting)
    return 0
