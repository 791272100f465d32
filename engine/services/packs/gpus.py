"""GPUs of this machine and the pack that fits them, found out without torch.

NVIDIA's are asked of its driver (NVML), AMD's are read from the kernel's topology (KFD). Probing and deciding are
apart: :func:`choose` is a pure function of what was found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engine.services.packs.lists import PackList

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
PCI = Path("/sys/bus/pci/devices")


class Gpu(NamedTuple):
    """One GPU. ``driver``, ``capability``: NVIDIA's, such as "580.95.05" and (8, 9). ``target``: AMD's gfx name.

    ``silent``: what NVIDIA's driver's library says where it does not answer; then nothing else is known.
    """

    vendor: Literal["nvidia", "amd"]
    name: str
    driver: str = ""
    capability: tuple[int, int] = (0, 0)
    target: str = ""
    silent: str = ""


class PackChoice(NamedTuple):
    """The pack for this machine, or why there is none. ``gpu`` None: there is no GPU that a pack could be for."""

    kind: str
    gpu: Gpu | None
    refused: str


def choose(gpus: Iterable[Gpu], lists: Mapping[str, PackList], wanted: str = "") -> PackChoice:
    """The pack that fits the first GPU that one fits; ``wanted`` names one kind, and then no other is taken.

    One for the processor fits where none for a GPU does.
    """
    refusals: list[PackChoice] = []
    for gpu in gpus:
        kind, why = _nvidia(gpu, lists, wanted) if gpu.vendor == "nvidia" else _amd(gpu, lists, wanted)
        if kind:
            return PackChoice(kind, gpu, "")
        refusals.append(PackChoice("", gpu, why))
    for kind, pack in lists.items():
        if pack.for_processor and wanted in ("", kind):
            return PackChoice(kind, None, "")
    return refusals[0] if refusals else PackChoice("", None, "No GPU that a pack is made for was found.")


def _nvidia(gpu: Gpu, lists: Mapping[str, PackList], wanted: str) -> tuple[str, str]:
    driver = int(gpu.driver.split(".")[0]) if gpu.driver.split(".")[0].isdecimal() else 0
    kinds = [kind for kind in ("cuda13", "cuda12") if kind in lists and wanted in ("", kind)]
    if not kinds:
        return "", _none_for(f"{gpu.name} (NVIDIA)", wanted)
    if gpu.silent:
        return "", (
            f"There is an NVIDIA GPU, but NVIDIA's driver does not answer ({gpu.silent}). If the driver was updated, "
            "start the machine again; if there is none, install NVIDIA's own."
        )
    served = [kind for kind in kinds if lists[kind].capabilities[0] <= gpu.capability < lists[kind].capabilities[1]]
    if not served:
        own = ".".join(map(str, gpu.capability))
        oldest = min(lists[kind].capabilities[0] for kind in kinds)
        if gpu.capability < oldest:
            least = ".".join(map(str, oldest))
            return "", f"{gpu.name} is too old: it has compute capability {own}, and packs begin at {least}."
        return "", f"{gpu.name} is newer than this pack: it has compute capability {own}. Take a newer Kvasir."
    for kind in served:
        if driver >= lists[kind].driver:
            return kind, ""
    least_driver = min(lists[kind].driver for kind in served)
    return "", (
        f"The driver of {gpu.name} is too old: it is {gpu.driver or 'unknown'}, and {least_driver} or newer is needed. "
        "Update NVIDIA's driver and start the machine again."
    )


def _amd(gpu: Gpu, lists: Mapping[str, PackList], wanted: str) -> tuple[str, str]:
    if wanted not in ("", "rocm"):
        return "", _none_for(f"{gpu.name} (AMD)", wanted)
    if "rocm" not in lists:
        return "", (
            f"{gpu.name} ({gpu.target}) cannot be used: this version of Kvasir comes without a pack for AMD GPUs. "
            "The processor computes; a newer Kvasir may bring one."
        )
    if gpu.target not in lists["rocm"].targets:
        return "", f"{gpu.name} ({gpu.target}) is none of the AMD GPUs that this pack has machine code for."
    return "rocm", ""


def _none_for(name: str, wanted: str) -> str:
    return f"There is no pack {wanted} for {name}." if wanted else f"This Kvasir comes without a pack for {name}."


def probe() -> list[Gpu]:
    """The GPUs of this machine; a driver that cannot be asked adds none."""
    try:
        import pynvml
    except ImportError:
        pynvml = None
    return [*nvidia_gpus(pynvml, PCI), *amd_gpus(TOPOLOGY)]


def nvidia_gpus(nvml: Any, pci: Path) -> list[Gpu]:
    """List the GPUs that NVIDIA's driver reports through ``pynvml``; if it fails, one if the bus ``pci`` has any."""
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return [Gpu("nvidia", "NVIDIA GPU", silent=str(error))] if _on_the_bus(pci) else []
    found: list[Gpu] = []
    with contextlib.suppress(nvml.NVMLError):
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
                found.append(Gpu("nvidia", _text(nvml.nvmlDeviceGetName(handle)), driver, (major, minor)))
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()
    return found


def _on_the_bus(pci: Path) -> bool:
    """Return True if a display controller of NVIDIA's is there, and not lent to a virtual machine."""
    for device in pci.glob("*"):
        with contextlib.suppress(OSError):
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
            if vendor == "0x10de" and kind.startswith("0x03") and (device / "driver").resolve().name != "vfio-pci":
                return True
    return False


def amd_gpus(topology: Path) -> list[Gpu]:
    """List the GPUs of the kernel's compute driver; its nodes without a ``gfx_target_version`` are processors."""
    found = []
    for node in sorted(topology.glob("*"), key=lambda path: (len(path.name), path.name)):
        with contextlib.suppress(OSError, ValueError):
            properties = dict(
                line.split()[:2] for line in (node / "properties").read_text().splitlines() if " " in line
            )
            version = int(properties.get("gfx_target_version", "0"))
            if version:
                found.append(Gpu("amd", "AMD GPU", target=gfx(version)))
    return found


def gfx(version: int) -> str:
    """LLVM's name of a ``gfx_target_version``: 90010 is gfx90a, 110000 is gfx1100."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
