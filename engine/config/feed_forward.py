"""The feed-forward blocks of a model: MLPs and experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ActivationKind = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


@dataclass(frozen=True, slots=True)
class MLPConfig:
    """The MLPs of all layers that have one."""

    intermediate_size: int
    intermediate_sizes: tuple[int, ...] = ()
    """That of each layer, where they differ; ``intermediate_size`` is then the largest."""
    bias: bool = False
    activation: ActivationKind = "silu"
    fused: bool = False
    """The file holds gate and up as one module (gate_up_proj)."""
    only: tuple[bool, ...] = ()
    """Layers that are an MLP or experts alone, in a model whose layers are one block each (Nemotron-H); empty: none."""

    def inner_of(self, layer: int) -> int:
        """The intermediate size of a layer's MLP."""
        return self.intermediate_sizes[layer] if self.intermediate_sizes else self.intermediate_size


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names in the checkpoint of a block of experts within a layer, and of its parts."""

    block: str = "mlp."
    router: str = "gate"
    experts: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    """An expert's gate, up and down projections. Without a gate the up projection is followed by the activation alone
    (Nemotron 3), in the shared MLP too."""
    shared: str = "shared_experts"
    """The MLP that every row passes besides, "" where the block itself is meant..."""
    shared_gate: str = ""
    """... and the linear layer whose sigmoid multiplies its result; "": none."""


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """Feed-forward blocks made of experts, of which each row asks a few (Shazeer et al. 2017).

    ``sparse[i]``: layer i has experts; the others have one MLP of the model's ``intermediate_size``.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    """The intermediate size of each expert."""
    sparse: tuple[bool, ...]
    routing: Literal["all", "chosen", "sigmoid"] = "all"
    """An expert's share: a softmax over all experts, or over the chosen ones; or a sigmoid of its score, where a bias
    of each expert takes part in the choice alone (DeepSeek-V3, arXiv 2412.19437, section 2.1.2)."""
    normalised: bool = False
    """Shares of "all" and "sigmoid" are divided by the sum of those chosen."""
    choice_bias: bool = False
    """True if there is such a bias; ERNIE 4.5 has it with "all"."""
    share_scale: float = 1.0
    """Multiplies the shares after that..."""
    expert_scales: bool = False
    """... and so does a number of each expert's (Gemma 4), ``per_expert_scale`` of the router."""
    groups: int = 1
    """The number of groups of neighbouring experts..."""
    groups_per_token: int = 1
    """... and of those that a row chooses in, which have the best experts (DeepSeek-V2; V3: the best two together)."""
    parallel: bool = False
    """Each layer has an MLP besides, which runs next to its experts (Gemma 4)."""
    shared_size: int = 0
    """Intermediate size of an MLP that every row passes besides; 0: none."""
    bias: bool = False
    """Experts and router have biases."""
    swiglu_limit: float | None = None
    """gpt-oss' activation with this clamp; None: the model's own."""
    swiglu_alpha: float = 1.702
    names: ExpertNames = ExpertNames()
    latent_size: int = 0
    """Width of what experts read and give, projected from the stream and back; 0: the stream's (Nemotron 3)."""
