"""Which backend attends: an ordered list of those that may decline, the reference last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from engine.attention.batch_invariant import BatchInvariantAttention
from engine.attention.interface import AttentionBackend, AttnProblem, AttnSpec
from engine.attention.native import NativeAttention
from engine.attention.reference import ReferenceAttention
from engine.attention.sdpa import SdpaAttention
from engine.attention.triton.backend import TritonAttention
from engine.cache.packed import PackedKV
from engine.core.batch import Batch


class Choice(NamedTuple):
    """The backend for a problem, and those before it with their reasons to decline."""

    backend: AttentionBackend
    declined: list[tuple[str, str]]


class NumericMode(Protocol):
    """The live switch that attention consults at every call (`engine.layers.numerics.Numerics`)."""

    batch_invariant: bool


def backends() -> list[AttentionBackend]:
    """New backends in order of preference."""
    return [NativeAttention(), TritonAttention(), SdpaAttention(), BatchInvariantAttention(), ReferenceAttention()]


def choose(problem: AttnProblem, candidates: Sequence[AttentionBackend] | None = None) -> Choice:
    """The first backend that does not decline. Raises ValueError if all do, with what each said."""
    declined: list[tuple[str, str]] = []
    for backend in backends() if candidates is None else candidates:
        reason = backend.declines(problem)
        if reason is None:
            return Choice(backend, declined)
        declined.append((backend.name, reason))
    said = "; ".join(f"{name}: {reason}" for name, reason in declined)
    raise ValueError(f"No attention backend serves this model ({said}). Choose another KV cache kind.")


class Attention:
    """The attention of one model: gives each call to the backend chosen for its problem, remembered by its traits."""

    name = "attention"

    def __init__(
        self, numerics: NumericMode | None = None, candidates: Sequence[AttentionBackend] | None = None
    ) -> None:
        """Without `numerics` the batch-invariant backend is never chosen."""
        self._numerics = numerics
        self._candidates = backends() if candidates is None else list(candidates)
        self._chosen: dict[tuple[object, ...], AttentionBackend] = {}

    def declines(self, problem: AttnProblem) -> str | None:
        """It serves what any of its backends serves."""
        try:
            choose(problem, self._candidates)
        except ValueError as error:
            return str(error)
        return None

    def attend(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int = 0, need_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """See `AttentionBackend.attend`."""
        invariant = self._numerics is not None and self._numerics.batch_invariant
        key = (spec, kv.kind, q.dtype, q.shape[2], kv.v.shape[2], batch.ancestors is None, invariant)
        backend = self._chosen.get(key)
        if backend is None:
            backend = self._chosen[key] = choose(self._problem(q, kv, spec, batch, invariant), self._candidates).backend
        return backend.attend(q, kv, spec, batch, group, need_lse)

    @staticmethod
    def _problem(q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, invariant: bool) -> AttnProblem:
        widths = (q.shape[2], kv.v.shape[2])
        return AttnProblem(q.device.type, q.dtype, spec, kv.kind, batch.ancestors is not None, invariant, widths)
