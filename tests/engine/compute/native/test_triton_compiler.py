"""Triton's C compiler: which one is taken, and that a kernel is launched with the very bytes that it should get.

There is no GPU here: a driver made on the spot takes down what it is asked to launch. What gcc makes of Triton's
sources is the measure for what zig makes of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
if sys.platform != "linux":
    pytest.skip("Triton's own builds are for Linux", allow_module_level=True)

import torch
from triton import knobs
from triton.backends.nvidia import driver as nvidia

from engine.compute.native import triton_compiler as compiler
from engine.compute.native.proof import failure, machine_declines
from engine.doors.cli.doctor import compiler_facts

ROOT = Path(compiler.__file__).parents[3]
PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
"""Of the processes that are started: another Triton that these tests are run with is theirs too."""
DRIVER = r"""
#include <stdint.h>
#include "cuda.h"
typedef void (*Taken)(const unsigned *shape, void *stream, void *function, void **params);
static Taken taken;
void when_launched(Taken take) { taken = take; }
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **params, void **extra) {
    unsigned shape[] = {gx, gy, gz, bx, by, bz, shared};
    taken(shape, stream, f, params);
    return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
    if (c->numAttrs) return 801;
    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, params, extra);
}
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr p) {
    if (which != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) return 801;
    if (p == 0xbad0) return CUDA_ERROR_INVALID_VALUE;
    *(uint64_t *)out = p + 1;
    return 0;
}
CUresult cuGetErrorString(CUresult code, const char **words) { *words = "some error"; return 0; }
CUresult cuCtxGetCurrent(CUcontext *out) { *out = 0; return 0; }
CUresult cuDeviceGet(CUdevice *out, int n) { *out = n; return 0; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice n) { *out = (CUcontext)8; return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { return c != (CUcontext)8; }
"""
PROBE = Path(__file__).with_name("launching.py")


def needs_both() -> None:
    """Skip where the two compilers that are compared are not here."""
    if compiler.zig() is None:
        pytest.skip("the package ziglang is not installed; `make test-tritons` gets it")
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to compare zig with: install the package gcc")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        pytest.skip("Python's headers are missing: install the package python3-dev")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_both()
    place = tmp_path_factory.mktemp("driver")
    backend = Path(nvidia.__file__).parent
    (place / "cuda.c").write_text(DRIVER)
    names = set(re.findall(r"\bcu[A-Z]\w+(?=\()", (backend / "driver.c").read_text()))
    rest = [name for name in sorted(names) if f" {name}(" not in DRIVER]
    (place / "rest.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in rest))
    command = ["gcc", "cuda.c", "rest.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"]
    subprocess.run([*command, f"-I{backend / 'include'}"], cwd=place, check=True)
    return place


def probe(tmp_path: Path, driver: Path, way: str, kinds: tuple[str, str]) -> dict[str, Any]:
    """What launching.py says. ``way``: gcc (the variable CC names it), or zig (no other compiler is found)."""
    environment = {
        **os.environ, "PYTHONPATH": PATH, "LD_LIBRARY_PATH": str(driver), "TRITON_LIBCUDA_PATH": str(driver),
        "TRITON_CACHE_DIR": str(tmp_path / way), "OMP_NUM_THREADS": "1", "CC": "gcc",
    }  # fmt: skip
    if way == "zig":
        del environment["CC"]
        environment["PATH"] = environment["HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(PROBE), *kinds], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(tmp_path: Path, driver: Path, kinds: tuple[str, str]) -> dict[str, Any]:
    zig, gcc = probe(tmp_path, driver, "zig", kinds), probe(tmp_path, driver, "gcc", kinds)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gcc", "zig"]  # all that either writes is its cache
    assert (zig.pop("compiler"), gcc.pop("compiler")) == (str(compiler.zig()), "gcc")
    ours, theirs = zig.pop("launches"), gcc.pop("launches")
    assert zig == gcc
    assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}
    for name, taken in ours.items():
        assert name.startswith("wrong ") or len(taken[0][3]) >= 2, (name, taken)
    return ours


@pytest.mark.timeout(600)
def test_kernels_are_launched_by_what_zig_makes_as_by_what_gcc_makes(tmp_path, driver):
    ours = compare(tmp_path, driver, ("int4 g128", "decode dense"))
    assert {"every type", "int4 g128 1", "decode dense"} <= set(ours)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_kernel_is_launched_alike(tmp_path, driver):
    ours = compare(tmp_path, driver, ("", ""))
    assert {"NF4 dequantise", "decode int4"} <= set(ours)


# --- which compiler is taken -----------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No compiler is found; the folder of the PATH."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler, "zig", lambda: None)
    with knobs.build.scope():
        knobs.build.impl = None
        yield tmp_path


def program(path: Path, text: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_zig_comes_before_the_systems_compiler_and_after_the_users(monkeypatch, bare):
    assert compiler.c_compiler() is None
    gcc = program(bare / "gcc")
    assert compiler.c_compiler() == compiler.system_compiler() == str(gcc)
    compiler.install()
    assert knobs.build.impl is None  # Triton looks for it itself
    monkeypatch.setattr(compiler, "zig", lambda: bare / "zig")
    assert compiler.c_compiler() == str(bare / "zig")
    assert dict(compiler_facts(torch.device("cpu")))["Triton's C compiler"] == str(bare / "zig")
    assert dict(compiler_facts(torch.device("cpu")))["C compiler"] == str(gcc)
    monkeypatch.setenv("CC", "/usr/bin/some-cc")
    assert compiler.c_compiler() == "/usr/bin/some-cc"
    compiler.install()
    assert knobs.build.impl is None
    monkeypatch.delenv("CC")
    compiler.install()
    assert knobs.build.impl is compiler.build
    knobs.build.impl = other = print
    compiler.install()
    assert knobs.build.impl is other


def test_without_a_compiler_kernels_decline_and_say_what_is_missing(bare):
    reason = machine_declines(torch.bfloat16, torch.device("cuda"))
    assert reason == compiler.unavailable() == "Triton finds no C compiler (install the package gcc or build-essential)"
    facts = dict(compiler_facts(torch.device("cpu")))
    assert facts["Triton's C compiler"] == "not found"
    assert "Triton would need one (the package gcc)" in facts["C compiler"]
    program(bare / "cc")
    assert compiler.unavailable() is None


def test_zig_is_found_where_its_package_is(monkeypatch, tmp_path):
    find = compiler.zig.__wrapped__
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    assert find() is None
    program(tmp_path / "ziglang" / "zig")
    assert find() == tmp_path / "ziglang" / "zig"


def test_zig_is_asked_for_what_triton_asks_a_compiler_for(monkeypatch, bare):
    says = program(
        bare / "zig", 'printf "%s\\n" "$@" "$ZIG_GLOBAL_CACHE_DIR" "$ZIG_LOCAL_CACHE_DIR" > "$OUT"; exit $FAILS'
    )
    monkeypatch.setattr(compiler, "zig", lambda: says)
    monkeypatch.setenv("OUT", str(bare / "asked"))
    monkeypatch.setenv("FAILS", "0")
    monkeypatch.setattr(knobs.cache, "dir", "/cache")
    words = ("x", "/tmp/x.c", "/tmp", ["/lib64"], ["/include"], ["libcuda.so.1", "m", "libx.a"])
    module = f"/tmp/x{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert compiler.build(*words) == module
    machine = os.uname().machine
    assert (bare / "asked").read_text().split() == [
        "cc", "-target", f"{machine}-linux-gnu.2.28", "-w", "-O3", "-shared", "-fPIC", "/tmp/x.c", "-o", module,
        "-l:libcuda.so.1", "-lm", "-l:libx.a", "-L/lib64", "-I/include", "-I/tmp",
        f"-I{sysconfig.get_path('include')}", "/cache/zig", "/cache/zig",
    ]  # fmt: skip
    monkeypatch.setenv("FAILS", "1")
    reason = failure(lambda: compiler.build(*words))
    assert "C compiler fails on Triton's helpers" in str(reason)
