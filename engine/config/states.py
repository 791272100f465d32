"""Shapes of layers that carry states from token to token instead of keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Layers that carry a state instead of keys and values: gated delta nets (engine/compute/layers/recurrent/).

    A state is what a sequence leaves in such a layer, however long it is: the last ``kernel - 1`` inputs of a
    convolution over ``channels``, and for each value head a matrix ``[key, value]`` in float32.
    """

    layers: tuple[bool, ...]
    """True where layer i is one of them; the others have attention."""
    key_heads: int
    value_heads: int
    key: int
    """Width of a key head."""
    value: int
    """Width of a value head."""
    kernel: int
    """Tokens that the convolution sees."""
    tiled: bool = False
    """Value head i shares key head i % key_heads (ggml's order), and not i // (value_heads / key_heads)."""
    share_scale: float = 1.0
    """Multiplies the share by which a state moves: by up to 2 it may turn what it says around (OLMo-Hybrid)."""
    channel_decays: bool = False
    """Each channel of a key has a decay of its own, and gates are sigmoids (Kimi Delta Attention)."""

    @property
    def channels(self) -> int:
        """Queries, keys and values, which pass the convolution together."""
        return 2 * self.key_heads * self.key + self.value_heads * self.value

    @property
    def decays(self) -> int:
        """Decays of a token."""
        return self.value_heads * (self.key if self.channel_decays else 1)

    @property
    def matrix(self) -> tuple[int, int, int] | None:
        """The shape of a layer's matrices, None for states without any."""
        return self.value_heads, self.key, self.value

    @property
    def widest(self) -> int:
        """Elements of a row that a layer holds at its widest: projected, the convolution's result, what is read."""
        return 4 * self.channels + 2 * self.value_heads * self.value + 4 * self.decays


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """Layers that are short convolutions (engine/compute/layers/recurrent/), whose state is their last inputs."""

    layers: tuple[bool, ...]
    """True where layer i is one of them; the others have attention."""
    channels: int
    kernel: int
    """Tokens that a convolution sees."""

    @property
    def matrix(self) -> tuple[int, int, int] | None:
        """None: the states are inputs of a convolution alone. Implements :attr:`RecurrentShape.matrix`."""
        return None

    @property
    def widest(self) -> int:
        """Elements of a row that a layer holds at its widest. Implements :attr:`RecurrentShape.widest`."""
        return 7 * self.channels


@dataclass(frozen=True, slots=True)
class MambaShape:
    """Layers that are state space models with one decay a head, Mamba2 (engine/compute/layers/recurrent/mamba.py).

    A state is the last ``kernel - 1`` inputs of a convolution, and for each head a float32 matrix ``[state, width]``.
    """

    layers: tuple[bool, ...]
    """True where layer i is one of them."""
    heads: int
    width: int
    """Width of a head's inputs and outputs."""
    groups: int
    """Neighbouring heads write and read by the same vectors (B and C of the paper), and are normalised together."""
    state: int
    """Width of those vectors."""
    kernel: int
    """Tokens that the convolution sees."""
    convolution_bias: bool = True
    bias: bool = False
    """The projections into the block, and out of it, have biases."""
    limits: tuple[float, float] = (0.0, math.inf)
    """Limits of a token's step, by which its input is multiplied and its head's decay."""

    @property
    def inner(self) -> int:
        """The width of all heads."""
        return self.heads * self.width

    @property
    def channels(self) -> int:
        """Inputs, and the vectors of all groups, which pass the convolution together."""
        return self.inner + 2 * self.groups * self.state

    @property
    def matrix(self) -> tuple[int, int, int] | None:
        """Shape ``(heads, state, width)`` of a layer's matrices. Implements :attr:`RecurrentShape.matrix`."""
        return self.heads, self.state, self.width

    @property
    def widest(self) -> int:
        """Elements of a row that a layer holds at its widest. Implements :attr:`RecurrentShape.widest`."""
        return 5 * self.channels + 8 * self.inner


StateShape = RecurrentShape | ConvolutionShape | MambaShape


def state_bytes(shape: StateShape, dtype: torch.dtype) -> int:
    """Bytes of one state, of all layers; ``dtype`` is that of the convolutions' inputs."""
    tail = (shape.kernel - 1) * shape.channels * dtype.itemsize
    return sum(shape.layers) * (tail + 4 * math.prod(shape.matrix or (0,)))
