"""Gemma 4's assistant in a load like any other: it drafts from the target's cache, and the text stays.

In fp32, batch-invariant, as in test_cache_equality.py; how much is accepted is compared with transformers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from engine.protocol import Sampling
from tests.conformance.assistant_models import DENSE, SMALL_E, drafts, new_assistant, write_pair
from tests.conformance.texts import PROMPTS, SAMPLINGS, VARIANTS
from tests.kit.checkpoints import EOS, write_tokenizer
from tests.kit.hosts import Host
from tests.kit.pairs import each_value

DRAFTING: dict[str, Any] = {"speculation": "assistant", "draft_length": 4, "ngram_first": False}
AHEAD = 4


class Served(NamedTuple):
    """A model with its assistant, served by us, and both by transformers."""

    host: Host
    target: Any
    assistant: Any


@pytest.fixture(scope="module", params=["small", "dense"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, whole_transformers: None
) -> Iterator[Served]:
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("models") / request.param
    both = write_pair(folder, {"small": SMALL_E, "dense": DENSE}[request.param], EOS + 1)
    write_tokenizer(folder)
    with Host(folder) as host:
        yield Served(host, *both)


def test_a_load_finds_it(served: Served) -> None:
    loaded = served.host.engine.loaded
    assert loaded is not None
    assert (loaded.card.heads, loaded.card.draft_refused) == (["assistant"], "")
    assert not any("assistant cannot" in notice for notice in loaded.card.notices)
    assert ("assistant", str(Path(loaded.card.path) / "heads" / "assistant")) in loaded.drafting.methods
    assert len(loaded.stores) == 1, "it has no keys and values"


@pytest.mark.slow
@each_value(
    seldom=lambda variant, **_: variant not in ("int8", "int4", "kivi", "quest"),
    indirect=["served"],
    served=["small", "dense"],
    variant=list(VARIANTS),
    sampling=list(SAMPLINGS),
)
def test_the_text_stays(served: Served, variant: str, sampling: str) -> None:
    """All prompts together: with an empty cache, with prefixes in it, in small chunks, preempted."""
    host = served.host
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    for budget, disturbed in ((512, None), (40, None), (160, random.Random(1))):
        ids = host.ask(PROMPTS, SAMPLINGS[sampling], **DRAFTING)
        host.run(budget, disturbed)
        assert host.of(ids) == expected
        assert {"assistant", "corrected"} <= set(host.sources(ids))


@pytest.mark.slow
@each_value(indirect=["served"], served=["small", "dense"], mode=["swap", "recompute"])
def test_several_answers_that_give_way(served: Served, mode: str) -> None:
    host = served.host
    host.fresh(VARIANTS["int8"].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    host.set(preemption=mode, host_cache=1.0)
    ids = host.ask(PROMPTS, SAMPLINGS["seeded"], 3, **DRAFTING)
    assert host.run(120, random.Random(2)) > 1
    assert host.of(ids, 3) == expected
    assert "assistant" in host.sources(ids)
    host.set(preemption="auto", host_cache=0.0)


@pytest.mark.slow
def test_its_depth_is_chosen(served: Served) -> None:
    """By the controller: as a method of its own with a length that follows what is accepted, and among all others."""
    host = served.host
    host.fresh(VARIANTS["16bit"].switches)
    sampling = Sampling(temperature=0.0, max_tokens=80, ignore_eos=True)
    ids = host.ask([PROMPTS[0]], sampling, speculation="off")
    host.run()
    expected = host.of(ids)
    for method in ("assistant", "auto"):
        ids = host.ask([PROMPTS[0]], sampling, speculation=method, draft_length=0, ngram_first=False)
        host.run()
        assert host.of(ids) == expected


def test_rejection_sampling_takes_its_distribution(served: Served) -> None:
    host = served.host
    host.fresh(VARIANTS["16bit"].switches)
    sampling = Sampling(temperature=0.6, seed=3, max_tokens=60, ignore_eos=True)
    ids = host.ask(PROMPTS[:2], sampling, acceptance="ratio", **DRAFTING)
    host.run()
    assert all(len(text) == 60 for text in host.of(ids))
    assert {"assistant", "corrected"} <= set(host.sources(ids))


# --- as much as with transformers --------------------------------------------------------------------------------


@torch.no_grad()
def rounds(served: Served, prompt: list[int], count: int) -> tuple[list[int], list[str]]:
    """The greedy text after a prompt, and where each token came from, by transformers' modules."""
    tokens, sources = [*prompt, int(served.target(torch.tensor([prompt])).logits[0, -1].argmax())], ["target"]
    while len(sources) < count:
        most = min(AHEAD, count - len(sources) - 1)
        found = [int(each.logits.argmax()) for each in drafts(served.target, served.assistant, tokens, most)]
        said = served.target(torch.tensor([tokens + found])).logits[0, len(tokens) - 1 :].argmax(-1).tolist()
        held = next((depth for depth in range(most) if found[depth] != said[depth]), most)
        tokens += [*found[:held], said[held]]
        sources += ["assistant"] * held
        sources.append(("bonus" if held == most else "corrected") if most else "target")
    return tokens[len(prompt) :], sources


@pytest.mark.slow
def test_as_many_tokens_are_accepted_as_by_transformers_modules(served: Served) -> None:
    """To the token: over an empty cache, and after a prefix that was read before."""
    host = served.host
    host.fresh(VARIANTS["16bit"].switches)
    count, accepted = 50, 0
    sampling = Sampling(temperature=0.0, max_tokens=count, ignore_eos=True)
    for prompt in (PROMPTS[0], PROMPTS[0][:100]):
        expected = rounds(served, prompt, count)
        ids = host.ask([prompt], sampling, **DRAFTING)
        host.run(64)
        assert (host.of(ids)[0], host.sources(ids)) == expected
        accepted += expected[1].count("assistant")
    assert accepted > 15


def test_assisted_generation_of_transformers_needs_as_many_steps(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tenth: transformers shows the assistant keys of rejected tokens, too."""
    count, calls = 100, 0
    forward = served.target.forward

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(*arguments, **options)

    monkeypatch.setattr(served.target, "forward", counted)
    config = served.assistant.generation_config
    config.num_assistant_tokens, config.num_assistant_tokens_schedule = AHEAD, "constant"
    text = served.target.generate(
        torch.tensor([PROMPTS[0]]), assistant_model=served.assistant, do_sample=False, max_new_tokens=count,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    host = served.host
    host.fresh(VARIANTS["16bit"].switches)
    ids = host.ask([PROMPTS[0]], Sampling(temperature=0.0, max_tokens=count, ignore_eos=True), **DRAFTING)
    host.run()
    assert host.of(ids)[0] == text[0, len(PROMPTS[0]) :].tolist()
    steps = count - host.sources(ids).count("assistant")
    assert steps < 0.8 * count
    assert abs(steps - calls) <= 0.1 * calls


def test_a_load_refuses_one_for_another_model(served: Served, tmp_path: Path) -> None:
    loaded = served.host.engine.loaded
    assert loaded is not None
    new_assistant(SMALL_E, EOS + 9).save_pretrained(tmp_path / "other")
    host = Host(Path(loaded.card.path), draft=str(tmp_path / "other"))
    assert host.engine.loaded is not None
    card = host.engine.loaded.card
    assert card.heads == []
    assert card.draft_refused == (
        f"The assistant cannot be used. other has vocab_size {EOS + 9} where this model needs {EOS + 1}. "
        "Choose the assistant that was made for this model."
    )
