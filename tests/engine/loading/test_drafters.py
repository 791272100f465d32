"""What the engine tells proposers: when an answer or a chat is gone, however it went; and those that find no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from engine.compute.batch import ForwardOutput, SequenceRows
from engine.decoding.request import Request
from engine.decoding.speculation.base import HiddenRows, Proposer
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.loading.model import Drafting
from engine.loop import stepper
from engine.protocol import ForgetChat, Sampling
from tests.engine.loop.toy_engine import ToyEngine, ToyRunner, sequential, toy_model

LONG = [1, 2, 3, 4, 5, 6] * 6
SAMPLING = Sampling(seed=1, max_tokens=12, ignore_eos=True)


class StreamingRunner(ToyRunner):
    """Gives the states of its rows too."""

    def forward(self, rows: Sequence[SequenceRows], want_hidden: frozenset[int] = frozenset()) -> ForwardOutput:
        out = super().forward(rows)
        count = sum(len(row.tokens) for row in rows)
        return ForwardOutput(out.logits, {layer: torch.zeros(count, 1) for layer in want_hidden})


class Keeper(Proposer):
    """Drafts nothing, and keeps the states of everybody it sees until they are released."""

    name = "eagle"
    needs_hidden = frozenset({1})
    branches = True

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], int] = {}
        self.forgot = 0

    def see(self, seen: Sequence[HiddenRows]) -> None:
        for each in seen:
            self.kept[each.request.owner] = each.start

    def release(self, request: Request) -> None:
        self.kept.pop(request.owner, None)

    def forget_chats(self) -> None:
        self.forgot += 1


def keeping() -> tuple[ToyEngine, Keeper]:
    keeper = Keeper()
    model = toy_model(runner=StreamingRunner(64))
    return ToyEngine(
        replace(model, drafting=Drafting((*model.drafting.proposers, keeper))), speculation="eagle"
    ), keeper


def test_an_answer_that_came_to_its_end_is_forgotten() -> None:
    toy, keeper = keeping()
    toy.add("a", LONG, SAMPLING)
    toy.step()
    assert keeper.kept == {("a", 0): 0}
    toy.drain()
    assert not keeper.kept


def test_an_answer_that_could_not_be_continued_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, keeper = keeping()
    toy.add("a", LONG, SAMPLING)
    toy.step()
    monkeypatch.setattr(stepper, "extend", lambda *_: 1 / 0)
    toy.drain()
    assert toy.heard.answers["a", 0].reason == "error"
    assert not keeper.kept


def test_answers_that_a_fault_of_the_loop_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposers are the model's: they outlive the loop that failed."""
    toy, keeper = keeping()
    toy.add("a", LONG, SAMPLING)
    toy.step()
    with monkeypatch.context() as patch:
        patch.setattr(toy.stepper.scheduler, "plan", lambda *_: 1 / 0)
        toy.step()
    assert toy.heard.answers["a", 0].reason == "error"
    assert not keeper.kept
    toy.add("b", LONG, SAMPLING)
    toy.drain()
    assert toy.heard.answers["b", 0].tokens == sequential(LONG, SAMPLING)[0]


def test_chats_that_were_deleted_are_forgotten() -> None:
    toy, keeper = keeping()
    toy.engine.submit(ForgetChat(chat="a chat"))
    toy.step()
    assert keeper.forgot == 1


def full() -> None:
    raise RuntimeError("CUDA out of memory")


def test_a_draft_that_finds_no_memory_costs_no_answer() -> None:
    """Not even the lone one, which nobody can make room for."""
    toy = ToyEngine(speculation="draft", draft_length=3, ngram_first=False)
    draft = next(one for one in toy.model.drafting.proposers if isinstance(one, DraftModelProposer))
    for id in "ab":
        toy.add(id, LONG, SAMPLING)
    for _ in range(4):
        toy.step()
    draft._runner.before_forward = full  # type: ignore[attr-defined]
    for _ in range(3):
        toy.step()
    draft._runner.before_forward = lambda: None  # type: ignore[attr-defined]
    toy.drain()
    for id in "ab":
        answer = toy.heard.answers[id, 0]
        assert answer.tokens == sequential(LONG, SAMPLING)[0]
        assert answer.finished is not None
        assert answer.finished.timings.preemptions == 0
    assert any(info.source in ("draft", "corrected") for info in answer.infos[-4:]), "it drafts again"


def test_states_that_found_no_memory_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, keeper = keeping()
    monkeypatch.setattr(keeper, "see", lambda seen: full())
    toy.add("a", LONG, SAMPLING)
    toy.drain()
    assert toy.heard.answers["a", 0].tokens == sequential(LONG, SAMPLING)[0]
    monkeypatch.setattr(keeper, "see", lambda seen: 1 / 0)
    toy.add("b", LONG, SAMPLING)
    toy.drain()
    assert toy.heard.answers["b", 0].reason == "error", "what is wrong is not kept quiet"
