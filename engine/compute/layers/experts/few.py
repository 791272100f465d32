"""A block of experts for a few rows on a GPU, with the norm before it and the addition after it: three kernels.

The first adds to the stream, normalises and scores; in the second every program chooses for its row and multiplies by
gates and ups; the third multiplies by down and adds to the stream. Nothing is sorted: see few_experts.py. A step of
more rows, or of a block that declines, is that of grouped.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from engine.compute.batch import power_of_two
from engine.compute.layers.activation import Activation, ClampedSwiGLU, Gated
from engine.compute.layers.experts.grouped import GroupedExperts
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton.experts import ExpertStack
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.linear.triton.runtime import SOME, aligned, tensor_cores
from engine.compute.layers.linear.triton.surrounded import GATINGS
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.layers.residual import ResidualStream, add_scaled
from engine.compute.layers.triton import fused
from engine.compute.native.proof import failure
from engine.compute.native.triton_launch import Variants

if TYPE_CHECKING:
    from engine.compute.layers.interface import Norm

ROWS = 8
"""The most rows of a step."""
CROWDED = 2
"""So many times the pairs of rows and experts there must be experts, where there is more than one row: few are then
asked by two rows, which read its weights twice. (Estimate, not yet measured.)"""
WARPS = 8
"""Warps of a program that sums, for which a multiprocessor has registers: several experts are multiplied at a time."""
LEAST_PLANE = 16
"""Input features of a slice of a product, at least."""
TOLERANCE = 0.01
"""Share of the largest value by which the last of 16 bits may differ."""
_WRONG = "do not agree with kernels of their own here"

_tried: dict[Hashable, str | None] = {}


class Judged(NamedTuple):
    """``stream [T, K]``, to which all was added, and ``normed`` alike; ``scores [T, E]`` of experts and ``opened [T]``
    of the shared expert's gate, before its sigmoid, both float32."""

    stream: Tensor
    normed: Tensor
    scores: Tensor
    opened: Tensor | None


class Chosen(NamedTuple):
    """``gated [T * k, I]`` of the experts ``chosen [T, k]`` int32, ascending, with their ``shares`` alike in float32;
    ``own [T, I']`` of the shared expert, where it is packed as they are."""

    gated: Tensor
    chosen: Tensor
    shares: Tensor
    own: Tensor | None


class Packed(NamedTuple):
    """Layers of a shared expert that is packed as the others are."""

    gate_up: PlaneLinear
    down: PlaneLinear


