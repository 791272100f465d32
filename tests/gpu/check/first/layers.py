"""What the first minutes ask of some layers alone: parts 6 and 11, of models without files and without an engine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from engine.cache.pool import pages_for
from engine.cache.types import StateRun
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.layers.experts import few as few_experts
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton.experts import stacked
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.registry import family
from engine.compute.runner.buffers import sixteens
from engine.compute.runner.recorders import Captured, CudaRecorder, EarlyRecorder, Forward
from engine.compute.runner.runner import Runner
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from tests.gpu import kernel_kinds
from tests.gpu.check import ceilings
from tests.gpu.check.notes import Measures, Setting
from tests.gpu.pretended import FUSED, LLAMA_8B, QWEN3_30B, shortened

KIND = "int4 g128"
FETCHED = (4, 8, 16)
"""Megabytes fetched ahead."""
MANY, FEW = 8, 4
"""Layers of two models, whose difference is what a layer takes."""
TOKENS, REPLAYS = 1000, 20
EQUAL_REPLAYS = 50
MIXTURE = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "vocab_size": 32064,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}
"""Of the size of Qwen3.6-35B-A3B, but for the vocabulary, which no layer has."""
TINY = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
TINY_MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "vocab_size": 256,
                "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 16, "linear_value_head_dim": 32}  # fmt: skip


class RandomWeights:
    """A `WeightSource` of random weights on a device: 4-bit layers in groups of 128, the rest in 16 bits.

    Layers of one size are copies of one, each in a place of its own.
    """

    numerics = Numerics()

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._made: dict[tuple[int, int], TritonLinear] = {}

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        size = sum(sizes), in_features
        if size not in self._made:
            kind = kernel_kinds.KINDS[KIND]
            self._made[size] = kernel_kinds.tall(kind, *size, self.dtype, self.device, self.numerics).layer
        first = self._made[size]
        layer = object.__new__(type(first))
        layer.__dict__.update(first.__dict__)
        layer.__dict__.pop("_held", None)
        for name in first.held:
            held = getattr(first, name)
            setattr(layer, name, None if held is None else held.clone())
        return layer

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        layers = (self.linear(prefix, names, sizes, in_features, bias) for _ in range(count))
        return stacked(layers, count, Target(self.dtype, self.device, self.numerics))

    def vector(self, name: str, size: int) -> Tensor:
        return torch.ones(size, dtype=self.dtype, device=self.device)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return 0.1 * torch.randn(shape, device=self.device)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, device=self.device) * columns**-0.5).to(self.dtype)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return self.matrix(name, rows, columns)

    def head(self, table: Any, rows: int, columns: int) -> Linear:
        return Dense(self.matrix("", rows, columns), None, self.numerics)


class Keeping(CudaRecorder):
    """A recorder that shows its last capture."""

    last: Captured | None = None

    def record(self, run: Forward) -> Captured:
        self.last = super().record(run)
        return self.last


class Stepped:
    """A model of some layers, and one step of it after :data:`TOKENS` tokens."""

    def __init__(
        self, config: ModelConfig, device: torch.device, rows: int = 1, early: bool = False, fetched: int = 0
    ) -> None:
        """``rows`` of one sequence: more than one are drafts. ``early``: its kernels start early, with so many
        megabytes ``fetched`` ahead."""
        numerics = Numerics()
        numerics.early, numerics.ahead = early, fetched << 20
        self.device, self.config, self.rows = device, config, rows
        model = family(config.architecture).Model(config, RandomWeights(config.dtype, device))  # type: ignore[arg-type]
        store = new_store(config, pages_for(TOKENS + rows) + 2, config.dtype, device)
        self.recorder = Keeping(device) if device.type == "cuda" else None
        early_recorder = None if self.recorder is None else EarlyRecorder(self.recorder, device, numerics)
        attention = AttentionDispatcher(numerics)
        self.runner = Runner(model, store, attention, device, sixteens, 4096, early_recorder, numerics)

    def step(self) -> ForwardOutput:
        """By a graph as soon as there is one."""
        states = (StateRun(1, 1, 2),) if self.config.recurrent is not None else ()
        pages = list(range(1, pages_for(TOKENS + self.rows) + 1))
        with torch.inference_mode():
            return self.runner.forward([SequenceRows([1] * self.rows, TOKENS, pages, 1, states=states)])

    def seconds(self) -> float:
        """Of a replay; without a GPU of a step."""
        if self.recorder is None:
            began = time.perf_counter()
            self.step()
            return time.perf_counter() - began
        for _ in range(4):
            self.step()
        if self.recorder.last is None:
            raise RuntimeError(f"the step is not captured: {self.runner.eager}")
        if self.runner.graphs is not None and self.runner.graphs.late:
            raise RuntimeError(f"no kernel starts early: {self.runner.graphs.late}")
        replay = self.recorder.last.replay
        return statistics.median(ceilings.seconds(replay, 1) for _ in range(REPLAYS))

    def different(self) -> int:
        """Of some steps, those whose logits are not those of the first, bit for bit; of a model without states."""
        first = self.step().logits.clone()
        return sum(not torch.equal(self.step().logits, first) for _ in range(EQUAL_REPLAYS if self.recorder else 2))


def profiled(many: ModelConfig, few: ModelConfig, device: torch.device) -> dict[str, float]:
    """Kernels a layer and their microseconds, gaps left out, of a model whose steps no graph has; 0 without a GPU."""
    from tests.gpu.check import trace

    found = []
    for config in (many, few) if device.type == "cuda" else ():
        stepped = Stepped(config, device)
        for _ in range(3):
            stepped.step()
        nodes = trace.recorded(stepped.step, True)
        found.append((len(nodes), sum(node.duration for node in nodes)))
    if not found:
        Stepped(few, device).step()
        return {"kernels": 0.0, "kernel us": 0.0}
    count, taken = ((a - b) / (many.num_layers - few.num_layers) for a, b in zip(*found, strict=True))
    return {"kernels": count, "kernel us": taken}


def kernels_of(stepped: Stepped) -> int:
    """What a step launches, by a profile of a replay; 0 without a GPU."""
    from tests.gpu.check import trace

    return len(trace.recorded(stepped.step, True)) if stepped.recorder is not None else 0


def a_layer(
    many: ModelConfig,
    few: ModelConfig,
    device: torch.device,
    failing: Sequence[tuple[Any, str]] = (),
    rows: int = 1,
    early: bool = False,
    fetched: int = 0,
    resident: bool = False,
) -> Iterator[dict[str, Any]]:
    """Microseconds and kernels a layer. ``failing``: trials that kernels have failed, so that others, or torch's
    operators, compute what those did. ``early`` and ``fetched`` as for :class:`Stepped`;
    ``resident``: such products are switched on."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(RandomWeights.numerics, "resident", resident))
        for module, name in failing:
            stack.enter_context(mock.patch.object(module, name, return_value="it is left out"))
        longer, shorter = (Stepped(config, device, rows, early, fetched) for config in (many, few))
        layers = many.num_layers - few.num_layers
        taken = longer.seconds(), shorter.seconds()
        found: dict[str, Any] = {"step us": 1e6 * taken[0], "us": 1e6 * (taken[0] - taken[1]) / layers}
        yield found
        yield found | {"kernels": (kernels_of(longer) - kernels_of(shorter)) / layers}


