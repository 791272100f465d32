"""Every Triton kernel in the interpreter, on a CPU in float32, against the definition. Run by test_interpreted.py.

(In bfloat16 the interpreter of Triton 3.6 silently computes something else.)
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.layers.linear import affine, choose
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.base import LinearShape, Nested, Target
from engine.compute.layers.linear.ggml_blocks import BLOCKS, IQ4_NL, MXFP4, Q4_1, Q4_K, Q8_0, dequantise
from engine.compute.layers.linear.triton import ggml, ggml_planes, int8, plane_layer, runtime, table
from engine.compute.layers.linear.triton import int4 as triton_int4
from engine.compute.layers.linear.triton.kernels import bytes8, fma, gemm, planes
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.linear.triton.runtime import FMA, SPLITS, aligned, split, wide_tile, wide_tiles
from engine.compute.layers.numerics import Numerics
from engine.compute.native.gpu import HOPPER
from engine.compute.native.proof import machine_declines
from engine.formats.quantised.layouts import AffineLayout, CodedLayout, RowsLayout, TableLayout
from tests.gpu import bench_kernels
from tests.gpu.kernel_kinds import KINDS
from tests.gpu.machine_code import in_planes

CPU, CUDA, FLOAT = torch.device("cpu"), torch.device("cuda"), torch.float32
TARGET = Target(FLOAT, CPU, Numerics())
ROWS = (1, 2, 5, 16, 20, 40, 70)
IN_PLANES = [name for name in KINDS if in_planes(name)]
ALWAYS = ("int4 g128 zeros", "NF4 nested", "int8 g32", "Q4_K", "Q6_K")
"""Kinds that stand for the others: of each way in which codes and scales lie."""
pytestmark = pytest.mark.content("engine/compute/layers/linear/triton")


def check(layer: TritonLinear, weight: Tensor, bias: Tensor | None = None, rows: tuple[int, ...] = ROWS) -> None:
    assert torch.equal(layer.dequantised(FLOAT), weight)
    for place, count in enumerate(rows):
        x = torch.randn(count, weight.shape[1], generator=torch.Generator().manual_seed(count))
        # Both ways run the same kernel, which is slow here.
        found = [layer.forward(x), *([layer.forward_float32(x)] if place == 1 else [])]
        if count == max(rows):
            found.append(layer.by_blocks(x))
        for each in found:
            close(each, x, weight, bias)


def close(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    expected = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    assert found.dtype == FLOAT
    assert (found.double() - expected).abs().max() < 3e-6 * expected.abs().max()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.always if name in ALWAYS else ()) for name in KINDS]
)
def test_a_kind(name: str) -> None:
    layer, weight = KINDS[name](24, 512, FLOAT, CPU, Numerics())
    bias = layer.bias = torch.linspace(-1, 1, 24)
    check(layer, weight, bias, (1, 5, 70))


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(40, 512), (33, 1280)])
@pytest.mark.parametrize("name", list(KINDS))
def test_a_kind_at_all_rows(name: str, sizes: tuple[int, int]) -> None:
    layer, weight = KINDS[name](*sizes, FLOAT, CPU, Numerics())
    bias = layer.bias = torch.linspace(-1, 1, sizes[0])
    check(layer, weight, bias)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.always if name == ALWAYS[0] else () if name in ALWAYS else pytest.mark.long
        )
        for name in IN_PLANES
    ],
)
def test_every_cut_of_a_kind_in_planes(name: str) -> None:
    """Those of all GPUs, whichever this machine's would be, with a few rows in a second tile."""
    layer, weight = KINDS[name](21, 768, FLOAT, CPU, Numerics())
    bias = layer.bias = torch.linspace(-1, 1, 21)
    wide = wide_tiles(HOPPER)
    for cut in (*wide, wide[-1]._replace(splits=SPLITS), *FMA):
        x = torch.randn(cut.rows + 2, 768, generator=torch.Generator().manual_seed(7))
        close(layer.product(x, FLOAT, cut), x, weight, bias)


@pytest.fixture
def _turing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runtime, plane_layer, ggml):
        monkeypatch.setattr(module, "tensor_cores", lambda device: False)


