"""A model with recurrent layers says the same text whatever becomes of its states: in fp32, batch-invariant.

Prompts that share beginnings, in chunks, several answers to one, answers that give way at random moments and come back
from host memory, drafts that are accepted in part.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.cache.groups.base import GRACE
from engine.cache.groups.state import EVERY, StateGroup
from engine.cache.offload.saved import SavedChats
from engine.protocol import Sampling
from tests.conformance.hybrid_models import SHAPE, write_hybrid, write_states
from tests.conformance.texts import COMMON, PROMPTS, SAMPLINGS, VARIANTS, restarted
from tests.kit.examples import some
from tests.kit.hosts import Host
from tests.kit.pairs import each_value

KINDS = ("16bit", "int8", "fp8", "int4", "kivi", "quest", "window")
GREEDY = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "hybrid"
    write_hybrid(folder)
    return folder


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    with Host(folder) as host:
        yield host


def fresh(host: Host, variant: str = "16bit") -> None:
    """Nothing is known of any text."""
    host.fresh(VARIANTS[variant].switches)
    states(host).snapshots.make_room(states(host).pool.total)
    host.stepper.cache.check(idle=True)


def states(host: Host) -> StateGroup:
    found = host.stepper.cache.manager.groups[-1]
    assert isinstance(found, StateGroup)
    return found


@pytest.mark.slow
@each_value(variant=KINDS, sampling=list(SAMPLINGS))
def test_sharing_and_chunks(host: Host, variant: str, sampling: str) -> None:
    fresh(host, variant)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    for budget in some(512, 33, more=(16,)):
        assert host.texts(PROMPTS, SAMPLINGS[sampling], budget=budget) == expected
        found = [host.cached[id] for id in list(host.cached)[-len(PROMPTS) :]]
        if budget == 33 and VARIANTS[variant].shares:
            assert all(found)
            states(host).snapshots.make_room(states(host).pool.total)


def test_several_answers(host: Host) -> None:
    fresh(host)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3) == expected
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3, 40) == expected


@pytest.mark.parametrize("mode", ["swap", "recompute", "auto"])
@pytest.mark.parametrize("variant", ["16bit", pytest.param("int4", marks=pytest.mark.long)])
def test_preemption_at_random_moments(host: Host, variant: str, mode: str) -> None:
    fresh(host, variant)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(3):
        ids = host.ask(PROMPTS, SAMPLINGS["seeded"], 3)
        before = host.stepper.cache.stats.swapped_in
        assert host.run(100, random.Random(seed)) > 2
        assert host.of(ids, 3) == expected
        if mode == "swap":
            assert host.stepper.cache.stats.swapped_in > before
    host.set(preemption="auto")


@pytest.mark.slow
@each_value(method=["ngram", "mtp", "auto"], sampling=list(SAMPLINGS))
def test_drafts_change_nothing(host: Host, method: str, sampling: str) -> None:
    """Chains of all lengths, with what is accepted of them moving the states on, undisturbed and disturbed."""
    fresh(host)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    drafted: set[str] = set()
    seldom = ((1, 512, False), (1, 160, True), (4, 512, False), (4, 90, False), (7, 160, True))
    for length, budget, disturbed in some((1, 90, False), (4, 160, True), (7, 512, False), (7, 90, False), more=seldom):
        ids = host.ask(PROMPTS, SAMPLINGS[sampling], speculation=method, draft_length=length)
        host.run(budget, random.Random(length) if disturbed else None)
        assert host.of(ids) == expected
        drafted |= set(host.sources(ids))
    # What n-grams propose, this model hardly ever says.
    assert {"ngram": "corrected", "mtp": "mtp", "auto": "target"}[method] in drafted


def test_a_tree_of_drafts_changes_nothing(host: Host) -> None:
    fresh(host)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"])
    host.set(tree_nodes=12)
    ids = host.ask(PROMPTS, SAMPLINGS["seeded"], speculation="mtp", draft_length=4)
    host.run()
    assert host.of(ids) == expected
    assert "mtp" in host.sources(ids)


@pytest.mark.slow
def test_a_second_turn_reads_what_is_new(host: Host) -> None:
    """It goes on from the last page that the first turn's answer filled; one that leaves the prompt's end otherwise
    from a page before it; and a third text from where the first two part, once that is known."""
    fresh(host)
    prompt = COMMON[:150]
    ids = host.ask([prompt], GREEDY)
    host.run()
    turn = [*prompt, *host.of(ids)[0]]
    second, other = [*turn, 5, 6, 7, 8], [*prompt[:145], *COMMON[:30]]
    for text, cached in ((second, (len(turn) - 1) // 16 * 16), (other, (150 - GRACE) // 16 * 16)):
        ids = host.ask([text], GREEDY)
        host.run()
        assert host.cached[ids[0]] == cached
        alone = host.ask([text], GREEDY, prefix_cache=False)
        host.run()
        assert host.of(ids) == host.of(alone)
    parted = [*prompt[:70], *COMMON[10:90]]
    for cached in (0, 64):
        ids = host.ask([[*parted[:120], 3 + cached % 7, *parted[121:]]], GREEDY)
        host.run()
        assert host.cached[ids[0]] == cached


def test_a_second_question_finds_the_document(host: Host) -> None:
    """Nobody knows where the first question begins: a state is kept every so many tokens."""
    fresh(host)
    document = (COMMON * 4)[:600]
    for place, cached in ((10, 0), (30, EVERY), (50, 592)):
        ids = host.ask([[*document, *COMMON[place : place + 40]]], SAMPLINGS["greedy"])
        host.run()
        assert host.cached[ids[0]] == cached


def test_one_answer_leaves_a_state_where_another_will_part(host: Host) -> None:
    """Asked at once, the second waits for what both begin with, and reads none of it."""
    fresh(host)
    prompts = [[*COMMON[:128], *COMMON[40:80]], [*COMMON[:128], *COMMON[90:120]]]
    ids = host.ask(prompts, GREEDY)
    host.run(64)
    assert [host.cached[id] for id in ids] == [0, 128]


def test_snapshots_go_to_host_memory_and_come_back(host: Host) -> None:
    fresh(host)
    host.set(host_cache=1.0)
    ids = host.ask([COMMON[:150]], GREEDY)
    host.run()
    expected, snapshots = host.of(ids)[0], states(host).snapshots
    host.stepper.cache.tree.evict(1 << 30)
    assert snapshots.on_device == len(snapshots) > 0
    snapshots.make_room(states(host).pool.total)
    assert snapshots.on_device == 0 < len(snapshots)
    ids = host.ask([COMMON[:150]], GREEDY)
    host.run()
    assert host.cached[ids[0]] == 128
    assert host.of(ids)[0] == expected
    host.stepper.cache.tree.evict(1 << 30)
    snapshots.make_room(states(host).pool.total)
    host.stepper.cache.space.resize(0)
    assert len(snapshots) == 0, "host memory that is given up takes its snapshots along"


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["16bit", "int8", "kivi"])
def test_a_chat_goes_on_after_a_restart(folder: Path, tmp_path: Path, variant: str) -> None:
    """With its pages and its state from files; a chat that is deleted leaves none."""
    switches, opened = VARIANTS[variant].switches, list[SavedChats]()

    def open_host(saved: SavedChats) -> Host:
        opened.append(saved)
        return Host(folder, saved=saved)

    with restarted(open_host, tmp_path / "chats", GREEDY, **switches) as (second, known, cached):
        assert cached == known // 16 * 16
        second.stepper.cache.forget("a chat")
        assert opened[-1].flush(20)
        assert opened[-1].sizes().chats == 0


def test_a_failed_step_harms_no_state(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out in the midst of a step: it is tried again, from the state before it."""
    fresh(host)
    expected = host.plain(PROMPTS, SAMPLINGS["greedy"])
    layer = host.stepper.model.model.layers[2]
    real, calls = type(layer).forward, [0]

    def forward(self: object, *args: object) -> None:
        calls[0] += self is layer
        if self is layer and calls[0] % 5 == 2 and len(host.stepper.scheduler.running) > 1:
            raise MemoryError
        real(self, *args)

    monkeypatch.setattr(type(layer), "forward", forward)
    ids = host.ask(PROMPTS, SAMPLINGS["greedy"], speculation="mtp")
    host.run(100)
    assert host.of(ids) == expected
    assert calls[0] > 20


