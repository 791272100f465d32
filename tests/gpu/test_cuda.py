"""The engine's parts on a GPU, each against the CPU or the definition. Skipped where there is no GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from engine.cache.offload.swap import SwapSpace
from engine.cache.stores import transfer
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.backends import sdpa
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttentionBackend, AttnSpec
from engine.compute.batch import SequenceRows
from engine.compute.layers.linear import affine, choose
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.runner import Runner
from engine.compute.sampling import noise
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.probabilities import log_probs
from engine.compute.sampling.sampler import Draw, new_history, sample
from engine.formats.quantised.layouts import AffineLayout
from engine.loading.memory.bandwidth import measure_bandwidth
from engine.loading.memory.owners import memory_by_owner
from engine.loading.memory.probe import choose_dtype, free_bytes, probe
from tests.gpu.gpu_support import (
    CPU,
    DEVICE,
    EXPERTS,
    FAMILIES,
    NO_GPU,
    PAGES,
    VOCABULARY,
    Packed,
    Weights,
    relative,
    script,
    tiny,
)

ON_GPU = DEVICE.type == "cuda"
if ON_GPU and not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
HALVES = [torch.bfloat16, torch.float16]
OPERATOR = "torch int4 matmul on CUDA"


def close(found: torch.Tensor, expected: torch.Tensor, share: float) -> None:
    assert found.device.type == DEVICE.type
    assert relative(found, expected) < share


# --- linear layers -----------------------------------------------------------------------------------------------


def build(parts: list[Packed], dtype: torch.dtype, invariant: bool = False, bias: bool = False) -> Linear:
    total = sum(part.out_features for part in parts)
    added = torch.linspace(-1, 1, total).to(DEVICE, dtype) if bias else None
    return choose.built(affine.surveyed(parts), parts, added, Target(dtype, DEVICE, Numerics(invariant), native=False))


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("inputs", "group"), [(256, 128), (256, 64), (256, 32), (512, 256), (192, 64), (192, 32), (96, 32)]
)
def test_the_int4_operator(inputs: int, group: int, symmetric: bool, order: bool) -> None:
    """Every group and every number of inner tiles (256, 192 and 96 inputs give 8, 4 and 2) against the definition."""
    part = Packed(136, inputs, group, 1, symmetric, order)
    layer = build([part], torch.bfloat16, bias=True)
    if ON_GPU:
        assert (layer.path, layer.declined) == (OPERATOR, [])
    weight = part.weight()
    close(layer.dequantised(torch.float32), weight, 0.01)
    for rows in (1, 2, 15, 16, 17, 70, 300):
        x = torch.randn(rows, inputs).bfloat16()
        expected = x.double() @ weight.double().t() + torch.linspace(-1, 1, 136).double()
        close(layer.forward(x.to(DEVICE)), expected, 0.02)
        close(layer.forward_float32(x.to(DEVICE)), expected, 0.02)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("dtype", "group", "share"),
    [(torch.float32, 64, 1e-5), (torch.float16, 64, 0.005), (torch.bfloat16, 16, 0.02), (torch.float32, 8, 1e-5)],
)
def test_dequantise_and_multiply(dtype: torch.dtype, group: int, share: float, symmetric: bool, order: bool) -> None:
    parts = [Packed(40, 128, group, seed, symmetric) for seed in (2, 3)]
    if order:
        parts[0].order = parts[1].order = torch.randperm(128, generator=torch.Generator().manual_seed(4))
    layer = build(parts, dtype, bias=True)
    assert layer.path == "dequantise and multiply"
    if ON_GPU:
        assert [declined.path for declined in layer.declined] == [OPERATOR]
    weight = torch.cat([part.weight() for part in parts])
    assert relative(layer.dequantised(torch.float32), weight) < share
    for rows in (1, 5, 64, 200):
        x = torch.randn(rows, 128).to(dtype)
        expected = x.double() @ weight.double().t() + torch.linspace(-1, 1, 80).double()
        close(layer.forward(x.to(DEVICE)), expected, share)


def test_sixteen_bit_weights_are_written_exactly() -> None:
    part = Packed(72, 64, 32, 5, order=True)
    out = torch.empty(72, 64, device=DEVICE)
    AffineLayout(64, 32, torch.float16, False).write(part, out)
    assert torch.equal(out.cpu(), part.weight())


@pytest.mark.parametrize(("dtype", "group"), [(torch.bfloat16, 64), (torch.bfloat16, 16), (torch.float32, 64)])
def test_a_row_has_the_same_bits_whatever_its_neighbours(dtype: torch.dtype, group: int) -> None:
    layer = build([Packed(136, 256, group, 6)], dtype, invariant=True)
    x = torch.randn(70, 256).to(DEVICE, dtype)
    whole, floats = layer.forward(x), layer.forward_float32(x)
    for start, stop in [(0, 1), (3, 4), (5, 21), (1, 70), (63, 70)]:
        assert torch.equal(layer.forward(x[start:stop]), whole[start:stop])
        assert torch.equal(layer.forward_float32(x[start:stop]), floats[start:stop])


# --- attention ---------------------------------------------------------------------------------------------------


class _OneGroup:
    num_groups = 1


TREE = (-1, 0, 0, 1, 1, -1, 5, 2)
SHAPES = {
    "first token": [(0, 1)],
    "decode": [(140, 1)],
    "prompt": [(0, 300)],
    "chunk": [(131, 150)],
    "chunk after a long prefix": [(1500, 300)],
    "decode far out": [(2500, 1)],
    "tree": [(77, 0)],
    "decodes": [(5, 1), (20, 1), (21, 1), (300, 1), (10, 1)],
    "mixed": [(5, 1), (0, 33), (40, 5), (9, 1), (7, 1)],
    "mixed with trees": [(3, 0), (90, 70), (60, 1), (1200, 0)],
}


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("backend", [SdpaAttention, BatchInvariantAttention, ReferenceAttention])
def test_attention(
    backend: type[AttentionBackend], name: str, dtype: torch.dtype, window: int | None, scattered: bool
) -> None:
    """Against the reference on the CPU, over the same pages."""
    rows, free = [], list(range(1, 500))
    if scattered:
        random.Random(1).shuffle(free)
    for start, count in SHAPES[name]:
        new = count or len(TREE)
        pages, free = free[: -(-(start + new) // 16)], free[-(-(start + new) // 16) :]
        rows.append(SequenceRows([0] * new, start, pages, 0, None if count else TREE))
    generator = torch.Generator().manual_seed(7)
    k, v = (torch.randn(500 * 16, 2, 64, generator=generator).to(dtype) for _ in "kv")
    here, there = (DenseKVStore([(2, 64)], 500, dtype, device) for device in (CPU, DEVICE))
    slots = torch.arange(500 * 16)
    here.write(0, k, v, Placement(slots[None], [-1]))
    there.write(0, k.to(DEVICE), v.to(DEVICE), Placement(slots.to(DEVICE)[None], [-1]))
    batch = Runner(_OneGroup(), there, None, DEVICE).batch(rows)  # type: ignore[arg-type]
    real = batch.host.T
    q = torch.randn(batch.tokens.shape[0], 8, 64, generator=generator).to(dtype)
    on_cpu = Runner(_OneGroup(), here, None).batch(rows)  # type: ignore[arg-type]
    spec = AttnSpec(0.125, window)
    expected, expected_lse = ReferenceAttention().attend(q[:real].float(), here.view(0), spec, on_cpu, need_lse=True)
    share = 1e-5 if dtype == torch.float32 else 0.02
    attend = backend()
    for _ in range(2):
        o, lse = attend.attend(q.to(DEVICE), there.view(0), spec, batch, need_lse=True)
        assert lse is not None
        close(o[:real], expected, share)
        assert expected_lse is not None
        close(lse[:real], expected_lse, share)
        alone, _ = attend.attend(q.to(DEVICE), there.view(0), spec, batch)
        close(alone[:real], expected, share)
        assert not alone[real:].any()


@pytest.mark.skipif(not ON_GPU, reason="about torch's CUDA kernels")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [64, 128])
def test_fused_kernels_give_their_lse(width: int, dtype: torch.dtype) -> None:
    """Otherwise long prefixes are attended to with all their scores in memory."""
    if torch.cuda.get_device_capability(DEVICE) >= (8, 0):
        assert sdpa._flash_cuda_fails(DEVICE, dtype, width) is None
    if dtype == torch.float16 or torch.cuda.get_device_capability(DEVICE) >= (8, 0):
        assert sdpa._efficient_cuda_fails(DEVICE, dtype, width) is None


def test_the_invariant_backend_gives_a_row_the_same_bits_however_it_was_cut() -> None:
    whole = tiny("LlamaForCausalLM", DEVICE, torch.bfloat16, invariant=True)
    tokens = [(7 * i) % VOCABULARY for i in range(90)]
    pages = list(range(1, 8))
    expected = whole.forward([SequenceRows(tokens, 0, pages, 90)]).logits.clone()
    assert expected.dtype == torch.float32
    for chunk in (1, 7, 64):
        cut = tiny("LlamaForCausalLM", DEVICE, torch.bfloat16, invariant=True)
        found = []
        for start in range(0, 90, chunk):
            part = tokens[start : start + chunk]
            beside = SequenceRows([1, 2, 3], 0, [20], 0)
            rows = [SequenceRows(part, start, pages, len(part))]
            found.append(cut.forward([beside, *rows] if start % 2 else rows).logits.clone())
        assert torch.equal(torch.cat(found), expected)


# --- the forward -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("architecture", list(FAMILIES))
def test_every_family(architecture: str, packed: bool) -> None:
    """Float32 tightly, the 16-bit dtypes loosely, against the CPU in float32 step by step."""
    exact = tiny(architecture, CPU, torch.float32, packed)
    runners = {
        dtype: tiny(architecture, DEVICE, dtype, packed, invariant)
        for dtype, invariant in ((torch.float32, False), (torch.bfloat16, False), (torch.float16, False))
    }
    invariant = tiny(architecture, DEVICE, torch.float32, packed, True)
    for rows in script():
        expected = exact.forward(rows).logits
        for dtype, runner in runners.items():
            close(runner.forward(rows).logits, expected, 1e-4 if dtype == torch.float32 else 0.06)
        close(invariant.forward(rows).logits, expected, 1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_some_of_the_experts(packed: bool) -> None:
    moe = replace(EXPERTS, experts_per_token=2, groups=2, groups_per_token=1, shared_size=128)
    config = replace(FAMILIES["MixtralForCausalLM"], moe=moe)
    x = torch.randn(37, config.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        here, there = (SparseMLP(config, Weights(device, torch.float32, Numerics(), packed), "")
                       for device in (CPU, DEVICE))  # fmt: skip
        assert torch.equal(there.router.route(x.to(DEVICE))[0].cpu(), here.router.route(x)[0])
        close(there.forward(x.to(DEVICE)), here.forward(x), 1e-4)


@pytest.mark.skipif(not ON_GPU, reason="a CPU has nothing to wait for")
@pytest.mark.parametrize("packed", [False, True])
def test_a_forward_never_waits_for_the_gpu(packed: bool) -> None:
    runner = tiny("Qwen2ForCausalLM", DEVICE, torch.bfloat16, packed)
    for rows in script():
        runner.forward(rows)
    with _no_waiting():
        for rows in script():
            runner.forward(rows)


@contextmanager
def _no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_batches_survive_a_host_that_runs_ahead() -> None:
    """The pinned memory of a bucket is filled again only after its transfer has read it."""
    runner = Runner(_OneGroup(), DenseKVStore([(1, 1)], 1, torch.float32), None, DEVICE)  # type: ignore[arg-type]
    seen = []
    for step in range(100):
        if ON_GPU and step % 10 == 0:
            torch.cuda._sleep(20_000_000)
        batch = runner.batch([SequenceRows([step] * 3, step, list(range(1, 12)), 1), SequenceRows([step], 5, [30], 1)])
        seen.append((batch.tokens.clone(), batch.positions.clone(), batch.kv_len.clone()))
    for step, (tokens, positions, lengths) in enumerate(seen):
        assert tokens[:4].tolist() == [step] * 4
        assert positions[:4].tolist() == [step, step + 1, step + 2, 5]
        assert lengths[:2].tolist() == [step + 3, 6]


def test_padding_touches_no_page_but_page_0() -> None:
    """Five rows that end with their page run as eight; the page after it belongs to another sequence."""
    runner = tiny("LlamaForCausalLM", DEVICE, torch.float32)
    runner.forward([SequenceRows(list(range(1, 12)), 0, [1], 0)])
    runner.forward([SequenceRows(list(range(1, 17)), 0, [2], 0)])
    before = [(runner.kv.view(layer).k.clone(), runner.kv.view(layer).v.clone()) for layer in range(2)]
    runner.forward([SequenceRows(list(range(20, 25)), 11, [1], 1)])
    for layer, (k, v) in enumerate(before):
        for old, new in ((k, runner.kv.view(layer).k), (v, runner.kv.view(layer).v)):
            assert torch.equal(old[32:], new[32:])
            assert torch.equal(old[16 : 16 + 11], new[16 : 16 + 11])
            assert not torch.equal(old[16 + 11 : 32], new[16 + 11 : 32])


def test_pages_travel() -> None:
    generator = torch.Generator().manual_seed(3)
    stores = [DenseKVStore([(2, 32)] * 2, PAGES, torch.float16, device) for device in (CPU, DEVICE)]
    k, v = (torch.randn(PAGES * 16, 2, 32, generator=generator).half() for _ in "kv")
    exported = []
    for store, device in zip(stores, (CPU, DEVICE), strict=True):
        for layer in range(2):
            everywhere = Placement(torch.arange(PAGES * 16, device=device)[None], [-1])
            store.write(layer, (k + layer).to(device), (v - layer).to(device), everywhere)
        store.copy_page(3, 5)
        store.move_slots(torch.tensor([17, 18, 40], device=device), torch.tensor([18, 19, 17], device=device))
        data = store.export_pages([3, 5, 1, 2])
        store.import_pages([7, 8, 9, 10], data)
        exported.append((data, store.export_pages([7, 8, 9, 10, 0])))
    for here, there in zip(*exported, strict=True):
        assert torch.equal(here, there)


def test_pages_come_back_from_pinned_memory_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    stores = [DenseKVStore([(2, 32)] * layers, PAGES, torch.float16, DEVICE) for layers in (3, 1)]
    for store in stores:
        for layer in range(store.layers):
            store.view(layer).k.normal_()
            store.view(layer).v.normal_()
    monkeypatch.setattr(transfer, "STAGING_BYTES", 2 * stores[0].page_bytes)
    pages, others = [3, 5, 1, 2, 4], [7, 8, 9, 10, 6]
    before = [store.export_pages(pages) for store in stores]
    space = SwapSpace(1 << 30)
    handle = space.put(stores, pages, 80, "answer")
    assert handle is not None
    assert [len(piece) for piece in handle.blobs[0]] == [2, 2, 1]
    assert not ON_GPU or all(piece.is_pinned() for pieces in handle.blobs for piece in pieces)
    space.get([handle], stores, others)
    for store, data in zip(stores, before, strict=True):
        assert torch.equal(store.export_pages(others), data)
        store.import_pages(pages, torch.from_numpy(data.numpy().copy()))  # from memory that is not pinned
        assert torch.equal(store.export_pages(pages), data)
    space.check()


# --- drawing -----------------------------------------------------------------------------------------------------


def test_noise_is_the_same_on_every_device() -> None:
    draws = [(1, 0, 5), (2**53 - 1, 3, 100_000), (0, 0, 0)]
    ids = torch.tensor([[5, 1, 127_999], [0, 2, 3], [9, 8, 7]])
    for tokens in (None, ids):
        moved = None if tokens is None else tokens.to(DEVICE)
        here = noise.bits(noise.keys(draws, CPU), tokens, 128_000)
        assert torch.equal(noise.bits(noise.keys(draws, DEVICE), moved, 128_000).cpu(), here)
        floats = noise.gumbel(noise.keys(draws, DEVICE), moved, 128_000).cpu()
        torch.testing.assert_close(
            floats, noise.gumbel(noise.keys(draws, CPU), tokens, 128_000), rtol=1e-12, atol=1e-12
        )


SETTINGS = {
    "greedy": {"temperature": 0.0},
    "whole": {"temperature": 0.9},
    "top-k": {"top_k": 40},
    "top-p": {"top_p": 0.9, "temperature": 1.3},
    "min-p": {"min_p": 0.05},
    "typical": {"typical_p": 0.8},
    "everything": {"top_k": 500, "top_p": 0.95, "min_p": 0.001, "typical_p": 0.9, "temperature": 1.1},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    "DRY and bias": {"dry_multiplier": 0.8, "logit_bias": {17: 3.0, 40: -2.0}},
}


@pytest.mark.parametrize("name", [*SETTINGS, "side by side"])
def test_the_same_tokens_are_drawn(name: str) -> None:
    vocabulary, rows = 32_000, 18
    logits = 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(5))
    kinds = list(SETTINGS.values()) if name == "side by side" else [SETTINGS[name]]
    text = [17, 40, 3, 17, 40, 3, 9, 17, 40]
    drawn, probabilities = [], []
    for device in (CPU, DEVICE):
        params = [SamplingParams(seed=row, logprobs=3, **kinds[row % len(kinds)]) for row in range(rows)]
        draws = [
            Draw(p, 0, text, (3,) * (row % 2), new_history(p, vocabulary, 4, device)) for row, p in enumerate(params)
        ]
        drawn.append(sample(logits.to(device), draws))
        found = log_probs(logits.to(device), draws, drawn[-1])
        probabilities.append([entry.chosen for entry in found if entry is not None])
    assert drawn[0] == drawn[1]
    assert probabilities[1] == pytest.approx(probabilities[0], abs=1e-4)


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ON_GPU, reason="about the GPU's memory")
def test_the_device_and_its_memory() -> None:
    device = probe(DEVICE)
    assert (device.kind, device.name) == ("cuda", torch.cuda.get_device_name(DEVICE))
    assert 0 < device.free_bytes <= device.total_bytes
    if torch.cuda.get_device_capability(DEVICE) >= (8, 0):
        assert choose_dtype(DEVICE).dtype == torch.bfloat16
    before = free_bytes(DEVICE)
    size = 256 << 20
    held = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    assert before - free_bytes(DEVICE) >= size
    owners = memory_by_owner(DEVICE, size // 2, size // 4, size // 4)
    assert owners.scope == "device"
    assert (owners.weights, owners.kv_used, owners.kv_reserved) == (size // 2, size // 4, size // 4)
    assert owners.other_kvasir >= 0
    assert owners.other_programs >= 0
    assert size + owners.other_kvasir + owners.other_programs <= owners.total
    del held
    assert free_bytes(DEVICE) >= before - (1 << 20)


@pytest.mark.skipif(not ON_GPU, reason="about the GPU's memory")
def test_the_bandwidth_is_one_that_a_gpu_can_have() -> None:
    assert 50e9 < measure_bandwidth(DEVICE) < 50e12
