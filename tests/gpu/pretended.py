"""What a forward asks of a GPU, written down without one: operators and kernels in their order, copies and waits.

    python tests/gpu/pretended.py [--layers 32] [--rows 1] [--context 1000] [--kind 16bit]

Tensors are torch's fakes, which believe to be on CUDA (tests/engine/compute/models/fake_cuda.py). Kvasir's kernels are
chosen as if they had proved themselves on an H100, and their launches are taken down. An operator of torch that
computes counts as one kernel, whatever it is made of (mostly one), and so does a launch of Triton.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from triton.runtime.jit import JITFunction

from engine.cache.policies import PagePolicy
from engine.cache.stores.kinds import KVKind
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.cache.types import StateRun
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.attention.triton import launch, merging, pack_trial, quest, quest_trial, trial
from engine.compute.batch import Batch, SequenceRows
from engine.compute.layers.experts import few, grouped
from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import Linear, LinearShape, Target
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton import ggml, int4, int8, plane_layer, resident, surrounded, table
from engine.compute.layers.linear.triton.experts import stacked
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import delta, fused
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.compute.native import gpu, triton_launch
from engine.compute.runner.buffers import sixteens
from engine.config.attention import AttentionConfig
from engine.config.feed_forward import MLPConfig, MoEConfig
from engine.config.model import ModelConfig
from engine.config.positions import PositionConfig, RopeConfig
from engine.formats.quantised.quantise import STAY
from tests.engine.compute.models.fake_cuda import CUDA, fake_cuda, on_cuda, padded_batch

MULTIPROCESSORS = 132
ALLOCATIONS = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
FUSED = [(module, "disagrees") for module in (pack_trial, quest_trial, merging)]
FUSED += [(fused, "norm_disagrees"), (fused, "gate_disagrees"), (delta, "disagrees"), (surrounded, "disagrees")]
FUSED += [(trial, "merges_wrongly"), (trial, "writes_wrongly"), (few, "disagrees"), (resident, "disagrees")]
"""The same of what lies between them."""
PROOFS = [
    (trial, "disagrees"),
    (grouped, "declines"),
    *((module, "_disagrees") for module in (int4, int8, table, ggml)),
]
"""Functions that try kernels on the device and say what is wrong with them: of products and attention."""


class Traits(NamedTuple):
    """Stands for a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str


class Node(NamedTuple):
    """One thing that the device is asked to do; equal for equal work on other contents."""

    name: str
    """``aten.silu`` or ``triton.attend``."""
    arguments: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    grid: tuple[int, ...] = ()


@dataclass
class Trace:
    nodes: list[Node] = field(default_factory=list)
    """Kernels, in their order: no views and no allocations."""
    copies: list[str] = field(default_factory=list)
    """Names of what copied from the host to the device; these are among the nodes where they run on the stream."""
    waits: list[str] = field(default_factory=list)
    """What the host waits for."""
    pinned: int = 0
    """Allocations of pinned memory."""

    def clear(self) -> None:
        """Forget what was so far."""
        self.nodes, self.copies, self.waits, self.pinned = [], [], [], 0

    def counts(self) -> Counter[str]:
        """How often each kernel is in it."""
        return Counter(node.name for node in self.nodes)

    def text(self) -> str:
        """One line a kernel, for people."""
        return listed(self.nodes)


def listed(nodes: Sequence[Node]) -> str:
    """One line a kernel: its name, the shapes of its tensors, its grid."""
    lines = []
    for place, node in enumerate(nodes):
        leaves = tree_leaves(node.arguments, lambda value: isinstance(value, Traits))
        shapes = " ".join(str(list(value.shape)) for value in leaves if isinstance(value, Traits))
        lines.append(f"{place:4} {node.name:24} {shapes}" + (f" grid {node.grid}" if node.grid else ""))
    return "\n".join(lines)


