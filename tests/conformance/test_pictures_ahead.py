"""Models in which the tokens of a picture see those after them (Gemma 3, the larger Gemma 4): whatever a step holds,
their logits are those of transformers, and their text is the same to the token."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch

from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage, Sampling
from tests.conformance.seeing_host import CHATS, COUNT, FIRST, QUESTION, SECOND, Seeing
from tests.conformance.seeing_models import IMAGE, theirs, user, write_seeing
from tests.conformance.texts import VARIANTS
from tests.kit.pairs import each_value

OFTEN = ("gemma3", "gemma4-12b")
FAMILIES = (*OFTEN, "gemma4-26b", "gemma4-31b")
LONG = [
    user(f"{QUESTION} in some detail", FIRST, SECOND),
    ChatMessage.of("assistant", "grey"),
    user("why?"),
]


class Model(NamedTuple):
    name: str
    theirs: Any
    host: Seeing


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in FAMILIES]
)
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / request.param
    model = write_seeing(folder, request.param)
    with Seeing(folder) as host:
        yield Model(request.param, model, host)


def watch(host: Seeing, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """What each step from now on reads of its sequences: places [start, stop)."""
    steps: list[list[tuple[int, int]]] = []
    runner = host.stepper.model.runner
    forward = runner.forward

    def watched(rows: Any, **options: Any) -> Any:
        steps.append([(row.start, row.start + len(row.tokens)) for row in rows])
        return forward(rows, **options)

    monkeypatch.setattr(runner, "forward", watched)
    return steps


@pytest.mark.slow
def test_logits_are_those_of_transformers(seeing: Model) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=COUNT, ignore_eos=True, logprobs=8)
    host = seeing.host
    for budget in (512, 20):
        host.fresh(VARIANTS["16bit"].switches)
        for name, chat in (CHATS | {"long": LONG}).items():
            tokens = host.tokens(chat)
            host.engine.submit(AddRequest(f"{name} {budget}", tokens.ids, sampling, pictures=tokens.pictures))
            host.run(budget)
            logs = theirs(seeing.theirs, chat, tokens.ids, COUNT, seeing.name)[1]
            for info, wanted in zip(host.answers[f"{name} {budget}", 0].infos, logs, strict=True):
                for token, logprob in info.top:
                    assert logprob == pytest.approx(float(wanted[token]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_prompt_may_be_cut_anywhere(seeing: Model, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """But not within a picture, which a step holds as a whole however small its budget is."""
    host = seeing.host
    expected = theirs(seeing.theirs, LONG, (tokens := host.tokens(LONG)).ids, 4, seeing.name)[0]
    assert tokens.pictures is not None
    spans = tokens.pictures.spans()
    assert all(tokens.ids[first:stop] == [IMAGE] * (stop - first) for first, stop in spans)
    asked = Sampling(temperature=0.0, max_tokens=4, ignore_eos=True)
    steps = watch(host, monkeypatch)
    for budget in range(1, len(tokens.ids) + 1, every):
        host.fresh(VARIANTS["16bit"].switches)
        steps.clear()
        options = {"prefix_cache": False, "speculation": "off"}
        host.engine.submit(AddRequest("cut", tokens.ids, asked, optimisations=options, pictures=tokens.pictures))
        host.run(budget)
        assert host.answers.pop(("cut", 0)).tokens == expected, budget
        reads = [rows[0] for rows in steps]
        assert all(mine[1] == following[0] for mine, following in pairwise(reads))
        assert not any(first < stop < end for _, stop in reads for first, end in spans)
        longest = max(end - first for first, end in spans)
        assert all(stop - start <= max(budget, longest) for start, stop in reads)


@pytest.mark.slow
def test_found_up_to_any_page(seeing: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also up to one within a picture, the rest of which is read; its tower runs once."""
    host = seeing.host
    expected = host.reply(LONG, prefix_cache=False)
    host.fresh(VARIANTS["16bit"].switches)
    pictures = host.stepper.model.pictures.embeddings
    assert pictures is not None
    seen: list[int] = []
    forward = pictures.tower.forward
    monkeypatch.setattr(pictures.tower, "forward", lambda shown: (seen.append(len(shown)), forward(shown))[1])
    pictures._kept.clear()
    length = len(host.tokens(LONG).ids)
    found: set[int] = set()
    host.set(host_cache=0.0)
    for pages in range(length // 16 + 3):
        host.fresh(VARIANTS["16bit"].switches)
        assert host.reply(LONG, 40) == expected
        host.stepper.cache.tree.evict(pages)
        assert host.reply(LONG) == expected
        found.add(list(host.cached.values())[-1])
    assert found >= set(range(16, length - 1, 16)), "what is left in the tree is found, and no more"
    assert seen == [1, 1]


@pytest.mark.slow
def test_many_at_once(seeing: Model) -> None:
    """Two pictures in a prompt, pictures in several prompts, and texts without any."""
    host = seeing.host
    chats = [*CHATS.values(), LONG]
    expected = [theirs(seeing.theirs, chat, host.tokens(chat).ids, COUNT, seeing.name)[0] for chat in chats]
    for budget in (512, 33):
        host.fresh(VARIANTS["16bit"].switches)
        ids = host.say(chats, n=2)
        host.run(budget)
        assert host.of(ids, 2) == [answer for answer in expected for _ in range(2)]


@each_value(
    seldom=lambda seeing, **_: seeing not in OFTEN, indirect=["seeing"], seeing=FAMILIES, mode=["swap", "recompute"]
)
def test_preemption_at_random_moments(seeing: Model, mode: str) -> None:
    host = seeing.host
    expected = [host.reply(chat, prefix_cache=False) for chat in CHATS.values()]
    host.fresh(VARIANTS["16bit"].switches)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(2):
        host.stepper.model.pictures.embeddings._kept.clear()  # type: ignore[union-attr]
        ids = host.say(list(CHATS.values()), n=2)
        assert host.run(60, random.Random(seed)) > 2
        assert host.of(ids, 2) == [answer for answer in expected for _ in range(2)]
    host.set(preemption="auto", host_cache=0.0)


@pytest.mark.slow
@each_value(
    seldom=lambda seeing, variant: seeing not in OFTEN or variant not in ("int8", "kivi"),
    indirect=["seeing"],
    seeing=FAMILIES,
    variant=["int8", "kivi", "int4", "quest", "window"],
)
def test_in_every_kind_of_cache(seeing: Model, variant: str) -> None:
    """In chunks, from the prefix cache, with others and preempted: as alone and in one step. (What a window leaves of a
    text is not kept, so that preemption at every other step would let nobody come to an end.)"""
    host = seeing.host
    chats = [CHATS["one"], CHATS["none"], LONG]
    host.fresh(VARIANTS[variant].switches)
    expected = [host.reply(chat, prefix_cache=False) for chat in chats]
    host.fresh(VARIANTS[variant].switches)
    for budget, disturbed in ((40, None), (90, None if variant == "window" else random.Random(3))):
        ids = host.say(chats)
        host.run(budget, disturbed)
        assert host.of(ids) == expected
    host.fresh(VARIANTS["16bit"].switches)


def test_text_alone_takes_the_usual_way(seeing: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    host = seeing.host
    host.fresh(VARIANTS["16bit"].switches)
    batches: list[Any] = []
    runner = host.stepper.model.runner
    make = runner.batch
    monkeypatch.setattr(runner, "batch", lambda *given: batches.append(make(*given)) or batches[-1])
    host.reply(CHATS["none"])
    assert batches
    assert all(batch.views is None and not batch.embedded for batch in batches)
    batches.clear()
    host.reply(CHATS["one"])
    assert batches[0].views.until is not None
    assert all(batch.views is None for batch in batches[1:]), "the answer to a picture too"
