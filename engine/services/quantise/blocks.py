"""Runs a model's layers one at a time, with its linear layers within reach: what they read, and other weights in them.

The family's own code runs (engine/compute/models). Its linear layers hold no weights: they take them from the file when
they compute, and give them back when the layer is done, so that one layer's are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache.pool import pages_for
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.layers.embedding import StoredEmbedding, TokenTable
from engine.compute.layers.interface import Norm
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.formats.load import Checkpoint
from engine.formats.source import CheckpointSource, LoadSettings
from engine.loading.runners import new_runner


class _Reached(Exception):  # noqa: N818 - caught where it is raised
    """The layer has computed as far as is needed."""


@dataclass
class InputStatistics:
    """Statistics of a linear layer's inputs, ``tokens`` of them: ``hessian [K, K]`` is the sum of ``2 x x^T``,
    ``magnitude [K]`` that of |x|, float32."""

    hessian: Tensor
    magnitude: Tensor
    tokens: int = 0

    @classmethod
    def empty(cls, size: int, device: torch.device) -> InputStatistics:
        return cls(torch.zeros(size, size, device=device), torch.zeros(size, device=device))

    def add(self, x: Tensor) -> None:
        """``x [T, K]`` float32."""
        self.hessian.addmm_(x.t(), x, alpha=2.0)
        self.magnitude += x.abs().sum(0)
        self.tokens += len(x)

    def mean(self) -> InputStatistics:
        return InputStatistics(self.hessian / self.tokens, self.magnitude / self.tokens, 1)


class TappedLinear(Linear):
    """The modules ``names`` (in the checkpoint) side by side, their weights wherever the :class:`Blocks` have them."""

    kind, path = "tapped", "torch linear"

    def __init__(self, names: Sequence[str], sizes: Sequence[int], in_features: int, source: TappedSource) -> None:
        self.names, self.in_features, self.out_features = list(names), in_features, sum(sizes)
        self.declined = []
        self._source = source

    def forward(self, x: Tensor) -> Tensor:
        self._source.observe(self, x)
        parts = [F.linear(x, self._source.weight(name), self._source.bias(name)) for name in self.names]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    forward_float32 = forward

    def storage_size(self) -> int:
        return 0

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return torch.cat([self._source.weight(name) for name in self.names]).to(dtype)


class TappedSource(CheckpointSource):
    """Gives a family :class:`TappedLinear` layers."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        super().__init__(checkpoint.files, None, LoadSettings(device, torch.float32, "16bit", Numerics()))
        self.held: dict[str, Tensor] = {}
        """Weights and biases of the layer that runs, float32 on the device, by the names of their tensors."""
        self.calls: list[tuple[TappedLinear, Tensor]] | None = None
        """What was called and with what, while that is recorded."""
        self.watched: TappedLinear | None = None
        self.statistics: InputStatistics | None = None
        self.rows = 0
        """Tokens of the step; what it computes further is padding."""

    def weight(self, name: str) -> Tensor:
        return self._tensor(f"{name}.weight")

    def bias(self, name: str) -> Tensor | None:
        return self._tensor(f"{name}.bias") if f"{name}.bias" in self.files.entries else None

    def observe(self, linear: TappedLinear, x: Tensor) -> None:
        """Called by every layer before it computes. Raises :class:`_Reached` after the one that is watched."""
        if self.calls is not None:
            self.calls.append((linear, x))
        if linear is self.watched:
            assert self.statistics is not None
            self.statistics.add(x[: self.rows])
            raise _Reached

    def embedding(self, name: str, rows: int, columns: int) -> TokenTable:
        return StoredEmbedding(self._floating(name, (rows, columns)), torch.float32, self.device)

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
        """No layer is run up to the head, so nothing is read of it."""
        return Dense(torch.empty(0, columns, device=self.device), None, self.numerics)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        modules = self._modules(prefix, names, sizes, in_features, bias)
        return TappedLinear([module.name for module in modules], sizes, in_features, self)

    def _tensor(self, name: str) -> Tensor:
        if name not in self.held:
            self.held[name] = self.files.view(name).to(self.device, torch.float32)
        return self.held[name]


