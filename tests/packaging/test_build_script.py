"""The script that builds packages finds all that it imports where nothing of Kvasir is installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "packaging" / "build.py"


def test_each_part_of_the_build_can_be_imported(tmp_path: Path) -> None:
    """As the build's own environment does it: from another folder, where the checkout is no installed package."""
    imports = [node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.ImportFrom)]
    parts = sorted(
        {f"from {node.module} import {each.name}" for node in imports for each in node.names if node.level == 0}
    )
    assert "from kit import gpu_kernels" in parts
    code = "\n".join(
        [
            "import sys, runpy",
            f"checkout = {str(ROOT)!r}",
            "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each).lower()]",
            "sys.path[:] = [each for each in sys.path if each not in ('', checkout)]",
            f"sys.path.insert(0, {str(SCRIPT.parent)!r})",
            f"runpy.run_path({str(SCRIPT)!r}, run_name='build')",
            *(part for part in parts if "__future__" not in part),
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
