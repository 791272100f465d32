"""Models of every family on a GPU that is not there, and batches for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import Batch, SequenceRows
from engine.compute.layers.linear import choose, int4
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.base import Linear, LinearShape, Target
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.mtp import MIMO, MultiToken
from engine.compute.models.registry import family
from engine.config.attention import HeadGate, HeadShape, LatentShape
from engine.config.feed_forward import ExpertNames, MoEConfig
from engine.config.positions import RopeConfig
from engine.config.states import ConvolutionShape, MambaShape, RecurrentShape
from engine.decoding.speculation.eagle.head import Eagle, Eagle3
from tests.engine.compute.models.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.kit import models as kit

LAYERS, PAGES, VOCABULARY = 2, 40, 200
CONFIG = kit.CONFIG.changed(
    vocab_size=VOCABULARY,
    hidden_size=128,
    intermediate_size=256,
    head_dim=32,
    max_position=8192,
    dtype=torch.bfloat16,
)
EXPERTS = MoEConfig(num_experts=4, experts_per_token=2, intermediate_size=128, sparse=(True,) * LAYERS)
STATES = RecurrentShape((True, False), 2, 4, 16, 32, 4)
SIGMOID = replace(EXPERTS, routing="sigmoid", choice_bias=True, normalised=True, groups=2, shared_size=128)
LATENT = CONFIG.changed(num_kv_heads=1, head_dim=40, latent=LatentShape(48, 24, 16, 32, 40))
TWO_WIDTHS = CONFIG.changed(unit_offset_norms=True, activation="gelu_tanh", qk_norm=True, value_norm=True,
                            attention_scale=1.0, windows=(24, None), local=(True, False), local_rope=RopeConfig(100.0),
                            shapes=(HeadShape(2, 32), HeadShape(1, 64)), keys_as_values=(False, True))  # fmt: skip
MAMBA = MambaShape((True, False), heads=4, width=32, groups=2, state=16, kernel=4)
CONVOLUTION = CONFIG.changed(qk_norm=True, recurrent=ConvolutionShape((True, False), 128, 3))
ENCODER = CONFIG.changed(num_kv_heads=4, rotary=(False, False), qkv_bias=True, output_bias=True, mlp_bias=True,
                         activation="gelu", tie_word_embeddings=True, bidirectional=True)  # fmt: skip
OWN = {
    "LlamaForCausalLM": CONFIG,
    "MistralForCausalLM": CONFIG.changed(windows=(24, 24)),
    "Qwen2ForCausalLM": CONFIG.changed(qkv_bias=True, windows=(None, 24)),
    "MiMoForCausalLM": CONFIG.changed(qkv_bias=True),
    "Qwen3ForCausalLM": CONFIG.changed(qk_norm=True, tie_word_embeddings=True),
    "SmolLM3ForCausalLM": CONFIG.changed(rotary=(True, False), tie_word_embeddings=True),
    # Capped scores are left to the reference backend, which reads from the device: see the test of waiting below.
    "Gemma2ForCausalLM": CONFIG.changed(unit_offset_norms=True, windows=(24, None), activation="gelu_tanh",
                                        logit_softcap=30.0, tie_word_embeddings=True),
    "Gemma3ForCausalLM": CONFIG.changed(unit_offset_norms=True, windows=(24, None), activation="gelu_tanh",
                                        qk_norm=True, local_rope=RopeConfig(100.0), local=(True, False)),
    "Phi3ForCausalLM": CONFIG.changed(fused_qkv=True, fused_mlp=True, rope=RopeConfig(10000.0, "longrope", 4.0, 32,
                                      partial=0.75, factors=(1.0,) * 12, long_factors=(2.0,) * 12)),
    "Olmo2ForCausalLM": CONFIG,
    "Olmo3ForCausalLM": CONFIG.changed(windows=(24, None), local=(True, False), local_rope=RopeConfig(100.0)),
    "OlmoHybridForCausalLM": CONFIG.changed(rotary=(False, False), recurrent=replace(
        STATES, key_heads=4, key=48, value=96, share_scale=2.0)),
    "GraniteForCausalLM": CONFIG.changed(embedding_scale=12.0, residual_scale=0.2, logit_divisor=8.0),
    "GraniteMoeHybridForCausalLM": CONFIG.changed(fused_mlp=True, rotary=(False, False), recurrent=MAMBA, moe=replace(
        EXPERTS, routing="chosen", shared_size=128, names=ExpertNames(shared=""))),
    "NemotronHForCausalLM": CONFIG.changed(num_layers=4, windows=(None,) * 4, rotary=(False,) * 4, activation="relu2",
                                           mlp_only=(False, True, False, True), moe=replace(
        SIGMOID, sparse=(False, True, False, False), latent_size=64,
        names=ExpertNames(experts=("up_proj", "down_proj"))),
                                           recurrent=replace(MAMBA, layers=(True, False, False, False), bias=True)),
    "MixtralForCausalLM": replace(CONFIG, moe=replace(EXPERTS, normalised=True, groups=2, shared_size=128)),
    "Qwen3MoeForCausalLM": CONFIG.changed(qk_norm=True, moe=replace(EXPERTS, sparse=(True, False))),
    "GptOssForCausalLM": CONFIG.changed(windows=(24, None), qkv_bias=True, output_bias=True, sinks=True,
                                        moe=replace(EXPERTS, routing="chosen", bias=True, swiglu_limit=7.0)),
    "OPTForCausalLM": CONFIG.changed(num_kv_heads=4, rotary=(False, False), qkv_bias=True, output_bias=True,
                                     mlp_bias=True, activation="relu", tie_word_embeddings=True),
    **{name: ENCODER.changed(architecture=name) for name in ("BertModel", "RobertaModel", "XLMRobertaModel")},
    "DeepseekV2ForCausalLM": replace(LATENT, moe=replace(EXPERTS, sparse=(False, True), groups=2, shared_size=128)),
    "DeepseekV3ForCausalLM": replace(LATENT, moe=SIGMOID),
    "Glm4MoeLiteForCausalLM": replace(LATENT, moe=replace(SIGMOID, sparse=(False, True))),
    "KimiLinearForCausalLM": LATENT.changed(rotary=(False, False), moe=replace(SIGMOID, sparse=(False, True)),
                                            recurrent=replace(STATES, key_heads=4, key=32, channel_decays=True)),
    "Glm4MoeForCausalLM": CONFIG.changed(qk_norm=True, moe=SIGMOID, rope=RopeConfig(10000.0, partial=0.5)),
    "Ministral3ForCausalLM": CONFIG.changed(rope=RopeConfig(1e6, original_max_position=32, query_beta=0.1)),
    "Gemma4ForCausalLM": replace(TWO_WIDTHS, layer_inputs=16, moe=replace(
        EXPERTS, normalised=True, expert_scales=True, parallel=True, names=ExpertNames("", "router.proj"))),
    "Gemma4UnifiedForCausalLM": TWO_WIDTHS,
    "Lfm2ForCausalLM": CONVOLUTION,
    "Lfm3ForCausalLM": CONVOLUTION.changed(head_gate=HeadGate("sigmoid"), windows=(None, 24), local=(False, True),
                                           local_rope=RopeConfig(100.0)),
    "SeedOssForCausalLM": CONFIG.changed(qkv_bias=True),
    "Ernie4_5ForCausalLM": CONFIG,
    "Ernie4_5_MoeForCausalLM": replace(CONFIG, moe=replace(EXPERTS, choice_bias=True, normalised=True, shared_size=128,
                                                           sparse=(False, True))),
    "MellumForCausalLM": CONFIG.changed(qk_norm=True, windows=(24, None), local=(True, False), moe=EXPERTS,
                                        local_rope=RopeConfig(100.0)),
    "LagunaForCausalLM": CONFIG.changed(qk_norm=True, windows=(24, None), local=(True, False),
                                        head_gate=HeadGate("softplus"), local_rope=RopeConfig(100.0),
                                        heads_per_layer=(2, 4), moe=replace(SIGMOID, groups=1),
                                        rope=RopeConfig(10000.0, partial=0.5)),
    "Lfm2MoeForCausalLM": replace(CONVOLUTION, moe=replace(EXPERTS, routing="sigmoid", choice_bias=True,
                                                           sparse=(False, True))),
    "Qwen3NextForCausalLM": CONFIG.changed(unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                           moe=replace(EXPERTS, normalised=True, shared_size=128,
                                                       names=ExpertNames(shared_gate="gate"))),
    "Qwen3_5ForCausalLM": CONFIG.changed(unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                         rope=RopeConfig(10000.0, partial=0.25)),
    "Qwen3_5MoeForCausalLM": CONFIG.changed(unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                            moe=replace(EXPERTS, shared_size=128,
                                                        names=ExpertNames(shared_gate="gate"))),
}  # fmt: skip


class Weights:
    """A `WeightSource` on the fake GPU; ``kind`` says how linear layers are held."""

    device = CUDA

    def __init__(self, kind: str, dtype: torch.dtype, numerics: Numerics) -> None:
        self.kind, self.dtype, self.numerics = kind, dtype, numerics

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        total = sum(sizes)
        added = torch.zeros(total, dtype=self.dtype, device=CUDA) if bias else None
        if self.kind == "dense":
            weight = torch.empty(total, in_features, dtype=self.dtype, device=CUDA)
            return Dense(weight, added, self.numerics)
        if self.kind == "concatenated":
            return Concatenated([Weights("dense", self.dtype, self.numerics).linear("", names, [n], in_features, bias)
                                 for n in sizes])  # fmt: skip
        shape = LinearShape("int4", in_features, total, group=64, scales=torch.float16, ordered=True)
        target = Target(self.dtype, CUDA, self.numerics, native=False)
        if self.kind == "operator":
            parts = [Packed(in_features, size) for size in sizes]
            layer: Linear = choose.built(shape, parts, added, target)
            assert layer.path == "torch int4 matmul on CUDA"
            return layer
        packed = int4.Int4Linear(shape, target, CUDA)
        packed.bias = added
        return packed

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=self.dtype, device=CUDA)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, device=CUDA)

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> list[Linear]:
        return [self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count)]

    def vector(self, name: str, size: int) -> Tensor:
        return torch.empty(size, dtype=self.dtype, device=CUDA)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=self.dtype, device=CUDA)

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        weight = table if table is not None else self.embedding("lm_head.weight", rows, columns)
        return Dense(weight, None, self.numerics)


class Packed:
    """A packed module as it comes from a file: on the host."""

    group = 64

    def __init__(self, in_features: int, out_features: int) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.order: Tensor | None = torch.arange(in_features)

    def columns(self, start: int, stop: int) -> AffineColumns:
        groups = self.in_features // self.group
        words = torch.zeros(self.in_features // 8, self.out_features, dtype=torch.int32)
        scales = torch.ones(groups, self.out_features, dtype=torch.float16)
        zeros = torch.zeros(groups, self.out_features, dtype=torch.uint8)
        return AffineColumns(words.narrow(1, start, stop - start), scales.narrow(1, start, stop - start),
                             zeros.narrow(1, start, stop - start))  # fmt: skip


def rows(count: int, start: int, first_page: int, gap: int = 1, want: int = 1) -> SequenceRows:
    """A sequence on every ``gap``-th page."""
    pages = [first_page + gap * i for i in range(-(-(start + count) // 16))]
    return SequenceRows(list(range(1, count + 1)), start, pages, want)


BATCHES: dict[str, list[SequenceRows]] = {
    "one decoding": [rows(1, 40, 1)],
    "one decoding on scattered pages": [rows(1, 40, 1, 2)],
    "decoding together": [rows(1, 40, 1), rows(1, 3, 10), rows(1, 70, 20, 2)],
    "a prompt": [rows(37, 0, 1)],
    "a chunk without logits": [rows(30, 25, 1, 2, want=0)],
    "chunks, decoding and a verified chain": [
        rows(11, 30, 1),
        rows(1, 12, 10),
        rows(1, 40, 12),
        rows(5, 50, 20, want=5),
    ],
}


def model(kind: str, dtype: torch.dtype, architecture: str, invariant: bool) -> CausalLM:
    source = Weights(kind, dtype, Numerics(invariant))
    made: CausalLM = family(architecture).Model(OWN[architecture], source)
    return made


def forward(
    batch: Batch, kind: str, dtype: torch.dtype, architecture: str = "LlamaForCausalLM", invariant: bool = False
) -> Tensor:
    with fake_cuda():
        lm = model(kind, dtype, architecture, invariant)
        kv = new_store(OWN[architecture], PAGES, dtype, CUDA)
        return lm.forward(on_cuda(batch), kv, AttentionDispatcher(lm.numerics)).logits


def heads(lm: CausalLM, source: Weights) -> list[FeatureHead]:
    shape = CONFIG.changed(num_layers=1, windows=(None,), rotary=(True,))
    ids = torch.empty(40, dtype=torch.int64, device=CUDA)
    return [Eagle(shape, lm, source, True), Eagle3(shape, lm, source, False, ids, 40), MultiToken(lm, source, MIMO)]
