"""Texts scored by the engine thread between its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.compute.runner.perplexity import Reader, Readers, Scores
from engine.loop.commands import MeasureText
from tests.engine.loop.toy_engine import VOCABULARY, ToyEngine, toy_model


def uniform(length: int) -> Reader:
    return lambda tokens, start: torch.zeros(len(tokens), VOCABULARY)


def peaked(length: int) -> Reader:
    return lambda tokens, start: torch.eye(VOCABULARY)[list(tokens)]


def broken(length: int) -> Reader:
    raise MemoryError("no room")


def test_answers_go_on_while_a_text_is_scored() -> None:
    toy = ToyEngine(
        replace(toy_model(limit=1024, pages=100), readers=lambda policy: Readers(uniform, peaked, "peaked"))
    )
    replies: list[Scores | str] = []
    toy.add("r1", [1, 2, 3])
    toy.step()
    toy.engine.submit(MeasureText([5] * 900, replies.append))
    before = len(toy.heard.steps)
    while not replies:
        toy.step()
    (scores,) = replies
    assert isinstance(scores, Scores)
    assert (scores.tokens, scores.setting) == (899, "peaked")
    assert abs(scores.exact - VOCABULARY) < 1e-3
    assert scores.present < scores.exact, "every token follows itself"
    assert scores.divergence > 0
    assert len(toy.heard.steps) - before >= 8, "a step of the answer for each chunk and reading"
    toy.drain()


def test_what_cannot_be_scored_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def reply(toy: ToyEngine, ids: list[int]) -> Scores | str:
        replies: list[Scores | str] = []
        toy.engine.submit(MeasureText(ids, replies.append))
        while not replies:
            toy.engine.step()
        return replies[0]

    assert "cannot be scored" in str(reply(ToyEngine(), [1, 2]))
    failing = ToyEngine(replace(toy_model(), readers=lambda policy: Readers(uniform, broken, "")))
    assert "no room" in str(reply(failing, [1, 2]))
    caplog.clear()
    assert reply(failing, [1]) == "The text is too short to be scored. Choose a longer one."
    assert not caplog.records, "a short text is no failure of the engine's"
    failing.engine._stepper = None
    assert "No model" in str(reply(failing, [1, 2]))


def test_a_model_that_goes_takes_its_texts_with_it() -> None:
    toy = ToyEngine(replace(toy_model(limit=1024, pages=100), readers=lambda policy: Readers(uniform, peaked, "")))
    replies: list[Scores | str] = []
    toy.engine.submit(MeasureText([5] * 900, replies.append))
    toy.engine.step()
    assert not replies
    toy.engine._drop()
    assert "unloaded" in str(replies[0])
    assert not toy.engine._measuring.step()
