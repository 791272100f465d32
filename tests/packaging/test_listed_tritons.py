"""Kvasir's kernels with every Triton that a GPU pack brings, where it was unpacked: ``make test-tritons`` does both.

The tests that compile each kernel for each GPU generation, compute with a sample of them in Triton's interpreter, and
launch them through helpers that the packs' C compiler makes, run once more in a process that finds the other Triton and
that compiler first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from kit import triton_wheels

from engine.services.packs.lists import Wheel

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
PLACE = Path(os.environ.get("KVASIR_TRITONS", ROOT / "build" / "tritons"))
LAYERS, ATTENTION = "tests/engine/compute/layers/triton/", "tests/engine/compute/attention/triton/"
PARTS = {
    "layers' machine code": ("", f"{LAYERS}test_machine_code.py", f"{LAYERS}test_inline.py"),
    "attention's machine code": ("", f"{ATTENTION}test_attention_machine_code.py"),
    "interpreted": ("not long", f"{LAYERS}test_interpreted.py", f"{ATTENTION}test_attention_interpreted.py"),
    "resident products": ("not long", f"{LAYERS}test_resident_code.py", f"{LAYERS}test_resident.py"),
    "shipped": ("not long", "tests/engine/compute/native/test_shipped.py"),
    "helpers": ("not long", "tests/engine/compute/native/test_triton_compiler.py"),
}
"""Which tests: their marks and files."""
LISTED = triton_wheels.listed(ROOT / "engine" / "services" / "packs" / "lists")
COMPILERS = [wheel for wheel in LISTED if wheel.name == "ziglang"]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", list(PARTS))
@pytest.mark.parametrize("wheel", [each for each in LISTED if each.name == "triton"], ids=lambda wheel: wheel.version)
def test_kernels_with_a_packs_triton(wheel: Wheel, part: str, tmp_path: Path) -> None:
    if part != "helpers" and wheel.version == metadata.version("triton"):
        pytest.skip("every other test runs with it")
    folders = [triton_wheels.folder_of(each, PLACE) for each in (wheel, *COMPILERS)]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"it is not at hand; `make test-tritons` gets Triton {wheel.version} and its C compiler")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*folders, ROOT])),
        "TRITON_CACHE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    there = subprocess.run(
        [sys.executable, "-c", "import triton; print(triton.__version__)"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert there.stdout.strip() == wheel.version, there.stderr
    marks, *files = PARTS[part]
    command = [sys.executable, "-m", "pytest", "-q", *(["-m", marks] if marks else []), *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
