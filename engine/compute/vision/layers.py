"""Layers that vision towers share: transformers over the patches of one picture, without a cache.

Patches ``[n, width]`` are rows as tokens are in the language model, so that the same linear layers serve both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.layers.activation import Activation, Gated
from engine.compute.layers.interface import Norm, WeightSource
from engine.compute.layers.layer_norm import LayerNorm
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.norm import RMSNorm
from engine.config.feed_forward import ActivationKind
from engine.config.raw import RawConfig

MOST_LAYERS = 1000
ACTIVATIONS: tuple[ActivationKind, ...] = ("gelu_tanh", "gelu", "silu")


class VisionModule:
    """Something that holds tensors, or other parts."""

    def storage_size(self) -> int:
        """Bytes of all tensors."""
        return sum(map(_size, vars(self).values()))


def _size(held: object) -> int:
    if isinstance(held, Tensor):
        return held.nbytes
    if isinstance(held, list | tuple):
        return sum(map(_size, held))
    size = getattr(held, "storage_size", None)
    return 0 if size is None else int(size())


class VisionShape(NamedTuple):
    """A tower's layers."""

    layers: int
    width: int
    heads: int
    inner: int
    """Width of the feed-forward blocks."""
    activation: ActivationKind
    eps: float
    bias: bool = True
    gated: bool = False
    """Feed-forward blocks multiply by a gate, and norms are of the root mean square (as in Llama)."""

    @property
    def head(self) -> int:
        return self.width // self.heads

    @classmethod
    def read(
        cls,
        raw: RawConfig,
        layers: str = "num_hidden_layers",
        heads: str = "num_attention_heads",
        eps: float | None = None,
        defaults: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None),
        activations: Sequence[ActivationKind] = ACTIVATIONS,
        **own: bool,
    ) -> VisionShape:
        """``layers`` and ``heads`` are keys; ``defaults`` of layers, width, heads and inner width are the family's.

        ``eps`` None: what ``layer_norm_eps`` says. Raises :class:`CheckpointError`.
        """
        width, count = raw.integer("hidden_size", defaults[1]), raw.integer(heads, defaults[2])
        if width % count or width // count % 4:
            raise raw.wrong(f"a hidden size of {width} does not divide into {count} heads of a multiple of 4")
        return cls(
            raw.integer(layers, defaults[0], most=MOST_LAYERS),
            width,
            count,
            raw.integer("intermediate_size", defaults[3]),
            raw.activation("hidden_act", activations),
            raw.positive("layer_norm_eps", 1e-6) if eps is None else eps,
            **own,
        )


class LayerNames(NamedTuple):
    """Names that a family gives the modules of a layer."""

    norms: tuple[str, str]
    qkv: tuple[str, ...]
    out: str
    up: tuple[str, ...]
    down: str


def read_norm(source: WeightSource, name: str, size: int, eps: float, rms: bool) -> Norm:
    """The norm of the module ``name``."""
    weight = source.vector(f"{name}.weight", size)
    if rms:
        return RMSNorm(weight, eps, source.numerics)
    return LayerNorm(weight, source.vector(f"{name}.bias", size), eps, source.numerics)


def patch_embedding(source: WeightSource, name: str, shape: tuple[int, ...], bias: bool) -> Dense:
    """The convolution ``name`` of the weight ``shape``, whose kernels lie side by side: a linear layer of patches."""
    weight = source.array(f"{name}.weight", shape).flatten(1).to(source.dtype)
    return Dense(weight, source.vector(f"{name}.bias", shape[0]) if bias else None, source.numerics)


class VisionAttention(VisionModule):
    """Every patch attends to all of its span."""

    def __init__(self, source: WeightSource, prefix: str, shape: VisionShape, names: LayerNames) -> None:
        width = shape.width
        self.shape = (shape.heads, shape.head)
        each = 3 * width // len(names.qkv)
        self.qkv = source.linear(prefix, names.qkv, [each] * len(names.qkv), width, shape.bias)
        self.out = source.linear(prefix, (names.out,), [width], width, shape.bias)

    def forward(self, x: Tensor, turn: RotaryStep | None, spans: Sequence[PatchSpan]) -> Tensor:
        """``x [n, width]`` -> the same shape."""
        q, k, v = self.qkv(x).view(x.shape[0], 3, *self.shape).unbind(1)
        if turn is not None:
            q, k = turned(q, turn), turned(k, turn)
        return self.out(attend(q, k, v, spans))


