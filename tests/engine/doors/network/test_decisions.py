"""Decisions, by OpenAI's own client."""

from __future__ import annotations

import math
from typing import Any

import httpx
import openai
import pytest

from engine.protocol import ThinkingModes
from tests.engine.doors.network.conftest import Running

TEXT = "The package arrived with a broken screen."
QUESTIONS: Any = [
    {"type": "predicate", "instructions": "Is the screen broken?"},
    {
        "type": "choice",
        "name": "department",
        "instructions": [{"type": "input_text", "text": "Who is it for?"}],
        "choices": [{"value": "returns", "description": "Goods sent back."}, {"value": True}, {"value": "true"}],
    },
    {"type": "score", "instructions": "How bad?", "levels": [{"label": "whole"}, {"label": "broken"}]},
]


@pytest.fixture(autouse=True)
def longer(running: Running) -> None:
    """A context with room for questions."""
    running.engine.context = 512
    running.engine.loaded = running.engine._model("/models/tiny")


def shares(count: int) -> list[float]:
    """Probabilities of so many options, each one less likely than the one before by e."""
    found = [math.exp(-number) for number in range(count)]
    return [each / sum(found) for each in found]


def test_each_question_is_answered_by_the_probabilities_of_its_letters(api: openai.OpenAI, running: Running) -> None:
    done = api.decisions.create(model="tiny", input=TEXT, questions=QUESTIONS, safety_identifier="me")
    predicate, choice, score = (answer.model_dump(exclude_none=True) for answer in done.answers)
    assert predicate == {"type": "predicate", "probability": pytest.approx(shares(2)[1])}
    assert (choice["name"], choice["choice"], choice["confidence"]) == (
        "department",
        "returns",
        choice["probabilities"][0]["probability"],
    )
    assert [each["value"] for each in choice["probabilities"]] == ["returns", True, "true"]
    assert [each["probability"] for each in choice["probabilities"]] == pytest.approx(shares(3))
    assert score["score"] == pytest.approx(shares(2)[1])
    assert [(each["value"], each["label"]) for each in score["probabilities"]] == [(0, "whole"), (1, "broken")]
    commands = running.asked
    assert (done.usage.output_tokens, done.usage.input_tokens) == (3, sum(len(each.prompt_ids) for each in commands))
    words = running.engine.loaded.files.tokenizer
    assert [[words.decode([id]) for id in each.sampling.logit_bias] for each in commands] == [
        ["A", "B"],
        ["A", "B", "C"],
        ["A", "B"],
    ]
    assert all(each.sampling.max_tokens == each.sampling.temperature == 1 for each in commands)
    second = words.decode(commands[1].prompt_ids)
    assert f'{TEXT}\n\nWho is it for?\n\nA: "returns" (Goods sent back.)\nB: true\nC: "true"\n\n' in second


def test_a_conversation_keeps_its_turns(http: httpx.Client, running: Running) -> None:
    turns = [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "def"}]
    http.post("/decisions", json={"input": turns, "questions": QUESTIONS[:1]}).raise_for_status()
    (command,) = running.asked
    text = running.engine.loaded.files.tokenizer.decode(command.prompt_ids, skip_special=False)
    assert "user\nabc<|im_end|>\n<|im_start|>assistant\ndef<|im_end|>\n<|im_start|>user\nIs the screen broken?" in text


def test_a_model_that_always_thinks_cannot_decide(http: httpx.Client, running: Running) -> None:
    card = running.engine.loaded.card
    running.engine.loaded.card = type(card)(
        **{name: getattr(card, name) for name in card.__struct_fields__} | {"thinking": ThinkingModes("always")}
    )
    answer = http.post("/v1/decisions", json={"input": TEXT, "questions": QUESTIONS})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_decisions")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"questions": QUESTIONS}, "input"),
        ({"input": TEXT, "questions": []}, "questions"),
        ({"input": TEXT, "questions": [{"type": "choice", "instructions": "a", "choices": [{"value": "b"}]}]},
         "questions[0].choices"),
        ({"input": TEXT, "questions": [{"type": "choice", "instructions": "a", "choices": [{"value": "b"}] * 2}]},
         "questions[0].choices"),
        ({"input": TEXT, "questions": [{"type": "score", "instructions": "a", "levels": [
            {"label": str(number)} for number in range(11)]}]}, "questions[0].levels"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}],
          "questions": QUESTIONS}, "input[0].content[0].image_url"),
        ({"input": TEXT, "questions": QUESTIONS, "joint": True}, "joint"),
    ],
)  # fmt: skip
def test_what_is_refused(refused: httpx.Client, body: Any, param: str) -> None:
    answer = refused.post("/v1/decisions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
