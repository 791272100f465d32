"""Kernels compiled for every number of rows do not pile up, and OpenMP's threads do not keep the cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from engine.loading.memory.environment import KERNELS, bound_kernels, bound_spinning, without_bounds

GROWTH = """
import psutil
import torch
from engine.loop.engine import Engine
from engine.loading.model import release_memory

Engine(lambda event: None)
torch.set_num_threads(1)
weight = torch.ones(4096, 256, dtype=torch.bfloat16)

def multiply(*rows):
    with torch.inference_mode():
        for count in range(*rows):
            torch.nn.functional.linear(torch.ones(count, 256, dtype=torch.bfloat16), weight)
    release_memory()
    return psutil.Process().memory_info().rss

held = multiply(1, 129)
print(multiply(129, 257) - held)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN multiplies no bfloat16 on this processor"
)
def test_numbers_of_rows_never_seen_before_take_no_more_memory() -> None:
    bare = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    command = [sys.executable, "-c", GROWTH]
    grown = int(subprocess.run(command, env=bare, capture_output=True, text=True, check=True).stdout)
    assert grown < 12e6, "either cache alone keeps over 25 MB of 128 kernels"


def test_a_bound_of_ones_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    bound_kernels()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == str(KERNELS)


def test_others_programs_get_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KMP_BLOCKTIME", "GOMP_SPINCOUNT", "LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    before = dict(os.environ)
    bound_kernels()
    bound_spinning()
    assert os.environ["GOMP_SPINCOUNT"] != ""
    assert os.environ["KMP_BLOCKTIME"] == "7"
    assert without_bounds(os.environ) == before
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    bound_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_a_command_bounds_spinning_before_torch_is_there() -> None:
    """libgomp reads it while torch is loaded."""
    code = """
import os, sys
from engine.doors.cli import main
main.bound_spinning = lambda: print("torch" in sys.modules)
main.app(["models", "--help"], standalone_mode=False)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False\n")
