"""`kvasir desktop` with the files that the package brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.doors.cli.installation import desktop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="freedesktop.org")


SCRIPTS = Path(__file__).resolve().parents[2] / "packaging"
WRITE = "import sys; from pathlib import Path; from kit import share; share.write(Path(sys.argv[1]))"


def test_what_is_packaged_goes_into_the_menu_and_out_again(tmp_path: Path) -> None:
    program, home = tmp_path / "Programme æ" / "kvasir-1", tmp_path / "share"
    # In a process of its own, as the build does it: icons are drawn without a display.
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(SCRIPTS)}
    subprocess.run([sys.executable, "-c", WRITE, program], env=environment, check=True, timeout=300)
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
