"""Attention that rotates and writes the new rows, and whose last split merges, in the interpreter: the bits of a kernel
for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.kinds import KVKind
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.attention.rotation import TableRotaryStep
from engine.compute.attention.triton import launch, pack, trial
from engine.compute.attention.triton.backend import TritonAttention
from engine.compute.attention.triton.launch import TileConfig
from engine.compute.attention.writing import write_rotated
from engine.compute.batch import SequenceRows
from engine.compute.models.arenas import new_store
from engine.compute.runner.buffers import sixteens
from tests.engine.compute.attention.triton.cases_interpreted import DECODES, cases_of, placed
from tests.engine.compute.models.fake_cuda import padded_batch
from tests.gpu.gpu_support import CONFIG

CPU = torch.device("cpu")
SPEC = AttnSpec(0.125)
pytestmark = pytest.mark.content("engine/compute/attention/triton")


SHORT = [(5, 1, False), (70, 1, False), (0, 1, False)]


@pytest.mark.parametrize(
    ("kind", "splits", "shapes", "spec"),
    [
        pytest.param("dense", 3, DECODES, SPEC, marks=pytest.mark.always),
        ("dense", 16, SHORT, AttnSpec(0.125, 20, 1.5)),
        ("dense", 2, [(40, 2, False)], SPEC),
        ("wide", 3, SHORT, SPEC),
        ("int8", 3, SHORT, AttnSpec(0.125, None, 50.0)),
        ("int4", 3, SHORT, AttnSpec(0.125, None, 50.0)),
        # Without a cap these have kernels for a few rows.
        ("int8", 3, SHORT, SPEC),
        ("int4", 3, SHORT, SPEC),
        ("int4", 2, [(40, 2, False)], SPEC),
    ],
)
def test_the_last_split_merges(kind: str, splits: int, shapes: list[tuple[int, int, bool]], spec: AttnSpec) -> None:
    batch, q, kv = placed(cases_of(shapes), kind)
    cut = TileConfig(16, 32, splits)
    arrived = trial.arrivals(CPU)
    for need_lse in (True, False):
        apart = launch.attend(q, kv, spec, batch, 0, need_lse, cut=cut)
        found = launch.attend(q, kv, spec, batch, 0, need_lse, cut=cut, arrived=arrived)
        assert torch.equal(found[0], apart[0])
        assert (found[1] is None) == (apart[1] is None) == (not need_lse)
        assert found[1] is None or apart[1] is None or torch.equal(found[1], apart[1])
    assert not arrived.any()


def test_many_splits_and_tiles_have_a_kernel_that_merges() -> None:
    batch, q, kv = placed(cases_of(SHORT), "dense")
    for splits, room, merges in ((16, 4096, True), (17, 4096, False), (1, 4096, False), (4, 5, False), (4, 6, True)):
        made = launch.plan(q, kv, SPEC, batch, cut=TileConfig(16, 32, splits), arrived=torch.zeros(room).int())
        assert (made.arrived is not None) == merges, splits


WIDTHS = [((32, 32), 32), ((64, 32), 16), ((96, 96), 0), ((64, 64), 64), ((128, 128), 0)]


@pytest.mark.parametrize(
    ("kind", "widths", "turns", "dtype"),
    [
        pytest.param("dense", *WIDTHS[0], torch.float32, marks=pytest.mark.always),
        ("dense", *WIDTHS[2], torch.float16),
        ("int8", *WIDTHS[1], torch.float32),
        ("fp8", *WIDTHS[0], torch.float16),
        ("int4", *WIDTHS[1], torch.float16),
        ("int4", *WIDTHS[3], torch.float16),
        ("int8", *WIDTHS[3], torch.float32),
        *(
            pytest.param(kind, *widths, dtype, marks=pytest.mark.long)
            for kind in ("dense", "int8", "fp8", "int4")
            for widths in WIDTHS
            for dtype in (torch.float32, torch.float16)
        ),
    ],
)
def test_attention_rotates_and_writes(
    kind: str, widths: tuple[int, int], turns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial that a GPU makes, without a tolerance; with a window codes have no kernel for a few rows."""
    monkeypatch.setattr(trial, "TOLERANCE", 0.0)
    traits = trial.AttnTraits(kind, widths, dtype, kind == "int8" and turns == 16, kind == "fp8", turns=turns)
    assert trial.compare_writes(traits, CPU) is None


