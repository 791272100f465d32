"""A small Llama in plain PyTorch whose parameter names are Hugging Face's, made for training.

Linear layers can look at their weight through the 4-bit grid that export.py writes (``fake_quantise``), so
the last part of the training sees exactly the weights that will ship.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ZERO_POINT = 8
"""The code that stands for 0 in a symmetric 4-bit grid: codes 0..15 mean -8..7 steps."""


@dataclass(frozen=True)
class Shape:
    """The sizes of one model; field names as in Hugging Face's LlamaConfig."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 64
    vocab_size: int = 4096
    max_position_embeddings: int = 8192
    rope_theta: float = 100000.0
    rms_norm_eps: float = 1e-5
    group_size: int = 64


TARGET = Shape(256, 768, 8, 4, 2)
DRAFT = Shape(128, 384, 4, 2, 1)


def grid(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Codes (0..15, [N, K]) and fp16-rounded scales ([N, K / group_size]) of the symmetric 4-bit grid of ``weight``."""
    rows, columns = weight.shape
    groups = weight.detach().float().reshape(rows, columns // group_size, group_size)
    scales = (groups.abs().amax(-1) / 7.5).clamp_min(1e-6).half().float()
    codes = (torch.round(groups / scales.unsqueeze(-1)) + ZERO_POINT).clamp_(0, 15)
    return codes.reshape(rows, columns), scales


def dequantise(codes: Tensor, scales: Tensor) -> Tensor:
    """The weight [N, K] that codes [N, K] and scales [N, groups] stand for."""
    rows, columns = codes.shape
    groups = codes.reshape(rows, scales.shape[1], -1) - ZERO_POINT
    return (groups * scales.unsqueeze(-1)).reshape(rows, columns)


def fake_quantise(weight: Tensor, group_size: int) -> Tensor:
    """``weight`` rounded to its 4-bit grid, with the gradient passed straight through (Bengio et al. 2013)."""
    return weight + (dequantise(*grid(weight, group_size)) - weight).detach()


class GridLinear(nn.Linear):
    """A bias-free linear layer that, once ``quantised`` is set, computes with the weight on its 4-bit grid."""

    def __init__(self, in_features: int, out_features: int, group_size: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.group_size = group_size
        self.quantised = False

    def forward(self, x: Tensor) -> Tensor:
        weight = fake_quantise(self.weight, self.group_size) if self.quantised else self.weight
        return F.linear(x, weight)


def rotary_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """cos and sin, each [max_position_embeddings, head_dim]."""
    exponents = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
    angles = torch.outer(torch.arange(shape.max_position_embeddings).float(), shape.rope_theta**-exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [B, heads, T, head_dim] in the half-split convention."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def document_mask(tokens: Tensor, separator: int, dtype: torch.dtype) -> Tensor:
    """Causal additive mask [B, 1, T, T] in which no document of a row sees another; each ends with ``separator``."""
    ends = (tokens == separator).long()
    document = ends.cumsum(1) - ends
    length = tokens.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
    seen = (document.unsqueeze(1) == document.unsqueeze(2)) & causal
    return torch.zeros(seen.shape, dtype=dtype, device=tokens.device).masked_fill_(~seen, float("-inf")).unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        size, width, group = shape.hidden_size, shape.head_dim, shape.group_size
        self.q_proj = GridLinear(size, shape.num_attention_heads * width, group)
        self.k_proj = GridLinear(size, shape.num_key_value_heads * width, group)
        self.v_proj = GridLinear(size, shape.num_key_value_heads * width, group)
        self.o_proj = GridLinear(shape.num_attention_heads * width, size, group)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, past: list[Tensor] | None = None
    ) -> Tensor:
        """x [B, T, H]; mask [B, 1, T, T], causal if None; ``past`` holds this layer's keys and values so far."""
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        first = not past
        if past is not None:
            if past:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            past[:] = [k, v]
        repeats = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=first and mask is None)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = GridLinear(shape.hidden_size, shape.intermediate_size, shape.group_size)
        self.up_proj = GridLinear(shape.hidden_size, shape.intermediate_size, shape.group_size)
        self.down_proj = GridLinear(shape.intermediate_size, shape.hidden_size, shape.group_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, past: list[Tensor] | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Everything below the head, named ``model`` in the checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.num_hidden_layers)])
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Llama(nn.Module):
    """A Llama whose head is its embedding. ``forward`` gives hidden states, ``logits`` their scores."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        cos, sin = rotary_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = 0.02 / (2 * shape.num_hidden_layers) ** 0.5 if residual else 0.02
                nn.init.normal_(parameter, std=scale)

    def forward(
        self,
        tokens: Tensor,
        exit_layer: int | None = None,
        skip: frozenset[int] = frozenset(),
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Normed hidden states [B, T, H] at the top, and after ``exit_layer`` layers where that is asked for.

        Layers in ``skip`` are left out of this pass (layer dropout, Elhoushi et al. 2024, "LayerSkip").
        """
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(tokens)
        early = None
        for index, layer in enumerate(self.model.layers):
            if index == exit_layer:
                early = self.model.norm(x)
            if index not in skip:
                x = layer(x, cos, sin, mask)
        return self.model.norm(x), early

    @torch.inference_mode()
    def continue_greedily(self, prompt: list[int], stop: frozenset[int], limit: int) -> list[int]:
        """The most likely next tokens after ``prompt``, up to and without the first of ``stop``, at most ``limit``."""
        past: list[list[Tensor]] = [[] for _ in self.model.layers]
        tokens, written = prompt, []
        while len(written) < limit:
            start = len(prompt) + len(written) - len(tokens)
            cos, sin = self.cos[start : start + len(tokens)], self.sin[start : start + len(tokens)]
            x = self.model.embed_tokens(torch.tensor([tokens]))
            for layer, store in zip(self.model.layers, past, strict=True):
                x = layer(x, cos, sin, None, store)
            best = int(self.logits(self.model.norm(x[0, -1])).argmax())
            if best in stop:
                break
            written.append(best)
            tokens = [best]
        return written

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., vocab_size] of hidden states [..., H]; the head is the embedding."""
        return F.linear(hidden, self.model.embed_tokens.weight)

    def set_quantised(self, on: bool) -> None:
        """Compute with 4-bit weights from now on, or with full-precision ones again."""
        for layer in self.linears():
            layer[1].quantised = on

    def linears(self) -> Iterator[tuple[str, GridLinear]]:
        """The layers that are exported in 4 bits, with their checkpoint names."""
        for name, module in self.named_modules():
            if isinstance(module, GridLinear):
                yield name, module


def main(arguments: list[str] | None = None) -> int:
    """Print the number of parameters of both models."""
    argparse.ArgumentParser(description=main.__doc__).parse_args(arguments)
    for name, shape in (("target", TARGET), ("draft", DRAFT)):
        count = sum(parameter.numel() for parameter in Llama(shape).parameters())
        sys.stdout.write(f"{name}: {count / 1e6:.2f} M parameters\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
