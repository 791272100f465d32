"""How many kernels a step asks of a GPU, from traces of forwards that pretend to run on one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

from engine.cache.policies import WindowWithSinks
from engine.cache.stores.kinds import KVKind
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.compute.layers.experts import grouped
from engine.compute.layers.experts.few import FewExperts
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.numerics import Numerics
from engine.compute.models.registry import family
from engine.compute.native.triton_launch import Launch, Variants
from engine.config.feed_forward import MoEConfig
from tests.gpu.check.first.layers import mixture_config
from tests.gpu.pretended import (
    CUDA,
    LLAMA_8B,
    QWEN3_30B,
    Node,
    Shape,
    Traits,
    Weights,
    counted,
    listed,
    pretended,
    shortened,
    traced,
)

pytestmark = pytest.mark.content("engine/compute/models/families")
QUEST = QuestPolicy(256, 16)
ONE = ((1007, 1),)
KINDS = {
    "16 bits": (Shape(ONE), 5, 163),
    "int8": (Shape(ONE, KVKind("int8")), 5, 163),
    "int4": (Shape(ONE, KVKind("int4")), 5, 163),
    "KIVI": (Shape(ONE, KVKind("kivi")), 8, 261),
    "KIVI that packs": (Shape(((1023, 1),), KVKind("kivi")), 10, 325),
    "QUEST": (Shape(ONE, KVKind(bounds=True), QUEST), 10, 318),
    "eight sequences": (Shape(((1007, 1),) * 8), 7, 229),
    "sixteen sequences": (Shape(((1007, 1),) * 16), 8, 261),
    "a verified chain": (Shape(((1007, 5),)), 9, 294),
    "a window with sinks": (Shape(ONE, policy=WindowWithSinks(256)), 12, 391),
}
"""Kernels of a layer and of a step of Llama 8B, at most. (Choosing pages counts torch's `topk` as one.)"""
BLOCK = 8
"""Kernels of a block of experts, at most."""


@pytest.mark.always
@pytest.mark.parametrize("name", list(KINDS))
def test_a_layer_of_llama_8b(name: str) -> None:
    shape, most, most_in_step = KINDS[name]
    layer, step = counted(LLAMA_8B, shape)
    assert len(layer) <= most, listed(layer)
    assert step <= most_in_step


@pytest.mark.always
@pytest.mark.parametrize("room", [0, 8 << 20])
@pytest.mark.parametrize("name", ["16 bits", "eight sequences", "KIVI", "a verified chain"])
def test_kernels_that_start_early_wait(name: str, room: int) -> None:
    """As many as otherwise; none of torch's, and not the first, so that all before it is done."""
    plain = traced(shortened(LLAMA_8B, 3), KINDS[name][0]).nodes
    nodes = traced(shortened(LLAMA_8B, 3), KINDS[name][0], room=room).nodes
    assert [node.name for node in nodes] == [node.name for node in plain]
    words = [dict(node.constants) for node in nodes]
    early = [place for place, each in enumerate(words) if each.get("launch_pdl")]
    chain = [place for place, each in enumerate(words) if each.get("EARLY")]
    assert early == chain[1:]
    assert len(chain) == sum("EARLY" in dict(node.constants) for node in plain)
    if name == "16 bits":
        assert len(early) == 3 * 5 - 1, listed(nodes)
        assert early == list(range(early[0], early[0] + len(early))), "one chain from layer to layer"
    # Attention and the additions to the stream have the weights of the next product fetched.
    fetching = [node.name for node in nodes if any(isinstance(value, Traits) and value.shape[0] > 4096 and
                value.dtype == torch.int16 for value in node.arguments[-2:])]  # fmt: skip
    assert bool(fetching) == bool(room), listed(nodes)


OWN = {
    "granite": (LLAMA_8B.changed(architecture="GraniteForCausalLM", residual_scale=0.22), 5),
    # Norms of each head, whose weights differ, and a product by those.
    "qwen 3": (LLAMA_8B.changed(architecture="Qwen3ForCausalLM", qk_norm=True), 7),
    "gemma 2": (
        LLAMA_8B.changed(architecture="Gemma2ForCausalLM", unit_offset_norms=True, activation="gelu_tanh"),
        13,
    ),
    "olmo 2": (replace(LLAMA_8B, architecture="Olmo2ForCausalLM"), 12),
    "opt": (LLAMA_8B.changed(architecture="OPTForCausalLM", rotary=(False,) * 32, activation="relu"), 9),
}


@pytest.mark.parametrize("name", list(OWN))
def test_a_layer_of_other_families(name: str) -> None:
    config, most = OWN[name]
    layer = counted(config).layer
    assert len(layer) <= most, listed(layer)


@pytest.mark.parametrize("sequences", [((1000, 1),), ((1000, 1), (37, 1), (200, 1)), ((600, 5),), ((40, 30), (7, 1))])
def test_nothing_waits_or_copies_within_a_forward(sequences: tuple[tuple[int, int], ...]) -> None:
    trace = traced(shortened(LLAMA_8B, 2), Shape(sequences))
    assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()


def block_of_experts(moe: MoEConfig, rows: int) -> list[Node]:
    """What a block of experts asks of the GPU; nothing is copied or waited for."""
    with pretended() as trace:
        block = SparseMLP(replace(QWEN3_30B, moe=moe), Weights(), "")
        x = torch.empty(rows, QWEN3_30B.hidden_size, dtype=torch.bfloat16, device=CUDA)
        block.forward(x)
        trace.clear()
        block.forward(x)
        assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()
    return trace.nodes


GPT_OSS = {"routing": "chosen", "bias": True, "swiglu_limit": 7.0}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 32, 2048])
@pytest.mark.parametrize("options", [{"normalised": True}, GPT_OSS], ids=["qwen 3", "gpt-oss"])
def test_a_block_has_as_many_kernels_for_any_number_of_experts(options: dict[str, Any], rows: int) -> None:
    blocks = [block_of_experts(MoEConfig(count, 4, 768, (True,), **options), rows) for count in (8, 32, 128)]
    # Which of the products is launched follows from the rows that an expert has on average.
    assert len({tuple(_role(node.name) for node in nodes) for nodes in blocks}) == 1
    assert len(blocks[0]) <= BLOCK, listed(blocks[0])


