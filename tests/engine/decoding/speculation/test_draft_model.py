"""A draft model: a proposer with keys and values of its own for the whole text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.models.arenas import new_store
from engine.compute.runner.runner import Runner
from engine.compute.sampling import noise
from engine.decoding.speculation.base import DraftRequest, DraftTree
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.decoding.speculation.verify.verdict import Verdict
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.decoding.speculation import decoding
from tests.engine.decoding.speculation.decoding import PAGES, Decoding, slots
from tests.engine.decoding.speculation.target_support import EOS, SMALL, small_model
from tests.kit.models import VOCABULARY


class TestDraftModel(ProposerContract):
    """Its layers say less than the target's, so that most drafts hold and not all."""

    eos, holds = EOS, False

    @pytest.fixture
    def make(self) -> Make:
        return served


def served() -> Decoding:
    return Decoding(small_model(), drafter)


def drafter(host: Decoding) -> DraftModelProposer:
    draft, store = small_model(quiet=0.2), new_store(SMALL, PAGES, torch.float32)
    host.stores.append(store)
    runner = host.recorded(Runner(draft, store, AttentionDispatcher(draft.numerics)))
    return DraftModelProposer(runner, VOCABULARY, {EOS}, 1, 1.0)


# --- negative controls: each breaks a promise of proposers ---------------------------------------------------------


def one_too_many(host: Decoding, asks: Sequence[DraftRequest], trees: list[DraftTree]) -> list[DraftTree]:
    return [tree._replace(tokens=(*tree.tokens, 0)) if tree.tokens else tree for tree in trees]


def unasked(host: Decoding, asks: Sequence[DraftRequest], trees: list[DraftTree]) -> list[DraftTree]:
    return [tree if ask.budget else DraftTree((1,), proposer="draft") for ask, tree in zip(asks, trees, strict=True)]


def of_another(host: Decoding, asks: Sequence[DraftRequest], trees: list[DraftTree]) -> list[DraftTree]:
    """Each request has the first one's tokens, as many as its own."""
    return [tree._replace(tokens=(trees[0].tokens * 20)[: len(tree.tokens)] or tree.tokens) for tree in trees]


def into_a_foreign_page(host: Decoding, asks: Sequence[DraftRequest], trees: list[DraftTree]) -> list[DraftTree]:
    host.stores[0].view(0).k[-1] += 1.0
    return trees


def over_the_text(host: Decoding, asks: Sequence[DraftRequest], trees: list[DraftTree]) -> list[DraftTree]:
    for ask in asks if any(tree.tokens for tree in trees) else ():
        host.stores[0].view(0).v[slots(ask.request, [1])] += 1.0
    return trees


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        ("nothing_asked_nothing_drafted_and_nothing_computed", unasked),
        ("a_batch_drafts_as_each_alone", of_another),
        ("nothing_is_read_or_written_beyond_what_is_lent", into_a_foreign_page),
        ("nothing_is_read_or_written_beyond_what_is_lent", over_the_text),
        ("text_is_that_of_plain_decoding", over_the_text),
        ("a_rejected_round_leaves_nothing_behind", over_the_text),
        ("figures_are_those_of_the_text_and_off_is_off", one_too_many),
    ],
)
def test_the_contract_notices_a_fault(broken: str, wrong: Callable[..., list[DraftTree]]) -> None:
    def faulty() -> Decoding:
        host = served()
        right = host.proposer.propose
        host.proposer.propose = lambda asks: wrong(host, asks, right(asks))  # type: ignore[method-assign]
        return host

    with pytest.raises(AssertionError):
        getattr(TestDraftModel(), f"test_{broken}")(faulty)


def test_the_comparison_notices_noise_that_ignores_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    state = iter(range(1_000_000))
    monkeypatch.setattr(noise, "key", lambda seed, answer, index, salt=0: (next(state) * 7919, seed))
    with pytest.raises(AssertionError):
        TestDraftModel().test_text_is_that_of_plain_decoding(served)


def test_the_comparison_notices_that_every_draft_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = lambda tree, targets: Verdict(tuple(range(len(tree.tokens))), targets[-1], "bonus")  # noqa: E731
    monkeypatch.setattr(decoding, "verify", everything)
    with pytest.raises(AssertionError):
        TestDraftModel().test_text_is_that_of_plain_decoding(served)
