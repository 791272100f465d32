"""QUEST's kernels in the interpreter: bounds of pages, the choice, and attention over chosen pages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.packed import PackedKV
from engine.compute.attention import quest as attention_quest
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.quest import QuestAttention
from engine.compute.attention.triton import launch, quest, quest_trial
from tests.engine.compute.attention.triton import reference
from tests.engine.compute.attention.triton.cases_interpreted import cases_of, placed

pytestmark = pytest.mark.content("engine/compute/attention/triton")
SHAPES = [(150, 1, False), (94, 4, False), (0, 1, False), (31, 3, False)]


def bounds_of(kv: PackedKV) -> torch.Tensor:
    pages = kv.k.view(-1, 16, *kv.k.shape[1:])
    return torch.cat((pages.amin(1), pages.amax(1)), -1)


@pytest.mark.always
@pytest.mark.parametrize(("heads", "width"), [((4, 2), 64), ((6, 1), 80), ((2, 2), 16)])
def test_scores_of_pages(heads: tuple[int, int], width: int) -> None:
    cases = cases_of(SHAPES, heads, width)
    batch, q, kv = placed(cases, "dense")
    rows = batch.host.row_start[-1]
    found = quest.page_scores(q, bounds_of(kv), batch)[:rows]
    expected = reference.page_scores(q, bounds_of(kv), batch)[:rows]
    assert torch.equal(found.isposinf(), expected.isposinf())
    assert torch.equal(found.isneginf(), expected.isneginf())
    assert (found - expected).nan_to_num(0.0).abs().max() < 1e-4  # of about 100
    row = 0
    for case in cases:  # no key of a page scores higher
        for i in range(case.rows):
            for page in range((case.start + i) // 16):
                keys = case.k[16 * page : 16 * page + 16].repeat_interleave(heads[0] // heads[1], 1)
                assert ((case.q[i] * keys).sum(-1).amax(0) <= found[row, :, page] + 1e-4).all()
            row += 1


def test_the_choice() -> None:
    cases = cases_of(SHAPES)
    batch, q, kv = placed(cases, "dense")
    rows = batch.host.row_start[-1]
    scores = reference.page_scores(q, bounds_of(kv), batch)
    index = [case.start + i for case in cases for i in range(case.rows)]
    for count in (1, 3, 20):
        pages = quest.choose_pages(q, bounds_of(kv), batch, count)
        assert tuple(pages.shape) == (*q.shape[:2], min(count, 10))
        for row in range(rows):
            for head in range(4):
                chosen = [page for page in pages[row, head].tolist() if page <= index[row] // 16]
                assert index[row] // 16 in chosen
                assert len(set(chosen)) == len(chosen) == min(count, index[row] // 16 + 1)
                others = set(range(index[row] // 16 + 1)) - set(chosen)
                if others:
                    assert scores[row, head, chosen].min() >= scores[row, head, list(others)].max() - 1e-4


@pytest.mark.parametrize(
    ("splits", "heads", "width", "softcap"),
    [
        pytest.param(1, (4, 2), 64, None, marks=pytest.mark.always),
        (4, (2, 1), 48, 2.0),
        pytest.param(None, (3, 1), 80, None, marks=pytest.mark.long),
    ],
)
def test_attention_over_chosen_pages(
    splits: int | None, heads: tuple[int, int], width: int, softcap: float | None
) -> None:
    batch, q, kv = placed(cases_of([(150, 1, False), (94, 3, False)], heads, width), "dense")
    rows, spec = batch.host.row_start[-1], AttnSpec(0.15, softcap=softcap)
    for count in (1, 7):
        pages = quest.choose_pages(q, bounds_of(kv), batch, count)
        limits = torch.full((len(q),), 20, dtype=torch.int32)
        pages[1, 0], limits[2], limits[3] = -1, 2, 0
        found, lse = quest.attend_pages(q, kv, spec, batch, pages, limits, need_lse=True, splits=splits)
        kept = pages.masked_fill(torch.arange(pages.shape[2]) >= limits[:, None, None], -1)
        expected, expected_lse = reference.attend_pages(q, kv, spec, batch, kept, need_lse=True)
        assert lse is not None
        assert expected_lse is not None
        assert (found[:rows] - expected[:rows]).abs().max() < 5e-6
        assert torch.equal(lse[:rows].isinf(), expected_lse[:rows].isinf())
        assert (lse - expected_lse)[:rows].nan_to_num(0.0).abs().max() < 5e-6


def test_all_pages_are_dense_attention() -> None:
    batch, q, kv = placed(cases_of(SHAPES[:2]), "dense")
    rows = batch.host.row_start[-1]
    pages = quest.choose_pages(q, bounds_of(kv), batch, 10)
    found, _ = quest.attend_pages(q, kv, AttnSpec(0.125), batch, pages, torch.full((len(q),), 10, dtype=torch.int32))
    dense, _ = launch.attend(q, kv, AttnSpec(0.125), batch)
    assert (found - dense)[:rows].abs().max() < 5e-6


def test_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """It agrees with the definitions, and notices what does not."""
    cpu = torch.device("cpu")
    for softcap in (False, True):
        assert quest_trial.compare(16, softcap, torch.float32, cpu) is None
    attend, scores = quest.attend_pages, quest.page_scores
    monkeypatch.setattr(quest, "attend_pages", lambda q, *others, **named: attend(q * 1.5, *others, **named))
    assert "result" in str(quest_trial.compare(16, False, torch.float32, cpu))
    monkeypatch.setattr(quest, "page_scores", lambda q, *others: scores(-q, *others))
    assert "chooses" in str(quest_trial.compare(16, False, torch.float32, cpu))
    monkeypatch.setattr(quest, "bound_pages", lambda kv, pages: None)
    assert "bounds" in str(quest_trial.compare(16, False, torch.float32, cpu))


def test_rows_with_budgets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the engine calls the kernels: some rows read everything, the others as many pages as each wants."""
    cases = cases_of([(150, 1, False), (94, 4, False), (0, 1, False), (200, 3, False)])
    batch, q, kv = placed(cases, "dense")
    kv = kv._replace(bounds=bounds_of(kv))
    budgets = np.array([4, 0, 2, 3, 3, 1, 0, 5, 100])
    expected = QuestAttention()
    o, lse = expected.attend(q, kv, AttnSpec(0.125), batch, budgets, invariant=True)
    found = QuestAttention()
    monkeypatch.setattr(attention_quest, "kernels_decline", lambda *problem: None)
    o_found, lse_found = found.attend(q, kv, AttnSpec(0.125), batch, budgets)
    assert (o_found - o).abs().max() < 5e-6
    assert (lse_found - lse).abs().max() < 5e-6
    assert found.bytes_read == expected.bytes_read
    tree = replace(batch, host=replace(batch.host, trees=[True] * 4))
    with pytest.raises(ValueError, match="chains"):
        found.attend(q, kv, AttnSpec(0.125), tree, budgets)
