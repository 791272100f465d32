"""Launches: through Triton once for each variant, then directly; taken down instead of made; compiled ahead."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.compute.native import triton_launch
from engine.compute.native.triton_launch import (
    Different,
    Launch,
    Variants,
    compile_all,
    early,
    gathering,
    launching,
    noting,
)

GRID = (2, 3, 1)


@dataclass
class Code:
    """Compiled code, as Triton gives it."""

    log: list[tuple[Any, ...]]
    function: int = 1

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args: self.log.append(("direct", grid, *args))


@dataclass(eq=False)
class Kernel:
    """A kernel as Triton's decorator makes it: x is specialised, n is not, where p begins in memory does not matter."""

    arg_names: tuple[str, ...] = ("x", "p", "n", "WIDTH")
    log: list[tuple[Any, ...]] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    fails: bool = False

    @property
    def params(self) -> list[SimpleNamespace]:
        plain, anywhere = {"n"}, {"p"}
        return [
            SimpleNamespace(name=name, do_not_specialize=name in plain, do_not_specialize_on_alignment=name in anywhere)
            for name in self.arg_names
        ]

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **keywords: Any) -> Code:
            self.log.append(("jit", grid, *args, keywords))
            return Code(self.log)

        return launch

    def warmup(self, *args: Any, grid: Any, **keywords: Any) -> Code:
        if self.fails:
            raise RuntimeError("ptxas fatal")
        self.compiled.append((args, keywords, threading.get_ident()))
        return Code(self.log)


def keywords() -> dict[str, Any]:
    return {"WIDTH": 8, "num_warps": 4}


def test_the_first_launch_of_a_key_goes_through_triton_and_the_others_directly() -> None:
    kernel, variants = Kernel(), Variants()
    x, p = torch.zeros(4), torch.zeros(4)
    for key, n in (("a", 1), ("a", 2), ("b", 3), ("a", 4)):
        variants.launch(kernel, key, GRID, (x, p, n), keywords)
    how = [(entry[0], entry[4]) for entry in kernel.log]
    assert how == [("jit", 1), ("direct", 2), ("jit", 3), ("direct", 4)]
    assert kernel.log[1][5:] == (8,), "constants follow the arguments"


def test_another_kernel_under_the_same_key_is_another_variant() -> None:
    one, other, variants = Kernel(), Kernel(), Variants()
    args = torch.zeros(4), torch.zeros(4), 1
    variants.launch(one, "a", GRID, args, keywords)
    variants.launch(other, "a", GRID, args, keywords)
    assert [entry[0] for entry in other.log] == ["jit"]


def test_another_gpu_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, variants = Kernel(), Variants()
    args = torch.zeros(4), torch.zeros(4), 1
    for device in (0, 1, 0):
        monkeypatch.setattr(torch.Tensor, "get_device", lambda self, device=device: device)
        variants.launch(kernel, "a", GRID, args, keywords)
    assert [entry[0] for entry in kernel.log] == ["jit", "jit", "direct"]


def test_gathered_launches_are_taken_down_and_not_made_but_for_trials() -> None:
    kernel, variants = Kernel(), Variants()
    args = torch.zeros(4), torch.zeros(4), 1
    with gathering() as found:
        variants.launch(kernel, "a", GRID, args, keywords)
        with launching():
            variants.launch(kernel, "a", GRID, args, keywords)
        variants.launch(kernel, "a", GRID, args, keywords)
    assert len(found) == 2
    assert [entry[0] for entry in kernel.log] == ["jit"]
    variants.launch(kernel, "a", GRID, args, keywords)
    assert [entry[0] for entry in kernel.log] == ["jit", "direct"]


def test_of_launches_to_compile_only_the_first_of_a_variant_holds_its_tensors() -> None:
    kernel, variants = Kernel(), Variants()
    p, of_layers = torch.zeros(4), [torch.zeros(16) for _ in range(5)]
    kept = [weakref.ref(x) for x in of_layers]
    with gathering(Different()) as found:
        for x in of_layers:
            variants.launch(kernel, "a", GRID, (x, p, 7), keywords)
        variants.launch(kernel, "b", GRID, (p.half(), p, 7), keywords)
    assert len(found) == 2
    of_layers.clear()
    del x
    assert [ref() is not None for ref in kept] == [True, False, False, False, False]


def test_variants_differ_by_what_triton_specialises() -> None:
    kernel = Kernel()
    base = torch.zeros(16)
    assert base.data_ptr() % 16 == 0

    def variant(x: torch.Tensor, p: torch.Tensor, n: int, width: int = 8) -> object:
        return Launch(kernel, GRID, (x, p, n), {"WIDTH": width}).variant()

    same = variant(base, base, 1)
    assert variant(base[4:], base[1:], 77) == same, "n and the place of p do not count"
    assert variant(base[1:], base, 1) != same
    assert variant(base.half(), base, 1) != same
    assert variant(base, base, 1, width=16) != same
    assert variant(base, None, 1) != same  # type: ignore[arg-type]


