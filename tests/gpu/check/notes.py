"""What a part writes down: a JSON file that is whole after every single measurement."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Measures = Iterable[tuple[str, Callable[[], Any]]]
"""What a part does in turn: the name of each measurement, and what measures. A generator's last value is its result,
those before it are what was known until then."""


NO_GPU = "PyTorch finds no CUDA GPU here."
TRIES = 2
"""How often a measurement is begun that was stopped in its midst."""
SOURCES = Path(__file__).parents[3]


def has_gpu() -> bool:
    """Return True if torch finds a CUDA GPU."""
    import torch

    return torch.cuda.is_available()


class Setting(NamedTuple):
    """How a part runs: ``dry`` is on the CPU, in tiny sizes, to try the part itself.

    ``keep()`` writes down what is known, for a measurement that changes what it has yielded. ``only`` these
    measurements are taken, if any are named.
    """

    dry: bool = False
    keep: Callable[[], None] = lambda: None
    only: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Of torch."""
        return "cpu" if self.dry else "cuda"


class Notes:
    """The file of one part. ``figures`` and ``errors`` go by the names of measurements, ``done`` lists them."""

    def __init__(self, file: Path, part: str, setting: Setting, go_on: bool = False) -> None:
        """``go_on``: measurements that the file has are not taken again, if they are of this machine and this code;
        those that were stopped twice neither."""
        self.file, self.began = file, time.monotonic()
        self.content: dict[str, Any] = {
            "part": part, "dry": setting.dry, "date": time.strftime("%Y-%m-%d"), "machine": machine(setting),
            "code": code(), "seconds": 0.0, "measuring": "", "complete": False, "figures": {}, "errors": {},
            "done": [], "stopped": {},
        }  # fmt: skip
        before = read(file) if go_on else None
        if before is not None and all(before.get(key) == self.content[key] for key in ("machine", "dry", "code")):
            self.content |= {key: before[key] for key in ("figures", "errors", "done", "stopped") if key in before}
            self.began -= before.get("seconds", 0.0)
        self.write()

    def write(self) -> None:
        """Replace the file by what is known."""
        self.content["seconds"] = round(time.monotonic() - self.began, 1)
        write(self.file, self.content)

    def take(self, measures: Measures) -> bool:
        """Measure all in turn, whatever fails; whether nothing did."""
        errors = self.content["errors"]
        try:
            for name, measure in measures:
                if name in self.content["done"] or self.content["stopped"].get(name, 0) >= TRIES:
                    continue
                errors.pop(name, None)
                self.content["measuring"] = name
                self.write()
                print(f"{name} ...", flush=True)
                try:
                    for value in _values(measure()):
                        self.content["figures"][name] = value
                        self.write()
                except Exception as error:
                    errors[name] = told(error)
                    print(errors[name], file=sys.stderr, flush=True)
                self.content["done"].append(name)
        except Exception as error:  # what lies between the measurements
            errors[self.content["measuring"] or "the part"] = told(error)
            print(traceback.format_exc(), file=sys.stderr, flush=True)
        self.content |= {"measuring": "", "complete": True}
        self.write()
        return not errors


def _values(result: Any) -> Iterator[Any]:
    if isinstance(result, Iterator):
        yield from result
    else:
        yield result


def write(file: Path, content: dict[str, Any]) -> None:
    """As JSON; the file is never half of it."""
    half = file.with_suffix(".part")
    half.write_text(json.dumps(content, indent=1, default=str))
    half.replace(file)


def read(file: Path) -> dict[str, Any] | None:
    """What a file holds; None where there is none, or half of one."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


@functools.cache
def code() -> str:
    """A hash of what is measured and of what measures, so that figures of two states are not mixed."""
    made = hashlib.sha256()
    for folder in ("engine/compute", "tests/gpu"):
        for file in sorted((SOURCES / folder).rglob("*.py")):
            made.update(file.read_bytes())
    return made.hexdigest()[:16]


def told(error: BaseException) -> str:
    """An exception with the last places that it passed."""
    lines = "".join(traceback.format_exception(error, limit=-4)).strip().splitlines()
    return "\n".join(line[:300] for line in lines[-24:])


def machine(setting: Setting) -> dict[str, str]:
    """The card and the versions that figures depend on."""
    import torch

    found = {"card": "CPU", "torch": str(torch.__version__), "python": platform.python_version(), "triton": "none"}
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        pass
    if not setting.dry:
        found |= {
            "card": torch.cuda.get_device_name(),
            "cuda": str(torch.version.cuda),
            "driver": asked("driver_version"),
        }
        found["power limit, clocks"] = asked("power.limit,clocks.max.sm,clocks.max.mem")
    return found


def asked(fields: str) -> str:
    """What nvidia-smi says of the first GPU; "" without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
