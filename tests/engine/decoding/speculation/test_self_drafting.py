"""Drafts from the target's own layers: which they are, what they cost, and that nothing of them stays behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.cache.policies import PagePolicy
from engine.cache.stores.kinds import KVKind
from engine.compute.batch import SequenceRows
from engine.compute.sampling.probabilities import probabilities
from engine.compute.sampling.sampler import Draw
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest
from engine.decoding.speculation.self_drafting.proposers import EarlyExitProposer, LayerSkipProposer, SelfDrafting
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.decoding.speculation.decoding import Decoding
from tests.engine.decoding.speculation.target_support import (
    CONFIG,
    EOS,
    KINDS,
    LAYERS,
    NAMES,
    Target,
    prompt,
    small_model,
)
from tests.kit.pairs import each_value

SKIP = frozenset({2, 4})
OTHERS = dict(zip(NAMES[1:], KINDS[1:], strict=True))
"""Caches other than that of the contract."""


def leaving(target: Target, exit_layer: int = 2) -> EarlyExitProposer:
    return EarlyExitProposer(target.runner, target.model, {EOS}, 6.0, exit_layer)


def skipping(target: Target, skip: frozenset[int] = SKIP) -> LayerSkipProposer:
    return LayerSkipProposer(target.runner, target.model, {EOS}, 6.0, skip)


def proposer_of(name: str, target: Target) -> SelfDrafting:
    return leaving(target) if name == "exit" else skipping(target)


def ask(request, budget: int, depth: int = 1 << 30) -> DraftRequest:
    return DraftRequest(request, budget, request.known, depth)


class TestEarlyExit(ProposerContract):
    eos, holds = EOS, False

    @pytest.fixture
    def make(self) -> Make:
        model = small_model()
        return lambda: Decoding(model, lambda host: EarlyExitProposer(host.recorded(host.target), model, {EOS}, 6.0, 2))


class TestLayerSkip(ProposerContract):
    eos, holds = EOS, False

    @pytest.fixture
    def make(self) -> Make:
        model = small_model()
        return lambda: Decoding(
            model, lambda host: LayerSkipProposer(host.recorded(host.target), model, {EOS}, 6.0, frozenset({1}))
        )


# --- which drafts ------------------------------------------------------------------------------------------------


def stream(tokens: list[int], layer: int) -> Tensor:
    """The stream that enters a layer after the last of the tokens, by one pass over all of them."""
    target = Target()
    row = SequenceRows(tokens, 0, list(range(1, 15)), len(tokens))
    return target.runner.forward([row], want_hidden=frozenset({layer})).hidden[layer][-1:]


@pytest.mark.parametrize("exit_layer", [1, 2, 5])
def test_an_exit_drafts_what_its_layers_say_and_hands_on_their_streams(exit_layer: int) -> None:
    target = Target()
    requests = [target.add(prompt(length, length)) for length in (31, 2, 48)]
    trees = leaving(target, exit_layer).propose([ask(r, budget) for r, budget in zip(requests, (4, 2, 1), strict=True)])
    assert [len(tree.tokens) for tree in trees] == [4, 2, 1]
    for request, tree in zip(requests, trees, strict=True):
        assert (tree.proposer, tree.exit_layer, tree.parents, tree.q) == ("exit", exit_layer, None, None)
        text, states = list(request.tokens), []
        for token in tree.tokens:
            states.append(stream(text, exit_layer))
            assert token == int(target.runner.logits(states[-1])[0].argmax())
            text.append(token)
        assert tree.early is not None
        assert torch.equal(tree.early, torch.cat(states))


def test_each_request_leaves_where_it_says_in_one_batch_whose_states_are_of_one_layer() -> None:
    wishes = (0, 1, 5, 6, 200)
    alone = []
    for exit_layer in (2, 1, 5, 5, 5):
        target = Target()
        alone.append(leaving(target, exit_layer).propose([ask(target.add(prompt(20, 3)), 4)])[0].tokens)
    assert len(set(alone)) == 3, "all exits say the same, so that this would show nothing"
    target = Target()
    requests = [target.add(prompt(20, 3), exit_layer=wish) for wish in wishes]
    target.runner.passes.clear()
    trees = leaving(target).propose([ask(request, 4) for request in requests])
    assert [tree.tokens for tree in trees] == alone
    assert {tree.exit_layer for tree in trees} == {5}
    assert target.runner.passes == [5] * 4
    for request, tree in zip(requests, trees, strict=True):
        assert tree.early is not None
        assert torch.equal(tree.early[:1], stream(request.tokens, 5))


@pytest.mark.parametrize("skip", [frozenset({0}), SKIP, frozenset(range(1, LAYERS))], ids=str)
def test_skipping_reads_the_targets_keys_and_writes_its_own_after_them(skip: frozenset[int]) -> None:
    target, other = Target(), Target()
    request, same = target.add(prompt(40)), other.add(prompt(40))
    (tree,) = skipping(target, skip).propose([ask(request, 5)])
    assert (len(tree.tokens), tree.proposer, tree.early, tree.exit_layer) == (5, "skip", None, 0)
    text = list(same.tokens)
    for token in tree.tokens:
        # What is committed stands in the arenas of all layers; the root and the drafts are read without some.
        row = SequenceRows(text[39:], 39, same.pages, 1)
        assert token == int(other.runner.forward([row], skip=skip).logits[0].argmax())
        text.append(token)


def test_skipping_nothing_is_the_target_itself() -> None:
    target = Target()
    request = target.add(prompt(30))
    trees = skipping(target, frozenset()).propose([ask(request, 6)])
    assert target.step([request], trees) == [6]


def test_skipped_layers_change_drafts() -> None:
    found = set()
    for skip in (frozenset[int](), frozenset({1, 2, 3, 4, 5})):
        target = Target()
        found.add(skipping(target, skip).propose([ask(target.add(prompt(40)), 6)])[0].tokens)
    assert len(found) == 2


@pytest.mark.parametrize("name", ["exit", "skip"])
def test_who_cannot_be_drafted_for_is_left_alone(name: str) -> None:
    target = Target()
    able, behind, uncached = (target.add(prompt(20, 1), kv_cache=cached) for cached in (True, True, False))
    behind.cache.num_computed -= 1
    target.runner.passes.clear()
    proposer = proposer_of(name, target)
    trees = proposer.propose([ask(behind, 3), ask(able, 3), ask(uncached, 3)])
    assert [len(tree.tokens) for tree in trees] == [0, 3, 0]
    assert target.runner.passes == [1, 1, 1]
    target.runner.passes.clear()
    assert proposer.propose([ask(behind, 3)]) == [NO_DRAFT]
    assert target.runner.passes == []


def test_an_exit_says_the_distribution_of_its_own_layers() -> None:
    target = Target()
    request = target.add(prompt(20, 1), temperature=0.8, top_p=0.9, acceptance="ratio")
    (tree,) = leaving(target, 3).propose([ask(request, 4)])
    assert tree.q is not None
    for depth in range(4):
        text = [*request.tokens, *tree.tokens[:depth]]
        draw = Draw(request.params, 0, request.tokens, tree.tokens[:depth])
        expected = probabilities(target.runner.logits(stream(text, 3)), [draw])
        assert torch.equal(tree.q[depth : depth + 1], expected)


def test_what_drafting_costs() -> None:
    target = Target()
    request = target.add(prompt(20))
    for proposer, skipped in ((leaving(target, 2), range(2, LAYERS)), (skipping(target), SKIP)):
        proposer.propose([ask(request, 3)])
        work = proposer.take_work()
        weights = target.model.bytes_read_per_step(frozenset(skipped))
        share = 1 - len(skipped) / LAYERS
        assert work.passes == 3
        assert work.bytes_read == 3 * weights + sum(int(6.0 * share * length) for length in (20, 21, 22))


def test_the_bytes_of_skipped_layers_are_not_read() -> None:
    model = Target().model
    layer = sum(linear.storage_size() for name, linear in model.linears() if name.startswith("layers.3."))
    norms = 2 * CONFIG.hidden_size * 4
    assert model.bytes_read_per_step() - model.bytes_read_per_step(frozenset({3})) == layer + norms


# --- what stays behind --------------------------------------------------------------------------------------------


def three_requests(kind: KVKind, policy: PagePolicy) -> Target:
    target = Target(kind)
    kinds = [{}, {"temperature": 1.0, "repetition_penalty": 1.2}, {"temperature": 0.7, "top_p": 0.9}]
    for number, options in enumerate(kinds):
        target.add(prompt(60 + 9 * number, number), policy, exit_layer=1 + number, **options)
    return target


@pytest.mark.slow
@each_value(seldom=lambda cache, **_: cache[0].name in ("int8", "fp8"), cache=OTHERS, make=[leaving, skipping])
def test_texts_are_those_of_plain_decoding(
    cache: tuple[KVKind, PagePolicy], make: Callable[[Target], SelfDrafting]
) -> None:
    """From 60 tokens to 116: KIVI packs groups meanwhile, windows move, pages are chosen."""
    expected = three_requests(*cache).answer(None, [0], 116)
    drafted = three_requests(*cache)
    assert drafted.answer(make(drafted), [4, 0, 6, 1, 3], 116) == expected
    assert 0 < drafted.accepted < drafted.proposed


@pytest.mark.parametrize("name", ["exit", "skip"])
@pytest.mark.parametrize(("kind", "policy"), KINDS[1:], ids=NAMES[1:])
def test_a_rejected_round_leaves_nothing_behind(kind: KVKind, policy: PagePolicy, name: str) -> None:
    """Drafts across a page's end, and the row with which KIVI packs a group, then all of them dropped."""
    plain, drafted = Target(kind), Target(kind)
    for target in (plain, drafted):
        target.add(prompt(93, 1), policy)
    mine, theirs = drafted.requests[0], plain.requests[0]
    before = drafted.content(mine, 92)
    packed = kind.name == "kivi"
    (tree,) = proposer_of(name, drafted).propose([ask(mine, 8)])
    if not packed:  # KIVI packs committed tokens meanwhile, which is nobody's draft
        assert all(torch.equal(now, then) for now, then in zip(drafted.content(mine, 92), before, strict=True))
    assert len(tree.tokens) == 8
    drafted.step([mine], [tree], reject=True)
    plain.step([theirs], [NO_DRAFT])
    for _ in range(20):
        drafted.step([mine], [NO_DRAFT])
        plain.step([theirs], [NO_DRAFT])
    assert mine.tokens == theirs.tokens
    found, expected = drafted.content(mine, 112), plain.content(theirs, 112)
    assert all(torch.equal(ours, their) for ours, their in zip(found, expected, strict=True))


