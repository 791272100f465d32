"""Steps recorded on a processor: what a tape replays, and what may not be on one."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.base.host_memory import MemoryPool
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.states import StateRuns
from engine.cache.types import StateRun
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.convolution import convolve
from engine.compute.models.arenas import new_store
from engine.compute.models.registry import family
from engine.compute.native.library import loaded
from engine.compute.native.tape import RecordingError, Tape
from engine.compute.runner import graphs
from engine.compute.runner.inputs import state_runs
from engine.compute.runner.recorders import TapeRecorder
from engine.compute.runner.runner import Runner
from engine.config.attention import LatentShape
from engine.config.model import ModelConfig
from engine.config.states import RecurrentShape
from tests.engine.compute.models.fake_families import OWN
from tests.engine.compute.runner.graphs_support import CONTEXT, agree, graphs_of
from tests.gpu.gpu_support import CPU, FAMILIES, PAGES, Weights
from tests.kit.models import pages_for

RECORDED = {
    f"{name}ForCausalLM"
    for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Gemma2", "Gemma3", "Phi3", "Olmo2", "Granite", "OPT")
}
"""Families that a tape serves with unpacked weights: without experts."""
MIXED = (
    *("MixtralForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM", "Gemma4ForCausalLM"),
    *("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "OlmoHybridForCausalLM", "KimiLinearForCausalLM"),
    *("GraniteMoeHybridForCausalLM", "NemotronHForCausalLM", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
)
"""Families with experts, states, or both: served by a tape where native code serves their weights."""
SLOTS = 21


class MixtureWeights(Weights):
    """Routers are not packed, as in most files."""

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        packed, self.packed = self.packed, self.packed and names[-1] not in ("gate", "router")
        try:
            return super().linear(prefix, names, sizes, in_features, bias)
        finally:
            self.packed = packed


def wide(config: ModelConfig) -> ModelConfig:
    """The configuration with widths that native code serves: of heads 32, of packed weights' inputs 64."""
    if config.attention.latent is not None:
        latent = LatentShape(rank=64, nope=32, rope=32, value=32, q_rank=64)
        config = config.changed(latent=latent, head_dim=64)
    if isinstance(config.recurrent, RecurrentShape) and config.recurrent.channel_decays:
        config = config.changed(recurrent=replace(config.recurrent, key=64, value=64))
    return replace(config, layer_inputs=64) if config.layer_inputs else config


def runners(
    architecture: str, kind: KVKind = KVKind(), packed: bool = False, config: ModelConfig | None = None
) -> tuple[Runner, Runner]:
    """One that records its steps, and one that never does."""
    numerics, config = Numerics(quantises=packed), config or FAMILIES[architecture]
    with torch.inference_mode():
        model = family(architecture).Model(config, MixtureWeights(CPU, torch.float32, numerics, packed))
    stores = (
        new_store(config, PAGES, torch.bfloat16, kind=kind, state_slots=SLOTS, state_dtype=torch.float32)
        for _ in range(2)
    )
    records, never = (
        Runner(model, store, AttentionDispatcher(numerics), CPU, None, CONTEXT, recorder, numerics)
        for store, recorder in zip(stores, (TapeRecorder(), None), strict=True)
    )
    return records, never


def same(records: Runner, never: Runner, rows: list[SequenceRows], **options: Any) -> None:
    """Both give the same, to the bit but for torch's product of the head, which is cut by the number of rows."""
    found, expected = records.forward(rows, **options), never.forward(rows, **options)
    assert found.hidden.keys() == expected.hidden.keys()
    assert all(torch.equal(found.hidden[layer], expected.hidden[layer]) for layer in expected.hidden)
    agree(found, expected)


@pytest.mark.parametrize("kind", [KVKind(), KVKind("int8"), KVKind("fp8"), KVKind("int4")], ids=lambda kind: kind.name)
def test_any_order_of_steps_gives_the_same_bits(kind: KVKind) -> None:
    steps_agree(*runners("LlamaForCausalLM", kind, packed=True))


