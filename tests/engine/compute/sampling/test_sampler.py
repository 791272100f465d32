"""Draws follow the softmax of the processed logits; processing agrees with transformers; one row never sees another."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from engine.compute.sampling.params import LEAST_TEMPERATURE, SamplingError, SamplingParams, resolve
from engine.compute.sampling.probabilities import log_probs
from engine.compute.sampling.processors import MAX_DRY_MATCH, History, dry_penalties
from engine.compute.sampling.sampler import Draw, likeliest, new_history, processed, sample
from engine.compute.sampling.truncation import truncate, truncate_typical
from engine.protocol import Sampling

CPU = torch.device("cpu")


def draw(
    params: SamplingParams, tokens: Sequence[int], path: Sequence[int] = (), prompt: int = 1, vocabulary: int = 50
) -> Draw:
    return Draw(params, 0, list(tokens), list(path), new_history(params, vocabulary, prompt, CPU))


def chi_square(counts: np.ndarray, shares: np.ndarray) -> tuple[float, int]:
    expected = shares * counts.sum()
    used = expected > 0
    assert counts[~used].sum() == 0, "a truncated token was drawn"
    return float(((counts - expected)[used] ** 2 / expected[used]).sum()), int(used.sum()) - 1


def histogram(logits: torch.Tensor, params: SamplingParams, many: int) -> np.ndarray:
    """Counts of the token drawn at places 1 to ``many`` of one sequence."""
    counts = np.zeros(logits.shape[0], dtype=np.int64)
    for start in range(0, many, 2000):
        draws = [Draw(params, 0, range(1 + start + i)) for i in range(2000)]
        counts += np.bincount(sample(logits.expand(2000, -1), draws), minlength=logits.shape[0])
    return counts


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=1),
        SamplingParams(seed=2, temperature=0.6),
        SamplingParams(seed=3, temperature=1.5, top_k=6),
        SamplingParams(seed=4, top_p=0.8),
        SamplingParams(seed=5, min_p=0.1),
        SamplingParams(seed=6, typical_p=0.7),
    ],
)
def test_frequencies_are_the_softmax(params: SamplingParams) -> None:
    torch.manual_seed(0)
    logits = torch.randn(12) * 1.5
    shares = torch.softmax(kept(logits[None], params)[0].double(), -1).numpy()
    statistic, freedom = chi_square(histogram(logits, params, 20_000), shares)
    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 6


def test_the_frequency_test_can_fail() -> None:
    """Negative control: the same counts against another temperature."""
    torch.manual_seed(0)
    logits = torch.randn(12) * 1.5
    counts = histogram(logits, SamplingParams(seed=1), 20_000)
    statistic, _ = chi_square(counts, torch.softmax(logits.double() / 1.1, -1).numpy())
    assert statistic > 100


def kept(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Our scores over the whole vocabulary, -inf where truncated."""
    scores = processed(logits, [draw(params, [0])] * logits.shape[0])
    if not params.truncates:
        return scores
    alone = params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0
    candidates = (truncate_typical if alone else truncate)(scores, [params] * logits.shape[0])
    return torch.full_like(scores, -torch.inf).scatter(1, candidates.ids, candidates.scores)


def theirs(params: SamplingParams) -> list[LogitsProcessor]:
    """transformers' processors in transformers' order."""
    found: list[LogitsProcessor] = []
    if params.temperature not in (0.0, 1.0):
        found.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        found.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        found.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        found.append(MinPLogitsWarper(params.min_p))
    if params.typical_p < 1.0:
        found.append(TypicalLogitsWarper(params.typical_p))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_truncation_agrees_with_transformers(seed: int) -> None:
    rng = random.Random(seed)
    params = SamplingParams(
        seed=0,
        temperature=rng.choice([1.0, 0.7, 1.8]),
        top_k=rng.choice([0, 0, 1, 5, 70, 400]),
        top_p=rng.choice([1.0, 0.1, 0.5, 0.9, 0.999]),
        min_p=rng.choice([0.0, 0.0, 0.05, 0.5]),
        typical_p=rng.choice([1.0, 1.0, 0.3, 0.95]),
    )
    if seed >= 40:
        params = SamplingParams(seed=0, typical_p=rng.choice([0.2, 0.5, 0.9, 0.99]))
    torch.manual_seed(seed)
    logits = torch.randn(5, 3000) * rng.choice([0.3, 1.0, 4.0])
    expected = logits
    for processor in theirs(params):
        expected = processor(torch.zeros(5, 1, dtype=torch.int64), expected)
    ours = kept(logits, params)
    assert torch.equal(torch.isfinite(ours), torch.isfinite(expected))
    assert torch.allclose(ours[torch.isfinite(ours)], expected[torch.isfinite(expected)], rtol=1e-6)


