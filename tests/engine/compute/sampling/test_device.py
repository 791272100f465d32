"""Sampling by kernels: how much is launched and copied for a step, and their results, in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.compute.batch import power_of_two
from engine.compute.native.triton_launch import gathering
from engine.compute.sampling import device, noise
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from tests.kit.interpreter import run_cases

META = torch.device("meta")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_kernels_draw_what_torch_draws(request: pytest.FixtureRequest) -> None:
    run_cases([Path(__file__).with_name("cases_device.py")], "not long", request)


class Counted(TorchDispatchMode):
    """Operators, but for views and uninitialised memory, which launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not (func.is_view or name.startswith("empty")):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [
        ([{"temperature": 0.0}], ["scan", "pick"]),
        ([{"temperature": 0.6}], ["scan", "pick"]),
        ([{"temperature": 0.6, "top_p": 0.9}], ["scan", "truncate", "pick"]),
        ([{"temperature": 0.0}, {}, {"top_k": 20, "top_p": 0.8}, {"min_p": 0.1}] * 8, ["scan", "truncate", "pick"]),
    ],
)
def test_a_step_is_three_kernels_and_one_copy_each_way(settings: list[dict[str, Any]], kernels: list[str]) -> None:
    pytest.importorskip("triton")
    draws = [Draw(SamplingParams(seed=row, **each), 0, [1, 2]) for row, each in enumerate(settings)]
    logits = torch.empty(len(draws), 128256, dtype=torch.bfloat16, device=META)
    device.buffers(power_of_two(len(draws)), META)  # made once
    with gathering() as launches, Counted() as counted, pytest.raises(NotImplementedError, match="meta"):
        device.draw(logits, draws)  # on this device nothing can be read, which is the last thing done
    assert [getattr(launch.kernel, "__name__", None) or launch.kernel.fn.__name__ for launch in launches] == kernels
    assert counted.names == ["copy_", "_to_copy"]


@pytest.mark.parametrize("vocabulary", [500, 32003, 128256])
def test_a_rehearsal_launches_every_variant_of_a_step(vocabulary: int) -> None:
    pytest.importorskip("triton")
    with gathering() as rehearsed:
        device.rehearse(torch.bfloat16, vocabulary, META)
    with gathering() as launched:
        for settings in ({"temperature": 0.0}, {"top_p": 0.9}):
            for rows in (1, 3, 16):
                logits = torch.empty(rows, vocabulary, dtype=torch.bfloat16, device=META)
                with pytest.raises(NotImplementedError, match="meta"):
                    device.draw(logits, [Draw(SamplingParams(seed=1, **settings), 0, [1])] * rows)
    assert {each.variant() for each in launched} == {each.variant() for each in rehearsed}
    assert len({each.variant() for each in rehearsed}) == 5


def test_the_table_of_parameters() -> None:
    table = np.full((3, device.WORDS), 77, dtype=np.int64)
    draws = [
        Draw(SamplingParams(seed=-5, temperature=0.6, top_k=10**9, top_p=0.9, min_p=0.25), 2, [1] * 9, [4]),
        Draw(SamplingParams(seed=1, presence_penalty=1.0), 0, [1]),
    ]
    assert device.fill_rows(table, draws, 500) == (1, True)
    assert table[0, :1].view(np.int32).tolist() == list(noise.key(-5, 2, 10))
    assert table[0, 1:3].tolist() == [2, 500]
    assert np.allclose(table[0, 3:].view(np.float64), [0.6, 0.9, np.log(0.25)], rtol=0, atol=0)
    assert table[:, 1].tolist() == [2, device.OTHER, device.OTHER]
    assert device.fill_rows(table, draws[1:], 500) == (0, False)
    held = draws[0]._replace(constraint=cast(Any, object()))
    assert device.fill_rows(table, [held], 500) == (0, False), "a grammar's mask is not in the table"


def test_no_kernel_draws_on_a_cpu_or_from_more_than_it_lists() -> None:
    assert device.declines(torch.float32, 500, torch.device("cpu"), lambda logits, draws: []) is not None