@pytest.mark.usefixtures("_turing")
def test_a_gpu_without_tensor_cores_that_triton_knows() -> None:
    numerics = Numerics()
    layer, weight = KINDS["int4 g64 zeros"](24, 512, FLOAT, CPU, numerics)
    assert [layer.cut(rows) for rows in (1, 2, 8, 9)] == [FMA[0], FMA[1], FMA[2], None]
    check(layer, weight, None, (1, 3, 8, 9))
    x = torch.randn(9, 512)
    numerics.batch_invariant = True
    whole = layer.forward(x)
    for start, stop in [(0, 1), (3, 8)]:
        assert torch.equal(layer.forward(x[start:stop]), whole[start:stop])
    old = ggml.triton_declines(LinearShape("ggml", 512, 24, block_type=Q8_0), TARGET)
    assert "older than compute capability 8.0" in str(old)


def test_the_tile_for_some_rows() -> None:
    """The largest that wastes few rows and leaves no multiprocessor idle."""
    found = {
        (rows, outputs): wide_tile(rows, outputs, wide_tiles(HOPPER), 132)[:2]
        for rows in (17, 32, 33, 64, 65, 130, 512)
        for outputs in (4096, 28672)
    }
    assert found == {
        (17, 4096): (32, 64), (17, 28672): (32, 64), (32, 4096): (32, 64), (32, 28672): (32, 64),
        (33, 4096): (64, 64), (33, 28672): (64, 128), (64, 4096): (64, 64), (64, 28672): (64, 128),
        (65, 4096): (64, 64), (65, 28672): (128, 128), (130, 4096): (64, 64), (130, 28672): (64, 128),
        (512, 4096): (64, 128), (512, 28672): (128, 128),
    }  # fmt: skip


def test_few_programs_split_their_input_features() -> None:
    found = {
        (rows, outputs): split(wide_tile(rows, outputs, wide_tiles(HOPPER), 132), rows, outputs, 132).splits
        for rows in (32, 64, 130)
        for outputs in (4096, 6144, 28672)
    }
    few = {(rows, outputs) for rows in (32, 64) for outputs in (4096, 6144)}
    assert {at for at, splits in found.items() if splits == SPLITS} == few
    assert {found[at] for at in found.keys() - few} == {1}


