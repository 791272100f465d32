"""Helpers for every Triton that a GPU pack brings: which those are, how they are fetched, and what a build says."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from kit import freeze, triton_helper, triton_wheels

from engine.packs import helper

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "engine" / "packs" / "lists"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HERE = f"{sys.platform} {platform.machine().lower()}"
DRIVER = '#include "cuda.h"\n#include <Python.h>\nPyMODINIT_FUNC PyInit_cuda_utils(void) { cuInit(0); return NULL; }\n'
OLD, NEW = "3.6.0", "3.7.1"
compiles = pytest.mark.skipif(
    shutil.which("gcc") is None or not (Path(sysconfig.get_path("include")) / "Python.h").is_file(),
    reason="there is no gcc, or Python's headers are missing",
)


def make_wheel(folder: Path, version: str, driver: str = "") -> Path:
    """A Triton as far as the helpers go. ``driver``: its driver.py, if not that of its version."""
    folder.mkdir(exist_ok=True)
    name = f"{version} launches through {'__triton_launcher' if version == OLD else 'driver.c'}\n"
    backend = "triton/backends/nvidia"
    info = f"triton-{version}.dist-info"
    files = {
        "triton/__init__.py": f"__version__ = '{version}'\n",
        f"{backend}/driver.py": driver or name,
        f"{backend}/driver.c": DRIVER,
        f"{backend}/include/cuda.h": "int cuInit(int);\n",
        f"{backend}/bin/ptxas": "#!/bin/sh\n",
        "triton/_C/libtriton.so": "x" * 1000,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        f"{info}/licenses/LICENSE": "MIT\n",
    }
    wheel = folder / f"triton-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if path.endswith("ptxas") else 0o644) << 16
            archive.writestr(entry, text)
    return wheel


def write_list(folder: Path, kind: str, *wheels: Path, platform: str = HERE) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"# kind: {kind}", f"# python: {PYTHON}", f"# platform: {platform}", "# installed: 1 bytes"]
    for wheel in wheels:
        content = wheel.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"x @ https://files.example/{wheel.name} --hash=sha256:{digest}  # {len(content)} bytes")
    (folder / f"{kind}.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip asks; both lists name a Triton that lies there."""
    folder = tmp_path / "index"
    wheels = {version: make_wheel(folder, version) for version in (OLD, NEW)}
    write_list(tmp_path / "lists", "cuda12", wheels[OLD])
    write_list(tmp_path / "lists", "cuda13", wheels[NEW])
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "CONFIG_FILE": os.devnull,
        "NO_INDEX": "1",
        "FIND_LINKS": str(folder),
        "NO_CACHE_DIR": "1",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def test_every_listed_triton_can_be_prebuilt() -> None:
    lists = [text for text in (file.read_text() for file in LISTS.glob("*.txt")) if "# kind: rocm" not in text]
    if "# platform: " + HERE not in lists[0]:
        pytest.skip("GPU packs are made for another platform")
    found = triton_wheels.listed(LISTS)
    assert len({wheel.sha256 for wheel in found}) == len(found) >= 1
    for text in lists:
        assert any(f"triton-{wheel.version}-" in text and wheel.sha256 in text for wheel in found)
    assert {wheel.version for wheel in found} <= set(triton_helper.KNOWN)


