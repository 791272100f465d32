"""Triton's helpers, prebuilt: they fit, they load, and a kernel is launched with the very bytes that it should get.

There is no GPU here: a driver made on the spot takes down what it is asked to launch. The launcher that Triton itself
would compile for the same arguments is the measure.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
if shutil.which("gcc") is None or sys.platform != "linux":
    pytest.skip("there is no gcc", allow_module_level=True)
if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
    pytest.skip("Python's headers are missing", allow_module_level=True)

from triton.backends.nvidia import driver as nvidia

from engine.packs import helper

ROOT = Path(helper.__file__).parents[2]
PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
"""Of the processes that are started: another Triton that these tests are run with is theirs too."""
WRITES_LAUNCHERS = hasattr(nvidia, "make_launcher")
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As packaging does it; a second time, to see that the bytes are the same."""
    places = [tmp_path_factory.mktemp("prebuilt") for _ in range(2)]
    environment = {**os.environ, "PYTHONPATH": PATH}
    for place in places:
        command = [sys.executable, "-m", "kit.triton_helper", str(place)]
        subprocess.run(command, cwd=ROOT / "packaging", env=environment, check=True, capture_output=True)
    files = [{file.name: file.read_bytes() for file in place.glob("*/*")} for place in places]
    assert files[0] == files[1]
    launcher = {"launcher.so.gz"} if WRITES_LAUNCHERS else set()
    assert set(files[0]) == {"cuda_utils.so.gz", "manifest.json", "LICENSE"} | launcher
    for name, content in files[0].items():
        if name.endswith(".gz"):
            content = gzip.decompress(content)
        assert str(places[0]).encode() not in content
        assert str(ROOT).encode() not in content
    return places[0]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import triton

    place = tmp_path_factory.mktemp("driver")
    backend = Path(triton.__file__).parent / "backends" / "nvidia"
    (place / "cuda.c").write_text(DRIVER)
    names = set(re.findall(r"\bcu[A-Z]\w+(?=\()", (backend / "driver.c").read_text()))
    rest = [name for name in sorted(names) if f" {name}(" not in DRIVER]
    (place / "rest.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in rest))
    command = ["gcc", "cuda.c", "rest.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"]
    subprocess.run([*command, f"-I{backend / 'include'}"], cwd=place, check=True)
    return place


def probe(tmp_path: Path, driver: Path, prebuilt: Path, way: str, kinds: tuple[str, str]) -> dict[str, Any]:
    """What launching.py says. ``way``: prebuilt (no compiler is found), or compiled (Triton's own way)."""
    environment = {
        **os.environ, "PYTHONPATH": PATH, "LD_LIBRARY_PATH": str(driver), "TRITON_LIBCUDA_PATH": str(driver),
        "TRITON_CACHE_DIR": str(tmp_path / way), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    environment.pop("CC", None)
    if way == "prebuilt":
        environment["PATH"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(PROBE), str(prebuilt), *kinds], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(tmp_path: Path, driver: Path, built: Path, kinds: tuple[str, str]) -> dict[str, Any]:
    prebuilt = probe(tmp_path, driver, built, "prebuilt", ("", ""))
    compiled = probe(tmp_path, driver, built, "compiled", kinds)
    assert prebuilt.pop("compiler") is None
    assert compiled.pop("compiler") is not None
    ours, theirs = prebuilt.pop("launches"), compiled.pop("launches")
    assert prebuilt == compiled
    assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}
    for name, taken in ours.items():
        assert name.startswith("wrong ") or len(taken[0][3]) >= 2, (name, taken)
    return ours


def test_kernels_are_launched_by_the_prebuilt_helpers_as_by_tritons_own(tmp_path, driver, built):
    ours = compare(tmp_path, driver, built, ("int4 g128", "decode dense"))
    assert {"every type", "int4 g128 1", "NF4 dequantise", "decode int4"} <= set(ours)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_kernel_is_launched_as_by_tritons_own(tmp_path, driver, built):
    compare(tmp_path, driver, built, ("", ""))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def of_this_program(monkeypatch: pytest.MonkeyPatch, found: helper.Prebuilt | str) -> None:
    monkeypatch.setattr(helper, "prebuilt", lambda: found)


def test_the_prebuilt_files_stand_in_for_the_compiler(monkeypatch, no_compiler, built):
    fitting = helper.prebuilt(built)
    assert isinstance(fitting, helper.Prebuilt)
    of_this_program(monkeypatch, fitting)
    assert helper.unavailable() is None
    assert helper.state() == f"prebuilt for Triton {fitting.triton}"
    assert "NVIDIA" in str(helper.unavailable(amd=True))


def test_files_for_another_triton_are_not_taken(monkeypatch, no_compiler, tmp_path, built):
    (folder,) = built.iterdir()
    note = json.loads((folder / "manifest.json").read_text())
    for name, value in {"driver.py": "0" * 64, "driver.c": "0" * 64, "python": "3.9", "machine": "beos vax"}.items():
        other = tmp_path / name / "triton-other"
        other.mkdir(parents=True)
        (other / "manifest.json").write_text(json.dumps(note | {name: value, "triton": "3.0.0"}))
        refused = helper.prebuilt(tmp_path / name)
        assert isinstance(refused, str)
        assert "Triton 3.0.0" in refused
        of_this_program(monkeypatch, refused)
        assert "gcc" in str(helper.unavailable())
        assert refused in str(helper.unavailable())
        monkeypatch.undo()
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))