@pytest.mark.parametrize("kind", [KVKind(), KVKind("int4")], ids=lambda kind: kind.name)
def test_capped_scores_have_the_same_bits(kind: KVKind) -> None:
    steps_agree(*runners("Gemma2ForCausalLM", kind, packed=True), frozenset({1, 2}))


@pytest.mark.parametrize("architecture", MIXED)
def test_experts_are_chosen_and_states_moved_on_by_a_tape(architecture: str) -> None:
    """Rows of other steps ask other experts, and of seven rows one is padding."""
    steps_agree(*runners(architecture, packed=True, config=wide(OWN[architecture])), frozenset({1, 2}))


def test_experts_with_groups_of_any_input_features_are_chosen_by_a_tape() -> None:
    records, never = runners("MixtralForCausalLM", packed=True, config=OWN["MixtralForCausalLM"])
    generator = torch.Generator().manual_seed(5)
    layers = [linear for name, linear in records.model.linears() if "experts" in name]  # type: ignore[attr-defined]
    assert layers
    for linear in layers:
        linear.order = torch.randperm(linear.in_features, dtype=torch.int32, generator=generator)
    steps_agree(records, never, frozenset({1, 2}))


def steps_agree(records: Runner, never: Runner, hidden: frozenset[int] = frozenset()) -> None:
    """Steps of both agree, in whatever order they come, and some of the former's are on tapes.

    Of chains with states some rows are drafted, and of these some are accepted.
    """
    order = random.Random(7)
    tables = pages_for(96, 3)
    pages, lengths, states = [next(tables) for _ in range(5)], [0] * 5, [0] * 5
    taped = 0
    for step in range(60):
        form, rows = order.choice(("decode", "decode", "chains", "read")), []
        first, accepted, runs = 0, list[int](), list[tuple[StateRun]]()
        for chat in order.sample(range(5), order.randint(1, 5)):
            count = 1 if form == "decode" else order.randint(1, 3) if form == "chains" else order.randint(1, 20)
            if lengths[chat] + count > 90:
                continue
            tokens = [order.randrange(200) for _ in range(count)]
            drafted = order.randint(0, count - 1) if records.kv.states is not None and form == "chains" else 0
            known, taken = count - drafted, order.randint(0, drafted)
            mine = (StateRun(known, states[chat], _next(states, chat)), StateRun(drafted, states[chat], 0))
            row = SequenceRows(tokens, lengths[chat], pages[chat], order.randint(1, count))
            rows.append(row._replace(states=mine[: 1 + (drafted > 0)]))
            if taken:
                accepted += range(first + known, first + known + taken)
                runs.append((StateRun(taken, states[chat], _next(states, chat)),))
            first += count
            lengths[chat] += known + taken
        if rows:
            same(records, never, rows, want_hidden=frozenset({0, 2}) if step % 9 == 0 else hidden)
            taped += not records.eager
        if accepted:
            records.replay(accepted, runs)
            never.replay(accepted, runs)
    assert taped > 9, records.eager
    for found, expected in zip(_states(records), _states(never), strict=True):
        assert torch.equal(found[1:], expected[1:])


def _next(states: list[int], chat: int) -> int:
    """Move a chat on to the next of its four slots."""
    states[chat] = 1 + 4 * chat + states[chat] % 4
    return states[chat]


def _states(runner: Runner) -> list[Tensor]:
    kept = runner.kv.states
    return [] if kept is None else [each for layer in kept.layers for each in layer if each.numel()]


def test_a_state_in_one_place_is_moved_on_once() -> None:
    """By the step that is recorded, too."""
    records, never = runners("Qwen3_5ForCausalLM", packed=True, config=OWN["Qwen3_5ForCausalLM"])
    for place in range(6):
        same(records, never, [SequenceRows([place], place, [3], 1, states=StateRun.alone(1, place))])
        for found, expected in zip(_states(records), _states(never), strict=True):
            assert torch.equal(found, expected)
    assert not records.eager


