"""Embeddings of prompts against transformers' states: alone and together, in chunks, beside a chat, after a prefix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaModel

from engine.config.pooling import Pooling
from engine.loop.commands import AddRequest
from engine.loop.events import Embedded
from engine.protocol import Sampling
from tests.kit.checkpoints import LETTERS, write_llama
from tests.kit.hosts import Host

POOLINGS: tuple[Pooling, ...] = ("mean", "last", "cls")
PROMPTS = [[(7 * place + length) % len(LETTERS) for place in range(length)] for length in (1, 5, 40, 100)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    with Host(folder, token_budget=48, speculation="off") as made:
        yield made


@cache
def states(folder: Path, prompt: tuple[int, ...]) -> torch.Tensor:
    """[tokens, hidden_size], after the final norm."""
    model = LlamaModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.tensor([prompt])).last_hidden_state[0]


def expected(folder: Path, prompt: list[int], pooling: Pooling) -> np.ndarray:
    found = states(folder, tuple(prompt))
    return {"mean": found.mean(0), "last": found[-1], "cls": found[0]}[pooling].numpy()


def submit(host: Host, prompts: list[list[int]], pooling: Pooling, name: str = "e") -> list[str]:
    ids = [f"{name}{number}" for number in range(len(prompts))]
    for id, prompt in zip(ids, prompts, strict=True):
        host.engine.submit(AddRequest(id, prompt, Sampling(max_tokens=1), pooling=pooling))
    return ids


def drained(host: Host, ids: list[str]) -> list[np.ndarray]:
    while host.engine.step():
        pass
    host.check()
    found = {event.id: event.vector for event in host.heard.others if isinstance(event, Embedded)}
    assert [host.answers[id, 0].reason for id in ids] == ["stop"] * len(ids)
    assert not any(host.answers[id, 0].infos for id in ids), "no token is drawn"
    host.stepper.cache.check(idle=True)
    return [found[id] for id in ids]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_alone_and_together_as_transformers_has_it(host: Host, folder: Path, pooling: Pooling) -> None:
    together = drained(host, submit(host, PROMPTS, pooling, "together"))
    for number, prompt in enumerate(PROMPTS):
        (alone,) = drained(host, submit(host, [prompt], pooling, f"alone{number}"))
        wanted = expected(folder, prompt, pooling)
        for found in (together[number], alone):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert max(step.rows.prefill for step in host.steps) <= 48, "the longest is read in chunks"


@pytest.mark.parametrize("pooling", POOLINGS)
def test_beside_a_chat_neither_changes(host: Host, folder: Path, pooling: Pooling) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=20, ignore_eos=True)
    (before,) = host.ask([PROMPTS[2]], sampling)
    while host.engine.step():
        pass
    (chat,) = host.ask([PROMPTS[2]], sampling)
    for _ in range(5):
        host.engine.step()
    found = drained(host, submit(host, PROMPTS, pooling))
    for vector, prompt in zip(found, PROMPTS, strict=True):
        np.testing.assert_allclose(vector, expected(folder, prompt, pooling), atol=1e-5)
    assert host.answers[chat, 0].tokens == host.answers[before, 0].tokens


def test_a_prefix_that_is_cached_is_not_read_again_where_the_last_state_alone_counts(host: Host, folder: Path) -> None:
    host.ask([PROMPTS[3][:80]], Sampling(max_tokens=1))
    while host.engine.step():
        pass
    for pooling in POOLINGS:
        (id,) = submit(host, [PROMPTS[3]], pooling, pooling)
        (found,) = drained(host, [id])
        np.testing.assert_allclose(found, expected(folder, PROMPTS[3], pooling), atol=1e-5)
        assert (host.cached[id] >= 64) == (pooling == "last")


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_each_token_counts_once_after_a_preemption(host: Host, folder: Path, pooling: Pooling, preemption: str) -> None:
    host.set(preemption=preemption, prefix_cache=False)
    (id,) = submit(host, [PROMPTS[3]], pooling)
    host.engine.step()
    host.engine.step()
    request = host.stepper.requests[id, 0]
    assert request.num_computed == 96
    host.stepper.scheduler.preempt(request)
    assert request.num_computed == (96 if preemption == "swap" else 0)
    (found,) = drained(host, [id])
    np.testing.assert_allclose(found, expected(folder, PROMPTS[3], pooling), atol=1e-5)


def test_a_prompt_may_fill_the_context(host: Host, folder: Path) -> None:
    """No token is drawn, which would need room."""
    whole = [place % len(LETTERS) for place in range(host.stepper.model.card.context)]
    (found,) = drained(host, submit(host, [whole], "mean"))
    np.testing.assert_allclose(found, expected(folder, whole, "mean"), atol=1e-5)
    host.engine.submit(AddRequest("long", [*whole, 0], Sampling(max_tokens=1), pooling="mean"))
    while host.engine.step():
        pass
    assert [error.code for error in host.heard.errors] == ["prompt_too_long"]


def test_no_numbers_are_no_embedding(host: Host) -> None:
    assert host.stepper.model.model is not None
    norm = host.stepper.model.model.norm
    norm.weight = torch.full((64,), torch.nan)  # type: ignore[attr-defined]
    (id,) = submit(host, [PROMPTS[1]], "mean")
    while host.engine.step():
        pass
    finished = host.answers[id, 0].finished
    assert finished is not None
    assert (finished.reason, "not numbers" in finished.detail) == ("error", True)
    assert not [event for event in host.heard.others if isinstance(event, Embedded)]