def test_lists_are_read_for_this_platform_and_nvidia(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", NEW)
    write_list(tmp_path, "cuda13", wheel)
    write_list(tmp_path, "cuda12", wheel)
    write_list(tmp_path, "rocm", make_wheel(tmp_path / "index", OLD))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert triton_wheels.listed(tmp_path) == [triton_wheels.Triton(NEW, PYTHON, digest)]
    other = tmp_path / "other"
    write_list(other, "cuda13", wheel, platform="beos vax")
    assert triton_wheels.listed(other) == []
    bare = wheel.with_name("numpy-1.0-py3-none-any.whl")
    write_list(other, "cuda13", wheel.rename(bare))
    with pytest.raises(triton_wheels.PackFailed, match=r"cuda13\.txt names no Triton"):
        triton_wheels.listed(other)


def test_what_is_wanted_of_a_wheel_is_fetched_once(index: Path, tmp_path: Path) -> None:
    _, new = triton_wheels.listed(tmp_path / "lists")
    folder = triton_wheels.fetch(new, tmp_path / "place", triton_helper.NEEDED)
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    backend = "triton/backends/nvidia"
    sources = {"triton/__init__.py", *(f"{backend}/{name}" for name in ("driver.py", "driver.c", "include/cuda.h"))}
    assert files == sources | {f"triton-{NEW}.dist-info/licenses/LICENSE"}
    assert list((tmp_path / "place").iterdir()) == [folder]  # the wheel is gone
    shutil.rmtree(index)
    assert triton_wheels.fetch(new, tmp_path / "place", triton_helper.NEEDED) == folder
    with pytest.raises(triton_wheels.FetchError, match=f"could not fetch Triton {NEW}"):
        triton_wheels.fetch(new, tmp_path / "another")
    assert list((tmp_path / "another").iterdir()) == []


def test_a_whole_wheel_keeps_its_programs(index: Path, tmp_path: Path) -> None:
    old, _ = triton_wheels.listed(tmp_path / "lists")
    folder = triton_wheels.fetch(old, tmp_path / "place")
    assert os.access(folder / "triton/backends/nvidia/bin/ptxas", os.X_OK)
    assert not os.access(folder / "triton/__init__.py", os.X_OK)
    assert (folder / "triton/_C/libtriton.so").is_file()


def test_a_wheel_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    old, _ = triton_wheels.listed(tmp_path / "lists")
    make_wheel(index, OLD, "something else")
    with pytest.raises(triton_wheels.FetchError, match="hash"):
        triton_wheels.fetch(old, tmp_path / "place")
    assert list((tmp_path / "place").iterdir()) == []


@pytest.fixture
def stage(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build's step works here, on small lists."""
    stage = tmp_path / "stage"
    shutil.copytree(ROOT / "engine" / "packs", stage / "engine" / "packs", ignore=shutil.ignore_patterns("lists"))
    shutil.copyfile(ROOT / "engine" / "__init__.py", stage / "engine" / "__init__.py")
    shutil.copytree(tmp_path / "lists", stage / "engine" / "packs" / "lists")
    monkeypatch.setattr(freeze, "STAGE", stage)
    monkeypatch.setattr(freeze, "BUILD", tmp_path / "build")
    monkeypatch.setattr(freeze, "venv_program", lambda name: Path(sys.executable))
    monkeypatch.delenv("KVASIR_NO_TRITON_HELPER", raising=False)
    return stage


@compiles
def test_the_build_makes_helpers_for_each_that_the_program_takes(
    stage: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze.stage_triton_helper()
    prebuilt = stage / "engine" / "packs" / "prebuilt"
    made = {json.loads((path / "manifest.json").read_text())["triton"]: path for path in prebuilt.iterdir()}
    assert set(made) == {OLD, NEW}
    for version, folder in made.items():
        assert folder.name == f"triton-{version}-cp{PYTHON.replace('.', '')}-{HERE.replace(' ', '-')}"
        files = {file.name for file in folder.iterdir()} - {"launcher.so.gz"}
        assert files == {"cuda_utils.so.gz", "manifest.json", "LICENSE"}
    assert (made[OLD] / "launcher.so.gz").is_file()
    assert not (made[NEW] / "launcher.so.gz").exists()
    before = {file: file.read_bytes() for file in prebuilt.glob("*/*")}
    shutil.rmtree(index)
    shutil.rmtree(prebuilt)
    freeze.stage_triton_helper()  # without the index: what was fetched lies in the build folder
    assert {file: file.read_bytes() for file in prebuilt.glob("*/*")} == before
    for wheel in triton_wheels.listed(tmp_path / "lists"):
        _taken(wheel, tmp_path, prebuilt, monkeypatch)


def _taken(wheel: triton_wheels.Triton, place: Path, prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper finds the files of a Triton and says so, without a compiler."""
    backend = triton_wheels.folder_of(wheel, place / "build" / "triton") / "triton" / "backends" / "nvidia"
    monkeypatch.setattr(helper, "_nvidia_backend", lambda: backend)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(place))
    found = helper.prebuilt.__wrapped__(prebuilt)
    assert isinstance(found, helper.Prebuilt)
    assert (found.triton, found.launcher is not None) == (wheel.version, wheel.version == OLD)
    with monkeypatch.context() as patch:
        patch.setattr(helper, "prebuilt", lambda: found)
        assert helper.state() == f"prebuilt for Triton {wheel.version}"
        assert helper.state(amd=True).startswith("none: Triton finds no C compiler (install the package gcc")
        assert helper.unavailable() is None
        module = Path(helper.build("cuda_utils", "x.c", str(place), [], [], []))
        assert module.read_bytes() == gzip.decompress(found.utils.read_bytes())
        if wheel.version == NEW:
            with pytest.raises(RuntimeError, match="serves __triton_launcher"):
                helper.build("__triton_launcher", "x.c", str(place), [], [], [])
        patch.setenv("CC", "/usr/bin/some-cc")
        assert helper.state() == f"compiled by /usr/bin/some-cc; Triton {wheel.version}'s are prebuilt where it fails"
        assert helper.state(amd=True) == "compiled by /usr/bin/some-cc"


def test_a_build_without_helpers_ends_unless_it_is_to_have_none(
    stage: Path, index: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(index)
    with pytest.raises(SystemExit, match="KVASIR_NO_TRITON_HELPER=1 builds without") as ended:
        freeze.stage_triton_helper()
    assert "reason above" in str(ended.value)
    assert f"pip could not fetch Triton {OLD}" in capfd.readouterr().err
    monkeypatch.setenv("KVASIR_NO_TRITON_HELPER", "1")
    freeze.stage_triton_helper()
    assert "left out: Triton's helpers" in capfd.readouterr().out
    assert not (stage / "engine" / "packs" / "prebuilt").exists()


def test_a_triton_that_nobody_looked_at_is_refused(index: Path, tmp_path: Path) -> None:
    write_list(tmp_path / "lists", "cuda13", make_wheel(index, "9.9.9"))
    with pytest.raises(triton_helper.UnknownTriton, match=r"Triton 9\.9\.9 is not among those .*3\.7\.1.*KNOWN"):
        triton_helper.build_listed(tmp_path / "out", tmp_path / "lists", tmp_path / "place")
    make_wheel(index, NEW, "launches through __triton_launcher after all")
    with zipfile.ZipFile(index / f"triton-{NEW}-py3-none-any.whl") as archive:
        archive.extractall(tmp_path / "changed")
    with pytest.raises(triton_helper.UnknownTriton, match="does not launch kernels as"):
        triton_helper.build(tmp_path / "out", tmp_path / "changed" / "triton")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'packaging'}"}
    command = [sys.executable, "-m", "kit.triton_helper", str(tmp_path / "out"), str(tmp_path / "changed" / "triton")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not launch kernels as" in done.stderr
    assert "Traceback" not in done.stderr