class _WatchedNorm:
    """A norm that remembers what it gave."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm
        self.given: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(self.norm.forward(x))
        return self.given[-1]

    def forward_added(self, x: Tensor, added: Tensor, scale: float = 1.0) -> Tensor:
        self.given.append(self.norm.forward_added(x, added, scale))
        return self.given[-1]

    def forward_within(self, x: Tensor, linear: Linear, gating: str = "") -> Tensor | None:
        """None: what the norm gives is to be seen."""
        return None

    def storage_size(self) -> int:
        return self.norm.storage_size()


@dataclass
class Stage:
    """Linear layers of a block that read one input. ``norm`` is the attribute of the norm that gives it; "": none."""

    linears: list[TappedLinear]
    norm: str = ""

    @property
    def modules(self) -> list[str]:
        return [name for linear in self.linears for name in linear.names]


class Blocks:
    """The layers of a model over sequences of at most ``length`` tokens, one sequence at a time, in float32."""

    NORMS = ("attention_norm", "mlp_norm")
    """Attributes of a layer (engine/compute/models/decoder.py) that may be read by linear layers alone."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, length: int) -> None:
        self.source = TappedSource(checkpoint, device)
        self.model: CausalLM = family(checkpoint.config.architecture).Model(checkpoint.config, self.source)
        self._pages = range(1, 1 + pages_for(length))
        self._runner = new_runner(self.model, len(self._pages) + 1, device)

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """Hidden states that enter the first layer: ``[T, hidden_size]`` float32."""
        return self._run(tokens, 0, 0, None)

    def forward(self, index: int, tokens: Sequence[int], hidden: Tensor) -> Tensor:
        """Run layer ``index`` on ``hidden [T, hidden_size]``; the output has the same shape."""
        return self._run(tokens, index, index + 1, hidden)

    def stages(self, index: int, tokens: Sequence[int], hidden: Tensor) -> list[Stage]:
        """The linear layers in the order in which they compute, those that read one input together."""
        layer = self.model.layers[index]
        watched = {
            name: _WatchedNorm(norm) for name in self.NORMS if isinstance(norm := getattr(layer, name, None), RMSNorm)
        }
        calls: list[tuple[TappedLinear, Tensor]] = []
        self.source.calls = calls
        try:
            for name, norm in watched.items():
                setattr(layer, name, norm)
            self.forward(index, tokens, hidden)
        finally:
            self.source.calls = None
            for name, norm in watched.items():
                setattr(layer, name, norm.norm)
        stages: dict[tuple[int, int], Stage] = {}
        of_norm = {_place(x): name for name, norm in watched.items() for x in norm.given}
        for linear, x in calls:  # all inputs are held here, so no two lie at one place
            stages.setdefault(_place(x), Stage([], of_norm.get(_place(x), ""))).linears.append(linear)
        return list(stages.values())

    def watch(self, index: int, stage: Stage, samples: Iterable[tuple[Sequence[int], Tensor]]) -> InputStatistics:
        """Statistics of what a stage reads; the layer is computed up to there."""
        linear, source = stage.linears[0], self.source
        source.watched = linear
        source.statistics = InputStatistics.empty(linear.in_features, source.device)
        try:
            for tokens, hidden in samples:
                try:
                    self.forward(index, tokens, hidden)
                except _Reached:
                    continue
            return source.statistics.mean()
        finally:
            source.watched = source.statistics = None

    def let_go(self) -> None:
        """Give back the weights of the layer that ran."""
        self.source.held.clear()
        self.source.files.close()

    def _run(self, tokens: Sequence[int], start: int, stop: int, hidden: Tensor | None) -> Tensor:
        more = self._runner.kv.num_groups - 1
        self.source.rows = len(tokens)
        rows = SequenceRows(
            tokens, 0, self._pages, more_pages=(self._pages,) * more, states=StateRun.alone(len(tokens), 0)
        )
        out = self._runner.forward([rows], layers=(start, stop), hidden_in=hidden, want_hidden=frozenset({stop}))
        return out.hidden[stop]


def _place(x: Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.numel()