def test_ties_with_the_last_survivor_stay_whatever_sorts_first() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    assert torch.isfinite(kept(logits, SamplingParams(seed=0, top_k=2)))[0].tolist() == [True] * 4 + [False]
    assert torch.isfinite(kept(logits, SamplingParams(seed=0, top_p=0.6)))[0].tolist() == [True] * 4 + [False]


def test_the_nucleus_is_a_share_of_all_that_tie_with_the_last_of_top_k() -> None:
    """More of them than are looked at first, and whatever another row needs."""
    logits = torch.full((2, 3000), -9.0)
    logits[:, :400] = 0.0
    logits[:, 2000:2004] = torch.tensor([5.0, 4.5, 4.0, 3.5])  # shares 0.20, 0.12, 0.08 and 0.05
    both = [SamplingParams(seed=0, top_k=10, top_p=0.35), SamplingParams(seed=0, top_k=1000)]
    expected = TopPLogitsWarper(0.35)(torch.zeros(1, 1), TopKLogitsWarper(10)(torch.zeros(1, 1), logits[:1]))
    for rows in (both[:1], both):
        found = truncate(logits[: len(rows)], rows)
        ids = found.ids[0][torch.isfinite(found.scores[0])]
        assert sorted(ids.tolist()) == expected[0].isfinite().nonzero().flatten().tolist() == [2000, 2001, 2002]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temperature_zero_is_the_argmax_and_has_no_noise(dtype: torch.dtype) -> None:
    logits = torch.randn(8, 500).to(dtype)
    for params in (
        SamplingParams(seed=1, temperature=0.0),
        SamplingParams(seed=1, temperature=0.0, top_k=5, top_p=0.5),
    ):
        assert sample(logits, [draw(params, [1] * 4, vocabulary=500)] * 8) == logits.argmax(-1).tolist()


def test_repetition_agrees_with_transformers_and_covers_the_prompt() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 50)
    tokens = [3, 4, 3, 9, 20]
    params = SamplingParams(seed=0, repetition_penalty=1.3)
    expected = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([tokens]), logits.clone())
    assert torch.allclose(processed(logits, [draw(params, tokens, prompt=3)]), expected)


def test_presence_and_frequency_cover_the_output_alone() -> None:
    logits = torch.zeros(1, 50)
    params = SamplingParams(seed=0, presence_penalty=0.5, frequency_penalty=0.25)
    scores = processed(logits, [draw(params, [3, 4, 3, 9, 9, 20], prompt=3)])[0]
    assert {i: round(float(v), 6) for i, v in enumerate(scores) if v} == {9: -1.0, 20: -0.75}


def test_a_history_that_grows_with_the_answer_counts_as_one_that_is_made_at_once() -> None:
    tokens = [3, 4, 3, 9, 9, 20]
    at_once, growing = History(50, 3, CPU), History(50, 3, CPU)
    at_once.extend(tokens)
    for stop in (2, 3, 4, 6):
        growing.extend(tokens[:stop])
    assert torch.equal(growing.counts, at_once.counts)
    assert torch.equal(growing.seen, at_once.seen)


