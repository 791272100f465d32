"""Perplexity and divergence of a text, exact beside a store that is made worse on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.cache.pool import pages_for
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import DenseKVStore, NativeRows
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.runner.perplexity import MOST_TOKENS, Reader, Scores, reader, score
from engine.compute.runner.runner import Runner
from tests.kit.models import VOCABULARY, ToyModel


class Rounded(DenseKVStore):
    """Keeps ``steps`` levels of each key and value."""

    steps = 4.0

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        super().write(layer, (k * self.steps).round() / self.steps, (v * self.steps).round() / self.steps, to, native)


def factory(kind: type[DenseKVStore], model):
    def make(length: int) -> Reader:
        return reader(Runner(model, kind([(1, 8)] * 2, pages_for(length) + 1, torch.float32), AttentionDispatcher()))

    return make


def finished(work) -> tuple[Scores, int]:
    pauses = 0
    while True:
        try:
            next(work)
            pauses += 1
        except StopIteration as end:
            return end.value, pauses


def whole(model, kind: type[DenseKVStore], ids: Sequence[int]) -> Tensor:
    """Log-probabilities after each token, in one piece."""
    logits = factory(kind, model)(len(ids))(ids, 0)
    return torch.log_softmax(logits.double(), dim=-1)


@pytest.fixture(scope="module")
def model():
    return ToyModel()


@pytest.fixture
def ids() -> list[int]:
    return torch.randint(0, VOCABULARY, (600,), generator=torch.Generator().manual_seed(3)).tolist()


def test_the_exact_store_costs_nothing(model, ids: list[int]) -> None:
    same = factory(DenseKVStore, model)
    scores, pauses = finished(score(ids, same, same, VOCABULARY, "16-bit"))
    assert (scores.tokens, scores.setting) == (599, "16-bit")
    assert scores.exact == scores.present
    assert scores.divergence == 0
    assert pauses == 2 * 3, "599 rows in chunks of 256, and a pause after either reading of each"


def test_a_worse_store_shows_by_how_much(model, ids: list[int]) -> None:
    scores, _ = finished(score(ids, factory(DenseKVStore, model), factory(Rounded, model), VOCABULARY, "rounded"))
    p, q = whole(model, DenseKVStore, ids[:-1]), whole(model, Rounded, ids[:-1])
    targets = torch.tensor(ids[1:])[:, None]
    for found, table in ((scores.exact, p), (scores.present, q)):
        assert found == pytest.approx(float(torch.exp(-table.gather(1, targets).mean())), rel=1e-5)
    assert scores.divergence == pytest.approx(float((p.exp() * (p - q)).sum(1).mean()), rel=1e-3)
    assert scores.divergence > 1e-4
    assert scores.exact != scores.present
    difference = (p - q).gather(1, targets).squeeze(1)
    assert scores.error == pytest.approx(float(difference.std(correction=1) / len(difference) ** 0.5), rel=1e-3)


def test_the_first_predictions_can_be_left_out(model, ids: list[int]) -> None:
    exact, rounded = factory(DenseKVStore, model), factory(Rounded, model)
    scores, _ = finished(score(ids, exact, rounded, VOCABULARY, "rounded", skipped=300))
    p, q = (whole(model, store, ids[:-1])[300:] for store in (DenseKVStore, Rounded))
    assert scores.tokens == 299
    assert scores.divergence == pytest.approx(float((p.exp() * (p - q)).sum(1).mean()), rel=1e-3)
    nll = -p.gather(1, torch.tensor(ids[301:])[:, None]).mean()
    assert scores.exact == pytest.approx(float(nll.exp()), rel=1e-5)
    with pytest.raises(ValueError, match="too short"):
        finished(score(ids[:301], exact, rounded, VOCABULARY, "", skipped=300))


def test_texts_too_short_and_too_long(model) -> None:
    same = factory(DenseKVStore, model)
    with pytest.raises(ValueError, match="too short"):
        finished(score([1], same, same, VOCABULARY, ""))
    lengths: list[int] = []

    def uniform(length: int) -> Reader:
        lengths.append(length)
        return lambda tokens, start: torch.zeros(len(tokens), 8)

    scores, _ = finished(score([1] * (MOST_TOKENS + 50), uniform, uniform, 8, ""))
    assert lengths == [MOST_TOKENS, MOST_TOKENS]
    assert scores == (MOST_TOKENS - 1, pytest.approx(8), pytest.approx(8), 0, "", 0, 1.0)


def test_a_token_that_is_ruled_out_adds_nothing() -> None:
    def without(token: int):
        def read(tokens: Sequence[int], start: int) -> Tensor:
            logits = torch.zeros(len(tokens), 8)
            logits[:, token] = -torch.inf
            return logits

        return lambda length: read

    scores, _ = finished(score([1, 2, 3], without(0), lambda length: lambda t, s: torch.zeros(len(t), 8), 8, ""))
    assert scores.divergence == pytest.approx(float(torch.log(torch.tensor(8 / 7))))