@pytest.mark.parametrize(
    ("outputs", "inputs", "group"),
    [(24, 48, 16), (33, 96, 32), (8, 640, 128), (20, 384, 384)],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_int4_of_odd_sizes(outputs: int, inputs: int, group: int, symmetric: bool) -> None:
    part = triton_int4.Int4Sample(outputs, inputs, group, torch.float16, symmetric)
    check(part.layer(TARGET), part.weight(), None, (1, 5, 17))


def test_fused_parts_in_an_order_of_their_own() -> None:
    parts = [triton_int4.Int4Sample(size, 256, 64, torch.float16, False) for size in (24, 16)]
    order = torch.randperm(256, generator=torch.Generator().manual_seed(3))
    for part in parts:
        part.order = order
    layer = triton_int4.TritonInt4Linear(affine.surveyed(parts), TARGET, CPU)
    layer.fill(parts)
    weight = torch.cat([int4_by_definition(part) for part in parts])
    check(layer, weight, None, (1, 5, 70))


def int4_by_definition(part: triton_int4.Int4Sample) -> Tensor:
    out = torch.empty(part.out_features, part.in_features)
    AffineLayout(part.in_features, part.group, torch.float16, False).write(part, out)
    return out


@pytest.mark.parametrize("type", [MXFP4, Q8_0])
def test_rows_that_are_no_whole_turns(type: int) -> None:
    data = ggml.sample(type, 24, 96)
    for raw in (False, True):
        check(ggml.of_data(type, data, TARGET, raw), dequantise(type, data), None, (1, 5))


def test_blocks_of_4_bits_are_held_in_planes_in_as_many_bytes() -> None:
    for type in (Q4_1, Q4_K, IQ4_NL, MXFP4):
        data = ggml.sample(type, 24, 512)
        layer = ggml.of_data(type, data, TARGET)
        assert isinstance(layer, ggml_planes.TritonGgmlPlanes)
        table = 0 if layer.table is None else layer.table.nbytes
        assert layer.storage_size() - table == data.numel()


def test_every_bit_of_two_level_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """All numbers of 6 bits at every place, under units of either sign, packed in several goes."""
    monkeypatch.setattr(ggml_planes, "CHUNK_WEIGHTS", 5 * 512)
    data = torch.randint(0, 256, (24, 288), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    units = torch.tensor([-65504.0, 6e-8, -0.0, 0.5, -1e-5, 3.0]).half().view(torch.uint8).view(-1, 4)
    data.view(-1, 144)[:, :4] = units.repeat(16, 1)
    layer = ggml.of_data(Q4_K, data, TARGET)
    assert torch.equal(layer.dequantised(FLOAT), dequantise(Q4_K, data))


@pytest.mark.parametrize("name", ["int4 g64 zeros", "int8 g128 zeros", "Q4_K", "Q6_K"])
def test_a_row_has_the_same_bits_whatever_its_neighbours(name: str) -> None:
    numerics = Numerics()
    layer, _ = KINDS[name](40, 512, FLOAT, CPU, numerics)
    x = torch.randn(70, 512)
    numerics.batch_invariant = True
    whole, floats = layer.forward(x), layer.forward_float32(x)
    for start, stop in [(0, 1), (5, 21)]:
        assert torch.equal(layer.forward(x[start:stop]), whole[start:stop])
        assert torch.equal(layer.forward_float32(x[start:stop]), floats[start:stop])


@pytest.mark.parametrize("name", ["int4 g64 zeros", "int8 g128 zeros", "Q4_K", "Q6_K"])
def test_a_matrix_is_dequantised_in_several_goes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(TritonLinear, "block_weights", 1)
    monkeypatch.setattr(TritonLinear, "granule", 16)
    check(*KINDS[name](40, 512, FLOAT, CPU, Numerics()), None, (70,))


def test_no_rows() -> None:
    layer, _ = KINDS["int8 rows"](8, 64, FLOAT, CPU, Numerics())
    assert layer.forward(torch.empty(0, 64)).shape == (0, 8)


def test_an_address_that_16_does_not_divide() -> None:
    x = torch.randn(129)[1:].view(1, 128)
    assert aligned(x).data_ptr() % 16 == 0
    assert torch.equal(aligned(x), x)


# --- the choice --------------------------------------------------------------------------------------------------


@pytest.fixture
def _anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are taken on a CPU too, where the interpreter runs them, and before those that are for one."""
    monkeypatch.setattr(choose, "machine_declines", lambda *_: None)
    for module in (triton_int4, int8, table, ggml):
        module._disagrees.cache_clear()  # type: ignore[attr-defined]
    for kind, paths in choose._PATHS.items():
        monkeypatch.setitem(choose._PATHS, kind, tuple(replace(p, device="") for p in paths if p.device != "cpu"))


class Coded:
    """An 8-bit part as a GPTQ file has it."""

    def __init__(self, outputs: int, inputs: int, group: int) -> None:
        generator = torch.Generator().manual_seed(4)
        self.in_features, self.out_features, self.bits, self.group_size = inputs, outputs, 8, group
        self.group_of: Tensor | None = None
        whole = torch.randint(-(2**31), 2**31, (inputs // 4, outputs), generator=generator)
        shape = (inputs // group, outputs)
        zeros = torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
        self.all = (whole.to(torch.int32), torch.rand(shape, generator=generator).half(), zeros)

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in self.all))


class Rows:
    """An LLM.int8 part."""

    def __init__(self, outputs: int, inputs: int) -> None:
        self.out_features = outputs
        self.codes = torch.randint(-128, 128, (outputs, inputs)).to(torch.int8)
        self.largest = torch.rand(outputs)


TABLE, NESTED = table.TableSample(64, 128, 64, None), table.TableSample(64, 128, 64, Nested(16, 0.03))
LAYOUTS: dict[str, tuple[Any, Any]] = {
    "coded": (CodedLayout(128, 8, 32, torch.float16, False), Coded(64, 128, 32)),
    "rows": (RowsLayout(128), Rows(64, 128)),
    "table": (TableLayout(128, 64, TABLE.shape.table, None, ""), TABLE),
    "nested table": (TableLayout(128, 64, NESTED.shape.table, NESTED.shape.nested, ""), NESTED),
}


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "table" else ()) for name in LAYOUTS]
)
def test_a_layout_gives_its_kernel_the_weights_of_the_file(name: str) -> None:
    layout, part = LAYOUTS[name]
    bias = torch.linspace(-1, 1, 64)
    fast = layout.built([part], bias, TARGET)
    assert isinstance(fast, TritonLinear), fast
    check(fast, layout.built([part], None, TARGET._replace(native=False)).dequantised(FLOAT), bias, (1, 5))
    planned = layout.planned(64, bias, TARGET)
    assert (type(planned), planned.storage_size()) == (type(fast), fast.storage_size())


@pytest.mark.usefixtures("_anywhere")
def test_what_is_not_served_is_declined_with_a_reason() -> None:
    coded = LAYOUTS["coded"][0]
    assert "bits" in declined(replace(coded, bits=3).shape(40))
    assert "runs" in declined(replace(coded, ordered=True).shape(40))
    assert "cross" in declined(TableLayout(96, 64, (), None, "").shape(40))
    assert "groups of 24" in declined(triton_int4.Int4Sample(8, 72, 24, torch.float16, True).shape)
    assert machine_declines(torch.bfloat16, CPU) == "the model is not on a GPU"
    assert "float32" in str(machine_declines(FLOAT, CUDA))


def declined(shape: LinearShape) -> str:
    first = choose.choose(shape, TARGET).declined[0]
    assert first.path == "Triton kernel"
    return first.reason


class _Broken:
    """A kernel whose results are a little off, or that the compiler refuses."""

    def __init__(self, kernel: Any, error: bool = False) -> None:
        self.kernel, self.error = kernel, error

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **keywords: Any) -> None:
            if self.error:
                raise RuntimeError("ptxas fatal: no such instruction\nmore")
            self.kernel[grid](*args, **keywords)
            tensors = [arg for arg in args if isinstance(arg, Tensor) and arg.dtype == FLOAT and arg.ndim == 2]
            out = tensors[-1] if len(tensors[-1]) else tensors[0]
            out[-1, -1] += out.abs().max()

        return launch


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize(("module", "name"), [(gemm, "gemm"), (fma, "fma")])
def test_a_kernel_for_some_rows_only_is_tried_too(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, module: Any, name: str
) -> None:
    if module is fma:
        request.getfixturevalue("_turing")
    part = triton_int4.Int4Sample(40, 256, 64, torch.float16, True)
    assert triton_int4.triton_declines(part.shape, TARGET) is None
    triton_int4._disagrees.cache_clear()
    monkeypatch.setattr(module, name, _Broken(getattr(module, name)))
    assert "not agree" in str(triton_int4.triton_declines(part.shape, TARGET))
    triton_int4._disagrees.cache_clear()


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize("name", ["multiply", "dequantise"])
def test_a_wrong_kernel_is_found_out_before_it_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    part = triton_int4.Int4Sample(40, 256, 64, torch.float16, True)
    bytes_shape = LinearShape("int8", 256, 40, 8, 128, torch.float16, symmetric=True)
    assert triton_int4.triton_declines(part.shape, TARGET) is None
    for module, trial in ((planes, triton_int4._disagrees), (bytes8, int8._disagrees)):
        trial.cache_clear()
        monkeypatch.setattr(module, name, _Broken(getattr(module, name)))
    assert "not agree" in str(triton_int4.triton_declines(part.shape, TARGET))
    assert "not agree" in str(int8.triton_declines(bytes_shape, TARGET))
    triton_int4._disagrees.cache_clear()
    monkeypatch.setattr(planes, name, _Broken(None, error=True))
    assert triton_int4.triton_declines(part.shape, TARGET) == "it fails here (ptxas fatal: no such instruction)"
    triton_int4._disagrees.cache_clear()
    int8._disagrees.cache_clear()


@pytest.mark.long
@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize("type", [kind for kind in BLOCKS if kind != 2])
def test_every_block_type_proves_itself(type: int) -> None:
    for in_features in (1280,) if BLOCKS[type].weights == 256 else (1280, 96):
        shape = LinearShape("ggml", in_features, 64, block_type=type)
        assert ggml.triton_declines(shape, TARGET) is None
        assert ggml.triton_declines(shape, TARGET, raw=True) is None


def test_planes_waste_little() -> None:
    for inputs, group, expected in [
        (4096, 128, 128),
        (11008, 128, 128),
        (576, 64, 32),
        (4096, 4096, 128),
        (4544, 64, 64),
    ]:
        assert plane_layer.plane_of(inputs, group) == expected
    assert plane_layer.plane_of(100, 20) is None


def test_the_benchmark_runs(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    found = bench_kernels.main(["--dry-run", "--kinds", "int4 g128", "Q6_K", "--rows", "1", "5", "--json", str(file)])
    assert [(figure.what, figure.rows) for figure in found[:4]] == [
        ("int4 g128", 1), ("int4 g128", 5), ("Q6_K", 1), ("Q6_K", 5)
    ]  # fmt: skip
    assert all(figure.error < 1e-5 and figure.microseconds > 0 for figure in found)
    assert len(json.loads(file.read_text())["figures"]) == 6
