"""Every launch that the load of a model makes on a GPU, taken down without one: what trials launch, and what
:func:`engine.compute.runner.ahead.compile_ahead` compiles for served steps.

    python tests/gpu/loads.py [--sm 90] [--model TEXT]

Models are made of torch's fakes (pretended.py) in the sizes of the files that Kvasir recommends, with two layers: those
of a kind launch alike. Trials, which compute, are gone through on the processor, with the tiles of the card.

`packaging/kernels.py` compiles these launches for the package; tests/gpu/test_shipped.py asks for them there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.attention.triton import launch, merging, pack_trial, quest, quest_trial, trial
from engine.compute.batch import Batch
from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import Linear, LinearShape, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.linear.ggml_blocks import Q4_0, Q4_K, Q6_K, Q8_0
from engine.compute.layers.linear.triton import experts, ggml, int4, int8, plane_layer, runtime, table
from engine.compute.layers.linear.triton import trial as products
from engine.compute.layers.linear.triton.experts import stacked
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import fused
from engine.compute.models.arenas import new_store
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.compute.native import proof
from engine.compute.native.triton_launch import Different, Launch, gathering
from engine.compute.runner import ahead
from engine.compute.runner.buffers import sixteens
from engine.compute.runner.runner import Runner
from engine.compute.sampling import device as sampling
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.formats.quantised.quantise import STAY
from tests.engine.compute.models.fake_cuda import CUDA, on_cuda
from tests.gpu.pretended import Weights as Fakes
from tests.gpu.pretended import pretended

CONTEXT = 32768
CPU, META = torch.device("cpu"), torch.device("meta")


class Card(NamedTuple):
    """A GPU, as far as kernels are chosen by it."""

    version: tuple[int, int]
    multiprocessors: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that models are served in."""
        return torch.float16 if self.version < (8, 0) else torch.bfloat16


INT4 = {Q4_0: 32, "GPTQ": 128, "AWQ": 128}
"""Kinds that become group-affine layers of 4 bits, with the input features of a group."""


class Weights(Fakes):
    """A `WeightSource` without contents, whose layers are as ``kind_of(prefix + name)`` says: a type of GGUF, a name of
    :data:`INT4`, or None: dense."""

    def __init__(self, dtype: torch.dtype, kind_of: Callable[[str], Any]) -> None:
        super().__init__(dtype, Numerics())
        self.kind_of = kind_of
        self._target = Target(dtype, CUDA, self.numerics)

    def _layer(self, kind: Any, outputs: int, inputs: int, shared: bool = False) -> Linear:
        if kind is None:
            return Dense(self.matrix("", outputs, inputs), None, self.numerics)
        if kind in INT4 and not shared:
            shape = LinearShape(
                "int4", inputs, outputs, group=INT4[kind], scales=torch.float16, symmetric=kind != "AWQ"
            )
        else:
            shape = LinearShape("ggml, shared" if shared else "ggml", inputs, outputs, block_type=kind)
        return choose.unfilled(shape, self._target, CUDA)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        """Neighbours of one kind share a layer, as in ``ggml_layer``."""
        runs: list[tuple[Any, int]] = []
        for name, size in zip(names, sizes, strict=True):
            kind = self.kind_of(prefix + name)
            before = runs.pop()[1] if runs and runs[-1][0] == kind else 0
            runs.append((kind, before + size))
        layers = [self._layer(kind, size, in_features) for kind, size in runs]
        for layer, (_, size) in zip(layers, runs, strict=True):
            layer.bias = self.vector("", size) if bias else None
        return layers[0] if len(layers) == 1 else Concatenated(layers)

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        layers = (self.linear(f"{prefix}{e}.", names, sizes, in_features, bias) for e in range(count))
        return stacked(layers, count, self._target)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, device=CUDA)

    def head(self, tied: Tensor | None, rows: int, columns: int) -> Linear:
        return self._layer(self.kind_of("lm_head"), rows, columns, shared=tied is not None)


# --- trials ----------------------------------------------------------------------------------------------------------

