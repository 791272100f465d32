"""A window with sinks in a whole model: no row knows how it was batched, and dead pages may hold anything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention import cascade
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.model import ModelConfig
from engine.decoding.options import EngineOptions
from tests.kit.models import CONFIG, PAGES, RandomWeights, deep, llama, pages_for, tokens
from tests.kit.pairs import each_value

POLICY = WindowWithSinks(64, 4)
LENGTH = 230


def model(config: ModelConfig, invariant: bool = False) -> Runner:
    numerics = Numerics(invariant)
    store = DenseKVStore([(2, 8)] * config.num_layers, PAGES, torch.float32)
    return Runner(Llama(config, RandomWeights(numerics)), store, AttentionDispatcher(numerics))


def whole(runner: Runner, ids: list[int], policy: PagePolicy | None = POLICY) -> Tensor:
    pages = next(pages_for(len(ids)))
    return runner.forward([SequenceRows(ids, 0, pages, len(ids), policy=policy)]).logits


@each_value(
    invariant=[True, False],
    config={
        "alike": CONFIG,
        "a window": CONFIG.changed(windows=(40, None)),
        "a layer without positions": CONFIG.changed(rotary=(True, False)),
    },
)
def test_any_chunks_in_any_company(config: ModelConfig, invariant: bool) -> None:
    """Equal to the bit under batch-invariant numerics, else up to rounding."""
    ids, expected = tokens(LENGTH), whole(model(config, invariant), tokens(LENGTH))
    for chunk in (1, 7, 64):
        runner, (mine, other, *_) = model(config, invariant), list(pages_for(LENGTH + 10, 6))
        runner.forward([SequenceRows(tokens(200, 9), 0, other)])
        parts = []
        for start in range(0, LENGTH, chunk):
            part = ids[start : start + chunk]
            rows = [
                SequenceRows([start % 50], 200, other, 1, policy=[None, KeepAll(), POLICY][start % 3]),
                SequenceRows(part, start, mine, len(part), policy=POLICY),
            ]
            parts.append(runner.forward(rows).logits[1:])
        if invariant:
            assert torch.equal(torch.cat(parts), expected)
        else:
            torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-4, atol=1e-4)


def test_one_layer_is_dense_attention_to_what_is_kept() -> None:
    """A layer's keys depend on their tokens alone: a text of only the kept tokens gives the last row the same logits.

    More layers do not: their keys remember what was seen when they were made.
    """
    ids = tokens(LENGTH)
    for layers, same in ((1, True), (2, False)):
        config = deep(layers)
        logits = whole(model(config), ids)
        for t in (63, 78, 79, 100, 229):
            first = max(0, t + 1 - 64) // 16 * 16
            kept = [*ids[:4], *ids[first : t + 1]] if first else ids[: t + 1]
            apart = (whole(model(config), kept, None)[-1] - logits[t]).abs().max()
            assert apart < 1e-4 or (not same and first > 0)
    assert apart > 1e-3


def test_a_text_that_fits_is_untouched() -> None:
    ids = tokens(64 + 15)
    assert torch.equal(whole(llama(), ids), whole(llama(), ids, None))
    runner = llama()
    assert runner.batch([SequenceRows(ids, 0, list(range(1, 6)), 1, policy=POLICY)]).views is None
    assert runner.batch([SequenceRows([*ids, 1], 0, list(range(1, 6)), 1, policy=POLICY)]).views is not None
    assert runner.batch([SequenceRows([*ids, 1], 0, list(range(1, 6)), 1, policy=KeepAll())]).views is None
    one_more = [*ids, 1]
    assert not torch.equal(whole(llama(), one_more)[-1], whole(llama(), one_more, None)[-1])


@each_value(invariant=[False, True], number=[torch.nan, torch.inf, 3e38])
def test_dead_pages_may_hold_anything(invariant: bool, number: float) -> None:
    """They are given up as the text grows: other numbers come into them, and their entries become page 0."""
    ids, results = tokens(LENGTH), []
    for free in (False, True):
        runner, pages, given, logits = llama(batch_invariant=invariant), list(next(pages_for(LENGTH, 4))), 0, []
        for start, stop in [(0, 90), *((t, t + 1) for t in range(90, LENGTH))]:
            first, last = POLICY.dead_pages(start)
            for page in range(max(first, given), last if free else 0):
                for layer in range(2):
                    runner.kv.view(layer).k.view(PAGES, -1)[pages[page]] = number
                    runner.kv.view(layer).v.view(PAGES, -1)[pages[page]] = number
                pages[page], given = 0, last
            rows = SequenceRows(ids[start:stop], start, pages, stop - start, policy=POLICY)
            logits.append(runner.forward([rows]).logits)
        held = sum(page != 0 for page in pages[: -(-LENGTH // 16)])
        assert held == (POLICY.kept_pages(LENGTH) if free else -(-LENGTH // 16)) - (LENGTH % 16 > 8 and free)
        results.append(torch.cat(logits))
    assert torch.equal(*results)


@pytest.mark.parametrize("policy", [None, powers_of_two])
@pytest.mark.parametrize("start", [70, 150])
def test_a_tree_gives_each_node_the_logits_of_its_path(policy: object, start: int) -> None:
    parents, prefix = (-1, 0, 0, 2, 1, *range(4, 20)), tokens(start)
    nodes = tokens(len(parents), 3)
    runner, pages = llama(policy), next(pages_for(start + 32, 3))  # type: ignore[arg-type]
    runner.forward([SequenceRows(prefix, 0, pages, policy=POLICY)])
    out = runner.forward([SequenceRows(nodes, start, pages, len(nodes), parents, policy=POLICY)]).logits
    for row in range(len(nodes)):
        path, at = [], row
        while at >= 0:
            path, at = [nodes[at], *path], parents[at]
        torch.testing.assert_close(out[row], whole(llama(), [*prefix, *path])[-1], rtol=1e-4, atol=1e-4)


def test_models_that_cannot_say_why() -> None:
    assert POLICY.refuses(CONFIG) == KeepAll().refuses(CONFIG.changed(learned_positions=True)) == ""
    assert POLICY.refuses(CONFIG.changed(rotary=(False, False))) == ""
    assert "learned positions" in POLICY.refuses(CONFIG.changed(learned_positions=True))


def test_a_request_takes_the_policy_of_its_arrival() -> None:
    options = EngineOptions()
    options.capabilities = frozenset({"model", "sliding window"})
    assert options.for_request({}).policy == KeepAll()
    options.set("page_policy", "window_sinks")
    before = options.for_request({})
    options.set("window_tokens", 300)
    assert (before.policy, options.for_request({}).policy) == (WindowWithSinks(1024), WindowWithSinks(300))
    assert options.cascade
    options.set("cascade", False)
    numerics = Numerics()
    options.apply_to(numerics)
    assert (numerics.cascade, numerics.batch_invariant) == (False, False)


def test_sequences_on_the_same_pages_get_their_own_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole model the switch changes how often keys are read, and the logits by rounding alone."""
    monkeypatch.setattr(cascade, "LEAST_PAGES", 2)
    monkeypatch.setattr(cascade, "LEAST_SAVED", 2)
    shared, ends = tokens(80), [tokens(20, s) for s in range(3)]
    expected = torch.cat([whole(llama(), [*shared, *end], None)[99:] for end in ends])
    runner = llama()
    attention = runner.attention
    assert isinstance(attention, AttentionDispatcher)
    runner.forward([SequenceRows(shared, 0, list(range(1, 6)))])
    tables = [[*range(1, 6), 10 + 2 * s, 11 + 2 * s] for s in range(3)]
    for pages, end in zip(tables, ends, strict=True):
        runner.forward([SequenceRows(end[:19], 80, pages)])
    assert attention.keys_saved == 0
    out = runner.forward([SequenceRows(end[19:], 99, pages, 1) for pages, end in zip(tables, ends, strict=True)])
    assert attention.keys_saved == 2 * 2 * 80, "two layers, two sequences that did not read them"
    torch.testing.assert_close(out.logits, expected, rtol=1e-4, atol=1e-4)
