"""Check that Triton's kernels can run here, and a trial of one that makes a reason of any error but lack of memory."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable

import torch

from engine.compute.native import remembered, shipped, triton_compiler
from engine.compute.native.gpu import TENSOR_CORES, capability
from engine.compute.native.triton_launch import launching

DTYPES = (torch.bfloat16, torch.float16)


def machine_declines(dtype: torch.dtype, device: torch.device, oldest: tuple[int, int] = TENSOR_CORES) -> str | None:
    """Reason no kernel runs here that needs the compute capability ``oldest``; None where one may."""
    if device.type != "cuda":
        return "the model is not on a GPU"
    if dtype not in DTYPES:
        return f"it multiplies bfloat16 and float16, and the model runs in {str(dtype).removeprefix('torch.')}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    reason = triton_compiler.unavailable()
    if reason is not None:
        return reason
    if capability(device) < oldest:
        return "the GPU is older than compute capability {}.{}".format(*oldest)
    if capability(device) < TENSOR_CORES and dtype != torch.float16:
        return "the GPU has no bfloat16"
    triton_compiler.install()
    shipped.install()
    if torch.version.hip is not None:
        from triton import knobs

        # A variant would also depend on whether an arena has more than 2 GB, which no caller of a launch says.
        knobs.amd.use_buffer_ops = False
    return None


def tried(what: tuple[object, ...], device: torch.device, compare: Callable[[], str | None]) -> str | None:
    """Same as :func:`failure`, without a trial where it has passed here before.

    ``what`` names the trial and its traits, each of which reads the same in every process.
    """
    trial = repr(what)
    if remembered.agrees(trial, device):
        return None
    reason = failure(compare)
    if reason is None:
        remembered.keep(trial, device)
    return reason


def failure(compare: Callable[[], str | None]) -> str | None:
    """Reason that a comparison on the device gives, or for which it could not be made; None where it found none.

    Raises torch.OutOfMemoryError, which says nothing about the kernel, so that nobody remembers it as a reason, and
    RuntimeError while a step is being captured.
    """
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a kernel cannot be tried while a step is being captured")
    try:
        with launching():
            return compare()
    except torch.OutOfMemoryError:
        raise
    except subprocess.CalledProcessError:  # ptxas's failures are Triton's own errors
        return "the C compiler fails on Triton's helpers (Python's headers may be missing: the package python3-dev)"
    except Exception as error:  # Triton, its compilers and the driver raise as they please.
        text = str(error).strip() or type(error).__name__
        return f"it fails here ({text.splitlines()[0][:300]})"
