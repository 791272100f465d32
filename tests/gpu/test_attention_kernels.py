"""The Triton kernels of attention on a GPU, in 16 bits, against the definition. Skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.gpu_support import CPU, DEVICE, NO_GPU

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

from engine.cache.stores.packed import Flush, PackedKV
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.compute.attention.rotation import RotaryStep
from engine.compute.attention.triton import launch, pack, quest, trial
from engine.compute.attention.triton.backend import TritonAttention
from tests.engine.compute.attention.triton import reference

HALVES = [torch.bfloat16, torch.float16]
KINDS = ["dense", "wide", "int8", "fp8", "int4", "kivi"]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_every_head_dim(kind: str, width: int, dtype: torch.dtype) -> None:
    assert trial.compare(trial.AttnTraits(kind, (width, width), dtype, tree=kind == "dense"), DEVICE) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("window", "softcap", "tree"), [(True, False, False), (False, True, False), (True, True, True)]
)
def test_windows_softcaps_and_trees(kind: str, window: bool, softcap: bool, tree: bool) -> None:
    traits = trial.AttnTraits(kind, (128, 128), torch.bfloat16, window, softcap, tree)
    assert trial.compare(traits, DEVICE) is None


@pytest.mark.parametrize("widths", [(576, 512), (40, 32)])
def test_latents(widths: tuple[int, int]) -> None:
    assert trial.compare(trial.AttnTraits("latent", widths, torch.bfloat16, tree=True), DEVICE) is None


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("kind", [*KINDS, "latent"])
def test_the_last_split_merges(kind: str, width: int, dtype: torch.dtype) -> None:
    assert trial.compare_merges(trial.AttnTraits(kind, (width, width), dtype, width == 64, width == 96), DEVICE) is None


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
def test_attention_rotates_and_writes(kind: str, width: int, dtype: torch.dtype) -> None:
    """What it writes is compared bit for bit."""
    for turns in (0, width // 2, width):
        traits = trial.AttnTraits(kind, (width, width), dtype, turns == 0, turns=turns)
        assert trial.compare_writes(traits, DEVICE) is None


def test_many_tiles_merge_again_and_again() -> None:
    """Programs of many tiles end in any order: the same bits each time, and nothing left in the counts."""
    batch = trial.batch_of([(900 + 30 * i, 1) for i in range(64)])
    kv = trial.on(trial.arenas("dense", (128, 128), (16, 16), batch, torch.bfloat16, generator(), 8), DEVICE)
    there, arrived = trial.batch_on(batch, DEVICE), trial.arrivals(DEVICE)
    q = torch.randn(64, 32, 128, generator=generator()).to(DEVICE, torch.bfloat16)
    for splits in (2, 7, 16):
        cut = launch.cut_of(q, kv, AttnSpec(0.09), there)._replace(splits=splits)
        apart = launch.attend(q, kv, AttnSpec(0.09), there, 0, True, None, None, cut)
        first = launch.attend(q, kv, AttnSpec(0.09), there, 0, True, None, None, cut, arrived)
        assert not trial.far(first[0], apart[0].float().cpu(), trial.TOLERANCE)
        for _ in range(200):
            found = launch.attend(q, kv, AttnSpec(0.09), there, 0, True, None, None, cut, arrived)
            assert torch.equal(found[0], first[0])
        assert not arrived.any()


def test_it_serves_what_models_ask_for() -> None:
    for kind in KINDS:
        problem = AttnProblem("cuda", torch.bfloat16, AttnSpec(0.1, 4096), kind, head_dims=(128, 128))
        assert TritonAttention().declines(problem) is None


def recent_of(kv: PackedKV, dtype: torch.dtype) -> PackedKV:
    shape = (len(kv.k), kv.kv_heads)
    k, v = (torch.randn(*shape, dim, generator=generator()).to(dtype) for dim in (kv.k_dim, kv.v_dim))
    return PackedKV(k, v)


def same(found: PackedKV, expected: PackedKV) -> bool:
    names = ("k", "v", "k_meta", "v_meta")
    pairs = [(getattr(found, name), getattr(expected, name)) for name in names]
    return all(a is None or torch.equal(a.cpu(), b) for a, b in pairs)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [64, 80, 128, 256])
@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
def test_writing_is_exact(kind: str, width: int, dtype: torch.dtype) -> None:
    """The same bits as on a CPU."""
    batch = trial.batch_of([(40, 9)])
    kv = trial.arenas(kind, (width, width), (4, 4), batch, dtype, generator())
    there = trial.on(kv, DEVICE)
    q, k, v = (torch.randn(9, heads, width, generator=generator()).to(dtype) for heads in (8, 2, 2))
    angle = torch.rand(9, 1, width, generator=generator())
    rotary = RotaryStep(angle.cos().to(dtype), angle.sin().to(dtype))
    slots = torch.tensor([3, 17, 40, 41, 5, 90, 91, 12, 64])
    expected = reference.write(q, k, v, rotary, slots, kv)
    moved = RotaryStep(rotary.cos.to(DEVICE), rotary.sin.to(DEVICE))
    found = pack.write(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), moved, slots.to(DEVICE), there)
    assert torch.equal(found.cpu(), expected)
    assert same(there, kv)


@pytest.mark.parametrize("bits", [(4, 4), (2, 2)])
@pytest.mark.parametrize("width", [64, 80, 128])
def test_packing_groups_is_exact(width: int, bits: tuple[int, int]) -> None:
    batch = trial.batch_of([(100, 9)])
    kv = trial.arenas("kivi", (width, width), bits, batch, torch.bfloat16, generator())
    there = trial.on(kv, DEVICE)
    recent = recent_of(kv, torch.bfloat16)
    to = Flush(torch.randperm(len(kv.k), generator=generator())[:64], torch.tensor([3, 1, 2, 7]))
    reference.flush(kv._replace(recent=recent), to)
    pack.flush(there._replace(recent=trial.on(recent, DEVICE)), Flush(to.recent_slots.to(DEVICE), to.pages.to(DEVICE)))
    assert same(there, kv)


@pytest.mark.parametrize("width", [64, 80, 128])
def test_quest(width: int) -> None:
    batch = trial.batch_of([(300, 1), (90, 4)])
    kv = trial.arenas("dense", (width, width), (16, 16), batch, torch.bfloat16, generator())
    pages = kv.k.view(-1, 16, *kv.k.shape[1:])
    bounds = torch.cat((pages.amin(1), pages.amax(1)), -1)
    q = torch.randn(5, 8, width, generator=generator()).to(torch.bfloat16)
    there, batch_there = trial.on(kv, DEVICE), trial.batch_on(batch, DEVICE)
    scores = quest.page_scores(q.to(DEVICE), bounds.to(DEVICE), batch_there).to(CPU)
    expected = reference.page_scores(q, bounds, batch)
    assert torch.equal(scores.isinf(), expected.isinf())
    assert (scores - expected).nan_to_num(0.0).abs().max() < 0.01 * width
    chosen, limits = expected.topk(4).indices, torch.full((5,), 4, dtype=torch.int32, device=DEVICE)
    spec = AttnSpec(width**-0.5)
    want, want_lse = reference.attend_pages(q, kv, spec, batch, chosen, need_lse=True)
    for splits in (1, 4):
        found, lse = quest.attend_pages(
            q.to(DEVICE), there, spec, batch_there, chosen.to(DEVICE), limits, need_lse=True, splits=splits
        )
        assert lse is not None
        assert want_lse is not None
        assert (found.to(CPU).float() - want.float()).abs().max() < 0.02
        assert (lse.to(CPU) - want_lse).abs().max() < 0.02
