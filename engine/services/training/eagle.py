"""Training an EAGLE-1 head (Li et al. 2024) on a frozen model, in the layout of its hub repositories.

From the state f_t that the output layer reads at token t and the next token's embedding it predicts f_{t+1}:
``layer(fc([emb(x_{t+1}); f_t]))``, one Llama layer without its first norm. The loss is smooth L1 between states and a
tenth of the cross-entropy with the model's distribution, with noise on the states, as in the paper. The head's own
states are fed back :data:`PASSES` - 1 times, as they are when it drafts ("training-time test", EAGLE-3, Li et al.
2025): row t of pass j stands for the node at depth j below row t - j, and sees true states up to there and then its
own path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.compute.layers.rotary import inverse_frequencies
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.services.training.acceptance import AcceptanceFigures
from engine.services.training.features import FeatureBatch
from engine.services.training.heads import TrainableHeads, some
from engine.services.training.target import TargetModel

PASSES = 3
NOISE = 0.1
"""Uniform noise of up to this much in either direction is added to the states."""
DECAY, SAYS = 0.8, 0.1
"""Weight of each pass relative to the one before it, and of the cross-entropy relative to smooth L1."""


class EagleShape(NamedTuple):
    """Sizes of the one layer."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @classmethod
    def of(cls, config: ModelConfig) -> EagleShape:
        """The target's own heads where they share its hidden size evenly, as the hub's layout wants it."""
        hidden, heads, kv_heads = config.hidden_size, config.attention.num_heads, config.attention.num_kv_heads
        if hidden % heads or (hidden // heads) % 2 or config.attention.latent is not None:
            heads = next(count for count in (hidden // 128, hidden // 64, 1) if count and hidden % (2 * count) == 0)
            kv_heads = heads
        return cls(hidden, config.mlp.intermediate_size, heads, kv_heads)


class _Attention(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        width = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.heads * width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * width, bias=False)
        self.o_proj = nn.Linear(shape.heads * width, shape.hidden, bias=False)


class _MLP(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, shape: EagleShape, eps: float) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(shape), _MLP(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps)


class EagleHead(TrainableHeads):
    """The parameters are named as in the hub. The token table is the target's and not among them."""

    kind, file, depths = "eagle", "model.safetensors", 5

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = EagleShape.of(config)
        self.rate = 2e-3 * 256 / config.hidden_size
        self.theta = config.positions.rope.theta
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([_Layer(self.shape, config.rms_norm_eps)])
        frequencies, _ = inverse_frequencies(RopeConfig(self.theta), self.shape.head_dim)
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)
        self._begin(generator)

    @classmethod
    def new(cls, config: ModelConfig, count: int, generator: torch.Generator) -> Self:
        return cls(config, generator)

    @classmethod
    def like(cls, values: Mapping[str, Any], config: ModelConfig) -> Self | None:
        return cls(config, torch.Generator()) if "architectures" in values else None

    @torch.no_grad()
    def _begin(self, generator: torch.Generator) -> None:
        """Small random weights; fc hands the state on as it is, which predicts the next one better than noise."""
        for parameter in self.parameters():
            if parameter.dim() == 2:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
        self.fc.bias.zero_()
        self.fc.weight[:, self.shape.hidden :] += torch.eye(self.shape.hidden)

    def passes(self, features: Tensor, embedded: Tensor, count: int) -> list[Tensor]:
        """States predicted by chains: ``features`` and ``embedded [B, n, hidden]`` of each token and its next one.

        Row t of result j, ``[B, n, hidden]``, is what the chain whose last true state is f_{t-j} predicts for
        f_{t+1}; rows t < j mean nothing.
        """
        layer = cast(_Layer, self.layers[0])
        angle = torch.arange(features.shape[1], device=features.device)[:, None] * self.frequencies
        rotation = torch.cat((angle, angle), -1).cos(), torch.cat((-angle, angle), -1).sin()
        states: list[Tensor] = []
        past: list[tuple[Tensor, Tensor]] = []
        state = features
        for _ in range(count):
            x = self.fc(torch.cat((embedded, state), -1)).float()  # the stream stays in float32 where products do not
            x = x + self._attend(layer.self_attn, x, rotation, past)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            states.append(x)
            state = torch.cat((features[:, :1], x[:, :-1]), 1)
        return states

    def _attend(
        self, part: _Attention, x: Tensor, rotation: tuple[Tensor, Tensor], past: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Attention of the rows of one pass; their keys and values are added to ``past``.

        Row t of pass j reads the keys of pass 0 up to row t - j and, of each later pass i, that of row t - j + i.
        """
        shape, (batch, n, _) = self.shape, x.shape
        width, depth = shape.head_dim, len(past)
        q, k, v = (
            proj(x).view(batch, n, -1, width).transpose(1, 2) for proj in (part.q_proj, part.k_proj, part.v_proj)
        )
        q, k = _rotate(q, *rotation), _rotate(k, *rotation)
        share = shape.heads // shape.kv_heads
        past.append((k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)))
        index = torch.arange(n, device=x.device)
        true = (q @ past[0][0].mT).masked_fill(index > index[:, None] - depth, -torch.inf)
        own = [(q * _back(keys, depth - i)).sum(-1, keepdim=True) for i, (keys, _) in enumerate(past) if i]
        shares = torch.softmax(torch.cat((true, *own), -1) * width**-0.5, -1)
        out = shares[..., :n] @ past[0][1]
        for i in range(1, depth + 1):
            out = out + shares[..., n + i - 1, None] * _back(past[i][1], depth - i)
        mixed: Tensor = part.o_proj(out.transpose(1, 2).reshape(batch, n, -1))
        return mixed

    def loss(self, batch: FeatureBatch, target: TargetModel, generator: torch.Generator) -> Tensor:
        features, wanted = batch.features[:, :-1], batch.features[:, 1:]
        index = torch.arange(features.shape[1], device=features.device)
        exists = index < batch.lengths[:, None] - 1
        rows, at = some(exists, target.config.vocab_size, generator)
        with torch.no_grad():
            said = torch.softmax(target.logits(wanted[rows, at]), -1)
            embedded = target.embed(batch.tokens[:, 1:])
            noise = (2 * torch.rand(features.shape, generator=generator) - 1) * NOISE
        total = features.new_zeros(())
        for depth, draft in enumerate(self.passes(features + noise.to(features.device), embedded, PASSES)):
            true, heard = exists & (index >= depth), at >= depth
            if not bool(heard.any()):
                break
            states = F.smooth_l1_loss(draft[true], wanted[true])
            logits = target.logits(draft[rows[heard], at[heard]])
            total = total + DECAY**depth * (states + SAYS * F.cross_entropy(logits, said[heard]))
        return total

    def drafting(self, batch: FeatureBatch, target: TargetModel) -> Callable[[Tensor, Tensor], list[Tensor]]:
        """Deeper predictions follow the tokens that came, as a draft does while it is right."""
        states = self.passes(batch.features[:, :-1], target.embed(batch.tokens[:, 1:]), self.depths)
        return lambda row, place: [state[row, place + depth] for depth, state in enumerate(states)]

    def config(self, target: TargetModel, found: AcceptanceFigures) -> dict[str, Any]:
        """A Llama of one layer, as the hub's repositories have it; ``acceptance`` is Kvasir's own."""
        config, shape = target.config, self.shape
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": 1,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "max_position_embeddings": config.positions.max_position,
            "rms_norm_eps": config.rms_norm_eps,
            "rope_theta": self.theta,
            "tie_word_embeddings": False,
            "vocab_size": config.vocab_size,
            "bias": True,
            "base_model_name_or_path": target.name,
            "acceptance": [round(share, 4) for share in found.by_depth],
        }


def _back(x: Tensor, rows: int) -> Tensor:
    """``x [B, heads, n, d]`` with row t holding row t - ``rows``; the first ones mean nothing."""
    return x if rows == 0 else x.roll(rows, 2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The half-split rotation of ``x [B, heads, n, d]``."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
