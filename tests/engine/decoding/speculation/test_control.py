"""The controller: what it asks of whom, what it records, and which proposers follow along."""

from __future__ import annotations

import pytest
import torch

from engine.decoding.options import RequestOptions
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import DraftTree, HiddenRows
from engine.decoding.speculation.control.controller import Controller, Round, shapes
from engine.decoding.speculation.control.stats import depth_of
from engine.decoding.speculation.verify.verifier import Verdict
from tests.engine.decoding.speculation.simulated_time import FakeProposer, FakeRepeats, FakeRequest, Simulation


def free(rows: int) -> float:
    return 1.0


def slow(rows: int) -> float:
    return float(rows)


def test_a_name_that_the_model_lacks_asks_nobody() -> None:
    simulation = Simulation([FakeRepeats(1.0)], free, speculation="eagle").run(20)
    assert not any(simulation.steps)


@pytest.mark.parametrize("speculation", ["draft", "auto"])
def test_a_set_length_is_kept_whatever_it_costs(speculation: str) -> None:
    proposer = FakeProposer("draft", 0.0, 5.0)
    simulation = Simulation([proposer], slow, speculation=speculation, draft_length=5).run(100)
    assert [ask.budget for ask in proposer.asked] == [5] * 100
    record = simulation.latest("draft")
    assert (record.draft_length, record.off_reason, record.draft_tokens) == (5, "", 5)
    assert "as set" in record.reasoning


def test_a_set_tree_is_kept() -> None:
    proposer = FakeProposer("eagle", 0.1, 5.0, branches=True)
    simulation = Simulation([proposer], slow, speculation="eagle", draft_length=3, tree_nodes=12).run(50)
    assert {(ask.budget, ask.depth) for ask in proposer.asked} == {(12, 3)}
    record = simulation.latest("eagle")
    assert (record.draft_length, record.tree_nodes, len(record.proposed)) == (3, 12, 3)


def test_shapes() -> None:
    def options(**changes: int) -> RequestOptions:
        return RequestOptions(**changes)  # type: ignore[arg-type]

    chain, tree = FakeProposer("draft", 0.8, 0.05), FakeProposer("eagle", 0.8, 0.05, branches=True)
    assert shapes(chain, options(draft_length=5, tree_nodes=40)) == [(5, 5)]
    assert shapes(chain, options(tree_nodes=40)) == [(depth, depth) for depth in range(1, 17)]
    assert shapes(tree, options(draft_length=5, tree_nodes=40)) == [(40, 5)]
    assert {depth for _, depth in shapes(tree, options(draft_length=5))} == {5}
    assert all(nodes == 6 and depth <= 6 for nodes, depth in shapes(tree, options(tree_nodes=6)))
    assert all(depth <= nodes <= 63 for nodes, depth in shapes(tree, options()))
    tree.max_depth = 4  # as Medusa says of itself
    assert max(depth for _, depth in shapes(tree, options())) == 4
    assert shapes(tree, options(draft_length=9, tree_nodes=40)) == [(40, 4)]


def test_repetition_goes_first_and_the_other_drafts_elsewhere() -> None:
    turn = [0]
    repeats = FakeRepeats(0.9, lambda: turn[0] % 3 == 0)
    draft = FakeProposer("draft", 0.8, 0.05)
    simulation = Simulation([repeats, draft], free, speculation="draft")
    for _ in range(600):
        turn[0] += 1
        simulation.step()
    assert 0.25 < simulation.asked("ngram", 300) < 0.4
    assert 0.5 < simulation.asked("draft", 300) < 0.75
    for records in simulation.steps:
        assert sum(bool(record.draft_length) for record in records) <= 1


def test_repetition_is_not_asked_where_it_is_switched_off() -> None:
    repeats = FakeRepeats(1.0)
    simulation = Simulation([repeats, FakeProposer("draft", 0.8, 0.05)], free, speculation="draft", ngram_first=False)
    simulation.run(100)
    assert not repeats.asked
    assert simulation.asked("draft", 50) > 0.9


def test_repetition_that_never_holds_gives_way() -> None:
    repeats, draft = FakeRepeats(0.01), FakeProposer("draft", 0.8, 0.05)
    simulation = Simulation([repeats, draft], lambda rows: 1 + rows / 20, speculation="draft").run(800)
    assert simulation.asked("draft", 400) > 0.85
    assert simulation.asked("ngram", 400) < 0.1


def test_nothing_repeats_costs_nothing() -> None:
    repeats = FakeRepeats(1.0, lambda: False)
    simulation = Simulation([repeats], slow, speculation="ngram").run(100)
    assert simulation.seconds == simulation.plain_seconds
    assert not repeats.asked


