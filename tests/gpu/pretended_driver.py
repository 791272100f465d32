"""Triton's driver of a GPU that is not there: kernels are compiled for it, and neither loaded nor launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Driver:
    """Stands for Triton's driver of a GPU of the generation ``sm``. ``refuses`` has the words with which it takes no
    code; "": it takes all."""

    launches = 0
    """Of all such drivers."""

    def __init__(self, sm: int, refuses: str = "") -> None:
        self._target = GPUTarget("cuda", sm, 32)
        self.loaded: list[str] = []

        def load_binary(name: str, code: bytes, shared: int, device: int) -> tuple[int, ...]:
            if refuses:
                raise RuntimeError(refuses)
            self.loaded.append(name)
            return 1, 1, 0, 0, 1024

        properties = {"max_shared_mem": 232448, "multiprocessor_count": 132}
        self.utils = SimpleNamespace(load_binary=load_binary, get_device_properties=lambda _: properties)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        def run(*_: Any) -> None:
            Driver.launches += 1

        return run


@contextmanager
def triton_driver(sm: int, refuses: str = "") -> Iterator[Driver]:
    """Inside, Triton compiles for such a GPU."""
    made, before = Driver(sm, refuses), driver._active
    driver.set_active(made)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        driver._active = before  # to ask for the usual one fails where there is no GPU
