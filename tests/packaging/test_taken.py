"""What PyInstaller's description of the program makes of what was collected on a machine with a desktop."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from kit import taken

SPEC = Path(taken.__file__).parents[1] / "kvasir.spec"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's packages share libraries")
Entry = tuple[str, str, str]


@pytest.fixture
def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the description on made-up binaries; those that go into the package."""
    hooks = types.ModuleType("PyInstaller.utils.hooks")
    hooks.collect_submodules = lambda name: []
    hooks.copy_metadata = lambda name: []
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    monkeypatch.setenv("KVASIR_STAGE", str(tmp_path / "stage"))
    monkeypatch.setenv("KVASIR_PACKAGING", str(SPEC.parent))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")

    def run(binaries: list[Entry]) -> list[str]:
        packed: list[Entry] = []
        names = {
            "Analysis": lambda *_, **__: types.SimpleNamespace(binaries=binaries, datas=[], scripts=[], pure=[]),
            "PYZ": lambda *_: None,
            "EXE": lambda *_, **__: None,
            "COLLECT": lambda *parts, **_: packed.extend(parts[-2]),
        }
        exec(compile(SPEC.read_text("utf-8"), str(SPEC), "exec"), names)
        return [target for target, _, _ in packed]

    return run


def test_libraries_that_a_machine_happens_to_have_stay_there(collected, tmp_path: Path) -> None:
    modules = f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "venv" / "lib" / "site-packages"
    ours = [
        ("torch/lib/libtorch_cpu.so", str(site / "torch/lib/libtorch_cpu.so"), "BINARY"),
        ("libtorch_cpu.so", "torch/lib/libtorch_cpu.so", "SYMLINK"),
        (
            "engine/compute/native/kvasir_native_avx2.so",
            str(tmp_path / "stage/engine/compute/native/kvasir_native_avx2.so"),
            "BINARY",
        ),
        ("lib-dynload/_ssl.so", f"{modules}/lib-dynload/_ssl.so", "EXTENSION"),
        ("libssl.so.3", "/usr/lib/x86_64-linux-gnu/libssl.so.3", "BINARY"),
        ("libxcb-cursor.so.0", "/lib/x86_64-linux-gnu/libxcb-cursor.so.0", "BINARY"),
    ]
    foreign = [
        (name, f"{folder}/{name}", "BINARY")
        for folder, name in (
            ("/usr/lib/x86_64-linux-gnu", "libatspi.so.0"),
            ("/lib/x86_64-linux-gnu", "libXi.so.6"),
            ("/usr/lib64", "libgtk-3.so.0"),
            ("/usr/local/lib", "libstdc++.so.6"),
            ("/opt/vendor/lib", "libxkb-of-a-vendor.so.1"),
            ("/usr/lib/x86_64-linux-gnu", "libxcb.so.1"),
        )
    ]
    plugin = ("PySide6/Qt/plugins/platformthemes/libqgtk3.so", str(site / "PySide6/libqgtk3.so"), "BINARY")
    assert collected([*ours, *foreign, plugin]) == [target for target, _, _ in ours]
