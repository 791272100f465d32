"""The kernels that write: rotation, quantisation and KIVI's groups in the interpreter, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.codecs import pack_absmax, pack_along_channels
from engine.cache.stores.kinds import Arenas, KVKind
from engine.cache.stores.packed import BYTE_KINDS, Flush, PackedKV, Placement, value_group
from engine.cache.stores.store import DenseKVStore, LatentKVStore
from engine.compute.attention import writing
from engine.compute.attention.rotation import RotaryStep
from engine.compute.attention.triton import pack, pack_trial
from engine.compute.layers.rotary import RotaryEmbedding
from engine.config.positions import RopeConfig
from tests.engine.compute.attention.triton import reference
from tests.engine.compute.attention.triton.numpy_packers import absolute, by_channel, by_token
from tests.gpu.gpu_support import CONFIG as TINY

SLOTS = 64
CPU = torch.device("cpu")
pytestmark = pytest.mark.content("engine/compute/attention/triton")
CONFIG = TINY.changed(num_layers=3, windows=(None,) * 3, rotary=(True, True, False))


def arenas(kind: str, width: int, v_width: int, bits: tuple[int, int] = (4, 4), heads: int = 2) -> PackedKV:
    if kind == "dense":
        return PackedKV(torch.zeros(SLOTS, heads, width), torch.zeros(SLOTS, heads, v_width))
    if kind in BYTE_KINDS:
        codes = [torch.zeros(SLOTS, heads, dim, dtype=torch.int8) for dim in (width, v_width)]
        meta = [torch.zeros(SLOTS, heads, dtype=torch.float16) for _ in range(2)]
        return PackedKV(codes[0], codes[1], kind, meta[0], meta[1], 8, 8)
    pairs = zip((width, v_width), bits, strict=True)
    codes = [torch.zeros(SLOTS, heads, dim * bit // 8, dtype=torch.uint8) for dim, bit in pairs]
    meta = [torch.zeros(SLOTS, heads, d // value_group(d), 2, dtype=torch.float16) for d in (width, v_width)]
    if kind == "int4":
        return PackedKV(codes[0], codes[1], kind, meta[0], meta[1], 4, 4)
    recent = PackedKV(torch.randn(SLOTS, heads, width), torch.randn(SLOTS, heads, v_width))
    k_meta = torch.zeros(SLOTS // 16, heads, width, dtype=torch.float16)
    return PackedKV(codes[0], codes[1], kind, k_meta, meta[1], *bits, recent)


def tensors_of(kv: PackedKV) -> list[Tensor]:
    return [tensor for tensor in (kv.k, kv.v, kv.k_meta, kv.v_meta) if tensor is not None]


def equal(found: PackedKV, expected: PackedKV) -> bool:
    pairs = zip(tensors_of(found), tensors_of(expected), strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def projection(rows: int, heads: int, width: int, v_width: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as a fused projection leaves them; a head of zeros, one of equal numbers and large ones among them."""
    generator = torch.Generator().manual_seed(rows + width)
    fused = torch.randn(rows, heads + 2, width, generator=generator)
    v = torch.randn(rows, 3, v_width, generator=generator)[:, 1:]
    fused[0, heads], fused[1, heads + 1], v[0, 1], v[1, 0], v[2, 0, 0] = 0.0, 7.25, 0.0, -3.0, 1e6
    return fused[:, :heads], fused[:, heads:], v


def rotation(width: int, partial: float) -> RotaryStep:
    config = RopeConfig(10000.0, partial=partial)
    return RotaryEmbedding(config, width, 64, torch.float32, torch.device("cpu")).at(torch.tensor([0, 9, 33, 2, 8]), 64)