def _role(name: str) -> str:
    return "product" if name in ("triton.multiply_sorted", "triton.gemm_sorted") else name


@pytest.mark.always
def test_shared_experts_are_a_block_besides() -> None:
    nodes = block_of_experts(MoEConfig(64, 6, 1408, (True,), shared_size=2816, groups=8, groups_per_token=3), 1)
    assert len(nodes) <= BLOCK + 3, listed(nodes)


MIXTRAL = LLAMA_8B.changed(architecture="MixtralForCausalLM", moe=MoEConfig(8, 2, 14336, (True,) * 32))
MIXTURES = {
    "mixtral": (MIXTRAL, 1, 6, 13),
    "qwen 3": (QWEN3_30B, 1, 8, 14),
    "qwen 3, eight rows": (QWEN3_30B, 8, 9, 15),
}
"""Rows, and kernels of a layer, at most, with a block of few rows by three kernels and without."""


@pytest.mark.always
@pytest.mark.parametrize("name", list(MIXTURES))
def test_a_layer_of_a_mixture_of_experts(name: str) -> None:
    config, rows, most, before = MIXTURES[name]
    shape = Shape(((1007, 1),) * rows)
    layer = counted(config, shape).layer
    assert len(layer) <= most, listed(layer)
    with mock.patch.object(FewExperts, "declines", return_value="it computes wrongly"):
        assert len(counted(config, shape).layer) <= before


@pytest.mark.always
def test_a_layer_of_a_mixture_with_states() -> None:
    """Three delta nets to one attention, which normalises heads and has gates. Runs of states are copied once."""
    config = mixture_config(4, False)
    assert config.moe is not None
    trace = traced(config.changed(moe=replace(config.moe, num_experts=32)))
    ends = [place for place, node in enumerate(trace.nodes) if node.name == "triton.multiply_summed"]
    assert len(ends) == 4
    assert [stop - start for start, stop in itertools.pairwise(ends)] == [7, 7, 15], trace.text()
    names = trace.counts()
    assert (names["triton.delta_rule"], names["triton.gated_norm"], len(trace.copies)) == (3, 0, 0)