def test_scratch_of_skipping_differs_from_the_targets_and_is_overwritten() -> None:
    """Otherwise the tests above would show nothing."""
    target, plain = Target(), Target()
    request, same = target.add(prompt(40)), plain.add(prompt(40))
    (tree,) = skipping(target).propose([ask(request, 3)])
    plain.step([same], [tree])
    scratch, own = target.content(request, 42), plain.content(same, 42)
    # Keys and values of each layer: those up to the first skipped layer are right, skipped layers have none at all.
    wrong = [not torch.equal(ours[39:], theirs[39:]) for ours, theirs in zip(scratch, own, strict=True)]
    assert wrong == [False] * 4 + [True] * 8
    assert not scratch[4][39:].any()
    target.step([request], [tree])
    assert all(torch.equal(a, b) for a, b in zip(target.content(request, 42), plain.content(same, 42), strict=True))


def test_a_pass_of_an_exit_writes_the_targets_keys_in_its_layers() -> None:
    target, plain = Target(), Target()
    request, same = target.add(prompt(40)), plain.add(prompt(40))
    (tree,) = leaving(target, 3).propose([ask(request, 4)])
    plain.step([same], [tree._replace(early=None, exit_layer=0)])
    left, own = target.content(request, 43), plain.content(same, 43)
    equal = [torch.equal(ours, theirs) for ours, theirs in zip(left, own, strict=True)]
    assert equal == [True] * 6 + [False] * 6
