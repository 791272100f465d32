"""The probabilities are those that the sampler draws by: transformers' processors, then the softmax."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from engine.compute.sampling import noise
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.probabilities import draw_from, probabilities
from engine.compute.sampling.sampler import Draw, new_history, sample

CPU = torch.device("cpu")
KINDS = (
    SamplingParams(seed=1, temperature=0.0),
    SamplingParams(seed=2),
    SamplingParams(seed=3, top_p=0.9),
    SamplingParams(seed=4, top_k=40, min_p=0.01),
    SamplingParams(seed=5, typical_p=0.9, temperature=0.7),
    SamplingParams(seed=6, frequency_penalty=0.4, top_p=0.99, logit_bias={7: 3.0}),
    SamplingParams(seed=7, top_p=0.9, typical_p=0.6),
)


def mixed(rows: int, vocabulary: int) -> tuple[torch.Tensor, list[Draw]]:
    """Rows of every kind in turn."""
    torch.manual_seed(3)
    params = [KINDS[row % len(KINDS)] for row in range(rows)]
    draws = [
        Draw(each, 0, list(range(1 + row)), [5, 6][: row % 3], new_history(each, vocabulary, 1, CPU))
        for row, each in enumerate(params)
    ]
    return torch.randn(rows, vocabulary) * 2, draws


@pytest.mark.parametrize("seed", range(40))
def test_they_agree_with_transformers(seed: int) -> None:
    rng = random.Random(seed)
    params = SamplingParams(
        seed=0,
        temperature=rng.choice([1.0, 0.7, 1.8]),
        top_k=rng.choice([0, 0, 1, 5, 70, 400]),
        top_p=rng.choice([1.0, 0.1, 0.5, 0.9, 0.999]),
        min_p=rng.choice([0.0, 0.0, 0.05, 0.5]),
        typical_p=rng.choice([1.0, 0.3, 0.95]),
        repetition_penalty=1.3,
    )
    torch.manual_seed(seed)
    logits = torch.randn(4, 2000) * rng.choice([0.3, 1.0, 4.0])
    tokens = [3, 4, 3, 9, 20]
    given = torch.tensor([tokens] * 4)
    expected = RepetitionPenaltyLogitsProcessor(1.3)(given, logits.clone())
    expected = TemperatureLogitsWarper(params.temperature)(given, expected)
    if params.top_k:
        expected = TopKLogitsWarper(params.top_k)(given, expected)
    if params.top_p < 1.0:
        expected = TopPLogitsWarper(params.top_p)(given, expected)
    if params.min_p:
        expected = MinPLogitsWarper(params.min_p)(given, expected)
    if params.typical_p < 1.0:
        expected = TypicalLogitsWarper(params.typical_p)(given, expected)
    wanted = torch.softmax(expected, -1)
    found = probabilities(logits, [Draw(params, 0, tokens, (), new_history(params, 2000, 2, CPU))] * 4)
    assert torch.equal(found > 0, wanted > 0)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-9)


def test_temperature_zero_puts_all_on_the_argmax() -> None:
    logits = torch.randn(3, 100)
    found = probabilities(logits, [Draw(SamplingParams(seed=0, temperature=0.0, top_k=5), 0, [1])] * 3)
    assert torch.equal(found, torch.nn.functional.one_hot(logits.argmax(-1), 100).float())


def test_what_the_sampler_draws_is_possible_and_never_anything_else() -> None:
    logits, draws = mixed(70, 3000)
    shares = probabilities(logits, draws)
    assert torch.allclose(shares.sum(-1), torch.ones(70))
    drawn = torch.tensor(sample(logits, draws))
    assert bool((shares.gather(1, drawn[:, None]) > 0).all())


def test_a_row_has_the_same_probabilities_whatever_stands_beside_it() -> None:
    logits, draws = mixed(28, 4000)
    together = probabilities(logits, draws)
    for row in range(28):
        assert torch.equal(probabilities(logits[row : row + 1], [draws[row]])[0], together[row])
    order = list(range(28))
    random.Random(0).shuffle(order)
    assert torch.equal(probabilities(logits[order], [draws[row] for row in order]), together[order])


@pytest.mark.parametrize("blocked", [False, True])
def test_blocks_of_rows_change_nothing(blocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, draws = mixed(21, 500)
    whole = probabilities(logits, draws)
    drawn = draw_from(whole, draws, noise.DRAFT)
    monkeypatch.setattr("engine.compute.sampling.sampler._CHUNK", 1500 if blocked else 1 << 30)
    assert torch.equal(probabilities(logits, draws), whole)
    assert torch.equal(draw_from(whole, draws, noise.DRAFT), drawn)


def test_draws_of_different_salts_are_independent_and_repeatable() -> None:
    shares = torch.full((2000, 4), 0.25)
    draws = [Draw(SamplingParams(seed=row), 0, [1]) for row in range(2000)]
    found = [draw_from(shares, draws, salt) for salt in range(5)]
    for one in range(5):
        assert torch.equal(found[one], draw_from(shares, draws, one))
        for other in range(one):
            # A quarter of them agree by chance: 500, with a standard deviation of 19.
            assert 400 < int((found[one] == found[other]).sum()) < 600
    assert noise.key(5, 1, 9) == noise.key(5, 1, 9, noise.TARGET)


def test_draws_follow_unnormalised_shares() -> None:
    shares = torch.tensor([[0.3, 0.0, 0.1, 0.2]]).expand(30_000, -1)
    draws = [Draw(SamplingParams(seed=row), 0, [1]) for row in range(30_000)]
    counts = torch.bincount(draw_from(shares, draws, noise.RESIDUAL), minlength=4)
    assert counts[1] == 0
    expected = torch.tensor([15_000.0, 0.0, 5_000.0, 10_000.0])
    assert bool(((counts - expected).abs() <= 5 * expected.sqrt()).all())
