"""Products of up to 8 rows that ask for weights ahead (kernels/resident.py), where the switch for them is on.

They take the place of planes.py's, which stay for whatever is declined here.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton import surrounded
from engine.compute.layers.linear.triton.runtime import RingCut, StripCut, aligned
from engine.compute.native.gpu import HOPPER, TENSOR_CORES, capability, inlines, processors
from engine.compute.native.proof import failure

if TYPE_CHECKING:
    from engine.compute.layers.linear.triton.layer import PlaneLayer

ROWS = 8
"""The most rows of a product."""
OUTPUTS = 16
"""Output features of a strip."""
PLANES = (64, 128)
"""Planes whose scales leave room for words: those of shorter groups take half of the registers."""
LONGEST = 32768
"""Input features: all turns of a program are written out."""
LEAST_BLOCKS = 4
"""Blocks of an output feature, one of which every warp has."""
WARPS = (8, 4)
WASTED = 1.25
"""Times as many places for blocks as there are, at which fewer warps are taken."""
REGISTERS = 64
"""Registers of a thread for words that are under way."""
WAVES = 4
"""Strips for each multiprocessor from which on one program takes them in turn."""
UNDER_WAY = 96 << 10
"""Bytes that such a program asks for ahead: three strips of 4,096 input features."""
LEAST_UNDER_WAY = 32 << 10
"""Below as many it is no better than programs for every strip."""
_SHARED = {(8, 0): 163 << 10, (8, 7): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10, (10, 3): 227 << 10}
"""Bytes of shared memory that a program may have, by compute capability (CUDA C++ Programming Guide) ..."""
_LEAST_SHARED = 99 << 10
"""... and of all others."""
NONE = Surroundings()

_tried: dict[tuple[Hashable, ...], str | None] = {}
"""What trials said; a key begins with the traits of the layer."""


def unavailable(device: torch.device) -> str | None:
    """Reason no such kernel runs on a device; None where one may."""
    if not inlines(device):
        return "they are for NVIDIA's GPUs"
    if capability(device) < TENSOR_CORES:
        return "the GPU is older than compute capability {}.{}".format(*TENSOR_CORES)
    return _no_gluon()


@functools.cache
def _no_gluon() -> str | None:
    try:
        from engine.compute.layers.linear.triton.kernels import resident  # noqa: F401 - Triton's Gluon may be missing
    except Exception as error:  # an experimental part of Triton, which may fail in whatever way
        from triton import __version__

        return f"Triton {__version__} has no Gluon that they could be compiled with ({type(error).__name__})"
    return None


def cannot(layer: PlaneLayer) -> str | None:
    """Reason there is no such product of a layer; None where there is one, which may gain nothing."""
    reason = unavailable(layer.device)
    if reason is not None:
        return reason
    if layer.form.offset not in ("eight", "zeros"):
        return "its codes take more instructions than fast memory leaves time for"
    if layer.form.plane not in PLANES:
        return f"its groups of {layer.form.plane} have too many scales"
    if layer.out_features % OUTPUTS:
        return f"its {layer.out_features} output features are no whole strips of {OUTPUTS}"
    if layer.in_features % 8 or layer.in_features > LONGEST or layer.blocks < LEAST_BLOCKS:
        return f"its rows of {layer.in_features} input features cannot be cut up among warps"
    if layer.words.numel() >= 1 << 31:
        return "it is too large"
    return None


def refuses(layer: PlaneLayer) -> str | None:
    """Reason a layer is no such product, whatever the rows; None where it may be one."""
    reason = cannot(layer)
    if reason is None and cut_of(layer, 1) is None:
        reason = "with so few output features the other kernel keeps memory at work as well"
    return reason


def known_reason(layer: PlaneLayer) -> str | None:
    """Reason a layer has no such product; None where it may, or trials have found nothing against it."""
    found = refuses(layer)
    if found is None:
        found = next((said for key, said in _tried.items() if said is not None and key[0] == layer.traits), None)
    return found


def declines(layer: PlaneLayer, x: Tensor, around: Surroundings = NONE) -> str | None:
    """Reason ``x`` is multiplied by another kernel; None where a trial on this device has shown that this one may."""
    if not layer.numerics.resident:
        return "it is switched off"
    if layer.numerics.batch_invariant:
        return "its last bits depend on how many rows there are"
    if not 0 < x.shape[0] <= ROWS:
        return f"it has no product of {x.shape[0]} rows"
    if (reason := refuses(layer)) is not None:
        return reason
    if cut_of(layer, x.shape[0]) is None:
        return f"shared memory has no room for {x.shape[0]} rows"
    return disagrees(layer, x.shape[0], x.dtype, around)


def warps(blocks: int) -> int:
    """Warps that share the blocks of an output feature."""
    many, few = WARPS
    padded = {count: -(-blocks // count) * count for count in WARPS}
    return few if padded[many] > WASTED * padded[few] else many


def strip_of(layer: PlaneLayer) -> StripCut:
    """The cut in which every strip has a program."""
    count = warps(layer.blocks)
    turns = -(-layer.blocks // count)
    return StripCut(ROWS, OUTPUTS, count, min(turns, REGISTERS * 4 // layer.form.plane))


def ring_of(layer: PlaneLayer, rows: int) -> RingCut | None:
    """The cut in which a program takes one strip after the other; None where shared memory has no room for enough."""
    count = warps(layer.blocks)
    turns = -(-layer.blocks // count)
    piece = count * OUTPUTS * layer.form.plane * 2
    kept = turns * count * layer.program_inputs * 2 * (1 if rows == 1 else ROWS)
    # Besides, the sums of warps meet there.
    room = _SHARED.get(capability(layer.device), _LEAST_SHARED) - kept - count * OUTPUTS * ROWS * 4 - 1024
    pieces = min(UNDER_WAY // piece, room // piece - 1)
    return RingCut(ROWS, OUTPUTS, count, pieces + 1) if pieces * piece >= LEAST_UNDER_WAY else None


def cut_of(layer: PlaneLayer, rows: int) -> StripCut | RingCut | None:
    """How a product of ``rows`` rows is cut up; None where it gains nothing by it (tests/gpu/model.py): where a program
    would ask once and for all, and neither start before its input is there nor take another strip."""
    if layer.out_features >= WAVES * OUTPUTS * processors(layer.device):
        ring = ring_of(layer, rows)
        if ring is not None:
            return ring
    strip = strip_of(layer)
    return strip if strip.ahead * strip.warps < layer.blocks else None


def multiply(layer: PlaneLayer, x: Tensor, around: Surroundings = NONE) -> Tensor:
    """Same as `surrounded.multiply`, where :func:`declines` gives None."""
    out = around.stream
    if out is None:
        out = x.new_empty(x.shape[0], layer.out_features // (2 if around.gating else 1))
    cut = cut_of(layer, x.shape[0])
    assert cut is not None
    launch(layer, aligned(layer.ordered(x)), out, cut, around)
    return out


def most_registers(layer: PlaneLayer, cut: StripCut | RingCut) -> int:
    """Registers of a thread, of which a multiprocessor has 65,536: those of a ring leave room for programs of the next
    kernel, and of strips there are as many programs as have memory at work."""
    if isinstance(cut, RingCut):
        return 96
    return 80 if cut.ahead * layer.form.plane // 4 <= REGISTERS // 2 else 128


def launch(layer: PlaneLayer, x: Tensor, out: Tensor, cut: StripCut | RingCut, around: Surroundings = NONE) -> None:
    """``x [rows, K]`` contiguous, in the packed order."""
    from engine.compute.layers.linear.triton.kernels import resident

    rows, norm, scaled = len(x), around.norm, around.by != 1
    turns = -(-layer.blocks // cut.warps)

    def constants() -> dict[str, Any]:
        before = {"WARPS": cut.warps, "TURNS": turns, "ONE": rows == 1, "NORM": norm is not None}
        before["WAITS"] = capability(layer.device) >= HOPPER
        after = {"KIND": around.gating, "ADDED": around.stream is not None, "SCALED": scaled, "num_warps": cut.warps}
        own = {"AHEAD": cut.ahead} if isinstance(cut, StripCut) else {"RING": cut.pieces}
        return {**before, **own, **after, "maxnreg": most_registers(layer, cut)}

    more = norm, float(around.eps), float(around.by)
    key = rows == 1, None if norm is None else norm.dtype, around.gating, around.stream is not None, scaled
    programs = layer.out_features // OUTPUTS
    if isinstance(cut, RingCut):
        programs = min(programs, processors(layer.device))
    kernel = resident.strip if isinstance(cut, StripCut) else resident.ring
    layer.launch_resident(kernel, x, out, cut, programs, constants, more, key)


def disagrees(layer: PlaneLayer, rows: int, dtype: torch.dtype, around: Surroundings) -> str | None:
    """Reason not to trust the kernel with layers like this one; None where it computes what the others do here."""
    norm = None if around.norm is None else around.norm.dtype
    after = around.gating, around.stream is not None, around.by != 1
    key = layer.traits, rows == 1, layer.bias is None, dtype, norm, *after
    if key not in _tried:
        _tried[key] = failure(lambda: compare(layer, 1 if rows == 1 else ROWS - 3, dtype, around))
    return _tried[key]


def compare(layer: PlaneLayer, rows: int, dtype: torch.dtype, around: Surroundings) -> str | None:
    """Reason products of random rows, by the layer's own weights, are wrong; None where they agree with the same by
    planes.py, one kernel for each part, within the bound that products with surroundings are held to."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, layer.in_features, generator=generator).to(layer.device, dtype)
    streams: list[Tensor | None] = [None, None]
    if around.stream is not None:
        stream = torch.randn(rows, layer.out_features, generator=generator).to(layer.device, dtype)
        streams = [stream, stream.clone()]
    expected = surrounded.apart(layer, x, around._replace(stream=streams[0]))
    found = multiply(layer, x, around._replace(stream=streams[1]))
    if not expected.any():
        return "the weights that it could be tried with are zero"
    # NaN counts as far.
    near = (found.float() - expected.float()).abs().max() <= surrounded.TOLERANCE * expected.float().abs().max()
    return None if bool(near) else "what it computes does not agree with the other kernels here"
