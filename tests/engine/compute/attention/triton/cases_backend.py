"""The backend around the kernels, in the interpreter: its trial, its ranges, its reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.attention.interface import AttnProblem, AttnSpec, KeyRange
from engine.compute.attention.triton import kernels, trial
from engine.compute.attention.triton.backend import TritonAttention
from tests.engine.compute.attention.triton import reference
from tests.engine.compute.attention.triton.cases_interpreted import cases_of, placed
from tests.gpu import bench_attention

CPU = torch.device("cpu")
pytestmark = pytest.mark.content("engine/compute/attention/triton")
SMALL = ([(60, 1), (37, 1)], [(33, 9)])
WIDTHS = {"latent": (40, 32), "wide": (48, 32)}


@pytest.mark.parametrize("kind", ["dense", "latent", "wide", "int8", "fp8", "int4", "kivi"])
def test_the_kernels_prove_themselves(kind: str) -> None:
    widths = WIDTHS.get(kind, (32, 32))
    traits = trial.AttnTraits(kind, widths, torch.float32, kind == "int8", tree=kind == "dense")
    assert trial.compare(traits, CPU, SMALL, 1e-5) is None


class _Wrong:
    """A kernel whose last result is off, or that the compiler refuses."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **keywords: Any) -> None:
            if self.kernel is None:
                raise RuntimeError("ptxas fatal: no such instruction\nmore")
            self.kernel[grid](*args, **keywords)
            next(arg for arg in reversed(args) if isinstance(arg, torch.Tensor) and arg.ndim >= 3)[..., -1] += 1.0

        return launch


@pytest.mark.always
def test_a_wrong_kernel_is_found_out_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    traits = trial.AttnTraits("dense", (32, 32), torch.float32)
    monkeypatch.setattr(kernels, "attend", _Wrong(kernels.attend))
    assert "not agree" in str(trial.compare(traits, CPU, SMALL))
    monkeypatch.setattr(kernels, "attend", _Wrong(None))
    trial.disagrees.cache_clear()
    assert trial.disagrees(traits, CPU) == "it fails here (ptxas fatal: no such instruction)"
    trial.disagrees.cache_clear()


@pytest.mark.always
def test_ranges_from_the_host() -> None:
    cases = cases_of([(50, 2, False), (20, 1, False)])
    batch, q, kv = placed(cases, "dense")
    backend, spec = TritonAttention(), AttnSpec(0.125)
    stop = np.array([1 << 40, 30, 7])
    for first in (np.array([10, 51, 3]), None):
        for _ in range(2):  # the second layer of a step finds them on the device
            o, lse = backend.attend(q, kv, spec, batch, 0, True, KeyRange(first, stop))
        there = [None if x is None else torch.from_numpy(np.minimum(x, 1000)) for x in (first, stop)]
        want, want_lse = reference.attend(q, kv, spec, batch, 0, True, *there)
        assert lse is not None
        assert want_lse is not None
        assert (o - want)[:3].abs().max() < 5e-6
        assert torch.equal(lse[:3].isinf(), want_lse[:3].isinf())
    assert len(backend._ranges.of(batch)) == 2
    other, other_q, other_kv = placed(cases_of([(9, 1, False)]), "dense")
    backend.attend(other_q, other_kv, spec, other, keys=KeyRange(None, np.array([4])))
    assert len(backend._ranges.of(other)) == 1


def test_reasons() -> None:
    backend, problem = TritonAttention(), AttnProblem("cuda", torch.bfloat16, AttnSpec(0.125))
    for changed, reason in [
        (problem._replace(device="cpu"), "not on a GPU"),
        (problem._replace(batch_invariant=True), "last bits"),
        (problem._replace(kind="other"), "KV kind other"),
        (problem._replace(head_dims=(512, 512)), "heads of 512"),
        (problem._replace(head_dims=(20, 20)), "heads of 20"),
    ]:
        assert reason in str(backend.declines(changed))
    if not torch.cuda.is_available():
        assert backend.declines(problem) == "PyTorch finds no GPU"


def test_the_benchmark_runs(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    found = bench_attention.main(["--dry-run", "--kinds", "dense", "int4", "kivi 2", "--json", str(file)])
    assert {figure.what for figure in found} == {
        "dense", "int4", "kivi 2", "torch, paged", "torch, contiguous", "quest, 2 pages",
        "write dense", "torch write dense", "write int4", "torch write int4", "dense, one kernel",
        "dense, three kernels", "int4, one kernel", "int4, one kernel for all kinds", "int4, three kernels",
    }  # fmt: skip
    assert all(figure.error < 1e-5 and figure.microseconds > 0 for figure in found)
    assert len(json.loads(file.read_text())["figures"]) == len(found)
