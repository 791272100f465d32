"""The interpreter that is taken along: what of it, and what not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kit import python_tree


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "Python311"
    monkeypatch.setattr(sys, "base_prefix", str(base))
    monkeypatch.setattr(python_tree, "PROGRAM", tmp_path / "kvasir")
    (tmp_path / "kvasir").mkdir()
    return base


def test_of_pythons_folder_on_windows_tests_and_windows_of_its_own_stay(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_tree, "WINDOWS", True)
    taken = {"python.exe", "python311.dll", "DLLs/_ssl.pyd", "Lib/os.py", "Lib/json/tool.py", "include/Python.h"}
    left = {
        "DLLs/_tkinter.pyd",
        "DLLs/tcl86t.dll",
        "DLLs/_testcapi.pyd",
        "Doc/python.html",
        "Lib/site-packages/pip/__init__.py",
        "Lib/test/test_os.py",
        "Lib/os.pdb",
        "Lib/__pycache__/os.cpython-311.pyc",
        "Scripts/pip.exe",
        "Tools/demo/life.py",
        "tcl/tcl8.6/init.tcl",
    }
    for name in taken | left:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(b"x")
    python_tree.make_python()
    python = tmp_path / "kvasir" / "python"
    assert {path.relative_to(python).as_posix() for path in python.rglob("*") if path.is_file()} == taken


def test_the_systems_own_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(python_tree, "WINDOWS", False)
    with pytest.raises(SystemExit, match="This Python is the system's own"):
        python_tree.make_python()
