"""Early launch (programmatic dependent launch): where a GPU has it, and a trial of it in a captured graph."""

from __future__ import annotations

import functools

import torch

from engine.compute.native.gpu import HOPPER, capability
from engine.compute.native.proof import tried

TOO_OLD = "GPUs before compute capability 9.0 start no kernel before the one before it has ended"
LINKS, REPLAYS, SIZE = 10, 5, 128


def unavailable(device: torch.device) -> str | None:
    """Reason no kernel starts early on a device, as far as its kind says; None where one may."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "the model is not on an NVIDIA GPU"
    return TOO_OLD if capability(device) < HOPPER else None


@functools.cache
def declines(device: torch.device) -> str | None:
    """Reason no kernel starts early on a device; None where a graph of such kernels has given the right results."""
    return unavailable(device) or tried(("early launch",), device, lambda: compare(device))


def compare(device: torch.device) -> str | None:
    """Reason a chain of kernels in a graph is wrong, half of which write long after the next one was let in (as a test
    of CUB's does, NVIDIA/cccl#5249); None where it agrees with what the host computes."""
    x, y = (torch.zeros(SIZE, dtype=torch.int32, device=device) for _ in range(2))
    chain(x, y)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
        chain(x, y)
    for _ in range(REPLAYS):
        graph.replay()
        if not bool((y == chained(LINKS)).all()):
            return "kernels that start early read what was not written yet"
    return None


def chain(x: torch.Tensor, y: torch.Tensor, links: int = LINKS, waits: bool = True) -> None:
    """Launch so many pairs of a kernel that writes x late and one that reads it; ``waits`` False: it reads too soon.
    ``x`` and ``y [n]`` int32 begin with 0, and y ends with :func:`chained`."""
    from engine.compute.native import early_kernels

    x.zero_()
    y.zero_()
    for link in range(links):
        early_kernels.late[1,](x, len(x), num_warps=4, launch_pdl=link > 0)
        early_kernels.after[1,](x, y, len(x), waits, num_warps=4, launch_pdl=True)


def chained(links: int) -> int:
    """What ``y`` is after so many links, as int32."""
    y = 0
    for x in range(1, links + 1):
        y = (3 * y + x) & 0xFFFFFFFF
    return y - (1 << 32) if y >> 31 else y