@pytest.mark.parametrize("kind", ["dense", "latent", "int8", "int4", "kivi"])
def test_trials_of_merges(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TOLERANCE", 0.0)
    monkeypatch.setattr(trial, "REPEATED", 1)
    widths = (40, 32) if kind == "latent" else (32, 32)
    assert trial.compare_merges(trial.AttnTraits(kind, widths, torch.float32, softcap=kind == "dense"), CPU) is None


def test_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    traits = trial.AttnTraits("dense", (32, 32), torch.float32, turns=32)
    attend, write = launch.attend, pack.write

    def off(*args: Any, **options: Any) -> Any:
        o, lse = attend(*args, **options)
        return (o + 0.5 * (len(args) > 9), lse)

    monkeypatch.setattr(launch, "attend", off)
    assert "does not agree with that which does not" in str(trial.compare_writes(traits, CPU))
    assert "do not agree with a kernel's" in str(trial.compare_merges(traits, CPU))
    monkeypatch.setattr(launch, "attend", attend)
    monkeypatch.setattr(pack, "write", lambda q, k, v, *more: write(q, 2 * k, v, *more))
    assert "is not what a kernel of its own writes" in str(trial.compare_writes(traits, CPU))


class _Proved(TritonAttention):
    """Takes the processor for a GPU on which it has proved itself."""

    def declines(self, problem: Any) -> str | None:
        return None


@pytest.fixture
def _proved(monkeypatch: pytest.MonkeyPatch) -> None:
    for proof in ("merges_wrongly", "writes_wrongly"):
        monkeypatch.setattr(trial, proof, lambda *traits: None)


@pytest.mark.usefixtures("_proved")
@pytest.mark.parametrize("kind", [KVKind(), KVKind("int4")], ids=lambda kind: kind.name)
def test_a_layer_of_a_store(kind: KVKind) -> None:
    """Its second; with padding, as steps have it."""
    config = CONFIG.changed(num_layers=2, windows=(None, None), rotary=(True, True))
    heads, kv_heads, width = config.attention.num_heads, config.attention.num_kv_heads, config.attention.head_dim
    stores = [new_store(config, 9, torch.float32, CPU, kind) for _ in range(2)]
    rows = [SequenceRows([1], start, pages, 1) for start, pages in ((20, [1, 2]), (0, [3]), (47, [4, 5, 6]))]
    batch = padded_batch(rows, frozenset(), stores[0], sixteens)
    generator = torch.Generator().manual_seed(1)
    spec, dispatcher = AttnSpec(width**-0.5), AttentionDispatcher(None, [_Proved()])
    for start in range(48):  # what was written before
        past = padded_batch([SequenceRows([1], start, [4, 5, 6], 1)], frozenset(), stores[0], sixteens)
        k, v = torch.randn(2, past.tokens.shape[0], kv_heads, width, generator=generator)
        for store in stores:
            store.write(1, k, v, past.placement)
    count = batch.tokens.shape[0]
    qkv = torch.randn(count, heads + 2 * kv_heads, width, generator=generator)
    table = torch.randn(64, 2, width, generator=generator)
    qk, v = qkv.split((heads + kv_heads, kv_heads), 1)
    rope = TableRotaryStep(table, batch.positions)
    found = dispatcher.attend_new(stores[0], 1, qk, heads, v, rope, spec, batch, True)
    q = write_rotated(stores[1], 1, qk, heads, v, rope, batch.placement)
    expected = dispatcher.attend(q, stores[1].view(1), spec, batch, 0, True)
    assert found is not None
    real = batch.host.T
    # Torch rounds products that the kernel's compiler may not; here neither has any but float32's.
    assert torch.allclose(found[0][:real], expected[0][:real], atol=1e-6)
    assert not found[0][real:].any()
    for one, other in zip(stores[0].view(1)[:5], stores[1].view(1)[:5], strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            assert torch.equal(one[16:], other[16:]), "page 0 is for padding"


@pytest.mark.usefixtures("_proved")
def test_reasons_for_a_kernel_of_its_own() -> None:
    backend = _Proved()
    reasons = {}
    for name, shapes, kind in (
        ("served", SHORT, "dense"), ("chain", DECODES, "dense"), ("other", SHORT, "wide"),
    ):  # fmt: skip
        batch, q, kv = placed(cases_of(shapes), kind)
        reasons[name] = backend.declines_new(q, kv, None, SPEC, batch)
    assert reasons["served"] is None
    assert "more than one new row" in str(reasons["chain"])
    assert "does not write the KV kind wide" in str(reasons["other"])
