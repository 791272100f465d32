"""A GPU pack's self-test: what the engine needs is there, the device is seen, and it multiplies as the processor does.

Run by engine/services/packs/launch.py in the pack; prints one JSON line ``{"ok", "sentence", "facts"}``.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.services.packs.lists import PackFailed

if TYPE_CHECKING:
    import torch

PARTS = (
    "engine.doors.cli.serve",
    "engine.doors.cli.chat",
    "engine.doors.cli.doctor",
    "engine.loop.engine",
    "engine.services.probes",
)
"""What the commands import: a library that the pack lacks is missed here and not in the middle of a chat."""
FAR = 0.02
"""Share of the largest value by which a bfloat16 or float16 product may differ from the processor's in float64."""


def run_self_test(pack: Path) -> int:
    """The exit code: 0 where the pack can be used."""
    facts: dict[str, str] = {}
    try:
        _test(_device_asked_for(pack), facts)
    except PackFailed as failure:
        ok, sentence = False, str(failure)
    except Exception as error:  # drivers and libraries raise as they please
        words = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        ok, sentence = False, f"The GPU pack's self-test failed ({words.rstrip('.')})."
    else:
        ok, sentence = True, f"The GPU pack works on {facts['device']}."
    sys.stdout.write(json.dumps({"ok": ok, "sentence": sentence, "facts": facts}) + "\n")
    sys.stdout.flush()
    return 0 if ok else 1


def _device_asked_for(pack: Path) -> str:
    """ "cpu" in packs for tests, else "cuda", which is torch's name for AMD's GPUs too."""
    try:
        return "cpu" if json.loads((pack / "pack.json").read_text("utf-8")).get("device") == "cpu" else "cuda"
    except (OSError, ValueError, AttributeError) as error:
        raise PackFailed(f"The GPU pack is incomplete ({error}). `kvasir gpu repair` completes it.") from error


def _test(kind: str, facts: dict[str, str]) -> None:
    try:
        import torch

        for part in PARTS:
            importlib.import_module(part)
    except (ImportError, OSError) as error:
        raise PackFailed(
            f"A library of the GPU pack cannot be loaded ({error}). `kvasir gpu repair` downloads it again."
        ) from error
    facts["torch"] = torch.__version__
    device = _device(kind, facts)
    dtype = _multiply(device)
    facts["product"] = f"a {str(dtype).removeprefix('torch.')} product agrees with the processor's"
    facts["kernels"] = "not tried: the pack is one for the processor" if kind == "cpu" else _kernels(dtype, device)


def _device(kind: str, facts: dict[str, str]) -> torch.device:
    import torch

    from engine.loading.memory.probe import choose_device, why_no_gpu

    if kind == "cpu":
        facts["device"] = "the processor"
        return torch.device("cpu")
    if torch.version.cuda is None and torch.version.hip is None:
        raise PackFailed("The GPU pack's PyTorch is built without GPUs. `kvasir gpu repair` downloads the right one.")
    if not torch.cuda.is_available():
        reason = why_no_gpu().reason
        raise PackFailed(f"The GPU pack sees no GPU ({reason}). Check the driver, then run `kvasir gpu check`.")
    device = choose_device("cuda")
    facts["device"] = torch.cuda.get_device_name(device)
    return device


def _multiply(device: torch.device) -> torch.dtype:
    """The type that models will run in, in which a product on the device agrees with the processor's."""
    import torch

    from engine.loading.memory.probe import choose_dtype

    dtype = choose_dtype(device).dtype
    generator = torch.Generator().manual_seed(5)
    left, right = (torch.randn(shape, generator=generator).to(dtype) for shape in ((67, 256), (256, 129)))
    expected = left.double() @ right.double()
    found = (left.to(device) @ right.to(device)).double().cpu()
    # Said this way round, a NaN is far too.
    if not bool((found - expected).abs().max() <= FAR * expected.abs().max()):
        raise PackFailed("The GPU multiplies wrongly: a product differs from the processor's. Update the GPU's driver.")
    return dtype


def _kernels(dtype: torch.dtype, device: torch.device) -> str:
    """Raises :class:`PackFailed` where a kernel computes wrongly; one that cannot be made is left to torch."""
    from engine.compute.layers.linear.triton.int4 import try_kernels
    from engine.compute.layers.linear.triton.trial import computed_wrongly
    from engine.compute.native import remembered, shipped

    with remembered.afresh():
        reason = try_kernels(dtype, device)
    if reason is None:
        return f"a 4-bit product by a Triton kernel agrees with its definition; compiled: {shipped.described(True)}"
    if computed_wrongly(reason):
        raise PackFailed(f"Kvasir's kernels compute wrongly on this GPU: {reason}. Update the GPU's driver.")
    return f"kernels fall back to torch because {reason}"
