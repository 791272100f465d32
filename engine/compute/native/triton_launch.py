"""Launch of Triton's kernels: compiled code directly, and all variants of a model compiled before they are met.

Triton looks at every argument of every launch to find the variant that was compiled for such. Here the caller says what
decides the variant, and the code found at its first launch is launched without another look. That asks of the caller:

* tensors start at addresses that 16 divides, always or never for one key;
* a number on which the kernel is specialised is the same for one key;
* constants follow the other parameters in the kernel's signature.

:func:`gathering` takes launches down instead of making them; what it gathered can be compiled by several threads.

Within :func:`early` the launches that may be early are: their programs start beside those of the kernel before, as soon
as all of that are there, and wait for its end by themselves (programmatic dependent launch). Such a kernel's parameters
end with ``ahead`` and ``ahead_bytes``, and its constants with EARLY: see early_kernels.py.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

Grid = tuple[int, int, int]
CHECKED = os.environ.get("KVASIR_CHECK_LAUNCHES", "0") not in ("", "0")
"""True if every launch is compared with what Triton itself would have launched: for tests."""
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion", "launch_pdl", "maxnreg")
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
        self,
        kernel: Any,
        key: Hashable,
        grid: Grid,
        args: tuple[Any, ...],
        keywords: Callable[[], dict[str, Any]],
        early: bool = False,
        weights: Tensor | None = None,
    ) -> None:
        """Launch ``kernel``, whose first argument is a tensor; ``keywords()`` are constants and options, asked for
        where the key is new on its device. ``early``: it may be launched early; ``weights`` are most of what it reads,
        where no kernel writes them."""
        more: Mapping[str, Any] = {}
        if early:
            key, ahead, more = _placed(key, weights)
            args = *args, *ahead
        if _gathered is not None:
            steady_keys()
            _gathered.append(Launch(kernel, grid, args, {**keywords(), **more}))
            return
        place = kernel, args[0].get_device(), key  # code is loaded on one device
        found = self._found.get(place)
        if found is None:
            named = {**keywords(), **more}
            steady_keys()
            code = kernel[grid](*args, **named)
            if hasattr(code, "function"):  # nothing is compiled in the interpreter
                constants = tuple(named[name] for name in kernel.arg_names[len(args) :])
                self._found[place] = _Variant(code, constants)
            return
        if CHECKED:
            _check(kernel, found, grid, args, {**keywords(), **more})
        found.code[grid](*args, *found.constants)


Weights = Sequence[Tensor | None]
"""What the launches of a step that may be early read, in their order."""


class _Chain:
    """Early launches of a step, one after the other."""

    def __init__(self, order: Weights, room: int) -> None:
        self.order, self.room, self.count = order, room, 0

    def following(self) -> tuple[bool, Tensor | None]:
        """Whether another launch was before this one, and the weights of the next."""
        self.count += 1
        ahead = self.order[self.count] if self.room and self.count < len(self.order) else None
        # What is fetched begins at an address that 16 divides.
        return self.count > 1, None if ahead is None or ahead.data_ptr() % 16 else ahead


_chain: _Chain | None = None
_noted: list[Tensor | None] | None = None


@contextmanager
def noting() -> Iterator[list[Tensor | None]]:
    """The weights of launches that may be early are appended to the list."""
    global _noted
    before, _noted = _noted, []
    try:
        yield _noted
    finally:
        _noted = before


@contextmanager
def early(order: Weights = (), room: int = 0) -> Iterator[None]:
    """Launches of a step are early where they may be: all but the first, before which all before it has ended.

    ``order`` is what :func:`noting` gave for the same step. A kernel before one that multiplies has up to ``room``
    bytes of that one's weights fetched into the level-2 cache.
    """
    global _chain
    before, _chain = _chain, _Chain(order, room)
    try:
        yield
    finally:
        _chain = before


_LATE: Mapping[str, Any] = {"EARLY": False}


def _placed(key: Hashable, weights: Tensor | None) -> tuple[Hashable, tuple[Any, Any], Mapping[str, Any]]:
    """Key, last arguments, and further keywords of a launch that may be early, as its place in the step has it."""
    if _noted is not None:
        _noted.append(weights)
    if _chain is None:
        return key, (None, None), _LATE
    follows, ahead = _chain.following()
    size = None if ahead is None else min(_chain.room, ahead.nbytes)
    own = key, follows, None if ahead is None else ahead.dtype
    return own, (ahead, size), {"EARLY": True, "launch_pdl": follows}


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
    """Launches are made again, within :func:`gathering` too: a trial has to compute. It is no part of a step."""
    global _gathered, _chain, _noted
    before, _gathered, _chain, _noted = (_gathered, _chain, _noted), None, None, None
    try:
        yield
    finally:
        _gathered, _chain, _noted = before


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
