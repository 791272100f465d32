"""Steps recorded on a processor: calls of native code and torch's operators, made again over the same memory.

Between two products of one row stand a dozen calls through Python and torch, which together take as long as reading
two megabytes of weights. A tape makes them with the addresses of its recording, as a CUDA graph does with launches:
nothing is looked up or allocated, and views are not made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from engine.base.host_memory import MemoryPool

T = TypeVar("T")

_READS = frozenset(("__array__", "__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist"))
"""Methods of a tensor by which its numbers come to Python."""
_EMPTY = frozenset(("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"))

_recording = threading.local()


class RecordingError(RuntimeError):
    """What runs depends on numbers that are others in the next step."""


class _Unread(TorchFunctionMode):
    """No number of a tensor is read by Python meanwhile."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := getattr(function, "__name__", "")) in _READS:
            raise RecordingError(f"Python reads a tensor by {name}")
        return function(*args, **(kwargs or {}))


class Tape(TorchDispatchMode, Generic[T]):
    """The calls of one run in their order, and all memory that they have addresses of."""

    result: T
    """What the run returned: tensors that each :meth:`replay` fills."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """What torch asks a class of such modes: the answer True has it import its compiler, a second and 45 MB."""
        return False

    def __init__(self, pool: MemoryPool) -> None:
        super().__init__()
        self.pool = pool
        """Memory of native results, which the next ones get once Python holds none of it: calls are made again in their
        order. Torch's calls hold their tensors."""
        self._held = 0
        self._calls: list[Callable[[int], Any]] = []
        """Each takes the number of threads, and returns something true where it had no room to work."""
        self._kept: list[Tensor] = []

    @classmethod
    def of(cls, run: Callable[[], T], pool: MemoryPool | None = None) -> Tape[T]:
        """Record ``run()``, which is made. Raises :class:`RecordingError`, and whatever ``run`` does.

        ``pool``, from which nothing may ever go, is that of tapes of which no two are replayed at once; what one leaves
        there lasts until any of them is replayed.
        """
        tape = cls(pool or MemoryPool())
        before = tape.pool.held
        _recording.tape = tape
        try:
            with tape, _Unread():
                tape.result = run()
        finally:
            _recording.tape = None
        tape._held = tape.pool.held - before
        return tape

    @property
    def bytes(self) -> int:
        """Memory that the tape alone holds."""
        return sum(each.nbytes for each in self._kept) + self._held

    def add(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Add a call of native code, without the number of threads, which is its last argument."""
        self._calls.append(partial(function, *arguments))

    def repeat(self, call: Callable[[], None]) -> None:
        """Add a call of Python's own, which is made elsewhere the first time."""

        def again(threads: int) -> None:
            call()

        self._calls.append(again)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RecordingError("Python reads a tensor")
        out = function(*args, **kwargs)
        if function._schema.is_mutable:
            self._calls.append(_again(function, args, kwargs))
        # Whether `contiguous`, `reshape` and the like copied anything, only the result tells.
        elif made := [
            each for each in _tensors(out) if not _is_of(each, (*_tensors(args), *_tensors(kwargs.values())))
        ]:
            self._kept += made
            if function._schema.name not in _EMPTY:
                self._calls.append(_into(list(_tensors(out)), function, args, kwargs))
        return out

    def replay(self) -> None:
        """Make the calls again. Raises MemoryError where native code has no room to work."""
        threads = torch.get_num_threads()
        with torch.inference_mode():
            for call in self._calls:
                if call(threads):
                    raise MemoryError("A recorded step ran out of memory.")


def repeated(call: Callable[[], None]) -> None:
    """Make a call of Python's own, and again at its place whenever a tape is replayed on which it is recorded."""
    if (tape := current()) is not None:
        tape.repeat(call)
    call()


def current() -> Tape[Any] | None:
    """The tape on which this thread's calls are recorded."""
    return getattr(_recording, "tape", None)


def _again(function: Any, args: Any, kwargs: Any) -> Callable[[int], None]:
    def call(threads: int) -> None:
        function(*args, **kwargs)

    return call


def _into(targets: list[Tensor], function: Any, args: Any, kwargs: Any) -> Callable[[int], None]:
    def call(threads: int) -> None:
        for target, made in zip(targets, _tensors(function(*args, **kwargs)), strict=True):
            target.copy_(made)

    return call


def _tensors(values: Any) -> Iterator[Tensor]:
    """The tensors among values, and in lists of them."""
    for each in (values,) if isinstance(values, Tensor) else values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


def _is_of(view: Tensor, tensors: Iterable[Tensor]) -> bool:
    """Return True if it lies in the memory of one of these."""
    memory = view.untyped_storage()._cdata
    return any(each.untyped_storage()._cdata == memory for each in tensors)