def test_runs_of_a_captured_step() -> None:
    rows = [
        SequenceRows([0] * 3, 5, [1], states=(StateRun(1, 4, 5), StateRun(2, 5, 0))),
        SequenceRows((), 0, [0]),
        SequenceRows([0], 0, [0]),
    ]
    ends, frozen = [0, 3, 3, 4], StateRuns.frozen(4, 3, False)
    frozen.fill(state_runs(rows, ends), ends)
    assert frozen.begins is not None
    assert frozen.begins.tolist() == [0, 2, 2, 3]
    assert frozen.runs[:3, :4].tolist() == [[0, 1, 4, 5], [1, 3, 5, 0], [3, 4, 0, 0]]
    assert frozen.rows == 4
    assert frozen.drafts
    with pytest.raises(RuntimeError, match="planned on the host"):
        convolve(torch.zeros(4, 8), torch.zeros(3, 8), torch.zeros(6, 2, 8), frozen)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_each_family_is_recorded_or_says_why_not(architecture: str) -> None:
    records, never = runners(architecture)
    table, place = list(range(1, 41)), 30
    same(records, never, [SequenceRows([7 * i % 200 for i in range(place)], 0, table, 1)])
    assert records.eager == graphs_of(records).too_many
    for _ in range(5):  # past the windows, too
        same(records, never, [SequenceRows([place % 200], place, table, 1)])
        same(records, never, [SequenceRows([5, 6, 7], place + 1, table, 3)])
        place += 4
    if records.eager:
        assert records.eager == records.model.uncaptured or "plans each step on the host" in records.eager
    assert (not records.eager) == (architecture in RECORDED)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen3_5ForCausalLM"])
def test_trees_are_recorded(architecture: str) -> None:
    """Each of another form, next to a chain, and longer than a window."""
    records, never = runners(architecture, packed=True, config=OWN[architecture])
    order, table = random.Random(3), list(range(1, 20))
    start = 0
    for step in range(12):
        tree = [-1, *(order.randrange(row) for row in range(1, 5))]
        states = StateRun(1, step and 1 + step % 2, 1 + (step + 1) % 2), StateRun(4, 1 + (step + 1) % 2, 0)
        rows = [SequenceRows([order.randrange(200) for _ in tree], start, table, 5, tree, states=states)]
        if step % 3 == 2:
            rows.append(SequenceRows([1, 2], 0, [30], 1))
        same(records, never, rows, want_hidden=frozenset({2}))
        start += 5
        if step > 5:
            assert not records.eager
    for found, expected in zip(_states(records), _states(never), strict=True):
        assert torch.equal(found, expected)


def test_other_bits_of_activations_are_recorded_anew() -> None:
    records, never = runners("LlamaForCausalLM", packed=True)
    row = [SequenceRows([1], 3, [3], 1)]
    logits = []
    for bits in (8, 16, 8):
        records.model.numerics.activations = bits  # type: ignore[attr-defined]
        for _ in range(4):
            same(records, never, row)
        assert not records.eager
        logits.append(records.forward(row).logits)
    assert torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], logits[1])


def test_the_memory_of_tapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    records, never = runners("LlamaForCausalLM")
    monkeypatch.setattr(TapeRecorder, "traits", TapeRecorder.traits._replace(most_bytes=1))
    for answers in (1, 2, 3):
        for _ in range(4):
            same(records, never, [SequenceRows([1], 3, [3 + i], 1) for i in range(answers)])
        assert not records.eager
        assert len(graphs_of(records)) == 1


def test_the_memory_of_tapes_goes_with_the_last_one() -> None:
    recorder, x, weight = TapeRecorder(), torch.randn(2, 64), torch.ones(64)
    captured = [recorder.record(lambda: ForwardOutput(loaded().norm(x, weight, 1e-6), {})) for _ in range(2)]
    assert recorder._pool is not None
    del captured[0]
    assert recorder._pool() is not None
    captured.clear()
    gc.collect()
    assert recorder._pool() is None
    assert recorder.record(lambda: ForwardOutput(loaded().norm(x, weight, 1e-6), {})).bytes == x.nbytes


def test_a_step_without_memory_gives_tapes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Tape[Any]) -> None:
        raise MemoryError("A recorded step ran out of memory.")

    monkeypatch.setattr(Tape, "replay", full)
    records, never = runners("LlamaForCausalLM")
    row = [SequenceRows([1], 3, [3], 1)]
    for _ in range(2):
        same(records, never, row)
    with pytest.raises(MemoryError):
        records.forward(row)
    assert graphs_of(records).give_up()
    same(records, never, row)
    assert records.eager == graphs.NO_MEMORY


