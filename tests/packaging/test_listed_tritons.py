"""Kvasir's kernels with every Triton that a GPU pack brings, where it was unpacked: ``make test-tritons`` does both.

The tests that compile each kernel for each GPU generation, compute with a sample of them in Triton's interpreter, and
launch them through the prebuilt helpers, run once more in a process that finds the other Triton first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from kit import triton_wheels

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
PLACE = Path(os.environ.get("KVASIR_TRITONS", ROOT / "build" / "tritons"))
LAYERS, ATTENTION = "tests/engine/layers/triton/", "tests/engine/attention/triton/"
PARTS = {
    "layers' machine code": ("", f"{LAYERS}test_machine_code.py", f"{LAYERS}test_inline.py"),
    "attention's machine code": ("", f"{ATTENTION}test_attention_machine_code.py"),
    "interpreted": ("not long", f"{LAYERS}test_interpreted.py", f"{ATTENTION}test_attention_interpreted.py"),
    "helpers": ("not long", "tests/engine/packs/test_triton_helper.py"),
}
"""Which tests: their marks and files."""


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", list(PARTS))
@pytest.mark.parametrize(
    "wheel", triton_wheels.listed(ROOT / "engine" / "packs" / "lists"), ids=lambda wheel: wheel.version
)
def test_kernels_with_a_packs_triton(wheel: triton_wheels.Triton, part: str, tmp_path: Path) -> None:
    if wheel.version == metadata.version("triton"):
        pytest.skip("every other test runs with it")
    folder = triton_wheels.folder_of(wheel, PLACE)
    if wheel.python != f"{sys.version_info.major}.{sys.version_info.minor}" or not folder.is_dir():
        pytest.skip(f"it is not at hand for this Python; `make test-tritons` gets Triton {wheel.version}")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
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
