"""Layers, heads, towers, the attention backends and the sampler as a GPU would see them.

No device is mixed, and nothing within a forward waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import DataDependentOutputException

from engine.cache.stores.codecs import unpack_pages
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import Flush, Placement
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.backends import sdpa
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnSpec, KeyRange
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import AdapterRows, Batch, EmbeddedRows, RowViews, SequenceRows
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.numerics import Numerics
from engine.compute.models.adapters import Adapter, Factors, Site
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.assistant import Assistant, Clusters
from engine.compute.models.heads.base import OUTPUT
from engine.compute.models.registry import family
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import Draw, _choose, new_history, over_kinds, processed, sample
from engine.config.positions import RopeConfig
from tests.engine.compute.models.fake_cuda import CUDA, fake_cuda, on_cuda, padded_batch
from tests.engine.compute.models.fake_families import (
    BATCHES,
    CONFIG,
    LAYERS,
    OWN,
    PAGES,
    VOCABULARY,
    Weights,
    forward,
    heads,
    model,
    rows,
)
from tests.engine.compute.vision.tiny_towers import TOWERS, tiny
from tests.kit.pairs import pairs

pytestmark = pytest.mark.usefixtures("modern_gpu")


@pairs(
    kind=["dense", "concatenated", "operator", "dequantising"],
    dtype=[torch.bfloat16, torch.float16, torch.float32],
    invariant=[False, True],
    without=lambda kind, dtype, invariant: kind == "operator" and dtype != torch.bfloat16,
)
def test_every_kind_of_layer_stays_on_the_gpu(kind: str, dtype: torch.dtype, invariant: bool) -> None:
    for name in ("one decoding", "chunks, decoding and a verified chain"):
        assert forward(padded_batch(BATCHES[name]), kind, dtype, "Qwen2ForCausalLM", invariant).device == CUDA


@pairs(kind=["int8", "int4"], name=list(BATCHES), invariant=[False, True])
def test_packed_caches_stay_on_the_gpu(kind: Literal["int8", "int4"], name: str, invariant: bool) -> None:
    batch = padded_batch(BATCHES[name])
    with fake_cuda():
        lm = model("dense", torch.bfloat16, "LlamaForCausalLM", invariant)
        kv = new_store(CONFIG, PAGES, torch.bfloat16, CUDA, KVKind(kind))
        assert lm.forward(on_cuda(batch), kv, AttentionDispatcher(lm.numerics)).logits.device == CUDA


def test_groups_of_recent_tokens_are_packed_on_the_gpu() -> None:
    with fake_cuda():
        kv = new_store(CONFIG, PAGES, torch.bfloat16, CUDA, KVKind("kivi"))
        k = torch.empty(3, CONFIG.attention.num_kv_heads, CONFIG.attention.head_dim, dtype=torch.bfloat16, device=CUDA)
        slots = torch.tensor([[1, 2, 3], [4, 5, 6]], device=CUDA)
        flush = Flush(torch.arange(32, device=CUDA), torch.tensor([4, 9], device=CUDA))
        kv.write(1, k, k, Placement(slots, [-1, -1], flush))
        packed, _ = unpack_pages(kv.view(1), torch.tensor([4, 9], device=CUDA), torch.bfloat16)
        assert (packed.device, tuple(packed.shape)) == (
            CUDA,
            (32, CONFIG.attention.num_kv_heads, CONFIG.attention.head_dim),
        )


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
            kv = DenseKVStore(
                [(CONFIG.attention.num_kv_heads, CONFIG.attention.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA
            )
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
        shape = target.changed(hidden_size=64, num_heads=2)
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
        kv = DenseKVStore(
            [(CONFIG.attention.num_kv_heads, CONFIG.attention.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA
        )
        early = lm.forward(on_cuda(batch), kv, AttentionDispatcher(), layers=(0, 1))
        late = lm.forward(on_cuda(batch), kv, AttentionDispatcher(), layers=(1, 2), hidden_in=early.hidden[1])
        assert {hidden.device for hidden in (*early.hidden.values(), *late.hidden.values())} == {CUDA}


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3_5ForCausalLM"])
def test_pictures_stay_on_the_gpu(architecture: str) -> None:
    """With rows and columns to rotate by, and additions after the first layer."""
    sections = RopeConfig(
        10000.0, sections=(2, 1, 1), interleaved=True, partial=OWN[architecture].positions.rope.partial
    )
    batch = padded_batch(BATCHES["a prompt"])
    with fake_cuda():
        source = Weights("dense", torch.bfloat16, Numerics())
        config = OWN[architecture].changed(rope=sections)
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
    config = CONFIG.changed(num_layers=3, windows=(None,) * 3, rotary=(True,) * 3)
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
        kv = DenseKVStore(
            [(CONFIG.attention.num_kv_heads, CONFIG.attention.head_dim)] * LAYERS, PAGES, torch.bfloat16, CUDA
        )
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