PROOFS: dict[tuple[Any, str], Callable[..., object]] = {
    (trial, "disagrees"): lambda traits, _: trial.compare(traits, CPU),
    (trial, "merges_wrongly"): lambda traits, _: trial.compare_merges(traits, CPU),
    (trial, "writes_wrongly"): lambda traits, _: trial.compare_writes(traits, CPU),
    (pack_trial, "disagrees"): lambda *traits: pack_trial.compare(*traits[:-1], CPU),
    (quest_trial, "disagrees"): lambda *traits: quest_trial.compare(*traits[:-1], CPU),
    (merging, "disagrees"): lambda *traits: merging.compare(*traits[:-1], CPU),
    (fused, "norm_disagrees"): lambda *traits: fused.compare_norm(*traits[:-1], CPU),
    (fused, "gate_disagrees"): lambda *traits: fused.compare_gate(*traits[:-1], CPU),
    **{
        (module, "_disagrees"): lambda *traits, try_=module._disagrees.__wrapped__: try_(*traits[:-1], CPU)
        for module in (int4, int8, table, ggml)
    },
}
"""The functions that try kernels and, given the traits with which a load asks them, the same on the processor."""
FAR = [(trial, "far"), (products, "_far"), (fused, "_far"), (quest_trial, "_misses")]


@contextmanager
def _asked() -> Iterator[list[tuple[Callable[..., object], tuple[Any, ...]]]]:
    """What is asked of the functions that try kernels, each question once; all say that kernels agree."""
    found: dict[Any, tuple[Callable[..., object], tuple[Any, ...]]] = {}

    def answer(place: tuple[Any, str], traits: tuple[Any, ...]) -> None:
        found.setdefault((place[0].__name__, place[1], repr(traits)), (PROOFS[place], traits))

    with ExitStack() as stack:
        for place in PROOFS:
            stack.enter_context(mock.patch.object(*place, lambda *traits, place=place: answer(place, traits)))
        yield (asked := [])
    asked += found.values()


@contextmanager
def _tried_on_the_processor(card: Card) -> Iterator[list[Launch]]:
    """Inside, what trials launch on the card is taken down and nothing is found to be wrong."""
    with ExitStack() as stack:
        for owner, name in FAR:
            stack.enter_context(mock.patch.object(owner, name, return_value=False))
        stack.enter_context(mock.patch.object(torch, "equal", return_value=True))
        for module in (runtime, experts, plane_layer):
            stack.enter_context(mock.patch.object(module, "capability", return_value=card.version))
        for module in (launch, quest, plane_layer):
            stack.enter_context(mock.patch.object(module, "processors", return_value=card.multiprocessors))
        for module in (plane_layer, int8):
            stack.enter_context(mock.patch.object(module, "inlines", return_value=True))
        stack.enter_context(mock.patch.object(proof, "launching", ExitStack))
        stack.enter_context(torch.inference_mode())
        yield stack.enter_context(gathering(Different()))


def _sampling(dtype: torch.dtype, vocabulary: int) -> None:
    """What the trial of sampling and its rehearsal launch."""
    sampling.rehearse(dtype, vocabulary, META)

    def zeros(logits: Tensor, draws: Sequence[Any]) -> list[int | None]:
        sampling_draw(logits, draws)
        return [0] * len(draws) if len(draws) > 1 else [None]

    sampling_draw = sampling.draw
    with mock.patch.object(sampling, "draw", zeros):
        assert sampling.compare(dtype, vocabulary, CPU, lambda logits, draws: [0] * len(draws)) is None


# --- loads -----------------------------------------------------------------------------------------------------------


def batches(config: ModelConfig, context: int) -> list[Batch]:
    """The batches of :func:`engine.compute.runner.ahead.steps`, as a GPU gets them, on the host."""
    tiny = config.changed(hidden_size=64, num_heads=1, num_kv_heads=1, head_dim=32)
    store = new_store(tiny, 1, torch.float32)

    class Groups:
        num_groups = store.num_groups

    runner = Runner(Groups(), store, None, policy=sixteens, context=context)  # type: ignore[arg-type]
    return [runner.batch(rows) for rows in ahead.steps(context, store.num_groups)]


def _nothing(layer: Linear, x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], layer.out_features)


