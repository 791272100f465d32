"""Every family's forward, the attention backends and the sampler as a GPU would see them.

No device is mixed, and nothing within a forward waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from engine.attention.backends import sdpa
from engine.attention.backends.batch_invariant import BatchInvariantAttention
from engine.attention.backends.reference import ReferenceAttention
from engine.attention.backends.sdpa import SdpaAttention
from engine.attention.interface import AttentionBackend, AttnSpec, KeyRange
from engine.attention.registry import AttentionDispatcher
from engine.attention.triton import merging, pack_trial, quest_trial
from engine.batch import AdapterRows, Batch, EmbeddedRows, RowViews, SequenceRows
from engine.cache.stores.codecs import unpack_pages
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import Flush, Placement
from engine.cache.stores.store import DenseKVStore
from engine.layers import moe
from engine.layers.linear import blocks, choose, int4, int4_cuda
from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import Linear, LinearShape, Target
from engine.layers.linear.dense import Concatenated, Dense
from engine.layers.numerics import Numerics
from engine.layers.triton import delta, fused
from engine.model_config.model import HeadShape, LatentShape, ModelConfig, MoEConfig, RopeConfig
from engine.model_config.states import ConvolutionShape, MambaShape, RecurrentShape
from engine.models.adapters import Adapter, Factors, Site
from engine.models.arenas import new_store
from engine.models.base import CausalLM
from engine.models.heads.assistant import Assistant, Clusters
from engine.models.heads.base import OUTPUT, FeatureHead
from engine.models.heads.eagle import Eagle, Eagle3
from engine.models.heads.mtp import MIMO, MultiToken
from engine.models.registry import FAMILIES, family
from engine.sampling import noise
from engine.sampling.params import SamplingParams
from engine.sampling.sampler import Draw, _choose, new_history, over_kinds, processed, sample
from tests.engine.models.fake_cuda import CUDA, fake_cuda, on_cuda, padded_batch
from tests.engine.vision.tiny_towers import TOWERS, tiny

LAYERS, PAGES, VOCABULARY = 2, 40, 200
CONFIG = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=VOCABULARY,
    hidden_size=128,
    intermediate_size=256,
    num_layers=LAYERS,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope=RopeConfig(10000.0),
    max_position=8192,
    tie_word_embeddings=False,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    qk_norm=False,
    windows=(None,) * LAYERS,
    rotary=(True,) * LAYERS,
    dtype=torch.bfloat16,
)
EXPERTS = MoEConfig(num_experts=4, experts_per_token=2, intermediate_size=128, sparse=(True,) * LAYERS)
STATES = RecurrentShape((True, False), 2, 4, 16, 32, 4)
SIGMOID = replace(EXPERTS, routing="sigmoid", choice_bias=True, normalised=True, groups=2, shared_size=128)
LATENT = replace(CONFIG, num_kv_heads=1, head_dim=40, latent=LatentShape(48, 24, 16, 32, 40))
TWO_WIDTHS = replace(CONFIG, unit_offset_norms=True, activation="gelu_tanh", qk_norm=True, value_norm=True,
                     attention_scale=1.0, windows=(24, None), local=(True, False), local_rope=RopeConfig(100.0),
                     shapes=(HeadShape(2, 32), HeadShape(1, 64)), keys_as_values=(False, True))  # fmt: skip
MAMBA = MambaShape((True, False), heads=4, width=32, groups=2, state=16, kernel=4)
CONVOLUTION = replace(CONFIG, qk_norm=True, recurrent=ConvolutionShape((True, False), 128, 3))
OWN = {
    "LlamaForCausalLM": CONFIG,
    "MistralForCausalLM": replace(CONFIG, windows=(24, 24)),
    "Qwen2ForCausalLM": replace(CONFIG, qkv_bias=True, windows=(None, 24)),
    "MiMoForCausalLM": replace(CONFIG, qkv_bias=True),
    "Qwen3ForCausalLM": replace(CONFIG, qk_norm=True, tie_word_embeddings=True),
    "SmolLM3ForCausalLM": replace(CONFIG, rotary=(True, False), tie_word_embeddings=True),
    # Capped scores are left to the reference backend, which reads from the device: see the test of waiting below.
    "Gemma2ForCausalLM": replace(CONFIG, unit_offset_norms=True, windows=(24, None), activation="gelu_tanh",
                                 logit_softcap=30.0, tie_word_embeddings=True),
    "Gemma3ForCausalLM": replace(CONFIG, unit_offset_norms=True, windows=(24, None), activation="gelu_tanh",
                                 qk_norm=True, local_rope=RopeConfig(100.0), local=(True, False)),
    "Phi3ForCausalLM": replace(CONFIG, fused=True, rope=RopeConfig(10000.0, "longrope", 4.0, 32, partial=0.75,
                               factors=(1.0,) * 12, long_factors=(2.0,) * 12)),
    "Olmo2ForCausalLM": CONFIG,
    "Olmo3ForCausalLM": replace(CONFIG, windows=(24, None), local=(True, False), local_rope=RopeConfig(100.0)),
    "OlmoHybridForCausalLM": replace(CONFIG, rotary=(False, False), recurrent=replace(
        STATES, key_heads=4, key=48, value=96, share_scale=2.0)),
    "GraniteForCausalLM": replace(CONFIG, embedding_scale=12.0, residual_scale=0.2, logit_divisor=8.0),
    "GraniteMoeHybridForCausalLM": replace(CONFIG, fused_mlp=True, rotary=(False, False), recurrent=MAMBA, moe=replace(
        EXPERTS, routing="chosen", shared_size=128, shared="")),
    "NemotronHForCausalLM": replace(CONFIG, num_layers=4, windows=(None,) * 4, rotary=(False,) * 4, activation="relu2",
                                    feed_forward=(False, True, False, True), moe=replace(
        SIGMOID, sparse=(False, True, False, False), names=("up_proj", "down_proj"), latent_size=64),
                                    recurrent=replace(MAMBA, layers=(True, False, False, False), bias=True)),
    "MixtralForCausalLM": replace(CONFIG, moe=replace(EXPERTS, normalised=True, groups=2, shared_size=128)),
    "Qwen3MoeForCausalLM": replace(CONFIG, qk_norm=True, moe=replace(EXPERTS, sparse=(True, False))),
    "GptOssForCausalLM": replace(CONFIG, windows=(24, None), qkv_bias=True, output_bias=True, sinks=True,
                                 moe=replace(EXPERTS, routing="chosen", bias=True, swiglu_limit=7.0)),
    "OPTForCausalLM": replace(CONFIG, num_kv_heads=4, rotary=(False, False), qkv_bias=True, output_bias=True,
                              mlp_bias=True, activation="relu", tie_word_embeddings=True),
    "DeepseekV2ForCausalLM": replace(LATENT, moe=replace(EXPERTS, sparse=(False, True), groups=2, shared_size=128)),
    "DeepseekV3ForCausalLM": replace(LATENT, moe=SIGMOID),
    "Glm4MoeLiteForCausalLM": replace(LATENT, moe=replace(SIGMOID, sparse=(False, True))),
    "KimiLinearForCausalLM": replace(LATENT, rotary=(False, False), moe=replace(SIGMOID, sparse=(False, True)),
                                     recurrent=replace(STATES, key_heads=4, key=32, channel_decays=True)),
    "Glm4MoeForCausalLM": replace(CONFIG, qk_norm=True, moe=SIGMOID, rope=RopeConfig(10000.0, partial=0.5)),
    "Ministral3ForCausalLM": replace(CONFIG, rope=RopeConfig(1e6, original_max_position=32, query_beta=0.1)),
    "Gemma4ForCausalLM": replace(TWO_WIDTHS, layer_inputs=16, moe=replace(
        EXPERTS, normalised=True, expert_scales=True, parallel=True, block="", router="router.proj")),
    "Gemma4UnifiedForCausalLM": TWO_WIDTHS,
    "Lfm2ForCausalLM": CONVOLUTION,
    "Lfm3ForCausalLM": replace(CONVOLUTION, head_gate="sigmoid", windows=(None, 24), local=(False, True),
                               local_rope=RopeConfig(100.0)),
    "SeedOssForCausalLM": replace(CONFIG, qkv_bias=True),
    "Ernie4_5ForCausalLM": CONFIG,
    "Ernie4_5_MoeForCausalLM": replace(CONFIG, moe=replace(EXPERTS, choice_bias=True, normalised=True, shared_size=128,
                                                           sparse=(False, True))),
    "MellumForCausalLM": replace(CONFIG, qk_norm=True, windows=(24, None), local=(True, False), moe=EXPERTS,
                                 local_rope=RopeConfig(100.0)),
    "LagunaForCausalLM": replace(CONFIG, qk_norm=True, windows=(24, None), local=(True, False), head_gate="softplus",
                                 local_rope=RopeConfig(100.0), heads_per_layer=(2, 4), moe=replace(SIGMOID, groups=1),
                                 rope=RopeConfig(10000.0, partial=0.5)),
    "Lfm2MoeForCausalLM": replace(CONVOLUTION, moe=replace(EXPERTS, routing="sigmoid", choice_bias=True,
                                                           sparse=(False, True))),
    "Qwen3NextForCausalLM": replace(CONFIG, unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                    moe=replace(EXPERTS, normalised=True, shared_size=128, shared_gate="gate")),
    "Qwen3_5ForCausalLM": replace(CONFIG, unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                  rope=RopeConfig(10000.0, partial=0.25)),
    "Qwen3_5MoeForCausalLM": replace(CONFIG, unit_offset_norms=True, output_gate=True, qk_norm=True, recurrent=STATES,
                                     moe=replace(EXPERTS, shared_size=128, shared_gate="gate")),
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


@pytest.fixture(autouse=True)
def _a_modern_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(int4_cuda, "_operator_fails", lambda device, tiles, dtype: None)
    monkeypatch.setattr(sdpa, "_flash_cuda_fails", lambda device, dtype, width: None)
    trials = [(module, "disagrees") for module in (pack_trial, quest_trial, merging)]
    for module, proof in (*trials, (fused, "norm_disagrees"), (fused, "gate_disagrees"), (delta, "disagrees")):
        monkeypatch.setattr(module, proof, lambda *traits: "kernels cannot be tried on a pretended GPU")
    # The one thing that a forward waits for: which experts its rows chose. Fakes have no contents.
    monkeypatch.setattr(moe, "on_host", lambda asked, experts: [1, 0, asked.shape[0] - 1, 0])
    # What is kept from call to call must not outlive the test: it is fake.
    scratch = blocks._Scratch()
    for module in (blocks, int4):
        monkeypatch.setattr(module, "scratch", scratch)
    yield
    noise._mixed_vocabulary.cache_clear()


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


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("architecture", list(FAMILIES))
@pytest.mark.parametrize("name", list(BATCHES))
def test_every_family_stays_on_the_gpu(name: str, architecture: str, invariant: bool) -> None:
    batch = padded_batch(BATCHES[name])
    logits = forward(batch, "dense", torch.bfloat16, architecture, invariant)
    assert (logits.device, tuple(logits.shape)) == (CUDA, (batch.want_logits.shape[0], VOCABULARY))
    assert logits.dtype == (torch.float32 if invariant and batch.host.L else torch.bfloat16)


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", ["dense", "concatenated", "operator", "dequantising"])
def test_every_kind_of_layer_stays_on_the_gpu(kind: str, dtype: torch.dtype, invariant: bool) -> None:
    if kind == "operator" and dtype != torch.bfloat16:
        pytest.skip("torch's int4 matmul is for bfloat16")
    for name in ("one decoding", "chunks, decoding and a verified chain"):
        assert forward(padded_batch(BATCHES[name]), kind, dtype, "Qwen2ForCausalLM", invariant).device == CUDA


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_packed_caches_stay_on_the_gpu(name: Literal["int8", "int4"], invariant: bool) -> None:
    for batch in map(padded_batch, BATCHES.values()):
        with fake_cuda():
            lm = model("dense", torch.bfloat16, "LlamaForCausalLM", invariant)
            kv = new_store(CONFIG, PAGES, torch.bfloat16, CUDA, KVKind(name))
            assert lm.forward(on_cuda(batch), kv, AttentionDispatcher(lm.numerics)).logits.device == CUDA


def test_groups_of_recent_tokens_are_packed_on_the_gpu() -> None:
    with fake_cuda():
        kv = new_store(CONFIG, PAGES, torch.bfloat16, CUDA, KVKind("kivi"))
        k = torch.empty(3, CONFIG.num_kv_heads, CONFIG.head_dim, dtype=torch.bfloat16, device=CUDA)
        slots = torch.tensor([[1, 2, 3], [4, 5, 6]], device=CUDA)
        flush = Flush(torch.arange(32, device=CUDA), torch.tensor([4, 9], device=CUDA))
        kv.write(1, k, k, Placement(slots, [-1, -1], flush))
        packed, _ = unpack_pages(kv.view(1), torch.tensor([4, 9], device=CUDA), torch.bfloat16)
        assert (packed.device, tuple(packed.shape)) == (CUDA, (32, CONFIG.num_kv_heads, CONFIG.head_dim))


@pytest.mark.parametrize("invariant", [False, True])
def test_adapters_stay_on_the_gpu(invariant: bool) -> None:
    """Two in one step, one of them around a part of the fused q, k and v; and one that all rows have."""
    batch = padded_batch(BATCHES["chunks, decoding and a verified chain"])
    with fake_cuda():
        lm = model("dense", torch.bfloat16, "LlamaForCausalLM", invariant)
        for number in (1, 2):
            parts = [
                (Site(lm.layers[0].attention, "qkv", 128, 192, 128), _factors(64)),  # type: ignore[attr-defined]
                (Site(lm.layers[1].mlp, "down", 0, 128, 256), _factors(128, 256)),  # type: ignore[attr-defined]
            ]
            lm.adapters.attach(Adapter(number, str(number), "", "", 4, 2, 0), parts)
        rows = [AdapterRows(number, torch.empty(number, dtype=torch.int64, device=CUDA)) for number in (1, 2)]
        for groups in (rows, [AdapterRows(2, None)]):
            kv = DenseKVStore([(CONFIG.num_kv_heads, CONFIG.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA)
            moved = replace(on_cuda(batch), adapters=groups)
            assert lm.forward(moved, kv, AttentionDispatcher(lm.numerics)).logits.device == CUDA


def _factors(out_features: int, in_features: int = 128) -> Factors:
    shapes = (4, in_features), (out_features, 4)
    return Factors(*(torch.empty(shape, dtype=torch.bfloat16, device=CUDA) for shape in shapes))


@pytest.mark.parametrize("name", list(TOWERS))
def test_towers_stay_on_the_gpu(name: str) -> None:
    shown = Image.new("RGB", (40, 24), "teal")
    picture = tiny(name).prepare(shown)
    with fake_cuda():
        tower = tiny(name, CUDA, torch.bfloat16)
        there = replace(picture, pixels=torch.empty(tuple(picture.pixels.shape)))
        found = tower.forward([there])[0]
        assert (found.device, found.dtype, found.shape[0]) == (CUDA, torch.bfloat16, picture.tokens)


def heads(lm: CausalLM, source: Weights) -> list[FeatureHead]:
    shape = replace(CONFIG, num_layers=1, windows=(None,), rotary=(True,))
    ids = torch.empty(40, dtype=torch.int64, device=CUDA)
    return [Eagle(shape, lm, source, True), Eagle3(shape, lm, source, False, ids, 40), MultiToken(lm, source, MIMO)]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["eagle", "eagle 3", "mtp"])
def test_feature_heads_stay_on_the_gpu(number: int) -> None:
    tree = SequenceRows([5, 6, 7], 20, [30, 32], 2, parents=(-1, 0, 0))
    for some in (BATCHES["chunks, decoding and a verified chain"], BATCHES["a chunk without logits"], [tree]):
        batch = padded_batch(some)
        with fake_cuda():
            source = Weights("dense", torch.bfloat16, Numerics())
            head = heads(model("dense", torch.bfloat16, "LlamaForCausalLM", False), source)[number]
            states = torch.empty(batch.tokens.shape[0], CONFIG.hidden_size, dtype=torch.bfloat16, device=CUDA)
            features = head.features(dict.fromkeys(head.reads, states))
            out = head.forward(on_cuda(batch), head.new_store(PAGES), AttentionDispatcher(), hidden_in=features)
            assert {features.device, out.logits.device, out.hidden[OUTPUT].device} == {CUDA}
            assert out.hidden[OUTPUT].shape == features.shape == states.shape
            assert tuple(out.logits.shape) == (batch.want_logits.shape[0], VOCABULARY)


@pytest.mark.parametrize("clusters", [False, True])
def test_an_assistant_stays_on_the_gpu(clusters: bool) -> None:
    target = OWN["Gemma4UnifiedForCausalLM"]
    batch = padded_batch(BATCHES["decoding together"])
    with fake_cuda():
        lm, source = (
            model("dense", torch.bfloat16, "Gemma4UnifiedForCausalLM", False),
            Weights("dense", torch.bfloat16, Numerics()),
        )
        shape = replace(target, hidden_size=64, num_heads=2)
        ordering = torch.empty(VOCABULARY, dtype=torch.int64, device=CUDA)
        head = Assistant(shape, lm, source, Clusters(shape, source, ordering, 10, 3) if clusters else None)
        states = torch.empty(batch.tokens.shape[0], target.hidden_size, dtype=torch.bfloat16, device=CUDA)
        kv = new_store(target, PAGES, torch.bfloat16, CUDA)
        out = head.forward(on_cuda(batch), kv, AttentionDispatcher(), hidden_in=head.features(states))
        assert {out.logits.device, out.hidden[OUTPUT].device} == {CUDA}
        assert out.hidden[OUTPUT].shape == states.shape
        assert tuple(out.logits.shape) == (batch.want_logits.shape[0], VOCABULARY)


def test_layer_ranges_and_hidden_states_stay_on_the_gpu() -> None:
    batch = padded_batch(BATCHES["a prompt"], frozenset({1, 2}))
    with fake_cuda():
        lm = model("dense", torch.bfloat16, "LlamaForCausalLM", False)
        kv = DenseKVStore([(CONFIG.num_kv_heads, CONFIG.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA)
        early = lm.forward(on_cuda(batch), kv, AttentionDispatcher(), layers=(0, 1))
        late = lm.forward(on_cuda(batch), kv, AttentionDispatcher(), layers=(1, 2), hidden_in=early.hidden[1])
        assert {hidden.device for hidden in (*early.hidden.values(), *late.hidden.values())} == {CUDA}


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3_5ForCausalLM"])
def test_pictures_stay_on_the_gpu(architecture: str) -> None:
    """With rows and columns to rotate by, and additions after the first layer."""
    sections = RopeConfig(10000.0, sections=(2, 1, 1), interleaved=True, partial=OWN[architecture].rope.partial)
    batch = padded_batch(BATCHES["a prompt"])
    with fake_cuda():
        source = Weights("dense", torch.bfloat16, Numerics())
        config = replace(OWN[architecture], rope=sections)
        lm: CausalLM = family(architecture).Model(config, source)
        vectors = torch.empty(5, 2 * CONFIG.hidden_size, dtype=torch.bfloat16, device=CUDA)
        axes = torch.empty(3, batch.tokens.shape[0], dtype=torch.int64, device=CUDA)
        shown = replace(on_cuda(batch), axes=axes, embedded=(EmbeddedRows(7, vectors),))
        kv = new_store(config, PAGES, torch.bfloat16, CUDA)
        logits = lm.forward(shown, kv, AttentionDispatcher(lm.numerics)).logits
    assert (logits.device, tuple(logits.shape)) == (CUDA, (batch.want_logits.shape[0], VOCABULARY))


@pytest.mark.parametrize("architecture", ["Gemma3ForCausalLM", "Gemma4ForCausalLM"])
def test_pictures_that_are_seen_ahead_stay_on_the_gpu(architecture: str) -> None:
    batch = padded_batch(BATCHES["a prompt"])
    until = np.arange(batch.host.T) + 1
    until[7:12] = 12
    with fake_cuda():
        lm = model("dense", torch.bfloat16, architecture, False)
        vectors = torch.empty(5, CONFIG.hidden_size, dtype=torch.bfloat16, device=CUDA)
        views = RowViews(until=until, ahead="all" if architecture.startswith("Gemma3") else "sliding")
        shown = replace(on_cuda(batch), views=views, embedded=(EmbeddedRows(7, vectors, views.ahead),))
        kv = new_store(lm.config, PAGES, torch.bfloat16, CUDA)
        logits = lm.forward(shown, kv, AttentionDispatcher(lm.numerics)).logits
    assert (logits.device, tuple(logits.shape)) == (CUDA, (batch.want_logits.shape[0], VOCABULARY))


def attend(
    backend: AttentionBackend, batch: Batch, spec: AttnSpec, need_lse: bool, keys: KeyRange | None = None
) -> Callable[[], None]:
    def run() -> None:
        with fake_cuda():
            moved = on_cuda(batch)
            kv = DenseKVStore([(2, 64)], 400, torch.bfloat16, CUDA)
            q = torch.empty(batch.tokens.shape[0], 8, 64, dtype=torch.bfloat16, device=CUDA)
            o, lse = backend.attend(q, kv.view(0), spec, moved, need_lse=need_lse, keys=keys)
            assert o.device == CUDA
            assert lse is None or lse.device == CUDA

    return run


def test_padding_rows_write_to_page_0() -> None:
    """Their slots do not follow those of the real rows, which a next sequence may own, or nobody."""
    batch = padded_batch([rows(5, 11, 1)])
    assert batch.placement.first_slot == [-1]
    assert batch.placement.slots[0, 5:].tolist() == [0, 0, 0]
    assert padded_batch([rows(8, 11, 1)]).placement.first_slot == [1 * 16 + 11]


TREE = SequenceRows([1, 2, 3, 4], 20, [1, 2], 4, (-1, 0, 0, 2))
LONG = [rows(300, 1700, 1, 2), rows(1, 30, 300)]


@pytest.mark.parametrize("need_lse", [False, True])
@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("name", [*BATCHES, "long", "tree"])
def test_fused_attention_never_waits_for_the_gpu(name: str, window: int | None, need_lse: bool) -> None:
    """A long chunk attends to its prefix apart from its own rows; a tree brings a mask of its own."""
    batch = padded_batch({**BATCHES, "long": LONG, "tree": [TREE, rows(1, 5, 8)]}[name])
    attend(SdpaAttention(), batch, AttnSpec(0.1, window), need_lse)()


@pytest.mark.parametrize("backend", [SdpaAttention, BatchInvariantAttention])
@pytest.mark.parametrize("name", [*BATCHES, "long", "tree"])
def test_ranges_of_keys_do_not_wait_for_the_gpu(name: str, backend: type[AttentionBackend]) -> None:
    batch = padded_batch({**BATCHES, "long": LONG, "tree": [TREE, rows(1, 5, 8)]}[name])
    if backend is BatchInvariantAttention and batch.ancestors is not None:
        pytest.skip("it reads the paths of a tree from the device")
    index = np.arange(batch.host.T)
    for keys in (KeyRange(index % 20, index % 50), KeyRange(None, index * 0 + 4)):
        attend(backend(), batch, AttnSpec(0.1), True, keys)()


def test_keys_that_sequences_share_do_not_wait_for_the_gpu() -> None:
    shared = list(range(1, 60))
    batch = padded_batch([SequenceRows([1], 59 * 16 + 3, [*shared, 60 + i], 1) for i in range(3)])
    attention = AttentionDispatcher(Numerics(), [SdpaAttention()])
    attend(attention, batch, AttnSpec(0.1), False)()
    assert attention.keys_saved == 2 * 59 * 16


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("name", ["one decoding", "chunks, decoding and a verified chain"])
def test_batch_invariant_attention_never_waits_for_the_gpu(name: str, window: int | None) -> None:
    attend(BatchInvariantAttention(), padded_batch(BATCHES[name]), AttnSpec(0.1, window, 30.0), True)()


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("name", list(BATCHES))
def test_choosing_pages_never_waits_for_the_gpu(name: str, invariant: bool) -> None:
    """Of three rows two choose, in a model whose third layer has bounds."""
    config = replace(CONFIG, num_layers=3, windows=(None,) * 3, rotary=(True,) * 3)
    batch = padded_batch(BATCHES[name])
    batch = replace(batch, views=RowViews(sparse=(np.arange(batch.host.T) + 1) % 3))
    with fake_cuda():
        lm = family("LlamaForCausalLM").Model(config, Weights("dense", torch.bfloat16, Numerics(invariant)))
        kv = new_store(config, PAGES, torch.bfloat16, CUDA, KVKind(bounds=True))
        moved = on_cuda(batch)
        written = torch.empty(batch.host.T, dtype=torch.int64, device=CUDA)
        moved = replace(moved, placement=moved.placement._replace(pages=written))
        assert lm.forward(moved, kv, AttentionDispatcher(lm.numerics)).logits.device == CUDA
        kv.move_slots(torch.tensor([1, 2], device=CUDA), torch.tensor([3, 4], device=CUDA))
        kv.copy_page(1, 2)
        kv.import_pages([4, 5], kv.export_pages([1, 3]))


def test_waiting_would_be_noticed() -> None:
    """The reference backend reads lengths from the device, so it must fail here: the harness sees what it should."""
    with pytest.raises(DataDependentOutputException):
        attend(ReferenceAttention(), padded_batch(BATCHES["one decoding"]), AttnSpec(0.1), False)()


def test_a_tensor_left_on_the_host_would_be_noticed() -> None:
    batch = padded_batch(BATCHES["one decoding"])
    with fake_cuda():
        lm = model("dense", torch.bfloat16, "LlamaForCausalLM", False)
        lm.head = Dense(torch.empty(VOCABULARY, CONFIG.hidden_size, dtype=torch.bfloat16), None, lm.numerics)
        kv = DenseKVStore([(CONFIG.num_kv_heads, CONFIG.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA)
        with pytest.raises(RuntimeError, match="device"):
            lm.forward(on_cuda(batch), kv, AttentionDispatcher())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_drawing_stays_on_the_gpu_and_reads_it_once(dtype: torch.dtype) -> None:
    kinds = [
        SamplingParams(seed=1, temperature=0.0),
        SamplingParams(seed=2, temperature=0.8, logit_bias={3: 2.0}, presence_penalty=0.5, repetition_penalty=1.2),
        SamplingParams(seed=3, temperature=1.0, dry_multiplier=0.8),
    ]
    with fake_cuda():
        logits = torch.empty(len(kinds), VOCABULARY, dtype=dtype, device=CUDA)
        draws = [Draw(params, 0, [1, 2, 1, 2, 1], (), new_history(params, VOCABULARY, 3, CUDA)) for params in kinds]
        assert processed(logits, draws).device == CUDA
        tokens = torch.empty(len(draws), dtype=torch.int64, device=CUDA)
        assert over_kinds(logits, draws, _choose, tokens) is tokens
        with pytest.raises(DataDependentOutputException):  # the one transfer, at the end
            sample(logits, draws)


def test_whole_pages_move_on_the_gpu() -> None:
    with fake_cuda():
        kv = DenseKVStore([(2, 64)] * LAYERS, PAGES, torch.bfloat16, CUDA)
        kv.copy_page(1, 2)
        kv.move_slots(torch.tensor([1, 2], device=CUDA), torch.tensor([3, 4], device=CUDA))
        data = kv.export_pages([1, 3])
        assert data.device.type == "cpu"
        kv.import_pages([4, 5], data)


@pytest.mark.parametrize("rows", [6, 32, 40])
def test_long_prefixes_keep_no_scores_on_a_gpu_without_a_flash_kernel(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Torch pads the rows of the other kernel's lse."""
    monkeypatch.setattr(sdpa, "_flash_cuda_fails", lambda device, dtype, width: "the GPU is too old")
    monkeypatch.setattr(sdpa, "_efficient_cuda_fails", lambda device, dtype, width: None)
    monkeypatch.setattr(torch, "matmul", None)
    with fake_cuda():
        q, k = (torch.empty(1, 2, count, 64, dtype=torch.float16, device=CUDA) for count in (rows, 4096))
        o, lse = sdpa._fused_with_lse(q, k, k, None, 0.1)
        assert (o.shape, lse.shape) == (q.shape, q.shape[:3])