@pytest.mark.always("kind")
@pytest.mark.parametrize("width", [16, 80, *(pytest.param(wide, marks=pytest.mark.long) for wide in (96, 128, 256))])
@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
def test_rotated_and_stored(kind: str, width: int) -> None:
    slots = torch.tensor([3, 40, 16, 63, 17])
    for partial, v_width in ((1.0, width), (0.5, width // 2), (0.0, width)):
        q, k, v = projection(5, 3, width, v_width)
        rotary = rotation(width, partial) if partial else None
        found, expected = arenas(kind, width, v_width), arenas(kind, width, v_width)
        q_found, q_expected = (run(q, k, v, rotary, slots, to) for run, to in
                               ((pack.write, found), (reference.write, expected)))  # fmt: skip
        assert torch.equal(q_found, q_expected)
        assert equal(found, expected)
        assert found.k.any(2).sum() >= 8, "all but the heads of equal numbers"


@pytest.mark.parametrize(
    ("kind", "bits"), [("dense", (16, 16)), ("int8", (8, 8)), ("fp8", (8, 8)), ("int4", (4, 4)), ("kivi", (2, 4))]
)
def test_the_trial_of_writing(kind: str, bits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It agrees with the store's own writing, and notices what does not."""
    for turns in (0, 24, 48)[2 * (kind != "dense") :]:
        assert pack_trial.compare(kind, bits, 48, turns, torch.float32, CPU) is None
    right = pack.write
    monkeypatch.setattr(pack, "write", lambda q, k, v, *others: right(q, k, v + 0.1, *others))
    assert pack_trial.compare(kind, bits, 48, 48, torch.float32, CPU) is not None


@pytest.mark.parametrize(
    "kind",
    ["16bit", "int8", "fp8", "int4", *(pytest.param(kind, marks=pytest.mark.always) for kind in ("kivi", "bounds"))],
)
def test_every_store_is_written_as_by_itself(kind: str) -> None:
    """Also one that keeps bounds of its pages, and rows that do not rotate."""
    config = KVKind("16bit", bounds=True) if kind == "bounds" else KVKind(kind)
    made = Arenas(CONFIG, config, 5, 5, torch.float32, CPU, range(CONFIG.num_layers))
    by_itself, by_kernels = (config.technique.store(made) for _ in range(2))
    slots = 16 + torch.randperm(32, generator=torch.Generator().manual_seed(1))
    to = Placement(slots.expand(2, -1), [-1, -1], Flush(slots, torch.tensor([2, 1])) if kind == "kivi" else None)
    qk, v = torch.randn(32, 6, 32), torch.randn(32, 2, 32)
    table = torch.randn(32, 2, 32)
    for layer, rope in ((0, RotaryStep(table[:, :1], table[:, 1:])), (2, None)):
        found = writing._by_kernels(by_kernels, layer, qk, 4, v, rope, to)
        assert torch.equal(found, writing.write_rotated(by_itself, layer, qk, 4, v, rope, to))
        one, other = by_itself.view(layer), by_kernels.view(layer)
        assert equal(one, other)
        assert one.bounds is None or (layer == 2 and torch.equal(one.bounds, other.bounds))
        assert one.recent is None or equal(one.recent, other.recent)


def test_a_store_that_writes_otherwise_is_left_to_itself() -> None:
    x = torch.randn(1, 6, 32)
    assert "LatentKVStore" in str(writing.declines(LatentKVStore(1, 2, 24, 8, torch.float32), 0, x, None))
    assert writing.declines(DenseKVStore([(2, 32)], 2, torch.float32), 0, x, None) == "the model is not on a GPU"


@pytest.mark.parametrize("width", [80, *(pytest.param(wide, marks=pytest.mark.long) for wide in (16, 128))])
@pytest.mark.parametrize("bits", [(4, 2), *(pytest.param(bits, marks=pytest.mark.long) for bits in ((4, 4), (2, 2)))])
def test_groups_of_kivi(bits: tuple[int, int], width: int) -> None:
    found = arenas("kivi", width, 48, bits)
    expected = arenas("kivi", width, 48, bits)._replace(recent=found.recent)
    assert found.recent is not None
    found.recent.k[5, 0], found.recent.k[:, 1, 3] = 0.0, 1.5
    to = Flush(torch.randperm(SLOTS, generator=torch.Generator().manual_seed(1)), torch.tensor([3, 0, 1, 2]))
    pack.flush(found, to)
    reference.flush(expected, to)
    assert equal(found, expected)
    pack.flush(found, to)
    assert equal(found, expected), "packed again, the same bytes"
    pack.flush(found, Flush(to.recent_slots[:0], to.pages[:0]))
    assert equal(found, expected)


def test_the_definitions_are_those_of_the_layout() -> None:
    x = torch.randn(64, 2, 96, generator=torch.Generator().manual_seed(3))
    cases = [(pack_absmax(x, kind), absolute(x.numpy(), kind)) for kind in BYTE_KINDS]
    for found, expected in (*cases, (pack_along_channels(x, 4), by_token(x.numpy(), 4))):
        for a, b in zip(found, expected[:2], strict=True):
            assert torch.equal(a, torch.from_numpy(b))
    kv = arenas("kivi", 96, 96, (2, 4))
    reference.flush(kv._replace(recent=PackedKV(x, x)), Flush(torch.arange(64), torch.arange(4)))
    codes, meta, _ = by_channel(x.numpy(), 2)
    assert torch.equal(kv.k, torch.from_numpy(codes))
    assert kv.k_meta is not None
    assert torch.equal(kv.k_meta, torch.from_numpy(meta))
