"""What the GPU tests are made of: packed weights, tiny models of every family, ragged batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.linear import affine, choose
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton.experts import stacked
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.attention import LatentShape
from engine.config.feed_forward import MoEConfig
from engine.config.positions import RopeConfig
from tests.kit import models as kit

CPU = torch.device("cpu")
DEVICE = torch.device(os.environ.get("KVASIR_TEST_DEVICE", "cuda"))
"""On "cpu" the tests compare the CPU with itself: that checks the tests, not the GPU."""
NO_GPU = "no CUDA GPU here: `make gpu-check` is for a machine that has one"
LAYERS, PAGES, VOCABULARY = 2, 200, 200


class Packed:
    """Random group-affine weights (an `AffineWeights`), on the host like a file's."""

    def __init__(
        self, outputs: int, inputs: int, group: int, seed: int = 0, symmetric: bool = False, order: bool = False
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.in_features, self.out_features, self.group = inputs, outputs, group
        self.codes = torch.randint(0, 16, (inputs, outputs), dtype=torch.uint8, generator=generator)
        self.scales = (torch.rand(inputs // group, outputs, generator=generator) * 0.02 + 0.005).half()
        shape = (inputs // group, outputs)
        zeros = torch.full(shape, 8) if symmetric else torch.randint(0, 16, shape, generator=generator)
        self.zeros = zeros.to(torch.uint8)
        self.order = torch.randperm(inputs, generator=generator) if order else None

    def columns(self, start: int, stop: int) -> AffineColumns:
        codes = self.codes if self.order is None else self.codes[self.order.argsort()]
        places = codes.to(torch.int64).view(-1, 8, self.out_features) << 4 * torch.arange(8)[:, None]
        words = places.sum(1).to(torch.int32)
        return AffineColumns(words[:, start:stop], self.scales[:, start:stop], self.zeros[:, start:stop])

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        scales, zeros = (part.float().repeat_interleave(self.group, 0) for part in (self.scales, self.zeros))
        weight = ((self.codes.float() - zeros) * scales).t().contiguous()
        return weight if self.order is None else weight[:, self.order.argsort()]


CONFIG = kit.CONFIG.changed(
    vocab_size=VOCABULARY,
    hidden_size=128,
    intermediate_size=256,
    head_dim=32,
    max_position=4096,
    dtype=torch.bfloat16,
)
EXPERTS = MoEConfig(num_experts=4, experts_per_token=4, intermediate_size=128, sparse=(True,) * LAYERS)
"""Every expert is asked: otherwise 16 bits may tip a row between two of them, and its logits are then far off."""
FAMILIES = {
    "LlamaForCausalLM": CONFIG,
    "MistralForCausalLM": CONFIG.changed(windows=(24, 24)),
    "Qwen2ForCausalLM": CONFIG.changed(qkv_bias=True, windows=(None, 24)),
    "Qwen3ForCausalLM": CONFIG.changed(qk_norm=True, tie_word_embeddings=True),
    "SmolLM3ForCausalLM": CONFIG.changed(rotary=(True, False), tie_word_embeddings=True),
    "Gemma2ForCausalLM": CONFIG.changed(
        unit_offset_norms=True,
        windows=(24, None),
        activation="gelu_tanh",
        attention_softcap=50.0,
        logit_softcap=30.0,
        tie_word_embeddings=True,
    ),
    "Gemma3ForCausalLM": CONFIG.changed(
        unit_offset_norms=True,
        windows=(24, None),
        activation="gelu_tanh",
        qk_norm=True,
        local_rope=RopeConfig(100.0),
        local=(True, False),
    ),
    "Phi3ForCausalLM": CONFIG.changed(
        fused_qkv=True,
        fused_mlp=True,
        rope=RopeConfig(
            10000.0, "longrope", 4.0, 32, partial=0.75, factors=(1.0, 1.5) * 6, long_factors=(2.0, 6.0) * 6
        ),
    ),
    "Olmo2ForCausalLM": CONFIG,
    "GraniteForCausalLM": CONFIG.changed(
        embedding_scale=12.0, residual_scale=0.2, attention_scale=0.1, logit_divisor=8.0
    ),
    "MixtralForCausalLM": replace(CONFIG, moe=replace(EXPERTS, normalised=True)),
    "Qwen3MoeForCausalLM": CONFIG.changed(
        qk_norm=True, moe=replace(EXPERTS, sparse=(True, False), share_scale=1.5, shared_size=128)
    ),
    "GptOssForCausalLM": CONFIG.changed(
        windows=(24, None),
        qkv_bias=True,
        output_bias=True,
        sinks=True,
        moe=replace(EXPERTS, routing="chosen", bias=True, swiglu_limit=7.0),
    ),
    "DeepseekV2ForCausalLM": CONFIG.changed(
        num_kv_heads=1,
        head_dim=48,
        latent=LatentShape(rank=48, nope=32, rope=16, value=32, q_rank=64),
        moe=replace(EXPERTS, sparse=(False, True), shared_size=128),
    ),
    "OPTForCausalLM": CONFIG.changed(
        num_kv_heads=4,
        rotary=(False, False),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation="relu",
        tie_word_embeddings=True,
    ),
}


class Weights:
    """A `WeightSource` of seeded random weights, the same on every device; linear layers are int4 where asked."""

    def __init__(self, device: torch.device, dtype: torch.dtype, numerics: Numerics, packed: bool) -> None:
        self.device, self.dtype, self.numerics, self.packed = device, dtype, numerics, packed
        self.generator = torch.Generator().manual_seed(0)
        self.made = 0

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        added = self._random(sum(sizes), scale=0.1) if bias else None
        self.made += 1
        if not self.packed:
            return Dense(self._random(sum(sizes), in_features, scale=in_features**-0.5), added, self.numerics)
        parts = [Packed(size, in_features, 64, 100 * self.made + i) for i, size in enumerate(sizes)]
        return choose.built(affine.surveyed(parts), parts, added, Target(self.dtype, self.device, self.numerics))

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        layers = (self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count))
        return stacked(layers, count, Target(self.dtype, self.device, self.numerics))

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return self._random(rows, columns, scale=columns**-0.5)

    def vector(self, name: str, size: int) -> Tensor:
        return 1 + self._random(size, scale=0.1)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return 1 + self._random(*shape, scale=0.1).float()

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return self._random(rows, columns)

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        return Dense(table if table is not None else self._random(rows, columns), None, self.numerics)

    def _random(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Rounded to bfloat16 first, so that models in other dtypes have the same weights."""
        values = scale * torch.randn(*shape, generator=self.generator)
        return values.bfloat16().to(self.device, self.dtype)


def tiny(
    architecture: str, device: torch.device, dtype: torch.dtype, packed: bool = False, invariant: bool = False
) -> Runner:
    """A runner over a tiny model, with padded buckets everywhere."""
    config, numerics = FAMILIES[architecture], Numerics(invariant)
    with torch.inference_mode():
        model: CausalLM = family(architecture).Model(config, Weights(device, dtype, numerics, packed))
    kv = new_store(config, PAGES, dtype, device)
    return Runner(model, kv, AttentionDispatcher(numerics), device, powers_of_two)


def script() -> Iterator[list[SequenceRows]]:
    """Steps of three sequences: prompts whole and in chunks, decoding alone and together, chains that are verified.

    Sequences 0 and 1 own alternate pages, sequence 2 consecutive ones; every row's logits are wanted.
    """
    pages = [list(range(1, 41, 2)), list(range(2, 42, 2)), list(range(50, 70))]
    lengths = [0, 0, 0]

    def rows(*counts: tuple[int, int]) -> list[SequenceRows]:
        step = []
        for sequence, count in counts:
            start = lengths[sequence]
            tokens = [(7 * i + 31 * sequence) % VOCABULARY for i in range(start, start + count)]
            step.append(SequenceRows(tokens, start, pages[sequence], count))
            lengths[sequence] += count
        return step

    yield rows((0, 37))
    yield rows((1, 5), (0, 1))
    yield rows((1, 11), (2, 50), (0, 1))
    yield rows((0, 1), (1, 1), (2, 1))
    yield rows((2, 1))
    yield rows((0, 1))
    yield rows((0, 5), (1, 1), (2, 4))
    yield rows((1, 70))


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest expected value."""
    found, expected = found.double().cpu(), expected.double().cpu()
    return float((found - expected).abs().max() / expected.abs().max())