def test_each_drafted_row_sees_the_penalties_of_its_own_path() -> None:
    torch.manual_seed(2)
    params = SamplingParams(
        seed=0,
        repetition_penalty=1.4,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        dry_multiplier=0.9,
        logit_bias={5: 2.0},
    )
    tokens, path = [1, 2, 3, 1, 2], [3, 1, 2]
    logits = torch.randn(4, 50)
    history = new_history(params, 50, 2, CPU)
    together = processed(logits, [Draw(params, 0, tokens, path[:i], history) for i in range(4)])
    for i in range(4):
        alone = processed(logits[i : i + 1], [draw(params, tokens + path[:i], prompt=2)])
        assert torch.equal(together[i], alone[0])
    assert history is not None
    assert history.length == len(tokens), "a drafted path leaves the answer's own history alone"


def naive_dry(tokens: list[int], params: SamplingParams) -> dict[int, float]:
    """Straight from the definition: for every earlier place, how long do the two texts agree backwards?"""
    found: dict[int, int] = {}
    for place in range(len(tokens) - 1):
        length = 0
        while length < MAX_DRY_MATCH and length <= place and tokens[place - length] == tokens[-1 - length]:
            length += 1
        if length >= params.dry_allowed_length:
            after = tokens[place + 1]
            found[after] = max(found.get(after, 0), length)
    return {t: params.dry_multiplier * params.dry_base ** (n - params.dry_allowed_length) for t, n in found.items()}


@pytest.mark.parametrize("seed", range(60))
def test_dry_agrees_with_its_definition(seed: int) -> None:
    rng = random.Random(seed)
    tokens = [rng.randrange(rng.choice([1, 2, 4])) for _ in range(rng.randrange(1, 90))]
    params = SamplingParams(seed=0, dry_multiplier=0.8, dry_base=1.5, dry_allowed_length=rng.randint(1, 4))
    assert dry_penalties(np.array(tokens), params) == pytest.approx(naive_dry(tokens, params))


def test_a_row_draws_the_same_token_whatever_stands_beside_it() -> None:
    torch.manual_seed(3)
    logits = torch.randn(24, 4000).to(torch.bfloat16)
    kinds = [
        SamplingParams(seed=1, temperature=0.0),
        SamplingParams(seed=2),
        SamplingParams(seed=3, top_p=0.9),
        SamplingParams(seed=4, top_k=40, min_p=0.01),
        SamplingParams(seed=5, typical_p=0.9, temperature=0.7),
        SamplingParams(seed=6, frequency_penalty=0.4, top_p=0.99),
    ]
    draws = [draw(kinds[i % 6], list(range(1 + i)), vocabulary=4000) for i in range(24)]
    together = sample(logits, draws)
    assert together == [sample(logits[i : i + 1], [draws[i]])[0] for i in range(24)]
    order = list(range(24))
    random.Random(0).shuffle(order)
    assert [together[i] for i in order] == sample(logits[order], [draws[i] for i in order])


def test_log_probabilities_are_of_the_raw_logits() -> None:
    torch.manual_seed(4)
    logits = torch.randn(3, 50)
    wanted = SamplingParams(seed=0, temperature=0.3, logit_bias={4: 9.0}, logprobs=2)
    alone = SamplingParams(seed=0, logprobs=0)
    found = log_probs(logits, [draw(wanted, [1]), draw(SamplingParams(seed=0), [1]), draw(alone, [1])], [4, 5, 6])
    logs = torch.log_softmax(logits, -1)
    assert found[0] is not None
    assert found[0].chosen == pytest.approx(float(logs[0, 4]))
    assert [token for token, _ in found[0].top] == logs[0].topk(2).indices.tolist()
    assert found[1] is None
    assert found[2] is not None
    assert (found[2].chosen, found[2].top) == (pytest.approx(float(logs[2, 6])), [])