def test_without_compiler_and_prebuilt_files_nothing_is_made(monkeypatch, no_compiler, tmp_path):
    of_this_program(monkeypatch, helper.prebuilt(tmp_path))
    assert "no prebuilt helper" in str(helper.unavailable())
    with pytest.raises(RuntimeError, match="no C compiler"):
        helper.build("cuda_utils", "x.c", str(tmp_path), [], [], [])


def test_a_compiler_that_fails_is_replaced(monkeypatch, tmp_path, built):
    """gcc without the C library's headers is common: Triton would stop there."""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    fitting = helper.prebuilt(built)
    assert isinstance(fitting, helper.Prebuilt)
    of_this_program(monkeypatch, fitting)
    source = tmp_path / "cuda_utils.c"
    source.write_text("int x;")
    made = Path(helper.build("cuda_utils", str(source), str(tmp_path), [], [], []))
    assert made.read_bytes() == gzip.decompress(fitting.utils.read_bytes())


@pytest.mark.skipif(not WRITES_LAUNCHERS, reason="this Triton compiles no launchers")
def test_only_what_is_understood_is_launched():
    from triton.backends.nvidia.driver import make_launcher

    def letters(*types: str) -> str | None:
        return helper.signature_of(make_launcher({}, dict(enumerate(types)), None))

    assert letters("*bf16", "constexpr", "i32", "i64", "i1", "u8", "fp32", "bf16", "fp16") == "pcilbufge"
    assert letters() == ""
    assert letters("*fp16", "nvTmaDesc") is None
    assert letters(*["i32"] * 300) is None
    source = make_launcher({}, {0: "*bf16", 1: "i32"}, None)
    assert helper.signature_of(source.replace("gridX * num_ctas", "gridX")) is None
    with pytest.raises(RuntimeError):
        helper.signed(b"not a launcher", "p")


def test_kernels_decline_with_the_helpers_reason(monkeypatch, no_compiler, tmp_path):
    import torch

    from engine.layers.linear.triton.runtime import machine_declines

    of_this_program(monkeypatch, helper.prebuilt(tmp_path))
    reason = machine_declines(torch.bfloat16, torch.device("cuda"))
    assert reason is not None
    assert reason == helper.unavailable()
    assert "install the package gcc" in reason
