"""The native 4-bit product against the definition, its choice, and what is said when it is not there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.layers.linear import affine, choose
from engine.layers.linear.base import Linear, LinearShape, Target
from engine.layers.linear.native.int4 import NativeInt4Linear, native_declines
from engine.layers.numerics import Numerics
from engine.native import build, library
from engine.native.instructions import PORTABLE, SETS
from tests.engine.instruction_sets import each_kernel
from tests.engine.layers.affine_support import Affine

CPU = torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

found = library.find()
runs = pytest.mark.skipif(found.library is None, reason=found.reason)


def made(parts: list[Affine], dtype: torch.dtype, bias: torch.Tensor | None = None, native: bool = True) -> Linear:
    return choose.built(affine.surveyed(parts), parts, bias, Target(dtype, CPU, Numerics(), native))


def why_not(group: int, scales: torch.dtype, dtype: torch.dtype, device: torch.device = CPU) -> str | None:
    return native_declines(LinearShape("int4", 64, 64, group=group, scales=scales), Target(dtype, device, Numerics()))


def needs(dtype: torch.dtype) -> None:
    """Skip where this processor cannot run the product for ``dtype``."""
    reason = why_not(32, FP16, dtype)
    if reason:
        pytest.skip(reason)


def native(parts: list[Affine], dtype: torch.dtype, bias: torch.Tensor | None = None) -> NativeInt4Linear:
    needs(dtype)
    layer = made(parts, dtype, bias)
    assert isinstance(layer, NativeInt4Linear)
    assert layer.declined == []
    return layer


def test_it_is_built_wherever_there_is_a_compiler() -> None:
    for each in SETS.values():
        if not (shutil.which("cc") or shutil.which("gcc")):
            assert "not built" in library.load(each).reason
        elif build.runs_here(each):
            built = library.load(each)
            assert built.library is not None, built.reason


@each_kernel
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("outputs", "inputs", "group"),
    [(96, 64, 32), (64, 256, 128), (200, 48, 16), (7, 40, 8), (1, 8, 8), (1100, 512, 512)],
)
def test_products_follow_the_definition(
    outputs: int, inputs: int, group: int, kernel: torch.dtype, symmetric: bool, order: bool
) -> None:
    """Only the sum's own rounding is allowed: weights are never rounded."""
    part = Affine(outputs, inputs, group, 4, symmetric, order)
    layer = native([part], kernel)
    assert torch.equal(layer.dequantised(FP32), part.weight())
    assert (layer.zeros is None) == symmetric
    for rows in range(1, 20):
        x = torch.randn(rows, inputs).to(kernel)
        exact = x.double() @ part.weight().double().t()
        # Sums of K products of float32 each; a zero-point of up to 15 steps (of 0.025) is added and taken away again.
        steps = x.double().abs() @ (part.weight().double().abs() + 15 * 0.025).t() * 2**-22
        rounding = exact.abs() * 2**-8 if kernel == BF16 else 0.0
        assert bool(((layer(x).double() - exact).abs() <= steps + rounding).all())
        in_float = layer.forward_float32(x)
        assert in_float.dtype == FP32
        assert bool(((in_float.double() - exact).abs() <= steps).all())


@each_kernel
@pytest.mark.parametrize("scales", [FP16, BF16])
def test_parts_bias_and_both_kinds_of_scales(scales: torch.dtype, kernel: torch.dtype) -> None:
    parts = [Affine(96, 256, 64, 6), Affine(40, 256, 64, 7)]
    for part in parts:
        part.scales = part.scales.to(scales)
    bias = torch.randn(136).to(kernel)
    layer = native(parts, kernel, bias)
    assert layer.scales.dtype == scales
    weight = torch.cat([part.weight() for part in parts])
    assert torch.equal(layer.dequantised(FP32), weight)
    x = torch.randn(5, 256).to(kernel)
    product = (x.float() @ weight.t()).to(kernel)
    torch.testing.assert_close(layer(x), product + bias, rtol=2**-7, atol=1e-2)
    torch.testing.assert_close(layer.forward_float32(x), x.float() @ weight.t() + bias.float(), rtol=1e-5, atol=1e-5)


