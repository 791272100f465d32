"""`kvasir desktop` with the files that the package brings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit import share

from engine.cli import desktop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="freedesktop.org")


def test_what_is_packaged_goes_into_the_menu_and_out_again(qapp, tmp_path: Path) -> None:
    program, home = tmp_path / "Programme æ" / "kvasir-1", tmp_path / "share"
    share.write(program)
    written = desktop.install(program, home)
    text = written.read_text("utf-8")
    assert f'Exec="{program}/kvasir" %f' in text.splitlines()
    assert "application/x-gguf" in text
    brought = {path.relative_to(program / "share") for path in (program / "share/icons").rglob("*") if path.is_file()}
    assert brought
    assert brought <= {path.relative_to(home) for path in home.rglob("*") if path.is_file()}
    if shutil.which("desktop-file-validate"):
        checked = subprocess.run(["desktop-file-validate", written], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout) == (0, "")
    desktop.remove(home)
    assert not home.exists() or not list(home.rglob("*"))