class FewExperts:
    """Adds to the stream what a block makes of its norm, for a few rows."""

    def __init__(
        self,
        block: GroupedExperts,
        shared: GatedMLP | PlainMLP | None,
        gate: Linear | None,
        apart: Callable[[Tensor], Tensor | None],
    ) -> None:
        """``apart(x)`` is what the shared expert gives, behind its gate, where the kernels do not compute it."""
        self.block, self.shared, self.gate, self.apart = block, shared, gate, apart
        self.gating = _gating(block.gated)
        self._kind = self._declines_kind()
        self._variants = Variants()

    @functools.cached_property
    def traits(self) -> Hashable:
        """Equal for blocks that the same kernels compute, but for their shared experts and norms."""
        block, moe, linear = self.block, self.block.router.moe, self.block.router.linear
        assert isinstance(linear, Dense)
        choice = moe.routing, moe.choice_bias, moe.normalised, moe.groups, moe.groups_per_token, moe.experts_per_token
        absent = linear.bias is None, self.gate is None, self.shared is None
        return block.gate_up.variant(), block.down.variant(), self.gating, choice, absent

    def _declines_kind(self) -> str | None:
        """Reason that no step of this block is computed so; None where there may be."""
        router = self.block.router
        for stack in (self.block.gate_up, self.block.down):
            if not isinstance(stack.form, PlaneLinear) or not tensor_cores(stack.form.device):
                return "its weights are not in planes of 4 bits"
        if not isinstance(router.linear, Dense):
            return "what chooses its experts is packed"
        if router.scales is not None:
            return "its experts have scales of their own"
        if router.linear.in_features != self.block.down.out_features:
            return "its experts have another width than the stream"
        if router.linear.in_features > fused.WIDEST:
            return f"it normalises no rows of {router.linear.in_features} channels"
        return None if self.gating is not None else "it has no such gating"

    def declines(self, x: Tensor, norm: Norm) -> str | None:
        """Reason that a step of rows ``x [T, K]`` is computed otherwise; None where it is, as a trial has shown."""
        rows, block = len(x), self.block
        if self._kind is not None:
            return self._kind
        if block.router.numerics.batch_invariant:
            return "its last bits depend on how many rows there are"
        if not 0 < rows <= ROWS:
            return f"it has no step of {rows} rows"
        if rows > 1 and CROWDED * rows * block.choices > block.experts:
            return "several rows would ask the same experts"
        if not isinstance(norm, RMSNorm) or norm.weight.dim() != 1:
            return "it normalises by a root mean square alone"
        if not x.is_contiguous() or (x.data_ptr() | norm.weight.data_ptr()) % 16:
            return "the residual stream is no whole tensor"
        return disagrees(self, norm, x.dtype)

    def add_to(self, stream: ResidualStream, norm: Norm, scale: float) -> bool:
        """Add ``scale`` times what the block makes of the norm of the stream, unless it declines: then False."""
        x, added, by = stream.parts()
        if self.declines(x, norm) is not None:
            return False
        assert isinstance(norm, RMSNorm)
        judged = self.judge(x, added, by, norm)
        stream.replace(judged.stream)
        self.sum(judged, self.choose(judged), scale)
        return True

    def packed(self) -> Packed | None:
        """The shared expert's layers where the kernels compute it; None where there is none or they do not."""
        mlp, gate = self.shared, self.gate
        if not isinstance(mlp, GatedMLP) or _gating(mlp.gated) != self.gating:
            return None
        if gate is not None and (not isinstance(gate, Dense) or gate.bias is not None):
            return None
        layers = []
        for own, stack in ((mlp.gate_up, self.block.gate_up), (mlp.down, self.block.down)):
            assert isinstance(stack.form, PlaneLinear)
            if not isinstance(own, PlaneLinear) or own.order is not None or own.form != stack.form.form:
                return None  # one within an adapter is none of these
            if (own.bias is None) != (stack.bias is None):
                return None
            layers.append(own)
        return Packed(*layers)

    def judge(self, x: Tensor, added: Tensor | None, by: float, norm: RMSNorm) -> Judged:
        """Add ``by * added`` to x, where there is something to be added, into a new tensor; normalise and score."""
        from engine.compute.layers.experts import kernels

        linear, rows, size, experts = self.block.router.linear, *x.shape, self.block.experts
        assert isinstance(linear, Dense)
        gate = self.gate.weight if isinstance(self.gate, Dense) and self.packed() is not None else None
        stream = x if added is None else torch.empty_like(x)
        normed = torch.empty_like(x)
        scores, opened = x.new_empty(rows, experts, dtype=torch.float32), None
        if gate is not None:
            opened = x.new_empty(rows, dtype=torch.float32)
        given = None if added is None else aligned(added)
        args = (x, given, norm.weight, linear.weight, linear.bias, gate, stream, normed, scores, opened,
                float(by), norm.eps)  # fmt: skip

        def keywords() -> dict[str, Any]:
            lanes = power_of_two(size)
            traits = {"ADDED": added is not None, "SCALED": by != 1, "BIAS": linear.bias is not None}
            sizes = {"SIZE": size, "LANES": lanes, "EXPERTS": experts, "GATE": gate is not None}
            return {**traits, **sizes, "num_warps": fused.warps(lanes), "enable_fp_fusion": False}

        key = x.dtype, norm.weight.dtype, added is None, by != 1, None if gate is None else gate.dtype
        grid = (rows, experts + (gate is not None), 1)
        self._variants.launch(kernels.judge, key, grid, args, keywords)
        return Judged(stream, normed, scores, opened)

    def choose(self, judged: Judged) -> Chosen:
        """The experts of each row, and their gated products."""
        from engine.compute.layers.linear.triton.kernels import few_experts

        block, x = self.block, judged.normed
        stack, rows, own = block.gate_up, len(x), self.packed()
        form, gating = stack.form, self.gating
        assert isinstance(form, PlaneLinear)
        assert gating is not None
        inner = stack.out_features // 2
        gated = x.new_empty(rows * block.choices, inner)
        chosen = x.new_empty(rows, block.choices, dtype=torch.int32)
        shares = x.new_empty(rows, block.choices, dtype=torch.float32)
        outputs = 0 if own is None else own.gate_up.out_features
        out = None if own is None else x.new_empty(rows, outputs // 2)
        held = _held(None if own is None else own.gate_up)
        moe, most = block.router.moe, max(inner, outputs // 2)
        args = (x, *form.tensors(), stack.bias, gated, judged.scores, block.router.bias, chosen, shares, *held, out,
                rows, stack.out_features, *form.sizes(), outputs, float(moe.share_scale), *gating[1:])  # fmt: skip

        def keywords() -> dict[str, Any]:
            choice = block.choice_constants()
            choice["CHOICE_BIAS"] = choice.pop("BIAS")
            return {**_constants(stack, x.dtype, SOME.slices), **choice, "KIND": gating[0], "OWN": own is not None}

        pairs = rows * block.choices + (rows if own is not None else 0)
        grid = (pairs, -(-most // (SOME.outputs // 2)), 1)
        self._variants.launch(few_experts.multiply_chosen, (x.dtype, own is None), grid, args, keywords)
        return Chosen(gated, chosen, shares, out)

    def sum(self, judged: Judged, by: Chosen, scale: float) -> None:
        """Add ``scale`` times the sum of the experts of each row, and of the shared one, to the stream."""
        from engine.compute.layers.linear.triton.kernels import few_experts

        block, stream = self.block, judged.stream
        stack, own = block.down, self.packed()
        form = stack.form
        assert isinstance(form, PlaneLinear)
        added = None if own is not None else self.apart(judged.normed)
        held = _held(None if own is None else own.down)
        inputs = 0 if own is None else own.down.in_features
        sizes = form.sizes()
        args = (by.gated, *form.tensors(), stack.bias, stream, by.chosen, by.shares, by.own, *held, judged.opened,
                None if added is None else aligned(added), stack.out_features, sizes[0], sizes[2], inputs,
                float(scale))  # fmt: skip

        def keywords() -> dict[str, Any]:
            slots = min(WARPS, power_of_two(block.choices))
            slices = min(WARPS // slots, power_of_two(form.blocks))
            traits = {"SCALED": scale != 1, "OWN": own is not None, "OPENED": judged.opened is not None}
            sizes = {"BLOCKS": form.blocks, "CHOICES": block.choices, "SLOTS": slots, "ADDED": added is not None}
            more: dict[str, Any] = {"OWN_BLOCKS": 1, "OWN_SLICES": 1, "OWN_PARTS": 1, "OWN_PADDED": False}
            if own is not None:
                wide = min(slots * slices, power_of_two(own.down.blocks))
                parts = min(slots * slices // wide, form.form.plane // LEAST_PLANE)
                padded = own.down.product_constants(stream.dtype)["PADDED"]
                # Slices more than there are blocks have nothing to do, where a block has no more parts.
                wide = slots * slices // parts
                more = {"OWN_BLOCKS": own.down.blocks, "OWN_SLICES": wide, "OWN_PARTS": parts, "OWN_PADDED": padded}
            constants = _constants(stack, stream.dtype, slices)
            return {**constants, **traits, **sizes, **more, "num_warps": slots * slices}

        key = stream.dtype, own is None, added is None, judged.opened is None, scale != 1
        grid = (-(-stack.out_features // SOME.outputs), len(stream), 1)
        self._variants.launch(few_experts.multiply_summed, key, grid, args, keywords)


def _held(layer: PlaneLinear | None) -> tuple[Tensor | None, ...]:
    """Words, scales, offsets and biases of the shared expert's layer, as the kernels read them."""
    return (None,) * 4 if layer is None else (*layer.tensors()[:3], layer.bias)


def _gating(gated: Activation | Gated | ClampedSwiGLU) -> tuple[str, float, float] | None:
    """The kind of a gating with its limit and alpha; None where the kernels have none of it."""
    if isinstance(gated, ClampedSwiGLU):
        return "clamped", float(gated.limit), float(gated.alpha)
    return (gated.kind, 0.0, 0.0) if isinstance(gated, Gated) and gated.kind in GATINGS else None


def _constants(stack: ExpertStack, dtype: torch.dtype, slices: int) -> dict[str, Any]:
    """Of a product with the weights of all experts; ``dtype`` is that of x."""
    form, tile = stack.form, {"MB": SOME.rows, "BN": SOME.outputs, "SLICES": slices}
    traits = {"BIAS": stack.bias is not None, "num_warps": slices, "num_stages": form.stages(SOME)}
    return {**form.constants(), **form.product_constants(dtype), **tile, **traits}


def disagrees(few: FewExperts, norm: RMSNorm, dtype: torch.dtype) -> str | None:
    """Reason not to trust the kernels with blocks like this one; None where they compute what others do here."""
    own = few.packed()
    shared = None if own is None else (own.gate_up.traits, own.down.traits)
    key = few.traits, shared, norm.weight.dtype, dtype, norm.weight.device
    if key not in _tried:
        _tried[key] = failure(lambda: compare(few, norm, dtype))
    return _tried[key]


def compare(few: FewExperts, norm: RMSNorm, dtype: torch.dtype) -> str | None:
    """Reason that steps of random rows, by the block's own weights, are wrong; None where each of the kernels agrees
    with those that it stands for, which have proved themselves, given the same."""
    block, device = few.block, norm.weight.device
    generator = torch.Generator().manual_seed(1)
    most = max(1, min(ROWS - 3, block.experts // (CROWDED * block.choices)))
    size = block.down.out_features
    for rows, by in ((1, 1.0), (most, 0.25)):
        x, added = (torch.randn(rows, size, generator=generator).to(device, dtype) for _ in range(2))
        expected = x.clone()
        normed = fused.add_norm(expected, added, by, norm.weight, norm.eps)
        judged = few.judge(x, added, by, norm)
        if _far(judged.stream, expected) or _far(judged.normed, normed):
            return f"its sums and norms {_WRONG}"
        if _far(judged.scores, block.scores(judged.normed), 1e-4):
            return f"its scores of experts {_WRONG}"
        choice = block.route(judged.scores)
        entries = block.sort(choice.chosen, block.cut(rows))
        gated = block.gated(block.gate_up.multiply(judged.normed, entries, block.choices))
        found = few.choose(judged)
        if not torch.equal(found.chosen, choice.chosen) or _far(found.shares, choice.shares, 1e-5):
            return f"its choices of experts {_WRONG}"
        own = few.packed()
        whole = few.shared
        pairs = [(found.gated, gated[entries.places.flatten().long()])]
        if own is not None and found.own is not None and isinstance(whole, GatedMLP):
            pairs.append((found.own, whole.gated(own.gate_up(judged.normed))))
        if any(_far(one, other) for one, other in pairs):
            return f"its gated products {_WRONG}"
        sums = block.combine(block.down.multiply(gated, entries, 0), entries, choice.shares, few.apart(judged.normed))
        expected = judged.stream.clone()
        add_scaled(expected, sums, by)
        few.sum(judged, found, by)
        if not sums.any():
            return "the weights that it could be tried with are zero"
        if _far(judged.stream, expected):
            return f"its sums of experts {_WRONG}"
    return None


def _far(found: Tensor, expected: Tensor, share: float = TOLERANCE) -> bool:
    """NaN counts as far."""
    return not bool((found.float() - expected.float()).abs().max() <= share * expected.float().abs().max())