def test_every_variant_is_compiled_once_and_progress_is_told() -> None:
    kernel = Kernel()
    x = torch.zeros(16)
    launches = [Launch(kernel, GRID, (x, x, n), {"WIDTH": width}) for width in (8, 16, 32) for n in range(5)]
    told: list[tuple[int, int]] = []
    assert compile_all(launches, lambda done, of: told.append((done, of)), workers=2) == 3
    assert sorted(keywords["WIDTH"] for _, keywords, _ in kernel.compiled) == [8, 16, 32]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert compile_all([], lambda *_: told.append((9, 9))) == 0
    assert (9, 9) not in told


def test_what_the_compiler_says_is_raised() -> None:
    kernel = Kernel(fails=True)
    with pytest.raises(RuntimeError, match="ptxas"):
        compile_all([Launch(kernel, GRID, (torch.zeros(4), None, 1), {"WIDTH": 8})], lambda *_: None)


def test_checked_launches_notice_a_key_that_says_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "CHECKED", True)
    kernel, variants = Kernel(), Variants()
    args = torch.zeros(4), torch.zeros(4), 1
    variants.launch(kernel, "a", GRID, args, keywords)
    with pytest.raises(AssertionError, match="another variant"):
        variants.launch(kernel, "a", GRID, args, keywords)  # this kernel's warm-up always gives new code


EARLY = ("x", "p", "n", "ahead", "ahead_bytes", "WIDTH", "EARLY")


def step(kernel: Kernel, variants: Variants, plain: Kernel | None = None) -> None:
    """Launches of which the second and the fourth multiply, and one that may not be early."""
    x, p = torch.zeros(4), torch.zeros(4)
    for number, weights in enumerate((None, WEIGHTS[0], None, WEIGHTS[1])):
        variants.launch(kernel, "a", GRID, (x, p, number), keywords, early=True, weights=weights)
        if plain is not None:
            variants.launch(plain, "a", GRID, (x, p, number), keywords)


WEIGHTS = torch.zeros(3000, dtype=torch.int16), torch.zeros(100, dtype=torch.int16)
PDL = {"EARLY": True, "launch_pdl": True}


def test_all_launches_of_a_step_but_the_first_are_early() -> None:
    kernel, plain, variants = Kernel(EARLY), Kernel(), Variants()
    for _ in range(2):
        with early():
            step(kernel, variants, plain)
    how = [(entry[0], entry[-1] if entry[0] == "jit" else entry[-2:]) for entry in kernel.log]
    first = keywords() | PDL | {"launch_pdl": False}
    assert how[:2] == [("jit", first), ("jit", keywords() | PDL)]
    assert how[2:] == [("direct", (8, True))] * 6, "constants follow the arguments, in their order"
    assert all(entry[5:7] == (None, None) for entry in kernel.log), "nothing is fetched ahead"
    assert {name for entry in plain.log for name in (entry[-1] if entry[0] == "jit" else ())} == {"WIDTH", "num_warps"}
    kernel.log.clear()
    step(kernel, variants)
    assert kernel.log[0][-1] == keywords() | {"EARLY": False}, "and none outside"
    with early(), gathering() as found, launching():
        variants.launch(kernel, "b", GRID, (torch.zeros(4), torch.zeros(4), 1), keywords, early=True)
    assert found == []
    assert kernel.log[-1][-1] == keywords() | {"EARLY": False}, "a trial is no part of a step"


def test_a_launch_before_a_product_fetches_what_that_one_reads() -> None:
    kernel, variants = Kernel(EARLY), Variants()
    with noting() as order:
        step(kernel, variants)
    assert order == [None, WEIGHTS[0], None, WEIGHTS[1]]
    kernel.log.clear()
    with early(order, 1 << 12):
        step(kernel, variants)
    ahead = [(entry[5], entry[6]) for entry in kernel.log]
    assert [place is None for place, _ in ahead] == [False, True, False, True]
    assert (ahead[0][0] is WEIGHTS[0], ahead[2][0] is WEIGHTS[1]) == (True, True)
    assert [size for _, size in ahead] == [4096, None, 200, None], "no more than there is room for, or bytes are"
    kernel.log.clear()
    with early([None, WEIGHTS[0][1:], None, None], 1 << 12):
        step(kernel, variants)
    assert all(entry[5] is None for entry in kernel.log), "what is fetched begins at a multiple of 16"
