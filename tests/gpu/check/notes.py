"""What a part writes down: a JSON file that is whole after every single measurement."""

from __future__ import annotations

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
    """The file of one part. ``figures`` and ``errors`` go by the names of measurements."""

    def __init__(self, file: Path, part: str, setting: Setting) -> None:
        self.file, self.began = file, time.monotonic()
        self.content: dict[str, Any] = {
            "part": part, "dry": setting.dry, "date": time.strftime("%Y-%m-%d"), "machine": machine(setting),
            "seconds": 0.0, "measuring": "", "complete": False, "figures": {}, "errors": {},
        }  # fmt: skip
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
            "driver": _asked("driver_version"),
        }
        found["power limit, clocks"] = _asked("power.limit,clocks.max.sm,clocks.max.mem")
    return found


def _asked(fields: str) -> str:
    """What nvidia-smi says of the first GPU; "" without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
