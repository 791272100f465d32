"""Speculation and heads in the Lab with the bundled model, beside counts that were taken otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from engine.decoding.speculation.control.stats import expected_tokens
from engine.protocol import keys
from engine.protocol.lab import Drafts, DraftToken, LabLine, LabPicture, LabProgress, LabResult
from engine.services.client import Answer, EngineClient
from engine.services.experiments import laboratory, pairs
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import BY_NAME, heads, speculation
from engine.services.experiments.measures.steps import Costs, Drafted
from engine.services.experiments.workloads import drafting, finding
from engine.services.experiments.workloads.drafting import AHEAD, NODES, TEXTS, Method, Writing, steps_of


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "SHORTEST", 8)
    monkeypatch.setattr(pairs.OtherPrograms, "share", lambda self: 0.0)


def ran(client: EngineClient, name: str) -> tuple[LabResult, list[LabLine]]:
    told: list[LabLine] = []
    return laboratory.run(Lab(client, pairs=1, budget=0.1), BY_NAME[name], told.append), told


def holds(steps: Sequence[Sequence[DraftToken]]) -> None:
    """What is refused does not continue what is kept, and a step's own token follows the last one kept."""
    for step in steps:
        assert [token.fate for token in step].count("own") <= 1
        kept = [place for place, token in enumerate(step) if token.fate == "accepted"]
        assert [step[place].parent for place in kept] == [-1, *kept][: len(kept)]
        own = step[-1]
        if own.fate == "own":
            assert own.parent == (kept[-1] if kept else -1)
            beside = [token for token in step[:-1] if token.parent == own.parent and token.fate == "refused"]
            # All parts of a character are written alike.
            assert own.text == "\ufffd" or own.text not in [token.text for token in beside]


def counted(answers: Sequence[Answer]) -> float:
    """Tokens a step, from the records of steps instead of the answers' own figures."""
    steps = [step for answer in answers for step in answer.steps if not step.rows.prefill]
    return sum(step.generated for step in steps) / len(steps)


@pytest.fixture
def kinds(guide: EngineClient) -> Iterator[list[Writing]]:
    """In batch-invariant arithmetic no near-tie can part the texts."""
    texts = drafting.asked(Lab(guide, budget=0.1), 2)
    names = ("off", "ngram", "draft", "medusa", "eagle")
    with Lab(guide).switched({keys.BATCH_INVARIANT: True}):
        yield [Writing(guide, texts, Method(name, name)) for name in names]


@pytest.mark.slow
def test_every_method_is_counted(guide: EngineClient, kinds: list[Writing]) -> None:
    assert guide.model.files is not None
    plain = kinds[0]
    for side in kinds:
        figures = side.run()
        for key, answers in side.answers.items():
            assert figures[drafting.PER_STEP[key].key] == pytest.approx(counted(answers))
            assert [answer.ids for answer in answers] == [answer.ids for answer in plain.answers[key]]
            for answer in answers:
                steps = steps_of(answer, guide.model)
                holds(steps)
                written = [token.text for step in steps for token in step if token.fate != "refused"]
                assert written == [guide.model.files.tokenizer.decode([id]) for id in answer.ids]
                drafted = [token for step in steps for token in step if token.fate != "own"]
                assert len(drafted) == answer.timings.proposed
                assert sum(token.fate == "accepted" for token in drafted) == answer.timings.accepted
        assert all(figures[each.key] == 1.0 for each in drafting.PER_STEP.values()) == (side is plain)


def test_speculation(guide: EngineClient) -> None:
    result, _ = ran(guide, "speculation")
    assert result.text is not None
    assert result.text.same
    assert result.settings["draft"] == "draft model"
    for place in range(len(TEXTS)):
        assert result.figures[place].runs[0] == [1.0]
        assert 1.0 <= result.figures[place].runs[1][0] <= AHEAD + 1
    assert result.headline.startswith(f"{result.figures[0].runs[1][0]:.2f} tokens a step instead of 1.00 ")
    (plot,) = result.plots
    curve, line, *dots = plot.series
    # The curve is the formula's: its cost is the same at each acceptance.
    costs = {round(expected_tokens(x, AHEAD) / y, 6) for x, y in curve.points}
    assert len(costs) == 1
    assert all(y == 1.0 for _, y in line.points)
    for dot, figure in zip(dots, result.figures[result.asked :], strict=True):
        assert dot.points[0][1] == figure.effects[0].ratio
        assert 0.0 <= dot.points[0][0] <= 1.0