class PatchSpan(NamedTuple):
    """``runs`` of ``length`` patches each; every patch attends to those of its run."""

    runs: int
    length: int


def attend(q: Tensor, k: Tensor, v: Tensor, spans: Sequence[PatchSpan], scale: float | None = None) -> Tensor:
    """Attention within runs of the rows of ``q, k, v [n, heads, d]`` that ``spans`` give -> ``[n, heads * d]``."""
    found, start = [], 0
    for runs, length in spans:
        rows = slice(start, start + runs * length)
        q_, k_, v_ = (part[rows].reshape(runs, length, *part.shape[1:]).transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q_, k_, v_, scale=scale)
        found.append(out.transpose(1, 2).reshape(runs * length, -1))
        start = rows.stop
    return found[0] if len(found) == 1 else torch.cat(found)


def turned(x: Tensor, turn: RotaryStep) -> Tensor:
    """``x [n, heads, d]`` rotated in float32."""
    return rotate(x.float(), turn).to(x.dtype)


def angles(positions: Tensor, size: int, theta: float) -> Tensor:
    """``positions [...]`` times the ``size // 2`` frequencies of a rotation of ``size`` dimensions, float32."""
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    return positions.float()[..., None] * (1.0 / theta ** (steps / size))


def rotation(half: Tensor) -> RotaryStep:
    """The rotation of heads by the angles ``half [n, d / 2]``."""
    cos, sin = half.cos()[:, None], half.sin()[:, None]
    return RotaryStep(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


class FeedForward(VisionModule):
    """``down(act(up(x)))``, or ``down(act(gate(x)) * up(x))`` where it is gated."""

    def __init__(self, source: WeightSource, prefix: str, shape: VisionShape, names: LayerNames) -> None:
        make = Gated if shape.gated else Activation
        self.activation = make(shape.activation, source.numerics)
        self.up = source.linear(prefix, names.up, [shape.inner] * len(names.up), shape.width, shape.bias)
        self.down = source.linear(prefix, (names.down,), [shape.width], shape.inner, shape.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class VisionLayer(VisionModule):
    """Attention and a feed-forward block, each with a norm before it."""

    def __init__(self, source: WeightSource, prefix: str, shape: VisionShape, names: LayerNames) -> None:
        self.norms = [read_norm(source, prefix + name, shape.width, shape.eps, shape.gated) for name in names.norms]
        self.attention = VisionAttention(source, prefix, shape, names)
        self.feed_forward = FeedForward(source, prefix, shape, names)

    def forward(self, x: Tensor, turn: RotaryStep | None, spans: Sequence[PatchSpan]) -> Tensor:
        """``x [n, width]``, the patches' residual stream -> the same shape."""
        x = x + self.attention.forward(self.norms[0].forward(x), turn, spans)
        return x + self.feed_forward.forward(self.norms[1].forward(x))


def layer_indices(raw: RawConfig, key: str, layers: int, usual: Sequence[int]) -> list[int]:
    """The layers that stand under ``key``. Raises :class:`CheckpointError`."""
    found = raw.values.get(key)
    found = [index for index in usual if index < layers] if found is None else found
    if not isinstance(found, list) or any(type(index) is not int or not 0 <= index < layers for index in found):
        raise raw.wrong(f'"{key}" is not a list of the tower\'s {layers} layers')
    if len(set(found)) < len(found):
        raise raw.wrong(f'"{key}" names a layer twice')
    return found


def read_layers(source: WeightSource, prefix: str, shape: VisionShape, names: LayerNames) -> list[VisionLayer]:
    """The layers ``{prefix}{index}.``."""
    return [VisionLayer(source, f"{prefix}{index}.", shape, names) for index in range(shape.layers)]