@pytest.mark.parametrize(
    "span", [range(1, 301, 13), pytest.param(range(1, 301), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_every_length_of_a_prompt(folder: Path, host: Host, span: range) -> None:
    """Others found one length in 128 to corrupt the state: the text of a prompt that is found in part, after one that
    ends within it, is that of transformers' model."""

    reference = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    fresh(host)
    text = [*COMMON, *reversed(COMMON[:110])]
    sampling = Sampling(temperature=0.0, max_tokens=3, ignore_eos=True)
    for length in span:
        ids = host.ask([text[:length]], sampling, speculation="mtp")
        host.run(128)
        found = host.of(ids)[0]
        with torch.inference_mode():
            logits = reference(torch.tensor([[*text[:length], *found]])).logits[0, length - 1 : -1]
        best = logits.max(1).values
        assert torch.all(best - logits.gather(1, torch.tensor(found)[:, None])[:, 0] < 1e-4), length


def test_the_shape_is_one_that_native_code_serves() -> None:
    assert SHAPE["linear_key_head_dim"] % 16 == SHAPE["linear_value_head_dim"] % 16 == 0


MAMBA = {"mamba_n_heads": 6, "mamba_d_head": "auto", "mamba_expand": 3, "mamba_n_groups": 3, "mamba_d_state": 12,
         "num_local_experts": 4, "shared_intermediate_size": 48}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "short convolutions": (
        "Lfm2",
        {"layer_types": ["conv", "conv", "full_attention"] * 2, "conv_L_cache": 4, "block_multiple_of": 32},
    ),
    "delta rule between norms": (
        "OlmoHybrid",
        {"layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 16,
         "linear_value_head_dim": 16, "rope_parameters": None, "pad_token_id": 0},
    ),
    "decays of channels, latent attention": (
        "KimiLinear",
        {"layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2, "linear_num_heads": 3,
         "linear_head_dim": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
         "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
         "pad_token_id": 0, "num_key_value_heads": 4},
    ),
    "projections of each key head": (
        "Qwen3Next",
        {"layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2, "linear_num_key_heads": 2,
         "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24},
    ),
    "short convolutions, windows": (
        "Lfm3",
        {"layer_types": ["conv", "sliding_attention", "full_attention"] * 2, "conv_L_cache": 7, "sliding_window": 24,
         "head_dim": 16, "pad_token_id": 0},
    ),
    "mamba": ("GraniteMoeHybrid", MAMBA | {"layer_types": ["mamba", "mamba", "attention"] * 2}),
    "mamba and blocks without cache": (
        "NemotronH",
        {"hybrid_override_pattern": "M-M*EM-", "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2,
         "ssm_state_size": 16, "n_routed_experts": 4, "moe_intermediate_size": 32, "head_dim": 16,
         "moe_shared_expert_intermediate_size": 40},
    ),
}  # fmt: skip
"""Models of other states: transformers' name, and options."""


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A model whose states are of another kind."""
    (name, own), folder = request.param, tmp_path_factory.mktemp("models") / "other"
    layers = {} if name == "NemotronH" else {"num_hidden_layers": 6}
    seed = {"OlmoHybrid": 2, "KimiLinear": 1, "Qwen3Next": 1}.get(name, 0)  # else no draft is ever right
    write_states(folder, name, seed, **(layers | own))
    # Latents are expanded in 200 MB of their own.
    with Host(folder, memory=300e6 if name == "KimiLinear" else 200e6) as host:
        yield host


@pytest.mark.slow
@each_value(
    without=lambda other, variant: other[0] == "KimiLinear" and variant != "16bit",  # latents stay in 16 bits
    indirect=["other"],
    other=OTHERS,
    variant=["16bit", "int4"],
)
def test_other_states(other: Host, variant: str) -> None:
    """Chunks and shared beginnings, answers that give way, and drafts by n-grams of which a part is accepted."""
    host, sampling = other, SAMPLINGS["seeded"]
    fresh(host, variant)
    expected = host.plain(PROMPTS, sampling)
    assert len({tuple(text) for text in expected}) > 2
    for budget in some(33, more=(512, 16)):
        assert host.texts(PROMPTS, sampling, budget=budget) == expected
    for mode in ("swap", "recompute"):
        host.set(preemption=mode, host_cache=1.0)
        ids = host.ask(PROMPTS, sampling)
        assert host.run(100, random.Random(1)) > 2
        assert host.of(ids) == expected
    host.set(preemption="auto", host_cache=0.0)
    for length, nodes in some((1, 0), (4, 12), more=((4, 0),)):
        host.set(tree_nodes=nodes)
        ids = host.ask(PROMPTS, sampling, speculation="ngram", draft_length=length)
        host.run(160, random.Random(length))
        assert host.of(ids) == expected
        assert "corrected" in host.sources(ids)