def test_a_record_counts_answers_by_depth_and_all_drafts() -> None:
    controller = Controller([FakeProposer("eagle", 1.0, 0.1, branches=True)])
    requests = [FakeRequest(number, speculation="eagle", draft_length=2, tree_nodes=5) for number in range(3)]
    wanted = controller.plan(requests)  # type: ignore[arg-type]
    slices = [Slice(request, 1, True, wanted[request.owner]) for request in requests]  # type: ignore[type-var]
    trees, work, _ = controller.propose(slices)  # type: ignore[arg-type]
    assert [len(tree.tokens) for tree in trees] == [5, 5, 5]
    assert work.passes == 2
    verdicts = [Verdict(nodes, 0, "target") for nodes in ((), (0,), (0, 3))]
    rounds = [Round(*each) for each in zip(requests, trees, verdicts, strict=True)]  # type: ignore[arg-type]
    (record,) = controller.record(rounds, [], decoding_only=True)
    assert (record.proposed, record.accepted) == ((3, 3), (2, 1))
    assert (record.draft_length, record.tree_nodes, record.draft_tokens) == (2, 5, 15)


def test_depth_of_trees() -> None:
    assert depth_of(DraftTree()) == 0
    assert depth_of(DraftTree((1, 2, 3))) == 3
    assert depth_of(DraftTree((1, 2, 3, 4), (-1, -1, 0, 2))) == 3


def test_lines_for_people() -> None:
    simulation = Simulation([FakeProposer("draft", 0.8, 0.1)], free, speculation="draft").run(200)
    line = simulation.latest("draft").reasoning
    assert line.startswith("draft model, ")
    assert " % accepted, " in line
    assert line.endswith(" times a plain step")
    simulation = Simulation([FakeProposer("draft", 0.3, 1.0)], slow, speculation="draft").run(200)
    reason = simulation.latest("draft").off_reason
    assert reason.startswith("drafts cost more than they save (")
    assert reason.endswith(" steps")


def seen(request: FakeRequest, layers: frozenset[int]) -> HiddenRows:
    return HiddenRows(request, 0, {layer: torch.zeros(1, 1) for layer in layers})  # type: ignore[arg-type]


def prompt(request: FakeRequest) -> Slice:
    return Slice(request, 7, False)  # type: ignore[arg-type,type-var]


def wanted(controller: Controller, piece: Slice) -> frozenset[int]:
    return controller.propose([piece]).needs_hidden


def test_heads_follow_from_the_prompt_on() -> None:
    eagle = FakeProposer("eagle", 0.8, 0.1, needs_hidden=frozenset({2, 5}))
    controller = Controller([eagle, FakeRepeats(0.5)])
    for speculation, layers in (("eagle", {2, 5}), ("auto", {2, 5}), ("ngram", set()), ("off", set())):
        request = FakeRequest(1, speculation=speculation)
        assert wanted(controller, prompt(request)) == layers
        eagle.saw.clear()
        controller.record([], [seen(request, frozenset({2, 5}))], decoding_only=False)
        assert len(eagle.saw) == bool(layers)


def test_heads_that_failed_cost_plain_requests_nothing() -> None:
    """A text is followed from its beginning where the next trial is near; in others there is none."""
    eagle = FakeProposer("eagle", 0.02, 2.0, needs_hidden=frozenset({4}))
    simulation = Simulation([eagle, FakeProposer("draft", 0.02, 0.3)], lambda rows: 1 + 0.2 * (rows - 1))
    followed, texts = 0, 60
    for _ in range(texts):
        simulation.run(40)
        simulation.renew()
        following = wanted(simulation.controller, prompt(simulation.requests[0]))
        candidate = simulation.requests[0].drafting["eagle"]  # type: ignore[index]
        assert bool(following) == candidate.follows
        assert candidate.follows or not candidate.due(1 << 30)
        followed += candidate.follows
    assert texts // 20 < followed < texts // 2


def test_who_has_nothing_to_say_is_left_alone() -> None:
    eagle = FakeProposer("eagle", 0.9, 0.1, branches=True)
    eagle.speechless = True
    simulation = Simulation([eagle, FakeProposer("draft", 0.6, 0.1)], free).run(400)
    assert simulation.asked("draft", 200) > 0.85
    assert len(eagle.asked) < 60


def test_a_draft_model_reads_prompts_along_only_where_it_may_draft() -> None:
    """One that failed lately reads the text when it is tried again."""
    draft = FakeProposer("draft", 0.8, 0.1)
    controller = Controller([draft])
    for speculation, asks in (("off", 0), ("auto", 1), ("draft", 1)):
        draft.asked.clear()
        controller.propose([prompt(FakeRequest(1, speculation=speculation))])
        assert [ask.budget for ask in draft.asked] == [0] * asks
    draft.hold = 0.01
    simulation = Simulation([draft], slow).run(50)
    draft.asked.clear()
    simulation.controller.propose([prompt(FakeRequest(9, speculation="auto"))])
    assert not draft.asked


@pytest.mark.parametrize("name", ["draft", "eagle"])
def test_nobody_reads_along_with_a_request_without_a_cache(name: str) -> None:
    """Its rows are never a single one to draft after, and its whole text would be read along in every step."""
    layers = frozenset({3}) if name == "eagle" else frozenset[int]()
    proposer = FakeProposer(name, 0.9, 1.0, needs_hidden=layers)
    controller = Controller([proposer])
    for cached in (False, True):
        request = FakeRequest(int(cached), speculation=name, kv_cache=cached)
        assert wanted(controller, prompt(request)) == (layers if cached else frozenset())
        assert bool(proposer.asked) == cached
