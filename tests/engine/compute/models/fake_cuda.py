"""Tensors that believe to be on a GPU: shapes, dtypes and devices are computed, contents are not (torch's fakes).

A mix of devices raises, and so does everything that reads a content: ``.item()``, ``.tolist()``, ``bool(tensor)``, each
of which would make a host wait for the device. Runs without a GPU and without a CUDA build of torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from engine.cache.stores.packed import Flush
from engine.cache.stores.store import DenseKVStore, KVStore
from engine.cache.types import StateRun
from engine.compute.batch import Batch, SequenceRows
from engine.compute.runner.buffers import BucketPolicy, powers_of_two
from engine.compute.runner.inputs import state_runs
from engine.compute.runner.runner import Runner

CUDA, MPS = torch.device("cuda", 0), torch.device("mps", 0)
_MODE = FakeTensorMode()


class _Indexing(TorchFunctionMode):
    """Indexing, copying and inverting by single operators: torch's own methods want a CUDA build for CUDA."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.__getitem__:
            return _read(args[0], args[1])
        if function is Tensor.__setitem__:
            return _write(*args)
        if function is Tensor.copy_:
            return torch.ops.aten.copy_(args[0], args[1])
        if function is Tensor.__invert__:
            return torch.bitwise_not(args[0])
        if function is Tensor.contiguous and not args[0].is_contiguous():
            return torch.ops.aten.clone(args[0], memory_format=torch.contiguous_format)
        if function is Tensor.data_ptr:  # what is allocated begins at an address that is divided by whatever is asked
            return args[0].storage_offset() * args[0].element_size()
        if function is Tensor.pin_memory:  # on its way to the device: from here on a fake
            return torch.empty(tuple(args[0].shape), dtype=args[0].dtype)
        if function is torch.tensor:
            return _constant(args[0], **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _constant(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """``torch.tensor`` without its contents, which torch would try to compute with on the device."""
    values = np.asarray(data)
    if dtype is None:
        dtype = torch.get_default_dtype() if values.dtype == np.float64 else torch.from_numpy(values.reshape(-1)).dtype
    return torch.empty(values.shape, dtype=dtype, device=device)


def _view(x: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """The view that integers, slices and None make, and what tensors then pick along each of its dimensions."""
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in [item for item in items if not isinstance(item, Tensor)]:
        place = next(i for i, item in enumerate(items) if item is Ellipsis)
        known = sum(item is not None for item in items) - 1
        items[place : place + 1] = [slice(None)] * (x.dim() - known)
    picks: list[Tensor | None] = []
    for item in items:
        at = len(picks)
        if item is None:
            x = x.unsqueeze(at)
            picks.append(None)
        elif isinstance(item, slice):
            assert item.step in (None, 1) or item.step > 0
            x = torch.ops.aten.slice(x, at, item.start, item.stop, item.step or 1)
            picks.append(None)
        elif isinstance(item, list):
            picks.append(_constant(item, device=x.device))
        elif isinstance(item, Tensor):
            picks.append(item)
        else:
            x = x.select(at, item)
    return x, picks


def _read(x: Tensor, index: Any) -> Tensor:
    view, picks = _view(x, index)
    return torch.ops.aten.index(view, picks) if any(pick is not None for pick in picks) else view


def _write(x: Tensor, index: Any, value: Any) -> None:
    view, picks = _view(x, index)
    if any(pick is not None for pick in picks):
        value = value if isinstance(value, Tensor) else _constant(value, dtype=x.dtype, device=x.device)
        torch.ops.aten.index_put_(view, picks, value)
    elif isinstance(value, Tensor):
        torch.ops.aten.copy_(view, value)
    else:
        torch.ops.aten.fill_(view, value)


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Inside, tensors are fake; those that are made on "cuda" are on a GPU as far as torch knows."""
    with torch.inference_mode(), _MODE, _Indexing():
        yield


class _OneGroup:
    num_groups = 1


def padded_batch(
    rows: Sequence[SequenceRows],
    wanted: frozenset[int] = frozenset(),
    kv: KVStore | None = None,
    policy: BucketPolicy | None = powers_of_two,
) -> Batch:
    """The batch that a GPU would get of these rows, with its padding: call it outside of :func:`fake_cuda`.

    ``kv``: a store on the host of the kind that the batch is for; None: a dense one.
    """
    store = DenseKVStore([(1, 1)], 1, torch.float32) if kv is None else kv
    batch = Runner(_OneGroup(), store, None, policy=policy).batch(rows, wanted)  # type: ignore[arg-type]
    alone = [row._replace(states=StateRun.alone(len(row.tokens), row.start, slot)) for slot, row in enumerate(rows, 1)]
    return replace(batch, states=state_runs(alone, batch.host.row_start))


def on_cuda(batch: Batch) -> Batch:
    """The same batch with fake tensors on CUDA: call it inside of :func:`fake_cuda`."""
    moved = {name: _there(value) for name in _fields(batch) if isinstance(value := getattr(batch, name), Tensor)}
    to, views = batch.placement, batch.views
    flush = None if to.flush is None else Flush(*(None if x is None else _there(x) for x in to.flush))
    placement = to._replace(slots=_there(to.slots), flush=flush, pages=None if to.pages is None else _there(to.pages))
    if views is not None and views.sink_positions is not None:
        views = views._replace(sink_positions=_there(views.sink_positions))
    return replace(batch, placement=placement, views=views, **moved)


def _fields(batch: Batch) -> list[str]:
    return [field.name for field in fields(batch)]


def _there(x: Tensor) -> Tensor:
    return torch.empty(tuple(x.shape), dtype=x.dtype, device=CUDA)