def test_log_probabilities_may_be_of_what_is_drawn_from() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).expand(3, -1)
    settings = SamplingParams(seed=0, temperature=0.5, top_k=2, logprobs=3, logprobs_drawn=True)
    greedy = SamplingParams(seed=0, temperature=0.0, logprobs=3, logprobs_drawn=True)
    raw = SamplingParams(seed=0, top_k=2, logprobs=3)
    found = log_probs(logits, [draw(each, [1]) for each in (settings, greedy, raw)], [1, 0, 1])
    tops = [[] if one is None else one.top for one in found]
    assert [[token for token, _ in top] for top in tops] == [[0, 1], [0], [0, 1, 2]]
    shares = torch.softmax(torch.tensor([6.0, 4.0]), -1).log().tolist()
    assert [value for _, value in tops[0]] == pytest.approx(shares)
    assert tops[1] == [(0, 0.0)]
    assert found[0] is not None
    assert found[0].chosen == pytest.approx(shares[1])


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-31])
def test_temperatures_too_near_to_0_to_divide_by_are_greedy(temperature: float) -> None:
    logits = torch.tensor([[1.0, 5.0, 4.0, -3.0], [0.0, -2.0, 9.0, 1.0]])
    rows = [draw(SamplingParams(seed=1, temperature=heat), [0]) for heat in (temperature, 0.7)]
    assert sample(logits, rows)[0] == 1
    assert sample(logits[:1], rows[:1]) == [1]
    biased = SamplingParams(seed=1, temperature=temperature, logit_bias={2: 3.0})
    assert sample(logits[:1], [draw(biased, [0])]) == [2]


def test_divided_by_the_least_temperature_scores_stay_numbers() -> None:
    scores = torch.tensor([[3e4, -3e4, 0.0]])
    params = SamplingParams(seed=1, temperature=LEAST_TEMPERATURE)
    assert not params.greedy
    assert torch.isfinite(processed(scores, [draw(params, [0])])).all()
    assert sample(scores, [draw(params, [0])]) == [0]


@pytest.mark.parametrize("settings", [{}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}, {"typical_p": 0.5}], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_of_no_numbers_costs_its_neighbours_nothing(settings: dict[str, float], bad: float) -> None:
    """A damaged token's row reaches the sampler only once that token is read."""
    sound = torch.randn(50, generator=torch.Generator().manual_seed(1))
    rows = [draw(SamplingParams(seed=1, **settings), [0]) for _ in range(3)]
    alone = sample(sound[None], rows[:1])
    some = sound.clone()
    some[7] = bad
    drawn = sample(torch.stack([torch.full((50,), bad), sound, some]), rows)
    assert drawn[1] == alone[0]
    assert all(0 <= token < 50 for token in drawn)


@pytest.mark.parametrize("off", [0, -1])
def test_a_top_k_of_0_or_minus_1_keeps_all(off: int) -> None:
    assert resolve(Sampling(top_k=off), Sampling(top_k=5)).top_k == 0
    assert resolve(Sampling(), Sampling(top_k=off)).top_k == 0


def test_settings_come_from_the_request_then_the_model_then_neutral() -> None:
    model = Sampling(temperature=0.6, top_k=20, top_p=0.95)
    params = resolve(Sampling(top_k=0, stop=["", "x"]), model)
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.6, 0, 0.95, 0.0)
    assert params.stop == ("x",)
    assert resolve(Sampling(), model).seed != resolve(Sampling(), model).seed


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-0.1),
        Sampling(temperature=float("nan")),
        Sampling(top_p=1.2),
        Sampling(repetition_penalty=0.0),
        Sampling(max_tokens=-1),
        Sampling(logprobs=1000),
        Sampling(dry_multiplier=1.0, dry_base=0.5),
        Sampling(logit_bias={1: float("inf")}),
        Sampling(top_k=-2),
        Sampling(stop=[str(n) for n in range(257)]),
        Sampling(stop=["x" * 10_001]),
        Sampling(logit_bias=dict.fromkeys(range(16_385), 1.0)),
        Sampling(seed=10**400),
        Sampling(dry_allowed_length=-(10**400)),
    ],
)
def test_settings_out_of_range_are_refused_with_a_sentence(sampling: Sampling) -> None:
    with pytest.raises(SamplingError, match=r"\."):
        resolve(sampling, Sampling())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_likeliest_is_the_first_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 5000).to(dtype)
    logits[0, 77] = logits[0, 4999] = 9
    logits[1, 0] = torch.inf
    logits[2, 1234] = torch.nan
    assert likeliest(logits) == logits.argmax(-1).tolist() == [77, 0, 1234]