def chain(setting: Setting) -> Measures:
    """``figures[design]``: a layer of the 8B as it is served, with kernels that start early, with resident products,
    and without fused ones;
    replays that differ."""
    device = torch.device(setting.device)
    config = LLAMA_8B.changed(vocab_size=32064)
    if setting.dry:
        config = config.changed(vocab_size=256, hidden_size=128, intermediate_size=128, num_heads=4, num_kv_heads=1,
                                head_dim=32, max_position=4096, dtype=torch.float32)  # fmt: skip
    many, few = (2, 1) if setting.dry else (MANY, FEW)
    each = partial(a_layer, shortened(config, many), shortened(config, few), device)
    yield "as served", each
    yield "early", partial(each, early=True)
    for megabytes in FETCHED[: 1 if setting.dry else None]:
        yield f"{megabytes} MB ahead", partial(each, early=True, fetched=megabytes)
    yield "resident", partial(each, resident=True)
    yield "replays", lambda: {"differ": Stepped(shortened(config, few), device).different()}
    yield "early replays", lambda: {"differ": Stepped(shortened(config, few), device, 1, True, FETCHED[1]).different()}
    yield "unfused", partial(each, failing=FUSED)


def mixture_config(layers: int, dry: bool) -> ModelConfig:
    """Three delta nets to one attention, each with experts."""
    values = {**MIXTURE, "num_hidden_layers": layers, **({**TINY, **TINY_MIXTURE} if dry else {})}
    config = family(str(MIXTURE["architectures"][0])).read_config(RawConfig(values, Path("config.json")))
    return config.changed(dtype=torch.float32) if dry else config


def mixture(setting: Setting) -> Measures:
    """``figures[form]``: a layer of Qwen3 30B-A3B as it is served, by rows that are sorted, and of eight drafts; the
    kernels of a mixture with delta nets, over four layers."""
    device = torch.device(setting.device)
    config = QWEN3_30B.changed(vocab_size=32064)
    if setting.dry:
        moe = MoEConfig(4, 2, 128, (True,) * config.num_layers)
        config = config.changed(vocab_size=256, hidden_size=128, intermediate_size=128, num_heads=4, num_kv_heads=2,
                                head_dim=32, max_position=4096, moe=moe, dtype=torch.float32)  # fmt: skip
    many, few = (2, 1) if setting.dry else (MANY, FEW)
    each = partial(a_layer, shortened(config, many), shortened(config, few), device)
    yield "as served", each
    yield "sorted", partial(each, failing=[(few_experts, "disagrees")])
    yield "eight rows", partial(each, rows=few_experts.ROWS)
    yield "eight rows, sorted", partial(each, failing=[(few_experts, "disagrees")], rows=few_experts.ROWS)
    hybrids = (mixture_config(layers, setting.dry) for layers in (8, 4))
    yield "with delta nets", partial(profiled, *hybrids, device)
