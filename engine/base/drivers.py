"""GPUs and their drivers by what the system's files say of them, in about a millisecond.

Starting NVML or a GPU runtime takes longer than the whole command line may. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(os.environ.get("SYSTEMDRIVE", "C:") + "\\" if sys.platform == "win32" else "/")


def drivers_and_gpus(root: Path = ROOT) -> list[str]:
    """What changes with the drivers or the GPUs; nothing where neither is known. ``root``: where the system's files
    lie."""
    return [*_nvidia(root), *_amd(root), *_libraries(root)]


def _nvidia(root: Path) -> Iterator[str]:
    folder = root / "proc/driver/nvidia"
    if (line := _first_line(folder / "version")) and (match := re.search(r"\s(\d+\.\d+(\.\d+)*)\s", line)):
        yield f"NVIDIA driver {match[1]}"
    gpus = folder / "gpus"
    for place in sorted(gpus.iterdir()) if gpus.is_dir() else ():
        device = root / "sys/bus/pci/devices" / place.name
        # The model may read "Unknown" until the driver has woken the GPU; the numbers never do.
        identity = [_first_line(device / part) for part in ("device", "subsystem_device")]
        yield f"NVIDIA GPU {' '.join(identity) if all(identity) else _model(place / 'information')}"


def _amd(root: Path) -> Iterator[str]:
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    if not nodes.is_dir():
        return
    if version := _first_line(root / "sys/module/amdgpu/version"):
        yield f"AMD driver {version}"
    else:  # the kernel's own driver has no version but the kernel's
        yield f"AMD driver of Linux {_first_line(root / 'proc/sys/kernel/osrelease')}"
    for node in sorted(nodes.iterdir()):
        values = dict(line.split(None, 1) for line in _lines(node / "properties") if len(line.split(None, 1)) == 2)
        if values.get("gfx_target_version", "0") != "0":  # a processor's node says 0
            yield f"AMD GPU {values['gfx_target_version']} {values.get('device_id', '')}"


def _libraries(root: Path) -> Iterator[str]:
    """The drivers that are a library, on Windows and in WSL: its date and size change with the version."""
    for name in ("usr/lib/wsl/lib/libcuda.so.1", "Windows/System32/nvcuda.dll", "Windows/System32/amdhip64.dll"):
        with contextlib.suppress(OSError):
            found = (root / name).stat()
            yield f"{Path(name).name} {found.st_size} {found.st_mtime_ns}"


def _model(file: Path) -> str:
    return next((line.partition(":")[2].strip() for line in _lines(file) if line.startswith("Model:")), "unknown")


def _first_line(file: Path) -> str:
    return next(iter(_lines(file)), "").strip()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