@pytest.mark.parametrize("sequences", [((1000, 1),), ((600, 5), (20, 1))])
def test_a_mixture_of_experts_waits_for_nothing(sequences: tuple[tuple[int, int], ...]) -> None:
    trace = traced(shortened(QWEN3_30B, 2), Shape(sequences))
    assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()


def test_a_mixture_of_experts_is_captured_where_they_run_together() -> None:
    for declines, reason in ((None, ""), ("it computes wrongly", "which experts are asked is read on the host")):
        with pretended(), mock.patch.object(grouped, "declines", return_value=declines):
            model = family("Qwen3MoeForCausalLM").Model(shortened(QWEN3_30B, 2), Weights())
        assert model.uncaptured == reason
        paths = {linear.path for name, linear in model.linears() if ".experts." in name}
        assert paths == {"Triton kernel" if declines else "Triton kernel for all experts"}


@pytest.mark.always
def test_what_waits_copies_and_pins_would_be_noticed() -> None:
    with pretended() as trace:
        x = torch.empty(3, 4, device=CUDA)
        x.view(12).narrow(0, 2, 4).add_(1).sum().item()
        x.cpu()
        torch.empty(3).to(CUDA)
        torch.tensor([1, 2], device=CUDA)
        torch.empty(2, pin_memory=True)
        torch.empty(2).pin_memory()
    assert len(trace.waits) == 2
    assert len(trace.copies) == 2
    assert trace.pinned == 2
    assert [node.name for node in trace.nodes] == ["aten.add_", "aten.sum", "aten.to", "aten.to"]


def test_what_declines_is_computed_by_torch() -> None:
    for shape in (Shape(ONE), Shape(((1023, 1),), KVKind("kivi")), Shape(ONE, KVKind(bounds=True), QUEST)):
        trace = traced(shortened(LLAMA_8B, 3), shape, fused=False)
        kernels = {name for name in trace.counts() if name.startswith("triton")}
        assert kernels == {"triton.multiply", "triton.attend", "triton.combine"}
        assert trace.counts()["aten.silu"] == 3


@pytest.mark.slow
def test_batch_invariant_sums_are_those_of_torch() -> None:
    trace = traced(shortened(LLAMA_8B, 2), Shape(ONE), Numerics(batch_invariant=True))
    assert {"triton.add_norm", "triton.gate", "triton.multiply_fused"}.isdisjoint(trace.counts())
    assert trace.counts()["triton.write"] == 2, "each of its roundings is exact"


@pytest.mark.slow
def test_what_a_launch_is_remembered_by_decides_its_variant() -> None:
    """Of all kinds of cache, and norms in float32: what was compiled at the first launch fits the others."""
    found: dict[tuple[object, ...], object] = {}

    def launch(
        of: Variants, kernel: Any, key: Any, grid: Any, args: Any, keywords: Any, *more: Any, **early: Any
    ) -> None:
        variant = Launch(kernel, grid, args, keywords()).variant()
        assert found.setdefault((of, kernel, key), variant) == variant, (kernel, key)

    sizes = [((1007, 1),), ((70, 1), (1, 1), (0, 3)), ((0, 20),), ((512, 300), (40, 1))]
    models = [shortened(config, 3) for config in (LLAMA_8B, OWN["gemma 2"][0], QWEN3_30B)]
    with mock.patch.object(Variants, "launch", launch):
        for config in models:
            for sequences in sizes:
                traced(config, Shape(sequences))
        for kind in (KVKind("int8"), KVKind("int4"), KVKind("kivi"), KVKind(bounds=True)):
            for sequences in sizes[::3]:
                traced(models[0], Shape(sequences, kind, QUEST if kind.bounds else None))
    kernels = {kernel.fn.__name__ for _, kernel, _ in found}
    assert kernels >= {"write", "flush_keys", "flush_values", "bound_pages", "page_scores", "attend_pages", "merge",
                       "add_norm", "gate", "attend", "combine", "multiply", "multiply_fused", "gemm",
                       "score", "route", "sort", "multiply_sorted", "gemm_sorted",
                       "judge", "multiply_chosen", "multiply_summed"}  # fmt: skip
