"""The mixture-of-experts feed-forward block (Shazeer et al. 2017): a router chooses a few experts for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.compute.layers.activation import Activation, ClampedSwiGLU, Gated
from engine.compute.layers.experts import grouped
from engine.compute.layers.experts.few import FewExperts
from engine.compute.layers.experts.native import NativeExperts
from engine.compute.layers.experts.router import Router
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.triton.experts import ExpertStack
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.layers.residual import ResidualStream

if TYPE_CHECKING:
    from engine.compute.layers.interface import Norm, WeightSource
    from engine.config.model import ModelConfig


def feed_forward(config: ModelConfig, index: int, source: WeightSource, prefix: str) -> GatedMLP | SparseMLP:
    """The feed-forward block of layer ``index``; ``prefix`` names the layer in the checkpoint (``model.layers.0.``)."""
    moe = config.moe
    if moe is None or moe.parallel or not moe.sparse[index]:
        return GatedMLP(config, source, f"{prefix}mlp.", config.mlp.inner_of(index))
    return SparseMLP(config, source, prefix + moe.names.block)


class SparseMLP:
    """``sum of share_e * down_e(gated(gate_up_e(x)))`` over the experts that a row chose, besides shared experts."""

    def __init__(self, config: ModelConfig, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint, such as ``model.layers.0.mlp.``."""
        moe = config.moe
        assert moe is not None
        hidden, inner, count = config.hidden_size, moe.intermediate_size, moe.num_experts
        *gate_up, down = moe.names.experts
        experts, width = f"{prefix}experts.", moe.latent_size or hidden
        self.router = Router(moe, hidden, source, prefix)
        self.latents: tuple[Linear, Linear] | None = None
        if moe.latent_size:
            self.latents = (
                source.linear(prefix, ("fc1_latent_proj",), [width], hidden, config.mlp.bias),
                source.linear(prefix, ("fc2_latent_proj",), [hidden], width, config.mlp.bias),
            )
        self.gate_up = source.experts(experts, count, gate_up, [inner] * len(gate_up), width, moe.bias)
        self.down = source.experts(experts, count, [down], [width], inner, moe.bias)
        plain = len(gate_up) == 1
        kind = Activation if plain else Gated
        self.gated: Activation | Gated | ClampedSwiGLU = kind(config.mlp.activation, source.numerics)
        if moe.swiglu_limit is not None:
            self.gated = ClampedSwiGLU(moe.swiglu_limit, moe.swiglu_alpha, source.numerics)
        self.shared: GatedMLP | PlainMLP | None = None
        self.shared_gate: Linear | None = None
        self._numerics = source.numerics
        if moe.shared_size:
            name = f"{prefix}{moe.names.shared}." if moe.names.shared else prefix
            mlp = PlainMLP if plain else GatedMLP
            self.shared = mlp(config, source, name, intermediate_size=moe.shared_size)
            if moe.names.shared_gate:
                self.shared_gate = source.linear(prefix, (moe.names.shared_gate,), [1], hidden, False)
        self.grouped = self._grouped(source)
        self.native: NativeExperts | None = None
        if source.device.type == "cpu":
            self.native = NativeExperts(self.gate_up, self.down, self.gated, source.numerics)
        self.few: FewExperts | None = None
        if self.grouped is not None and self.latents is None:
            self.few = FewExperts(self.grouped, self.shared, self.shared_gate, self._shared)

    def _grouped(self, source: WeightSource) -> grouped.GroupedExperts | None:
        """Block that computes all experts at once; None where no kernels serve it."""
        reason = "an expert's other layer has no such kernel"
        if isinstance(self.gate_up, ExpertStack) and isinstance(self.down, ExpertStack):
            if source.device.type == "meta":
                return None
            block = grouped.GroupedExperts(self.router, self.gate_up, self.down, self.gated)
            found = grouped.declines(block, source.dtype, source.device)
            if found is None:
                return block
            reason = found
        for stack in (self.gate_up, self.down):
            if isinstance(stack, ExpertStack):
                stack.decline(reason)
        return None

    @property
    def waits(self) -> bool:
        """True if a step reads on the host which experts its rows ask."""
        return self.grouped is None and (self.native is None or self.native.declined is not None)

    def add_to(self, stream: ResidualStream, norm: Norm, scale: float) -> None:
        """Add ``scale`` times what the block makes of the norm of the stream."""
        if self.few is None or not self.few.add_to(stream, norm, scale):
            stream.add(self.forward(stream.normed(norm)), scale)

    def forward(self, x: Tensor, routed: Tensor | None = None) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream.

        ``routed`` is what the router reads where that is not ``x``. Experts run together where kernels for that serve
        them (grouped.py), or on a processor (native.py); elsewhere one after the other, each once for all rows that
        chose it. A row's sum, in float32, is in the order of the experts, whatever other rows chose.
        """
        if self.latents is not None:
            fold, unfold = self.latents
            out = unfold(self._experts(fold(x), None, x if routed is None else routed))
            shared = self._shared(x)
            return out if shared is None else out.add_(shared)
        return self._experts(x, self._shared(x), routed)

    def _experts(self, x: Tensor, shared: Tensor | None, routed: Tensor | None) -> Tensor:
        """The sum of what the experts of each row give, and ``shared``."""
        if self.grouped is not None and len(x):
            return self.grouped.forward(x, shared, routed)
        chosen, shares = self.router.route(x if routed is None else routed)
        if self.native is not None and self.native.serves(x):
            return self.native.forward(x, chosen, shares, shared)
        asked = chosen.flatten()
        order = asked.argsort(stable=True)
        rows, shares = order // chosen.shape[1], shares.flatten()[order, None]
        counts = on_host(asked, len(self.down))
        out = torch.zeros_like(x, dtype=torch.float32)
        running, sizes = [expert for expert, count in enumerate(counts) if count], [count for count in counts if count]
        for expert, own, share in zip(running, rows.split(sizes), shares.split(sizes), strict=True):
            # A row asks an expert once at most, and rows are in order.
            whole = own.shape[0] == x.shape[0]
            gate_up = self.gate_up[expert](x if whole else x.index_select(0, own))
            added = self.down[expert](self.gated(gate_up)) * share
            if whole:
                out.add_(added)
            else:
                out.index_add_(0, own, added)
        return (out if shared is None else out.add_(shared)).to(x.dtype)

    def _shared(self, x: Tensor) -> Tensor | None:
        """Output of the shared experts, which every row gets besides; None where there are none."""
        if self.shared is None:
            return None
        shared = self.shared.forward(x)
        if self.shared_gate is None:
            return shared
        return shared * self._numerics.by_row(torch.sigmoid, self.shared_gate(x))

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return self.router.storage_size()

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "router", self.router.linear
        for place, linear in enumerate(self.latents or ()):
            yield f"latents.{place}", linear
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            yield f"experts.{expert}.gate_up", gate_up
            yield f"experts.{expert}.down", down
        if self.shared is not None:
            for name, linear in self.shared.linears():
                yield f"shared.{name}", linear
        if self.shared_gate is not None:
            yield "shared_gate", self.shared_gate


def on_host(asked: Tensor, experts: int) -> list[int]:
    """Number of times that each expert is in ``asked [n]``. The one wait for a device whose experts run one by one."""
    return asked.new_zeros(experts).scatter_add_(0, asked, torch.ones_like(asked)).tolist()