def _not_attended(
    backend: SdpaAttention, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int = 0,
    need_lse: bool = False, keys: KeyRange | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    out = q.new_empty(*q.shape[:2], kv.v_dim)
    return out, q.new_empty(q.shape[:2], dtype=torch.float32) if need_lse else None


@dataclass(frozen=True, slots=True)
class Pointer:
    """Stands for a tensor of a launch that is compiled: all that Triton asks of one."""

    dtype: torch.dtype
    address: int

    def data_ptr(self) -> int:
        return self.address


Launches = dict[Hashable, Launch]
"""One launch of each variant, by :meth:`Launch.variant`, with pointers for tensors."""


def _pointers(found: Iterable[Launch]) -> Launches:
    """To be called where fakes have addresses."""
    return {
        one.variant(): one._replace(
            args=tuple(Pointer(x.dtype, x.data_ptr() % 16) if isinstance(x, Tensor) else x for x in one.args)
        )
        for one in found
    }


def launches(config: ModelConfig, kind_of: Callable[[str], Any], card: Card, context: int = CONTEXT) -> Launches:
    """What a load launches: its trials, and the steps that are compiled ahead."""
    dtype, context = card.dtype, min(context, config.positions.max_position)
    steps, found = batches(config, context), Different()
    pages = 1 + max(len(batch.host.pages[0][0]) for batch in steps)
    with (
        pretended(True, card.version, card.multiprocessors),
        # What torch computes where no kernel serves takes thousands of operators, none of them Kvasir's kernels.
        mock.patch.object(BlockwiseLinear, "by_blocks", _nothing),
        mock.patch.object(SdpaAttention, "attend", _not_attended),
        _asked() as asked,
        gathering(found),
    ):
        source = Weights(dtype, kind_of)
        model: CausalLM = family(config.architecture).Model(config, source)
        kv, attention = new_store(config, pages, dtype, CUDA), AttentionDispatcher(source.numerics)
        for batch in steps:
            model.forward(on_cuda(batch), kv, attention)
        served = _pointers(found)
    with _tried_on_the_processor(card) as tried:
        for compare, traits in asked:
            assert compare(*traits) is None, (compare, traits)
        _sampling(dtype, config.vocab_size)
    return served | _pointers(one for one in tried if one.variant() not in served)


# --- what is recommended ---------------------------------------------------------------------------------------------

CARDS = {
    75: (Card((7, 5), 30), Card((7, 5), 72)),
    80: (Card((8, 0), 56), Card((8, 0), 108)),
    86: (Card((8, 6), 20), Card((8, 6), 46), Card((8, 6), 84)),
    89: (Card((8, 9), 24), Card((8, 9), 58), Card((8, 9), 142)),
    90: (Card((9, 0), 78), Card((9, 0), 132)),
    100: (Card((10, 0), 148),),
    120: (Card((12, 0), 30), Card((12, 0), 84), Card((12, 0), 188)),
}
"""GPUs of each generation, from the fewest multiprocessors to the most: by these products are cut into tiles."""


class Entry(NamedTuple):
    """A recommended file, by its name in assets/models.json: what its config.json says, and its types by the name of
    its variant. Layers that repeat are left out."""

    repository: str
    variant: str
    values: dict[str, Any]


def _config(
    architecture: str, hidden: int, heads: int, kv_heads: int, inner: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "architectures": [architecture], "hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocabulary, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "rope_theta": 1e6, "hidden_act": "silu", **more,
    }  # fmt: skip


def _qwen3(hidden: int, heads: int, inner: int, tied: bool = False) -> dict[str, Any]:
    return _config("Qwen3ForCausalLM", hidden, heads, 8, inner, 151936, head_dim=128, tie_word_embeddings=tied)


def _llama(hidden: int, heads: int, inner: int, tied: bool = False) -> dict[str, Any]:
    return _config("LlamaForCausalLM", hidden, heads, 8, inner, 128256, tie_word_embeddings=tied)


def _ministral(hidden: int, inner: int, tied: bool = False) -> dict[str, Any]:
    return _config("Ministral3ForCausalLM", hidden, 32, 8, inner, 131072, head_dim=128, tie_word_embeddings=tied)


ENTRIES = (
    Entry("Qwen/Qwen3-0.6B-GGUF", "Q8_0", _qwen3(1024, 16, 3072, True)),
    Entry("Qwen/Qwen3-4B-GGUF", "Q4_K_M", _qwen3(2560, 32, 9728, True)),
    Entry("Qwen/Qwen3-8B-GGUF", "Q4_K_M", _qwen3(4096, 32, 12288)),
    Entry("Qwen/Qwen3-14B-GGUF", "Q4_K_M", _qwen3(5120, 40, 17408)),
    Entry("Qwen/Qwen3-32B-GGUF", "Q4_K_M", _qwen3(5120, 64, 25600)),
    Entry("Qwen/Qwen3-VL-2B-Instruct-GGUF", "Q4_K_M", _qwen3(2048, 16, 6144, True)),
    Entry("Qwen/Qwen3-VL-8B-Instruct-GGUF", "Q4_K_M", _qwen3(4096, 32, 12288)),
    Entry("bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M", _llama(2048, 32, 8192, True)),
    Entry("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", _llama(4096, 32, 14336)),
    Entry("bartowski/Llama-3.3-70B-Instruct-GGUF", "Q4_K_M", _llama(8192, 64, 28672)),
    Entry("bartowski/Qwen2.5-Coder-7B-Instruct-GGUF", "Q4_K_M",
          _config("Qwen2ForCausalLM", 3584, 28, 4, 18944, 152064)),
    Entry("ggml-org/SmolLM3-3B-GGUF", "Q4_K_M",
          _config("SmolLM3ForCausalLM", 2048, 16, 4, 11008, 128256, tie_word_embeddings=True, no_rope_layers=[1, 0])),
    Entry("unsloth/Phi-4-mini-instruct-GGUF", "Q4_K_M",
          _config("Phi3ForCausalLM", 3072, 24, 8, 8192, 200064, tie_word_embeddings=True, partial_rotary_factor=0.75)),
    Entry("mistralai/Ministral-3-3B-Instruct-2512-GGUF", "Q4_K_M", _ministral(3072, 9216, True)),
    Entry("mistralai/Ministral-3-8B-Instruct-2512-GGUF", "Q4_K_M", _ministral(4096, 14336)),
    Entry("mistralai/Ministral-3-14B-Reasoning-2512-GGUF", "Q4_K_M", _ministral(5120, 16384)),
    Entry("unsloth/Seed-OSS-36B-Instruct-GGUF", "Q4_K_M",
          _config("SeedOssForCausalLM", 5120, 80, 8, 27648, 155136, head_dim=128, attention_bias=True)),
)  # fmt: skip
"""Those whose configuration was at hand and whose layers are attention and one MLP."""
BESIDES = (
    Entry("Llama 3.1 8B as a GPTQ of 4 bits", "GPTQ", _llama(4096, 32, 14336)),
    Entry("Qwen3 8B as an AWQ", "AWQ", _qwen3(4096, 32, 12288)),
)
"""What people load besides."""


def kind_of(variant: str) -> Callable[[str], Any]:
    """The type of each module of a file, as llama.cpp mixes them: "Q4_K_M" has the head, the values and half of the
    down projections in Q6_K."""
    if variant == "Q4_K_M":
        better = ("v_proj", "down_proj", "qkv_proj")
        return lambda name: Q6_K if name == "lm_head" or (".0." in name and name.endswith(better)) else Q4_K
    if variant in INT4:
        return lambda name: None if name.rsplit(".", 1)[-1] in STAY else variant
    one = {"Q8_0": Q8_0, "Q4_0": Q4_0}[variant]
    return lambda name: one


def config_of(entry: Entry) -> ModelConfig:
    """The checked configuration."""
    return family(entry.values["architectures"][0]).read_config(RawConfig(entry.values, Path(entry.repository)))


def of_entry(entry: Entry, card: Card) -> Launches:
    """What the load of a file launches on a card."""
    return launches(config_of(entry), kind_of(entry.variant), card)


def all_of(entries: Iterable[Entry], cards: Sequence[Card]) -> Launches:
    """What loads of these files launch on these cards."""
    found: Launches = {}
    for entry in entries:
        for card in cards:
            found |= of_entry(entry, card)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", type=int, nargs="+", default=list(CARDS))
    parser.add_argument("--model", default="", help="only files whose name contains this")
    options = parser.parse_args()
    chosen = [entry for entry in (*ENTRIES, *BESIDES) if options.model in entry.repository]
    for sm in options.sm:
        total: Launches = {}
        for entry in chosen:
            own, before = all_of([entry], CARDS[sm]), len(total)
            total |= own
            print(f"sm_{sm} {entry.repository:44} {entry.variant:7} {len(own):3} kernels, {len(total) - before} new")
        print(f"sm_{sm}: {len(total)} kernels")


if __name__ == "__main__":
    main()
