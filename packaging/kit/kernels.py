"""Kvasir's kernels compiled for GPUs that are not here: ``python -m kit.kernels FOLDER``, with one Triton.

What loads of the recommended models launch (tests/gpu/loads.py) is compiled by the very call that a load makes, over a
driver that only says which GPU it is, so that Triton finds it on a user's machine under the same key: see
engine/compute/native/shipped.py, which reads the folder. Code is left without the numbers of source lines and records
without the build machine's paths; neither is part of a key.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime.cache import _base32

from engine.compute.native import shipped
from tests.gpu import loads
from tests.gpu.pretended_driver import triton_driver

ROOT = Path(__file__).parents[2]
KEPT = (".cubin", ".json")
"""Of what Triton writes of a kernel, what a launch reads."""


def main() -> None:
    words = argparse.ArgumentParser(description="Compile the kernels that loads of recommended models launch.")
    words.add_argument("folder", type=Path)
    words.add_argument("--sm", type=int, nargs="+", default=list(loads.CARDS), choices=list(loads.CARDS))
    words.add_argument("--only", default="", help="only files of models whose name contains this")
    chosen = words.parse_args()
    for sm in chosen.sm:
        make(chosen.folder, sm, chosen.only)


def make(folder: Path, sm: int, only: str = "") -> Path:
    """Compile for one generation of GPUs into ``folder``; the place in it."""
    began, place = time.monotonic(), folder / triton.__version__ / f"sm_{sm}"
    made_of = _made_of(only)
    if _index(place).get("made of") == made_of:
        print(f"  Triton {triton.__version__}, sm_{sm}: as it was", flush=True)
        return place
    entries = [entry for entry in (*loads.ENTRIES, *loads.BESIDES) if only in entry.repository]
    launches = list(loads.all_of(entries, loads.CARDS[sm]).values())
    with tempfile.TemporaryDirectory() as work:
        draft = Path(work) / "kernels"
        kernels = dict(sorted(_compiled(launches, sm, Path(work), draft)))
        index = {"triton": shipped.triton_hash(), "made of": made_of, "kernels": kernels}
        (draft / shipped.INDEX).write_text(json.dumps(index, indent=0, sort_keys=True) + "\n", "utf-8")
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(draft, place)
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    print(f"  Triton {triton.__version__}, sm_{sm}: {len(kernels)} kernels for {len(entries)} models, "
          f"{size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    return place


def _made_of(only: str) -> str:
    """Hash of all sources that could make a difference, and of the choice."""
    made = hashlib.sha256(only.encode())
    for source in sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "tests" / "gpu").glob("*.py"), Path(__file__)]):
        made.update(source.read_bytes())
    return made.hexdigest()


def _index(place: Path) -> dict[str, Any]:
    """The list of what was made before; nothing where there is none."""
    try:
        return dict(json.loads((place / shipped.INDEX).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _compiled(
    launches: Sequence[loads.Launch], sm: int, cache: Path, draft: Path
) -> list[tuple[str, dict[str, tuple[int, str]]]]:
    """The entries of the index, of kernels compiled by as many processes as there are cores."""
    draft.mkdir()
    # Forked: kernels and launches are inherited, and there is one thread of torch.
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0)), _begin, (launches, sm, cache)) as pool:
        return pool.map(_one, [(place, draft) for place in range(len(launches))], chunksize=1)


_state: dict[str, Any] = {}


def _begin(launches: Sequence[loads.Launch], sm: int, cache: Path) -> None:
    """In each process: no setting is written to the environment, which would be part of the keys."""
    knobs.propagate_env = False
    knobs.cache.dir = str(cache / "cache")
    knobs.compilation.store_binary_only = knobs.compilation.disable_line_info = True
    _state.update(launches=launches, driver=triton_driver(sm))
    _state["driver"].__enter__()


def _one(what: tuple[int, Path]) -> tuple[str, dict[str, tuple[int, str]]]:
    place, draft = what
    launch = _state["launches"][place]
    made = launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.keywords)
    key, files = _base32(made.hash), {}
    (draft / key).mkdir(exist_ok=True)
    for name, path in made.metadata_group.items():
        if name.endswith(KEPT):
            data = Path(path).read_bytes()
            if name.endswith(".json"):
                about = json.loads(data)
                about["extern_libs"] = [[each, Path(file).name] for each, file in about["extern_libs"]]
                data = json.dumps(about, sort_keys=True).encode()
            (draft / key / name).write_bytes(data)
            files[name] = shipped.digest(data)
    return key, files


if __name__ == "__main__":
    sys.exit(main())