def test_runs_without_a_plain_step_are_left_out(guide: EngineClient) -> None:
    """Their answers were one token long, which comes from reading the prompt."""
    step = Drafted(2.0, 1.0, 4, 5, 3, (("draft", 4, 2),))
    plain, drafted = (Writing(guide, [], Method(name, name)) for name in ("off", "draft"))
    plain._steps, drafted._steps = {"talk": [[], [step]]}, {"talk": [[step], [step]]}
    assert drafted.steps("talk", plain) == [step._replace(cost=1.0, draft_cost=0.5)]


def test_an_edit_without_a_plain_step_has_no_curve(guide: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    every = Writing.steps
    monkeypatch.setattr(Writing, "steps", lambda side, key, plain: [] if key == "edit" else every(side, key, plain))
    result, _ = ran(guide, "speculation")
    assert [plot.y.title for plot in result.plots] == ["tokens a step, an edit", "tokens a second, an edit"], (
        "bars of the medians instead"
    )
    assert "No draft token was checked in an edit." in result.why


def test_the_rows_that_were_measured_are_named() -> None:
    said = speculation._cost(Costs(0.1, {1: 1.0, 3: 1.2}))
    assert said.startswith("A step that checks 2 draft tokens (3 rows) takes as long as 1.20 plain steps here, and ")
    assert "drafting them 0.20." in said


def test_prompts_that_take_long_to_read_are_fewer(guide: EngineClient) -> None:
    brief, long = (drafting.asked(Lab(guide, budget=budget), 2) for budget in (1e-6, 1e6))
    assert [len(text.prompts) for text in brief] == [1, 1, 1]
    assert [len(text.prompts) for text in long] == [count for _, count in TEXTS.values()]
    assert {prompt.sampling.max_tokens for text in long for prompt in text.prompts} == {drafting.LONGEST}


@pytest.mark.slow
def test_heads(guide: EngineClient) -> None:
    result, told = ran(guide, "heads")
    page = BY_NAME["heads"].page
    assert result.sides == [side for side in page.sides if side != "MTP"]
    assert result.text is not None
    assert result.text.same
    assert len(result.figures[0].effects) == len(result.sides) - 1
    best = result.figures[0].effects[result.told_of]
    assert best.after == max(effect.after for effect in result.figures[0].effects)
    assert result.headline.startswith(f"{result.sides[1 + result.told_of]}: {best.after:.2f} tokens a step")
    for picture in result.pictures:
        assert isinstance(picture, Drafts)
        holds(picture.steps)
        assert len(picture.steps) == 1
    tree = result.pictures[-1]
    assert isinstance(tree, Drafts)
    parents = [token.parent for token in tree.steps[0] if token.fate != "own"]
    assert len(parents) == NODES
    assert len(set(parents)) < len(parents)  # it branches
    shown = {line.side for line in told if isinstance(line, LabPicture)}
    assert shown == {page.sides.index(side) for side in result.sides}
    assert [line for line in told if isinstance(line, LabProgress)][-1].side == -1


def test_a_lesson_that_the_run_does_not_show_is_not_claimed() -> None:
    names = ["n-gram", "draft model", "EAGLE"]
    assert heads._lesson(names, [1.0, 2.0, 3.0]) == ""
    assert heads._lesson(names, [1.0, 3.0, 3.0]) == heads._lesson(names, [4.0, 2.0, 3.0]) == heads.OUTDONE
    assert heads._lesson(["EAGLE"], [3.0]) == ""
    assert finding.lost(100.0, 75.0, "KIVI") == finding.lost(60.0, 90.0, "KIVI") == ""
    assert finding.lost(100.0, 50.0, "KIVI") == (
        "Here too much is lost: 50 % of the codes were found with KIVI, 100 % with everything."
    )
