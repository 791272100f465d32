"""Launch of Triton's kernels: compiled code directly, and all variants of a model compiled before they are met.

Triton looks at every argument of every launch to find the variant that was compiled for such. Here the caller says what
decides the variant, and the code found at its first launch is launched without another look. That asks of the caller:

* tensors start at addresses that 16 divides, always or never for one key;
* a number on which the kernel is specialised is the same for one key;
* constants follow the other parameters in the kernel's signature.

:func:`gathering` takes launches down instead of making them; what it gathered can be compiled by several threads.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

Grid = tuple[int, int, int]
CHECKED = os.environ.get("KVASIR_CHECK_LAUNCHES", "0") not in ("", "0")
"""True if every launch is compared with what Triton itself would have launched: for tests."""
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion", "maxnreg")
"""Keywords of a launch that are no parameters of its kernel."""


@functools.cache
def steady_keys() -> None:
    """Let Triton's key of a kernel depend on its sources alone, not on what was compiled before it.

    Triton adds the globals of a function that a kernel calls before it has looked for them, so that they are in the
    kernel's key only where that function happened to be looked at earlier.
    """
    from triton.runtime.jit import DependenciesFinder

    update = DependenciesFinder._update_hash

    def in_order(finder: Any, function: Any) -> None:
        _ = function.cache_key  # finds its globals
        update(finder, function)

    DependenciesFinder._update_hash = in_order


class _Variant(NamedTuple):
    """Compiled code, and the constants that it was compiled for, which a launch passes along."""

    code: Any
    constants: tuple[Any, ...]


class Variants:
    """The compiled variants of a few kernels that one caller launches, by the caller's own keys."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Hashable, _Variant] = {}

    def launch(
        self, kernel: Any, key: Hashable, grid: Grid, args: tuple[Any, ...], keywords: Callable[[], dict[str, Any]]
    ) -> None:
        """Launch ``kernel``, whose first argument is a tensor; ``keywords()`` are constants and options, asked for
        where the key is new on its device."""
        if _gathered is not None:
            steady_keys()
            _gathered.append(Launch(kernel, grid, args, keywords()))
            return
        place = kernel, args[0].get_device(), key  # code is loaded on one device
        found = self._found.get(place)
        if found is None:
            named = keywords()
            steady_keys()
            code = kernel[grid](*args, **named)
            if hasattr(code, "function"):  # nothing is compiled in the interpreter
                constants = tuple(named[name] for name in kernel.arg_names[len(args) :])
                self._found[place] = _Variant(code, constants)
            return
        if CHECKED:
            _check(kernel, found, grid, args, keywords())
        found.code[grid](*args, *found.constants)


class Launch(NamedTuple):
    """A launch that was taken down."""

    kernel: Any
    grid: Grid
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def variant(self) -> Hashable:
        """Equal for launches of the same compiled code (or finer)."""
        kernel = self.kernel
        traits = tuple(
            _trait(value, param.do_not_specialize, param.do_not_specialize_on_alignment)
            for param, value in zip(kernel.params, self.args, strict=False)
        )
        return kernel, traits, tuple(sorted((name, repr(value)) for name, value in self.keywords.items()))


def _trait(value: Any, plain: bool, anywhere: bool) -> Hashable:
    """Trait of an argument on which Triton specialises a kernel."""
    if isinstance(value, Tensor):
        return value.dtype, plain or anywhere or value.is_meta or value.data_ptr() % 16 == 0
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if plain else (value == 1, value % 16 == 0, value.bit_length() > 31)
    return None if value is None else type(value).__name__


class Different(list[Launch]):
    """The first launch of each variant: of all others the tensors would be held, those of every layer of every step."""

    def __init__(self) -> None:
        super().__init__()
        self._known = set[Hashable]()

    def append(self, one: Launch) -> None:
        """Keep it if its variant is new."""
        variant = one.variant()
        if variant not in self._known:
            self._known.add(variant)
            super().append(one)


_gathered: list[Launch] | None = None


@contextmanager
def gathering(found: list[Launch] | None = None) -> Iterator[list[Launch]]:
    """Launches are appended to ``found`` and not made; whatever the kernels would have written stays as it was."""
    global _gathered
    before, _gathered = _gathered, [] if found is None else found
    try:
        yield _gathered
    finally:
        _gathered = before


@contextmanager
def launching() -> Iterator[None]:
    """Launches are made again, within :func:`gathering` too: a trial has to compute."""
    global _gathered
    before, _gathered = _gathered, None
    try:
        yield
    finally:
        _gathered = before


def compile_all(launches: list[Launch], progress: Callable[[int, int], None], workers: int | None = None) -> int:
    """Compile every variant among the launches, several at a time; ``progress(done, of)`` follows. Returns how many.

    Raises what a compiler raises.
    """
    different = list({launch.variant(): launch for launch in launches}.values())
    if not different:
        return 0
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def compile_one(launch: Launch) -> None:
        if device is not None:
            torch.cuda.set_device(device)  # a thread begins with the first
        launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.keywords)

    progress(0, len(different))
    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        for done, ended in enumerate(as_completed([pool.submit(compile_one, each) for each in different]), start=1):
            ended.result()
            progress(done, len(different))
    return len(different)


def _check(kernel: Any, found: _Variant, grid: Grid, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    usual = kernel.warmup(*args, grid=grid, **keywords)
    assert usual is found.code, f"{kernel} has another variant for these arguments than the key says"