def _traits(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return Traits(value.dtype, tuple(value.shape), value.stride(), value.device.type)


class _Operators(TorchDispatchMode):
    """Writes down operators of torch."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        made = [value for value in tree_leaves(out) if isinstance(value, Tensor)]
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        name = function.overloadpacket.__name__
        if function.namespace != "aten" or name in ALLOCATIONS or not any(each.is_cuda for each in made + given):
            return out
        storages = {value.untyped_storage()._cdata for value in given}
        if not function._schema.is_mutable and all(each.untyped_storage()._cdata in storages for each in made):
            return out  # a view, or the tensor itself
        if any(each.is_cuda for each in made) and any(not each.is_cuda and each.dim() for each in given):
            self.trace.copies.append(name)
        if any(not each.is_cuda for each in made) and not (kwargs or {}).get("non_blocking"):
            self.trace.waits.append(name)
        options = tuple(sorted(tree_map(_traits, kwargs or {}).items()))
        self.trace.nodes.append(Node(f"aten.{name}", tuple(tree_map(_traits, args)), options))
        return out


class _Reads(TorchFunctionMode):
    """What reads a content gets zeros, and is written down, as is what pins memory."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__):
            x = args[0]
            if x.is_cuda:
                self.trace.waits.append(function.__name__)
            with _disable_current_modes():
                return function(torch.zeros(x.shape, dtype=x.dtype))
        if function is Tensor.pin_memory or kwargs.pop("pin_memory", False):
            self.trace.pinned += 1
        if function is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == "cuda":
            self.trace.copies.append("tensor")
        return function(*args, **kwargs)


class _Launches(list[triton_launch.Launch]):
    """The list that `triton_launch.gathering` fills, which writes down what it is given."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def append(self, one: triton_launch.Launch) -> None:
        super().append(one)
        constants = tuple(sorted(one.keywords.items()))
        name = f"triton.{one.kernel.fn.__name__}"
        self.trace.nodes.append(Node(name, tuple(map(_traits, one.args)), constants, tuple(one.grid)))


@contextmanager
def pretended(
    fused: bool = True, version: tuple[int, int] = (9, 0), multiprocessors: int = MULTIPROCESSORS
) -> Iterator[Trace]:
    """Inside, tensors on "cuda" are fake, Kvasir's kernels are trusted, and what is asked of the GPU is in the trace.

    Make models inside it, for what has been chosen on a CPU stays so. ``fused`` False: kernels between products and
    attention have failed their trials. ``version``: the GPU's compute capability.
    """
    trace = Trace()
    gathered = _Launches(trace)

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        count = len(kernel.arg_names) - sum(name in keywords for name in kernel.arg_names)
        gathered.append(triton_launch.Launch(kernel, (*grid, 1, 1)[:3], args[:count], keywords))

    with ExitStack() as stack:
        for module, name in [*PROOFS, *FUSED]:
            reason = None if fused or (module, name) in PROOFS else "it computes wrongly"
            stack.enter_context(mock.patch.object(module, name, return_value=reason))
        for name, value in {"is_available": True, "current_device": 0, "get_device_capability": version}.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        gpu.capability.cache_clear()
        stack.callback(gpu.capability.cache_clear)
        for module in (launch, quest, plane_layer, resident):
            stack.enter_context(mock.patch.object(module, "processors", return_value=multiprocessors))
        stack.enter_context(mock.patch.object(triton_launch, "_gathered", gathered))
        stack.enter_context(mock.patch.object(JITFunction, "run", run))
        stack.enter_context(fake_cuda())
        stack.enter_context(_Operators(trace))
        stack.enter_context(_Reads(trace))
        yield trace


LLAMA_8B = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=128256,
    hidden_size=4096,
    num_layers=32,
    attention=AttentionConfig(num_heads=32, num_kv_heads=8, head_dim=128, windows=(None,) * 32),
    positions=PositionConfig(RopeConfig(500000.0), max_position=131072, rotary=(True,) * 32),
    mlp=MLPConfig(intermediate_size=14336),
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    dtype=torch.bfloat16,
)


QWEN3_30B = LLAMA_8B.changed(
    architecture="Qwen3MoeForCausalLM",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_layers=48,
    num_kv_heads=4,
    qk_norm=True,
    windows=(None,) * 48,
    rotary=(True,) * 48,
    moe=MoEConfig(128, 8, 768, (True,) * 48, normalised=True),
)


def shortened(config: ModelConfig, layers: int) -> ModelConfig:
    """The model with fewer layers."""
    moe = None if config.moe is None else replace(config.moe, sparse=config.moe.sparse[:layers])
    return config.changed(
        num_layers=layers,
        windows=config.attention.windows[:layers],
        rotary=config.positions.rotary[:layers],
        local=config.positions.local[:layers],
        moe=moe,
    )


class Weights:
    """A `WeightSource` without contents: 4-bit layers in groups of 128 as GPTQ files have them, the rest in 16 bits."""

    device = CUDA

    def __init__(self, dtype: torch.dtype = torch.bfloat16, numerics: Numerics | None = None) -> None:
        self.dtype, self.numerics = dtype, numerics or Numerics()

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        if names[-1] in STAY:
            return Dense(self.matrix("", sum(sizes), in_features), None, self.numerics)
        shape = LinearShape("int4", in_features, sum(sizes), group=128, scales=torch.float16, symmetric=True)
        layer = choose.unfilled(shape, Target(self.dtype, CUDA, self.numerics), CUDA)
        layer.bias = self.vector("", sum(sizes)) if bias else None
        return layer

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        layers = (self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count))
        return stacked(layers, count, Target(self.dtype, CUDA, self.numerics))

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=self.dtype, device=CUDA)

    def vector(self, name: str, size: int) -> Tensor:
        return torch.empty(size, dtype=self.dtype, device=CUDA)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, device=CUDA)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return self.matrix(name, rows, columns)

    def head(self, tied: Tensor | None, rows: int, columns: int) -> Linear:
        return Dense(self.matrix("", rows, columns) if tied is None else tied, None, self.numerics)


class Shape(NamedTuple):
    """What is traced besides the model: sequences of (tokens in the cache, new rows), the kind of their cache, and the
    policy of their rows."""

    sequences: tuple[tuple[int, int], ...] = ((1000, 1),)
    kind: KVKind = KVKind()
    policy: PagePolicy | None = None
    want_hidden: frozenset[int] = frozenset()


def batch_of(shape: Shape, config: ModelConfig) -> Batch:
    """The batch that a step without a graph has, on the host."""
    tiny = config.changed(hidden_size=64, num_heads=1, num_kv_heads=1, head_dim=32)
    store = new_store(tiny, 1, torch.float32, kind=shape.kind)
    rows, first = [], 1
    for start, count in shape.sequences:
        pages = list(range(first, first + -(-(start + count) // 16)))
        first = pages[-1] + 1
        more = [pages] * (store.num_groups - 1)
        states = StateRun.alone(count, start, len(rows) + 1)
        rows.append(SequenceRows([1] * count, start, pages, 1, more_pages=more, policy=shape.policy, states=states))
    batch = padded_batch(rows, shape.want_hidden, store, sixteens)
    if batch.states is not None:
        # A state is not written where it is read.
        batch.states.runs[:, 3] += len(rows)
    return batch


def traced(
    config: ModelConfig,
    shape: Shape = Shape(),
    numerics: Numerics | None = None,
    fused: bool = True,
    room: int | None = None,
) -> Trace:
    """What one forward asks of the GPU, the batch's own copy left out; ``fused`` as for :func:`pretended`. ``room``:
    launches are early, and so many bytes are fetched ahead."""
    batch = batch_of(shape, config)
    pages = 1 + sum(-(-(start + count) // 16) for start, count in shape.sequences)
    with pretended(fused) as trace:
        source = Weights(config.dtype, numerics)
        model: CausalLM = family(config.architecture).Model(config, source)
        kv = new_store(config, pages, config.dtype, CUDA, shape.kind)
        attention = AttentionDispatcher(source.numerics)
        # A first forward makes what is kept from step to step; batches are different objects each time.
        with triton_launch.noting() as order:
            model.forward(on_cuda(batch), kv, attention)
        moved = on_cuda(batch)
        trace.clear()
        with nullcontext() if room is None else triton_launch.early(order, room):
            model.forward(moved, kv, attention)
    return trace


class Counted(NamedTuple):
    layer: list[Node]
    """The kernels of one layer, from anywhere in it on."""
    step: int
    """Kernels of one forward of the whole model."""


def counted(config: ModelConfig, shape: Shape = Shape(), fused: bool = True) -> Counted:
    """From traces of three and of four layers, which differ in one."""
    few, more = (traced(shortened(config, layers), shape, fused=fused).nodes for layers in (3, 4))
    each = len(more) - len(few)
    same = next((place for place, (a, b) in enumerate(zip(few, more, strict=False)) if a != b), len(few))
    return Counted(more[same - each : same], len(few) + (config.num_layers - 3) * each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=1000)
    parser.add_argument("--kind", default="16bit", choices=("16bit", "int8", "fp8", "int4", "kivi", "quest"))
    options = parser.parse_args()
    policy = QuestPolicy(256, 16) if options.kind == "quest" else None
    kind = KVKind(bounds=True) if policy else KVKind(options.kind)
    shape = Shape(((options.context, options.rows),), kind, policy)
    trace = traced(shortened(LLAMA_8B, options.layers), shape)
    print(trace.text())
    layer, step = counted(LLAMA_8B, shape)
    apart = counted(LLAMA_8B, shape, fused=False)
    print(f"Without those that lie between products and attention: {len(apart.layer)} a layer, {apart.step} in a step")
    print(f"{len(layer)} kernels a layer, {step} in a step of 32 layers, {len(trace.copies)} copies to the device, "
          f"{len(trace.waits)} waits, {trace.pinned} allocations of pinned memory")  # fmt: skip


if __name__ == "__main__":
    main()
