"""Kernels of the package: found before the user's cache, and told of where one had to be compiled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from triton import __version__ as triton_version
from triton import knobs
from triton.runtime.cache import FileCacheManager, _base32

from engine.compute.layers.triton import fused_kernels
from engine.compute.native import shipped
from engine.compute.native.shipped import Tally
from tests.gpu.pretended_driver import Driver, triton_driver

KERNEL = fused_kernels.gate


def compiled(lanes: int = 1024) -> Any:
    """A kernel, looked for as in a new process."""
    KERNEL.device_caches.clear()
    x = torch.zeros(64, dtype=torch.bfloat16)
    try:
        words = {"KIND": "silu", "LANES": lanes, "EARLY": False, "num_warps": 4}
        return KERNEL.warmup(x, x, 4096, 0.0, 0.0, None, None, grid=(1, 1, 1), **words)
    finally:
        KERNEL.device_caches.clear()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with one kernel for compute capability 9.0."""
    cache, folder = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("package")
    with triton_driver(90), knobs.cache.scope():
        knobs.cache.dir = str(cache)
        made = compiled()
    key, place = _base32(made.hash), folder / triton_version / "sm_90"
    (place / key).mkdir(parents=True)
    files = {}
    for name, path in made.metadata_group.items():
        if name.endswith((".cubin", ".json")):
            shutil.copy(path, place / key / name)
            files[name] = shipped.digest(Path(path).read_bytes())
    index = {"triton": shipped.triton_hash(), "kernels": {key: files}}
    (place / shipped.INDEX).write_text(json.dumps(index), "utf-8")
    return folder


@contextmanager
def with_package(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, sm: int = 90, refuses: str = ""
) -> Iterator[Driver]:
    monkeypatch.setattr(shipped, "FOLDER", folder)
    shipped._kernels.cache_clear()
    with triton_driver(sm, refuses) as driver, knobs.cache.scope():
        knobs.cache.dir, knobs.cache.manager_class = str(cache), None
        shipped.install()
        yield driver
    shipped._kernels.cache_clear()


def test_a_kernel_of_the_package_is_taken_and_nothing_is_written(package, tmp_path, monkeypatch):
    before = shipped.tally()
    with with_package(package, tmp_path / "own", monkeypatch) as driver:
        found = compiled()
        assert found.metadata_group["gate.cubin"].startswith(str(package))
        assert found.kernel == Path(found.metadata_group["gate.cubin"]).read_bytes()
        assert driver.loaded == ["gate"], "the driver has been asked once whether it takes them"
        assert shipped.tally().since(before) == Tally(package=1)
        assert shipped.sentence(before) == ""
        assert shipped.described(True) == "1 in the package for this GPU"
    assert not (tmp_path / "own").exists()


def test_what_the_package_lacks_is_compiled_once_and_told_of(package, tmp_path, monkeypatch):
    with with_package(package, tmp_path, monkeypatch):
        before = shipped.tally()
        compiled()
        compiled(lanes=512)
        assert shipped.tally().since(before) == Tally(package=1, compiled=1)
        assert shipped.sentence(before) == (
            "1 of 2 kernels were compiled on this machine (they are not among the package's), which takes longer the "
            "first time."
        )
        before = shipped.tally()
        compiled(lanes=512)
        assert shipped.tally().since(before) == Tally(cache=1)
        assert shipped.sentence(before) == "", "the second load does not wait for it"


def test_a_card_unknown_to_the_package_and_another_triton_have_their_reasons(package, tmp_path, monkeypatch):
    before = shipped.tally()
    with with_package(package, tmp_path, monkeypatch, sm=87):
        compiled()
        assert "(the package has none for GPUs of compute capability 8.7)" in shipped.sentence(before)
        assert shipped.described(True) == "not used: the package has none for GPUs of compute capability 8.7"
    assert shipped.Kernels(package, "9.9", 90).reason == "the package has none for Triton 9.9"
    assert shipped.Kernels(package, triton_version, "gfx942").reason == "the package has none for GPUs of gfx942"


def test_another_build_of_triton_and_a_broken_list_have_their_reasons(package, tmp_path):
    folder = shutil.copytree(package, tmp_path / "package")
    index = folder / triton_version / "sm_90" / shipped.INDEX
    said = json.loads(index.read_text("utf-8"))
    index.write_text(json.dumps(said | {"triton": "0"}), "utf-8")
    reason = shipped.Kernels(folder, triton_version, 90).reason
    assert reason == f"the package's were compiled by another build of Triton {triton_version}"
    for text in ("{", "[]", "{}", '{"triton": "x", "kernels": 3}'):
        index.write_text(text, "utf-8")
        assert shipped.Kernels(folder, triton_version, 90).reason.startswith("the list of the package's kernels cannot")


def test_where_the_driver_refuses_them_they_are_compiled_here(package, tmp_path, monkeypatch):
    before = shipped.tally()
    with with_package(package, tmp_path, monkeypatch, refuses="device kernel image is invalid"):
        compiled()
        sentence = shipped.sentence(before)
    assert "1 of 1 kernels were compiled" in sentence
    assert "(the driver refuses the package's (device kernel image is invalid))" in sentence


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_a_damaged_file_is_compiled_again(damage, package, tmp_path, monkeypatch):
    folder = shutil.copytree(package, tmp_path / "package")
    code = next(folder.rglob("gate.cubin"))
    data = code.read_bytes()
    code.unlink()
    if damage != "gone":
        code.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"x")
    before = shipped.tally()
    with with_package(folder, tmp_path / "own", monkeypatch):
        assert str(tmp_path / "own") in compiled().metadata_group["gate.cubin"]
        assert "(1 of the package's are damaged)" in shipped.sentence(before)


def test_triton_is_left_alone_without_a_package_and_with_a_cache_of_the_users(package, tmp_path, monkeypatch):
    before = shipped.tally()
    with with_package(tmp_path / "none", tmp_path / "own", monkeypatch):
        assert knobs.cache.manager_class is None
        assert shipped.described(True).startswith("none in this package")
    with with_package(package, tmp_path / "own", monkeypatch):
        knobs.cache.manager_class = FileCacheManager
        shipped.install()
        assert knobs.cache.manager_class is FileCacheManager
    assert shipped.tally() == before
    assert shipped.sentence(before) == ""