@pytest.mark.parametrize("inference", [False, True])
def test_operators_in_place_and_new_ones_and_views_are_replayed(inference: bool) -> None:
    with torch.inference_mode(inference):
        x, total = torch.arange(6.0), torch.zeros(2, 3)

        def run() -> tuple[Tensor, Tensor, Tensor]:
            rows = x.view(2, 3)
            total.add_(rows)
            most, where = rows.max(1)
            apart = rows.split((1, 2), 1)[1].contiguous()
            return torch.cat((rows * 2, torch.full((1, 3), 9.0))), most + where, apart.reshape(4).contiguous()

        tape = Tape.of(run)
        x.copy_(torch.tensor([5.0, 0, 1, 2, 8, 3]))
        tape.replay()
        again, most, apart = tape.result
        assert again.tolist() == [[10.0, 0.0, 2.0], [4.0, 16.0, 6.0], [9.0, 9.0, 9.0]]
        assert most.tolist() == [5.0, 9.0]
        assert apart.tolist() == [0.0, 1.0, 8.0, 3.0]
        assert total.tolist() == [[5.0, 1.0, 3.0], [5.0, 12.0, 8.0]]


def test_native_calls_of_this_thread_alone_are_recorded() -> None:
    library, x, weight = loaded(), torch.randn(2, 64), torch.ones(64)
    other = torch.randn(1, 64)

    def run() -> Tensor:
        thread = threading.Thread(target=lambda: library.norm(other, weight, 1e-6))
        thread.start()
        thread.join()
        return library.norm(x, weight, 1e-6)

    tape = Tape.of(run)
    assert len(tape._calls) == 1
    x.mul_(-3)
    tape.replay()
    assert torch.equal(tape.result, library.norm(x, weight, 1e-6))


def test_native_results_share_memory_within_a_tape_and_between_tapes() -> None:
    library, weight, pool = loaded(), torch.randn(64), MemoryPool()
    inputs, counts = (torch.randn(2, 64), torch.randn(2, 64)), (3, 6)

    def norms(x: Tensor, count: int) -> Tensor:
        for _ in range(count):
            x = library.norm(x, weight, 1e-6)
        return x

    tapes = [Tape.of(partial(norms, *each), pool) for each in zip(inputs, counts, strict=True)]
    assert len({each.data_ptr() for each in (tape.result for tape in tapes)}) == 2
    assert [len(each.memory) for each in pool._buffers] == 3 * [tapes[0].result.nbytes]
    assert [tape.bytes for tape in tapes] == [tape.result.nbytes for tape in tapes]
    for x in inputs:
        x.mul_(-3).add_(1)
    for tape in tapes:
        tape.replay()
    for tape, *each in zip(tapes, inputs, counts, strict=True):
        assert torch.equal(tape.result, norms(*each))


@pytest.mark.parametrize(
    "read",
    [Tensor.tolist, Tensor.item, Tensor.numpy, bool, int, float, lambda x: [0][x], lambda x: x.nonzero().tolist()],
)
def test_what_reads_a_tensor_cannot_be_recorded(read: Callable[[Tensor], Any]) -> None:
    x = torch.zeros((), dtype=torch.int64)
    with pytest.raises(RecordingError, match="reads a tensor"):
        Tape.of(lambda: read(x + 0))
    read(x + 0)


def test_what_cannot_be_recorded_runs_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    records, never = runners("LlamaForCausalLM")
    norm = records.model.norm
    forward = type(norm).forward

    def reads(self: Any, x: Tensor) -> Tensor:
        assert x.sum().item() is not None
        return forward(self, x)

    monkeypatch.setattr(type(norm), "forward", reads)
    for _ in range(4):
        same(records, never, [SequenceRows([1], 3, [3], 1)])
    assert records.eager == "it could not be captured (Python reads a tensor by item)"


def test_recording_imports_no_compiler() -> None:
    assert not hasattr(Tape.__torch_dispatch__, "__wrapped__"), "torch imports its compiler at the first call of it"
