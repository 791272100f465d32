"""Kernels that travel with the package: the load of a model finds every one of them, for each generation of GPUs.

packaging/kit/kernels.py compiles in a process of its own, as for a package; here the launches of a load, over a driver
that loads and launches nothing, look for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from kit import gpu_kernels
from triton import knobs

from engine.compute.native import shipped
from engine.compute.native.shipped import Tally
from engine.library import curated, paths
from tests.gpu import loads
from tests.gpu.pretended_driver import triton_driver

ROOT = Path(__file__).parents[2]
LEAST = "Qwen3-0.6B"


def made(folder: Path, sm: int, only: str = "") -> None:
    """Compile as the package is compiled."""
    command = [sys.executable, "-m", "kit.kernels", str(folder), "--sm", str(sm), "--only", only]
    path = os.pathsep.join([str(ROOT / "packaging"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def looked_for(launches: loads.Launches, folder: Path, sm: int, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Tally:
    """Where the kernels of these launches come from, with that folder in the package."""
    monkeypatch.setattr(shipped, "FOLDER", folder)
    shipped._kernels.cache_clear()
    before = shipped.tally()
    with triton_driver(sm), knobs.cache.scope():
        knobs.cache.dir, knobs.cache.manager_class = str(cache), None
        shipped.install()
        for one in launches.values():
            one.kernel.device_caches.clear()  # of this process
            one.kernel.warmup(*one.args, grid=one.grid, **one.keywords)
            one.kernel.device_caches.clear()
    return shipped.tally().since(before)


def chosen(only: str) -> list[loads.Entry]:
    return [entry for entry in (*loads.ENTRIES, *loads.BESIDES) if only in entry.repository]


@pytest.mark.content("packaging/kit/kernels.py")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("sm", "only"),
    [
        pytest.param(75, LEAST, marks=(pytest.mark.always, pytest.mark.slow)),
        pytest.param(90, LEAST, marks=pytest.mark.slow),
        *(pytest.param(sm, "", marks=pytest.mark.long) for sm in loads.CARDS),
    ],
)
def test_every_kernel_of_a_load_is_found_in_the_package(
    sm: int, only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "package", sm, only)
    for number, entry in enumerate(chosen(only)):
        for card in loads.CARDS[sm][-1:] if only else loads.CARDS[sm]:
            launches = loads.of_entry(entry, card)
            assert len(launches) >= 10
            cache = tmp_path / f"{number}"
            found = looked_for(launches, tmp_path / "package", sm, monkeypatch, cache)
            assert found == Tally(package=len(launches)), entry.repository
            assert not cache.exists(), "nothing is written for a kernel that the package has"


def test_files_of_the_catalogue_are_named_as_there() -> None:
    recommended = {(model.repository, model.variant) for model in curated.models(paths.models_file())}
    drafts = {("bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M")}
    assert {(entry.repository, entry.variant) for entry in loads.ENTRIES} <= recommended | drafts


def test_kernels_that_take_more_than_the_budget_end_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "3.6.0" / "sm_90").mkdir(parents=True)
    (tmp_path / "3.6.0" / "sm_90" / "x.cubin").write_bytes(b"x" * 3000)
    assert gpu_kernels.within_limit(tmp_path) == 3000
    assert "1 kernels take 0.0 MB (target 150)" in capsys.readouterr().out
    monkeypatch.setattr(gpu_kernels, "LIMIT", 2999)
    with pytest.raises(SystemExit, match="The compiled kernels take more than"):
        gpu_kernels.within_limit(tmp_path)
