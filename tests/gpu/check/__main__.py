"""The tests that need a GPU and the figures of one, in parts that each write a JSON file, and a page of all of them.

    python -m tests.gpu.check PART ... [--out FOLDER] [--limit SECONDS]   "all" runs every part and prints the page
    python -m tests.gpu.check report [FOLDER]                             the page alone
    python -m tests.gpu.check first --minutes 25 [--out FOLDER]           what decides, within so many minutes
    python -m tests.gpu.check wheels [NAME ...]                           fetch what a GPU's Python lacks

The parts are tests, ceilings, products, attention, sampling, engine, speculation and peers. One that fails or is
stopped at the limit leaves what it found. ``--dry`` tries them on a CPU, in tiny sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.gpu.check import apart, notes, report, wheels
from tests.gpu.check.first import run as first
from tests.gpu.check.notes import Measures, Notes, Setting

OUT = Path("build/gpu-check")
LIMIT = 480
"""Seconds of a part: a machine may be lent for commands of ten minutes."""


def _tests(setting: Setting) -> Measures:
    from tests.gpu.check import suite

    return suite.measures(setting)


def _ceilings(setting: Setting) -> Measures:
    from tests.gpu.check import ceilings

    return ceilings.measures(setting)


def _kernels(name: str) -> Callable[[Setting], Measures]:
    def measures(setting: Setting) -> Measures:
        from tests.gpu.check import kernels

        return getattr(kernels, name)(setting)

    return measures


def _engine(name: str) -> Callable[[Setting], Measures]:
    def measures(setting: Setting) -> Measures:
        from tests.gpu.check import engine_steps

        return getattr(engine_steps, name)(setting)

    return measures


PARTS: dict[str, Callable[[Setting], Measures]] = {
    "tests": _tests,
    "ceilings": _ceilings,
    "products": _kernels("products"),
    "attention": _kernels("attention"),
    "sampling": _kernels("sampling"),
    "engine": _engine("engine"),
    "speculation": _engine("speculation"),
    "peers": _engine("peers"),
}
"""In the order in which they are worth a GPU's time. Nothing of the engine is imported before a part runs, so that a
package that is missing is an error of the part, which it writes down."""


def run_here(part: str, out: Path, setting: Setting) -> bool:
    """Run a part in this process; whether all went well."""
    if setting.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    written = Notes(out / f"{part}.json", part, setting)

    def measures() -> Measures:
        if setting.dry and part in ("products", "attention", "sampling"):
            import tests.engine.compute.layers.triton.interpreted  # noqa: F401
        for name, measure in PARTS[part](setting._replace(keep=written.write)):
            if not setting.only or name in setting.only:
                yield name, measure

    return written.take(measures())


def run_apart(part: str, out: Path, setting: Setting, limit: float) -> bool:
    """Run a part in a process of its own, which is stopped after ``limit`` seconds; nothing is left of an earlier
    run."""
    file = out / f"{part}.json"
    file.unlink(missing_ok=True)
    told = [*["--dry"] * setting.dry, *(["--only", *setting.only] if setting.only else [])]
    return apart.run_apart([part, "--out", str(out), "--here", *told], file, part, limit)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 where a part failed. Predictions that fell are no failure."""
    told = list(sys.argv[1:] if arguments is None else arguments)
    if told[:1] == ["report"]:
        parser = argparse.ArgumentParser(prog="python -m tests.gpu.check report")
        parser.add_argument("folder", type=Path, nargs="?", default=OUT)
        print(report.page(report.read(parser.parse_args(told[1:]).folder)))
        return 0
    if told[:1] == ["first"]:
        return first.main(told[1:])
    if told[:1] == ["wheels"]:
        parser = argparse.ArgumentParser(prog="python -m tests.gpu.check wheels")
        parser.add_argument(
            "names", nargs="*", default=list(wheels.FETCHED), help="names of tests/gpu/requirements.txt"
        )
        parser.add_argument("--folder", type=Path, default=wheels.FOLDER)
        asked = parser.parse_args(told[1:])
        print("\n".join(wheels.fetch(asked.names, asked.folder)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "all"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of each part")
    parser.add_argument("--dry", action="store_true", help="on the CPU, in tiny sizes")
    parser.add_argument("--only", nargs="+", default=[], help="only these measurements of the parts")
    parser.add_argument("--here", action="store_true", help="in this process, without a limit")
    options = parser.parse_args(told)
    parts = list(PARTS) if "all" in options.parts else options.parts
    if not options.dry and not notes.has_gpu():
        print(notes.NO_GPU, file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    wheels.bring(wheels.FOLDER)
    setting, well = Setting(options.dry, only=tuple(options.only)), True
    for part in parts:
        print(f"--- {part}", flush=True)
        if options.here:
            well &= run_here(part, options.out, setting)
        else:
            well &= run_apart(part, options.out, setting, options.limit)
    if "all" in options.parts:
        print(report.page(report.read(options.out)))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
