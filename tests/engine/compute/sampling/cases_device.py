"""Sampling's kernels in Triton's interpreter, token for token against torch's operators, which are the definition.

Run by test_device.py. Programs of the interpreter run one after the other, so that many rows share one here.
"""

from __future__ import annotations

import functools
import json
import random
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.native.triton_launch import gathering
from engine.compute.sampling import device, sampler
from engine.compute.sampling.device import Cut
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.verify.verdict import NO_TOKEN
from engine.decoding.speculation.verify.verifier import judge_all
from tests.gpu import bench_sampling
from tests.kit.examples import examples

CPU = torch.device("cpu")
pytestmark = [
    pytest.mark.content("engine/compute/sampling"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning"),
]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are trusted on the CPU."""
    monkeypatch.setattr(device, "declines", lambda *args: None)


def shared(monkeypatch: pytest.MonkeyPatch, cut: Cut) -> None:
    monkeypatch.setattr(device, "cut_for", lambda vocabulary: cut)


def rows_of(logits: Tensor, all_settings: Sequence[dict[str, Any]], first: int = 0) -> list[Draw]:
    return [
        Draw(SamplingParams(seed=row % 7, **each), row % 3, range(first + row)) for row, each in enumerate(all_settings)
    ]


def compared(logits: Tensor, draws: Sequence[Draw]) -> int:
    """How many rows the kernels left; the tokens of the others are right."""
    found, expected = device.draw(logits, draws), sampler.by_torch(logits, draws)
    assert found is not None
    wrong = {
        row: (token, right, draws[row].params, logits[row])
        for row, (token, right) in enumerate(zip(found, expected, strict=True))
        if token not in (None, right)
    }
    assert not wrong
    return found.count(None)


def any_settings(rng: random.Random) -> dict[str, Any]:
    """One of the settings that the kernels serve; each alone and all together."""
    chosen: dict[str, Any] = {"temperature": rng.choice([0.0, 0.2, 0.6, 0.7, 1.0, 1.0, 1.5, 1e-30])}
    if rng.random() < 0.5:
        chosen["top_k"] = rng.choice([1, 2, 5, 20, 40, 64, 199, 200, 10**6])
    if rng.random() < 0.5:
        chosen["top_p"] = rng.choice([0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.999, rng.random()])
    if rng.random() < 0.4:
        chosen["min_p"] = rng.choice([0.01, 0.05, 0.3, 1.0, rng.random()])
    return chosen


def any_logits(rng: random.Random, rows: int, vocabulary: int) -> Tensor:
    """As models have them: from flat to peaked; rounded to bfloat16, so with ties; some with closed tokens."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    logits = torch.randn(rows, vocabulary, generator=generator) * torch.rand(rows, 1, generator=generator) * 6
    peaks = torch.randint(0, vocabulary, (rows, 3), generator=generator)
    logits.scatter_(1, peaks, torch.rand(rows, 3, generator=generator) * 20)
    logits[1::4] = logits[1::4].bfloat16().float()
    logits[2::8] = logits[2::8].round()
    logits[3::8, rng.randrange(vocabulary // 2) :: 3] = -torch.inf
    return logits


def test_ten_thousand_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch, Cut(64, 32, 2048))
    rng = random.Random(1)
    left = 0
    for part in range(5):
        logits = any_logits(rng, 2048, 200)
        left += compared(logits, rows_of(logits, [any_settings(rng) for _ in range(2048)], 2048 * part))
    # Of so few tokens often most survive, more than are listed.
    assert left < 3000


@pytest.mark.parametrize(("vocabulary", "block", "rows"), [(32000, 1024, 32), (151936, 4096, 8)])
def test_large_vocabularies_leave_no_usual_row(
    vocabulary: int, block: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch, Cut(block, 32, rows))
    rng = random.Random(vocabulary)
    logits = any_logits(rng, rows, vocabulary)
    logits[:, ::999] += 9.0
    usual: list[dict[str, Any]] = [
        {"temperature": 0.0}, {}, {"temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
        {"temperature": 0.7, "min_p": 0.05}, {"top_k": 50}, {"temperature": 0.8, "top_p": 0.8}, {"temperature": 0.3},
    ]  # fmt: skip
    assert compared(logits, rows_of(logits, [usual[row % 8] for row in range(rows)])) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_one_row_a_program_as_on_a_gpu(dtype: torch.dtype) -> None:
    rng = random.Random(5)
    logits = any_logits(rng, 12, 300).to(dtype)
    for start in range(0, 12, 4):  # also of rows that begin within others
        some = logits[start : start + 4]
        compared(some, rows_of(some, [any_settings(rng) for _ in range(4)]))


@pytest.mark.always
def test_rows_that_are_no_numbers_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch, Cut(64, 32, 32))
    logits = torch.randn(5, 200)
    logits[0, 150] = torch.nan
    logits[1, 3] = torch.inf
    logits[2] = -torch.inf
    logits[3, 4:] = -torch.inf
    for each in ({"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}, {"top_k": 3, "top_p": 0.4}):
        draws = rows_of(logits, [each] * 5)
        found = device.draw(logits, draws)
        assert found is not None
        assert [token is None for token in found] == [True, True, True, False, False]
        assert found[3:] == sampler.by_torch(logits, draws)[3:]


@pytest.mark.always
def test_an_edge_that_rounding_decides_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens of four hold a half exactly; with a little more or less asked for, nothing is in doubt."""
    shared(monkeypatch, Cut(64, 32, 8))
    logits = torch.full((3, 64), -torch.inf)
    logits[:, [5, 9]] = 1.0
    logits[:, [20, 40]] = 1.0 - 2.0**-20
    share = float(torch.softmax(logits[0].double(), 0)[[5, 9]].sum())
    draws = rows_of(logits, [{"top_p": share}, {"top_p": share + 1e-6}, {"top_p": share - 1e-6}])
    found = device.draw(logits, draws)
    assert found is not None
    assert [token is None for token in found] == [True, False, False]
    assert found[1:] == sampler.by_torch(logits, draws)[1:]


@pytest.mark.always
def test_what_is_not_listed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One block holds more survivors than its list; a threshold that shuts the others out needs none of them."""
    shared(monkeypatch, Cut(64, 32, 8))
    logits = torch.randn(4, 256) * 0.1
    logits[:, :32] += 5.0  # of the first block, whose next run are the tokens from 128 on
    logits[:, 128:160] += 5.0
    draws = rows_of(logits, [{"top_k": 60}, {"top_p": 0.9}, {"top_k": 60, "min_p": 0.95}, {"min_p": 0.6}])
    found = device.draw(logits, draws)
    assert found is not None
    assert [token is None for token in found] == [True, True, False, True]
    compared(logits, draws)


@pytest.mark.always
def test_equal_scores_of_which_more_are_equal_than_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch, Cut(64, 32, 8))
    logits = torch.zeros(4, 200)
    logits[2:, 77] = 8.0
    assert compared(logits, rows_of(logits, [{"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.3}, {"min_p": 0.3}])) == 1


@pytest.mark.always
@pytest.mark.usefixtures("kernels")
def test_rows_with_penalties_beside_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch, Cut(64, 32, 8))
    asked: list[dict[str, Any]] = [
        {"temperature": 0.7, "top_p": 0.9}, {"repetition_penalty": 1.3, "top_p": 0.9}, {"temperature": 0.0},
        {"logit_bias": {3: 9.0}}, {"typical_p": 0.5}, {"dry_multiplier": 0.8}, {"top_k": 4, "typical_p": 0.9},
        {"temperature": 0.0, "typical_p": 0.5}, {"temperature": 0.0, "presence_penalty": 2.0},
    ]  # fmt: skip
    torch.manual_seed(3)
    logits = torch.randn(len(asked), 200) * 3
    draws = []
    for row, each in enumerate(asked):
        params = SamplingParams(seed=row, **each)
        draws.append(Draw(params, row, [1, 2, 3, 1, 2], (), sampler.new_history(params, 200, 2, CPU)))
    before = logits.clone()
    found = device.draw(logits, draws)
    assert found is not None
    assert [row for row, token in enumerate(found) if token is not None] == [0, 2, 7]
    assert sampler.drawn(logits, draws).finite == [token is not None for token in found]
    assert sampler.sample(logits, draws) == sampler.by_torch(logits, draws)
    assert torch.equal(logits, before)
    assert device.draw(logits[1:2], draws[1:2]) is None


@pytest.mark.always
@pytest.mark.usefixtures("kernels")
def test_rows_that_verify_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts are those of torch's operators; scores are looked at once more only where a row is left."""
    shared(monkeypatch, Cut(64, 32, 8))
    torch.manual_seed(4)
    logits = torch.randn(6, 200) * 3
    logits[5, 7] = torch.nan
    params = SamplingParams(seed=9, temperature=0.6, top_p=0.9)
    history = [5, 6, 7]
    first = sampler.by_torch(logits[:1], [Draw(params, 0, history)])[0]
    trees = [DraftTree((first, 8), (-1, 0)), DraftTree((), ()), DraftTree((), ()), DraftTree((), ())]
    paths = [(), (first,), (first, 8), (), (), ()]
    draws = [Draw(params, row // 3 * row, history, path) for row, path in enumerate(paths)]
    asked = Counter[int]()
    amax = Tensor.amax
    monkeypatch.setattr(Tensor, "amax", lambda x, *args: (asked.update([len(x)]), amax(x, *args))[1])
    found = judge_all(["keyed"] * 4, trees, logits, draws)
    assert asked == {1: 1}
    assert found[0].nodes[:1] == (0,)
    assert [verdict.token == NO_TOKEN for verdict in found] == [False, False, False, True]
    monkeypatch.setattr(device, "declines", lambda *args: "in this test")
    assert judge_all(["keyed"] * 4, trees, logits, draws) == found


SCORES = st.one_of(st.floats(-40, 40, width=32), st.sampled_from([0.0, -0.0, 1.0, -torch.inf, 30.0]))
PARAMS = st.builds(
    SamplingParams,
    seed=st.integers(0, 1 << 60),
    temperature=st.floats(0.0, 100.0),
    top_k=st.integers(0, 150),
    top_p=st.floats(0.0, 1.0),
    min_p=st.floats(0.0, 1.0),
)


@examples(15)
@given(st.data())
def test_any_settings(data: st.DataObject) -> None:
    vocabulary = data.draw(st.integers(2, 140))
    row = st.lists(SCORES, min_size=vocabulary, max_size=vocabulary)
    logits = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=4)))
    draws = [Draw(data.draw(PARAMS), 0, range(data.draw(st.integers(0, 1 << 30)))) for _ in logits]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        shared(patch, Cut(64, 32, 4))
        patch.setattr(device, "declines", lambda *args: None)
        assert sampler.sample(logits, draws) == sampler.by_torch(logits, draws)


@pytest.mark.always
def test_nothing_is_read_of_the_host_but_when_it_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was launched once, launched again over other parameters and logits, draws for these: as a graph would."""
    shared(monkeypatch, Cut(64, 32, 8))
    rng = random.Random(8)
    buffers = device.RowBuffers(8, CPU)
    logits = any_logits(rng, 8, 200)
    device.fill_rows(buffers.host, rows_of(logits, [{}] * 3), 200)
    with gathering() as launches:
        device.launch(logits, buffers.table, buffers.out, 8, True)
    for step in range(3):
        draws = rows_of(logits, [any_settings(rng) for _ in range(5 + step)], step)
        logits.copy_(any_logits(rng, 8, 200))
        device.fill_rows(buffers.host, draws, 200)
        for each in launches:
            each.kernel[each.grid](*each.args, **each.keywords)
        tokens, unknown = buffers.out.tolist()
        assert unknown[len(draws) :] == [1] * (3 - step)
        assert unknown[: len(draws)].count(0) >= 2
        for token, flag, right in zip(tokens, unknown, sampler.by_torch(logits[: len(draws)], draws), strict=False):
            assert token == (0 if flag else right)


def test_the_benchmark_runs(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    found = bench_sampling.main(["--dry-run", "--json", str(file)])
    assert {figure.what for figure in found} == set(bench_sampling.SETTINGS)
    assert all(figure.same and figure.step > 0 for figure in found)
    assert len(json.loads(file.read_text())["figures"]) == len(found)


def test_the_trial_sees_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.compute.sampling import kernels

    shared(monkeypatch, Cut(2048, 32, 16))
    trial = functools.partial(device.compare, torch.float32, 5000, CPU)
    assert trial(sampler.by_torch) is None
    assert trial(lambda logits, draws: [token + 1 for token in sampler.by_torch(logits, draws)]) is not None
    monkeypatch.setattr(kernels, "DOUBT", kernels.tl.constexpr(3.0))  # every nucleus is in doubt
    assert trial(sampler.by_torch) is not None
