"""Router of a mixture of experts: the experts of each row, and each one's share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.compute.layers.linear.dense import Dense
from engine.compute.native.experts import ROUTINGS, RouterArguments
from engine.compute.native.library import DTYPES, ROW_UNIT, NativeLibrary, find

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.feed_forward import MoEConfig

SCORED_ROWS = 16
"""Up to this many rows native code computes the scores; above, torch's product reads its weights less often."""


class Router:
    """Chooses each row's experts and their shares; in float32, because a near-tie decides what is computed."""

    def __init__(self, moe: MoEConfig, hidden_size: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint, such as ``model.layers.0.mlp.``."""
        self.moe, self.numerics = moe, source.numerics
        self.linear = source.linear(prefix, (moe.names.router,), [moe.num_experts], hidden_size, moe.bias)
        if isinstance(self.linear, Dense):
            bias = self.linear.bias
            self.linear = Dense(self.linear.weight.float(), None if bias is None else bias.float(), source.numerics)
        self.scales: Tensor | None = None
        self.bias: Tensor | None = None
        if moe.choice_bias:
            self.bias = source.array(f"{prefix}{moe.names.router}.e_score_correction_bias", (moe.num_experts,))
        if moe.expert_scales:
            self.scales = source.array(f"{prefix}router.per_expert_scale", (moe.num_experts,))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``x [T, hidden_size]`` -> ``chosen [T, k]`` int64, all different in a row, and ``shares [T, k]`` float32."""
        library = find().library if x.device.type == "cpu" and x.dtype in DTYPES else None
        return self.choose(self.scores(x)) if library is None else self._natively(x, library)

    def _natively(self, x: Tensor, library: NativeLibrary) -> tuple[Tensor, Tensor]:
        """Same as :meth:`choose`, to rounding, by native code, which scores a few rows, too, and each by itself."""
        moe, linear, (rows, size) = self.moe, self.linear, x.shape
        few = rows <= SCORED_ROWS or self.numerics.batch_invariant
        weight = linear.weight if isinstance(linear, Dense) and few and size % ROW_UNIT == 0 else None
        x = x.contiguous()
        scores = self.scores(x).contiguous() if weight is None else torch.empty(rows, moe.num_experts)
        chosen = torch.empty(rows, moe.experts_per_token, dtype=torch.int64)
        shares = torch.empty(rows, moe.experts_per_token)
        bias = linear.bias if isinstance(linear, Dense) else None
        tensors = (x, weight, bias, scores, self.bias, self.scales, chosen, shares)
        problem = RouterArguments(
            *(None if each is None else each.data_ptr() for each in tensors),
            rows,
            size,
            moe.num_experts,
            moe.experts_per_token,
            moe.groups,
            moe.groups_per_token,
            moe.share_scale,
            ROUTINGS.index(moe.routing),
            moe.normalised,
            x.dtype == torch.bfloat16,
        )
        library.route(problem)
        return chosen, shares

    def scores(self, x: Tensor) -> Tensor:
        """float32 ``[T, E]``."""
        dense = isinstance(self.linear, Dense)
        return self.linear.forward(x.float()) if dense else self.linear.forward_float32(x)

    def choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Same as :meth:`route`, of :meth:`scores`; the experts are in the order of their scores, the largest first."""
        moe = self.moe
        if moe.routing != "chosen":
            scores = self.numerics.by_row(_softmax if moe.routing == "all" else torch.sigmoid, scores)
        judged = scores if self.bias is None else scores + self.bias
        chosen = best(self._within_groups(judged), moe.experts_per_token)
        shares = scores.gather(1, chosen)
        if moe.routing == "chosen":
            shares = self.numerics.by_row(_softmax, shares)
        elif moe.normalised:
            shares = shares / self.numerics.by_row(_sum, shares)
        if self.scales is not None:
            shares = shares * self.scales[chosen]
        return chosen, shares if moe.share_scale == 1 else shares * moe.share_scale

    def _within_groups(self, scores: Tensor) -> Tensor:
        """The scores, -inf in groups whose best expert is not among the best (with sigmoids, whose best two)."""
        moe = self.moe
        if moe.groups_per_token == moe.groups:
            return scores
        grouped = scores.view(scores.shape[0], moe.groups, -1)
        of_groups = grouped.topk(2, -1).values.sum(-1) if moe.routing == "sigmoid" else grouped.amax(-1)
        left_out = torch.ones_like(of_groups, dtype=torch.bool)
        left_out.scatter_(1, best(of_groups, moe.groups_per_token), False)
        return grouped.masked_fill(left_out[..., None], -torch.inf).view(scores.shape)

    def storage_size(self) -> int:
        """Bytes held besides the linear layer."""
        return sum(held.nbytes for held in (self.scales, self.bias) if held is not None)


def best(scores: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` largest of each row of ``scores [T, n]``, the largest first; of equals the first.

    ``topk`` promises nothing about equals, and its algorithm depends on the number of rows.
    """
    return scores.argsort(dim=1, descending=True, stable=True)[:, :count]


_softmax = partial(torch.softmax, dim=-1)
_sum = partial(torch.sum, dim=-1, keepdim=True)
