"""The experts of a block on a GPU: a fixed sequence of kernels for any number of experts, none of which is waited for.

Rows are sorted by expert on the device, and one product takes each run of them through its expert (sorted_rows.py). The
grids depend on the number of rows alone, so the block can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.compute.batch import power_of_two, row_class
from engine.compute.layers.activation import Activation, ClampedSwiGLU, Gated
from engine.compute.layers.experts.router import Router
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton.experts import ExpertStack, SortedCut, SortedRows, tile_count, tile_for
from engine.compute.layers.linear.triton.runtime import FIXED, aligned
from engine.compute.native.proof import failure
from engine.compute.native.triton_launch import Variants

SCORED_ROWS = 32
"""Up to this many rows one kernel computes the router's scores; above, torch's product reads its weights less often."""
FEW_ENTRIES, CHUNK = 128, 1024
"""Entries that sorting looks at together: where there are no more than the first, and otherwise."""
BLOCK, SCORED_AT_ONCE = 1024, 8192
"""Values of a row that a program looks at together where it sums, and the most of them where it scores."""
TRIED = 128
"""Output features at either end of an expert that a trial compares."""
_WRONG = "does not agree with the definition here"

_tried: dict[Hashable, str | None] = {}
"""Results of trials in this process."""


class Routing(NamedTuple):
    """``chosen [T, k]`` int32, the experts of each row, ascending; and ``shares [T, k]`` float32."""

    chosen: Tensor
    shares: Tensor


class GroupedExperts:
    """``sum of share_e * down_e(gated(gate_up_e(x)))``, as `engine.compute.layers.moe.SparseMLP` says it."""

    def __init__(
        self, router: Router, gate_up: ExpertStack, down: ExpertStack, gated: Activation | Gated | ClampedSwiGLU
    ) -> None:
        self.router, self.gate_up, self.down, self.gated = router, gate_up, down, gated
        self.choices, self.experts = router.moe.experts_per_token, len(down)
        self._wide = gate_up.wide() if gate_up.wide() == down.wide() else ()
        self._lanes = max(32, 1 << (self.experts - 1).bit_length())
        self._variants = Variants()

    def forward(self, x: Tensor, shared: Tensor | None, routed: Tensor | None = None) -> Tensor:
        """``x [T, hidden_size]`` of at least one row; ``shared`` alike is added to the sum.

        ``routed`` alike is what the router reads where that is not ``x``.
        """
        x = aligned(x)
        choice = self.route(self.scores(x if routed is None else aligned(routed)))
        rows = self.sort(choice.chosen, self.cut(len(x)))
        gated = self.gated(self.gate_up.multiply(x, rows, self.choices))
        return self.combine(self.down.multiply(gated, rows, 0), rows, choice.shares, shared)

    def cut(self, rows: int) -> SortedCut:
        """The tile of the products for a step of so many rows: the same whether it is captured (and padded) or not."""
        if self.router.numerics.batch_invariant:
            return FIXED
        return tile_for(row_class(rows) * self.choices / self.experts, self._wide)

    def cuts(self) -> tuple[SortedCut, ...]:
        """All that :meth:`cut` gives, in either mode, for a trial."""
        return (*(tile_for(each) for each in (1, 4)), FIXED, *self._wide)

    def scores(self, x: Tensor) -> Tensor:
        """The router's, float32 ``[T, E]``."""
        linear = self.router.linear
        if not isinstance(linear, Dense) or (len(x) > SCORED_ROWS and not self.router.numerics.batch_invariant):
            return self.router.scores(x)
        out = torch.empty(len(x), self.experts, device=x.device)
        args = (x, linear.weight, linear.bias, out, self.experts, linear.in_features)
        lanes = min(SCORED_AT_ONCE, power_of_two(linear.in_features))
        self._launch("score", x.dtype, (len(x), self.experts, 1), args, BIAS=linear.bias is not None, BK=lanes)
        return out

    def route(self, scores: Tensor) -> Routing:
        """Same as `engine.compute.layers.experts.router.Router.choose`, but for the order of a row's experts."""
        moe, bias = self.router.moe, self.router.bias
        chosen = torch.empty(len(scores), self.choices, dtype=torch.int32, device=scores.device)
        shares = torch.empty(len(scores), self.choices, device=scores.device)
        args = (aligned(scores), bias, chosen, shares, float(moe.share_scale))
        self._launch(
            "route", None, (len(scores), 1, 1), args,
            **self.choice_constants(), num_warps=1 if self._lanes <= 512 else 4,
        )  # fmt: skip
        scales = self.router.scales
        return Routing(chosen, shares if scales is None else shares * scales[chosen.long()])

    def choice_constants(self) -> dict[str, Any]:
        """Constants of `experts.kernels.choice`."""
        moe = self.router.moe
        return {
            "EXPERTS": self.experts,
            "CHOICES": self.choices,
            "GROUPS": moe.groups,
            "GROUPS_TAKEN": moe.groups_per_token,
            "ALL": moe.routing == "all",
            "SIGMOID": moe.routing == "sigmoid",
            "BIAS": self.router.bias is not None,
            "NORMALISED": moe.normalised,
            "BE": self._lanes,
        }

    def sort(self, chosen: Tensor, cut: SortedCut) -> SortedRows:
        """Sort ``chosen [T, k]``."""
        count = chosen.numel()
        entries, places = torch.empty_like(chosen).flatten(), torch.empty_like(chosen)
        tiles = chosen.new_empty(tile_count(count, self.experts, cut.rows), 4)
        chunk = FEW_ENTRIES if count <= FEW_ENTRIES else CHUNK
        args = (chosen, entries, places, tiles, count, len(tiles))
        self._launch(
            "sort", (chunk, cut.rows), (self.experts, 1, 1), args,
            EXPERTS=self.experts, BE=self._lanes, CHUNK=chunk, MB=cut.rows,
        )  # fmt: skip
        return SortedRows(entries, places, tiles, cut)

    def combine(self, results: Tensor, rows: SortedRows, shares: Tensor, shared: Tensor | None) -> Tensor:
        """``results [n, hidden_size]`` of the sorted entries -> ``[T, hidden_size]``."""
        hidden = results.shape[1]
        out = results.new_empty(len(shares), hidden)
        args = (results, rows.places, shares, None if shared is None else aligned(shared), out, hidden)
        # Each summand is rounded before it is added, as in torch's operations.
        self._launch(
            "combine", (out.dtype, shared is None), (len(shares), -(-hidden // BLOCK), 1), args,
            CHOICES=self.choices, SHARED=shared is not None, BLOCK=BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
        return out

    def _launch(
        self, name: str, key: Hashable, grid: tuple[int, int, int], args: tuple[Any, ...], **words: Any
    ) -> None:
        from engine.compute.layers.experts import kernels

        self._variants.launch(getattr(kernels, name), key, grid, args, lambda: {"num_warps": 4} | words)


def declines(block: GroupedExperts, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason the kernels do not serve the block; None when they do, as a trial with its own weights has shown.

    Blocks that the same kernels compute are tried once. Raises only torch.OutOfMemoryError.
    """
    moe, linear = block.router.moe, block.router.linear
    scored = linear.bias is not None if isinstance(linear, Dense) else None
    key = (block.gate_up.variant(), block.down.variant(), scored, moe.routing, moe.choice_bias, moe.normalised,
           moe.groups, moe.groups_per_token, moe.experts_per_token, moe.expert_scales, dtype, device)  # fmt: skip
    if key not in _tried:
        _tried[key] = failure(lambda: _disagrees(block, dtype, device))
    return _tried[key]


def _disagrees(block: GroupedExperts, dtype: torch.dtype, device: torch.device) -> str | None:
    generator = torch.Generator().manual_seed(3)
    experts, choices = block.experts, block.choices
    if _misjudges(block, dtype, device):
        return f"its scores of experts {_WRONG}"
    scores = torch.randn(9, experts, generator=generator)
    scores[1], scores[2, ::2] = 0.0, 3.0  # equals, of which the first are taken
    chosen, shares = (each.cpu() for each in block.router.choose(scores.to(device)))
    found = block.route(scores.to(device))
    by_expert = chosen.argsort(1)
    if not torch.equal(found.chosen.cpu().long(), chosen.gather(1, by_expert)):
        return f"its choice of experts {_WRONG}"
    if _far(found.shares, shares.gather(1, by_expert), 1e-5):
        return f"its shares {_WRONG}"
    # Some experts are asked by many, some by one, most by nobody.
    some = sorted({0, experts // 2, experts - 1})
    for cut in block.cuts():
        rows = max(5, -(-(cut.rows + 5) // choices))
        asked = torch.tensor(some)[(torch.arange(rows * choices) % (cut.rows + 3)).clamp(max=len(some) - 1)]
        asked = asked.view(rows, choices)
        sorted_rows = block.sort(asked.int().to(device), cut)
        x = torch.randn(rows, block.gate_up.in_features, generator=generator).to(dtype)
        inner = torch.randn(rows * choices, block.down.in_features, generator=generator).to(dtype)
        order = asked.flatten().argsort(stable=True)
        if not torch.equal(sorted_rows.entries.cpu().long(), order):
            return f"its order of rows {_WRONG}"
        for stack, given, taken in ((block.gate_up, x, choices), (block.down, inner, 0)):
            product = stack.multiply(given.to(device), sorted_rows, taken).cpu()
            by_row = given[order // choices] if taken else given
            for expert in some:
                own = asked.flatten()[order] == expert
                for start, stop in _ends(stack.out_features):
                    weight, bias = stack.part(expert, start, stop)
                    if _far(product[own, start:stop], by_row[own].double() @ weight.t() + bias, 0.02):
                        return f"its products {_WRONG}"
        if cut == FIXED and not _steady(block, x.to(device), asked.int().to(device), sorted_rows):
            return "its product of a row depends on the other rows"
    return _sum(block, dtype, device, generator)


def _misjudges(block: GroupedExperts, dtype: torch.dtype, device: torch.device) -> bool:
    """Return True if scores are wrong. (A packed router is no kernel of these.)"""
    linear = block.router.linear
    if not isinstance(linear, Dense):
        return False
    x = torch.randn(3, linear.in_features, generator=torch.Generator().manual_seed(4)).to(dtype)
    bias = 0.0 if linear.bias is None else linear.bias.double().cpu()
    return _far(block.scores(x.to(device)), x.double() @ linear.weight.double().cpu().t() + bias, 1e-4)


def _ends(outputs: int) -> tuple[tuple[int, int], ...]:
    """The output features that are compared: an expert is not to be unpacked whole."""
    return ((0, outputs),) if outputs <= 2 * TRIED else ((0, TRIED), (outputs - TRIED, outputs))


def _steady(block: GroupedExperts, x: Tensor, asked: Tensor, whole: SortedRows) -> bool:
    """Return True if rows by themselves get the same bits."""
    all_of_them = block.gate_up.multiply(x, whole, block.choices)[whole.places.flatten().long()]
    few = block.sort(asked[3:5].contiguous(), whole.cut)
    alone = block.gate_up.multiply(aligned(x[3:5]), few, block.choices)[few.places.flatten().long()]
    return torch.equal(alone, all_of_them[3 * block.choices : 5 * block.choices])


def _sum(block: GroupedExperts, dtype: torch.dtype, device: torch.device, generator: torch.Generator) -> str | None:
    """Reason the sum is wrong; None where it is not."""
    rows, choices = 3, block.choices
    results = torch.randn(rows * choices, block.down.out_features, generator=generator).to(dtype)
    shares, shared = torch.rand(rows, choices, generator=generator), results[:rows] * 2
    places = torch.randperm(rows * choices, generator=generator).view(rows, choices)
    order = SortedRows(places, places.int().to(device), places, FIXED)
    expected = (results.double()[places] * shares[..., None]).sum(1)
    for added in (None, shared):
        found = block.combine(results.to(device), order, shares.to(device), None if added is None else added.to(device))
        if _far(found, expected if added is None else expected + added.double(), 0.02):
            return f"its sum {_WRONG}"
    return None


def _far(found: Tensor, expected: Tensor, share: float) -> bool:
    """NaN counts as far."""
    return not bool((found.double().cpu() - expected).abs().max() <= share * expected.abs().max())
