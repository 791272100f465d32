"""The Tritons and the C compiler that GPU packs bring: which those are, and how they are fetched."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import zipfile
from pathlib import Path

import pytest
from kit import triton_wheels

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "engine" / "services" / "packs" / "lists"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HERE = f"{sys.platform} {platform.machine().lower()}"


def make_wheel(folder: Path, name: str, version: str, text: str = "") -> Path:
    """A small one with a program."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": text,
        f"{name}/bin/program": "#!/bin/sh\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if path.endswith("program") else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


def write_list(folder: Path, kind: str, *wheels: Path, platform: str = HERE, python: str = PYTHON) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"# kind: {kind}", f"# python: {python}", f"# platform: {platform}", "# installed: 1 bytes"]
    for wheel in wheels:
        content = wheel.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(
            f"{wheel.name.split('-')[0]} @ http://127.0.0.1/{wheel.name} --hash=sha256:{digest}  # {len(content)} bytes"
        )
    (folder / f"{kind}.txt").write_text("\n".join(lines) + "\n")
    return folder


def names(lists: Path) -> list[str]:
    return [f"{wheel.name} {wheel.version}" for wheel in triton_wheels.listed(lists)]


def test_every_list_has_a_triton_and_its_compiler() -> None:
    lists = [text for text in (file.read_text() for file in LISTS.glob("*.txt")) if "# kind: rocm" not in text]
    if f"# platform: {HERE}" not in lists[0] or f"# python: {PYTHON}" not in lists[0]:
        pytest.skip(f"GPU packs are made for another platform or Python than {HERE}, {PYTHON}")
    found = triton_wheels.listed(LISTS)
    for text in lists:
        assert {wheel.name for wheel in found if wheel.sha256 in text} == {"triton", "ziglang"}


def test_lists_are_read_for_this_platform_this_python_and_nvidia(tmp_path: Path) -> None:
    old, new = (make_wheel(tmp_path / "made", "triton", version) for version in ("1.0", "2.0"))
    compiler = make_wheel(tmp_path / "made", "ziglang", "0.1")
    lists = write_list(tmp_path / "lists", "cuda13", new, compiler, make_wheel(tmp_path / "made", "numpy", "1.0"))
    write_list(lists, "cuda12", old, compiler)
    write_list(lists, "rocm", make_wheel(tmp_path / "made", "triton", "3.0"))
    assert names(lists) == ["triton 1.0", "triton 2.0", "ziglang 0.1"]
    write_list(lists, "cuda12", old, platform="beos vax")
    assert names(lists) == ["triton 2.0", "ziglang 0.1"]
    write_list(lists, "cuda12", old, python="2.7")
    assert names(lists) == ["triton 2.0", "ziglang 0.1"]
    write_list(lists, "cuda12", old)
    with pytest.raises(triton_wheels.PackFailed, match=r"cuda12\.txt does not name ziglang"):
        triton_wheels.listed(lists)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> triton_wheels.Wheel:
    """Where it lies a list cannot say; pip is not to ask anybody."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    file = make_wheel(tmp_path / "made", "triton", "1.0")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return triton_wheels.Wheel(file.name, file.as_uri(), digest, file.stat().st_size)


def test_a_wheel_is_unpacked_once_and_keeps_its_programs(wheel: triton_wheels.Wheel, tmp_path: Path) -> None:
    folder = triton_wheels.fetch(wheel, tmp_path / "place")
    assert folder == tmp_path / "place" / "triton-1.0"
    assert os.access(folder / "triton/bin/program", os.X_OK)
    assert not os.access(folder / "triton/__init__.py", os.X_OK)
    assert list((tmp_path / "place").iterdir()) == [folder]
    (tmp_path / "made" / wheel.filename).unlink()
    assert triton_wheels.fetch(wheel, tmp_path / "place") == folder


def test_a_wheel_with_another_hash_is_refused(wheel: triton_wheels.Wheel, tmp_path: Path) -> None:
    make_wheel(tmp_path / "made", "triton", "1.0", "something else")
    with pytest.raises(OSError, match=r"could not fetch triton-1\.0-.*hash"):
        triton_wheels.fetch(wheel, tmp_path / "place")
    assert list((tmp_path / "place").iterdir()) == []