@each_kernel
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_keep_their_bits(kernel: torch.dtype, threads: int) -> None:
    """A row alone and in batches of 2 to 33 at every position; the layer is large enough for both threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        layer = native([Affine(600, 512, 64, 11)], kernel, torch.randn(600).to(kernel))
        row = torch.randn(1, 512).to(kernel)
        others = (torch.randn(33, 512) * 10 ** torch.randn(33, 1)).to(kernel)
        for forward in (layer.forward, layer.forward_float32):
            alone = forward(row)[0]
            for count in range(2, 34):
                for place in range(count) if count in (9, 33) else (0, count // 2, count - 1):
                    batch = others[:count].clone()
                    batch[place] = row[0]
                    assert torch.equal(forward(batch)[place], alone), (count, place)
    finally:
        torch.set_num_threads(before)


@each_kernel
def test_every_code_and_zero_point_and_not_a_number(kernel: torch.dtype) -> None:
    part = Affine(16, 16, 8, 3)
    part.codes = torch.arange(16, dtype=torch.uint8)[:, None].expand(16, 16).contiguous()
    part.zeros = torch.arange(16, dtype=torch.uint8)[None].expand(2, 16).contiguous()
    layer = native([part], kernel)
    assert torch.equal(layer.dequantised(FP32), part.weight())
    x = torch.randn(2, 16).to(kernel)
    x[0, 3] = torch.nan
    result = layer(x)
    assert bool(result[0].isnan().all())
    assert bool(result[1].isfinite().all())


@runs
@pytest.mark.parametrize("symmetric", [False, True])
def test_meta_layers_plan_the_size_of_real_ones(symmetric: bool) -> None:
    real = native([Affine(200, 128, 64, 9, symmetric)], FP32)
    shape = LinearShape("int4", 128, 200, group=64, scales=FP16, symmetric=symmetric)
    planned = choose.planned(shape, None, Target(FP32, CPU, Numerics()))
    assert isinstance(planned, NativeInt4Linear)
    assert planned.storage_size() == real.storage_size() == 256 * (128 // 2 + 2 * 2 + (0 if symmetric else 2))


def test_it_declines_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not on a CPU" in str(why_not(32, FP16, BF16, torch.device("cuda")))
    assert "float16" in str(why_not(32, FP16, FP16))
    monkeypatch.setattr(library, "find", lambda: library.LibraryLookup(None, "it is gone"))
    layer = made([Affine(64, 64, 32)], BF16)
    assert tuple(layer.declined[0]) == (NativeInt4Linear.path, "it is gone")
    switched_off = made([Affine(64, 64, 32)], BF16, native=False)
    assert NativeInt4Linear.path not in [declined.path for declined in switched_off.declined]


@each_kernel
def test_layers_that_it_cannot_read_are_declined(kernel: torch.dtype) -> None:
    assert "scales are float32" in str(why_not(32, FP32, kernel))
    assert "groups of 4" in str(why_not(4, FP16, kernel))


@runs
def test_a_processor_without_the_instructions_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found.library is not None
    monkeypatch.setattr(found.library, "set", SETS[PORTABLE])
    assert "AVX512-BF16" in str(why_not(32, FP16, BF16))
    assert why_not(32, FP16, FP32) is None


def test_building_says_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    assert "could not run" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'int4.c:1: error: no such thing' >&2\nexit 1\n", "utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert "no such thing" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "install the package gcc" in str(build.compile_library(SETS[PORTABLE], tmp_path / "a.so"))
    assert not list(tmp_path.glob("*.so")) + list(tmp_path.glob("*.part"))


def test_a_stale_or_damaged_library_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SETS[PORTABLE]
    if build.library_file(plain).is_file():
        monkeypatch.setattr(library, "source_hash", lambda _: "another")
        assert "another version" in library.load(plain).reason
        monkeypatch.setattr(build, "source_hash", lambda _: "another")
        assert not build.is_current(plain)
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr(library, "library_file", lambda _: damaged)
    assert "does not load" in library.load(plain).reason
    monkeypatch.setattr(library, "library_file", lambda _: tmp_path / "absent.so")
    assert "not built" in library.load(plain).reason


@runs
@pytest.mark.skipif(sys.platform != "linux", reason="reads the loader's map")
def test_it_shares_torchs_openmp() -> None:
    """Two OpenMP runtimes in one process would fight for the cores."""
    code = (
        "import torch; from engine.native.library import find; find(); "
        "print(len({line.split()[-1] for line in open('/proc/self/maps') if 'gomp' in line}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
