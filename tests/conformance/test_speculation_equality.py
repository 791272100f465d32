"""Speculation on equals speculation off, token for token, on real models in fp32 with batch-invariant arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from msgspec.structs import replace

from engine.protocol import Sampling
from engine.sampling import noise
from engine.speculation.base import DraftTree
from tests.conformance.texts import LONGER_SAMPLINGS as SAMPLINGS
from tests.conformance.texts import prompts, same
from tests.kit.checkpoints import write_llama
from tests.kit.hosts import Host


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_llama(folder / "target")
    write_llama(folder / "draft", noise=0.08)
    with Host(folder / "target", str(folder / "draft"), speculation="off") as host:
        yield host


@pytest.mark.parametrize(
    ("kind", "chunk", "batch"),
    [
        pytest.param(kind, chunk, batch, marks=() if (i + j) % 3 == 0 and (i + k) % 2 else pytest.mark.long)
        for i, kind in enumerate(SAMPLINGS)
        for j, chunk in enumerate((1, 7, 64))
        for k, batch in enumerate((1, 8))
    ],
)
def test_on_equals_off(host: Host, kind: str, chunk: int, batch: int) -> None:
    plain = host.answer(prompts(batch), SAMPLINGS[kind])
    assert same(host.answer(prompts(batch), SAMPLINGS[kind], chunk, speculation="draft", draft_length=4), plain)
    # Now with a budget that holds the rows of all decodes, or a larger batch would never get to draft.
    budget = chunk if batch == 1 else max(chunk, batch * 5)
    for speculation in ("draft", "ngram"):
        drafted = host.answer(prompts(batch), SAMPLINGS[kind], budget, speculation=speculation, draft_length=4)
        assert same(drafted, plain)
    assert same(host.answer(prompts(batch), SAMPLINGS[kind], budget, speculation="draft"), plain)


def test_drafts_were_made_and_some_held_and_some_did_not(host: Host) -> None:
    """Otherwise the equalities above would say nothing."""
    for kind in SAMPLINGS:
        found = host.answer(prompts(8), SAMPLINGS[kind], speculation="draft", draft_length=4)
        sources = [source for outcome in found for source in outcome.sources]
        assert {"draft", "corrected", "bonus"} <= set(sources)
    copying = [[*prompts(1)[0][:6]] * 4]
    found = host.answer(copying, Sampling(temperature=0.0, max_tokens=60), speculation="ngram", draft_length=4)
    assert sum(len(step.drafts[0].proposed) for step in host.steps if step.drafts) > 0
    assert same(found, host.answer(copying, Sampling(temperature=0.0, max_tokens=60)))


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("speculation", ["draft", "ngram"])
def test_limits_inside_an_accepted_run(host: Host, kind: str, speculation: str) -> None:
    sampling = SAMPLINGS[kind]
    whole = host.answer(prompts(1), sampling)[0]
    for length in range(1, 14):
        limited = host.answer(
            prompts(1), replace(sampling, max_tokens=length), speculation=speculation, draft_length=6
        )[0]
        assert limited.tokens == whole.tokens[:length]
        assert limited.text == whole.text[: len(limited.text)]
        assert limited.reason == ("length" if length <= len(whole.tokens) else whole.reason)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("speculation", ["draft", "ngram"])
def test_stop_strings_inside_an_accepted_run(host: Host, kind: str, speculation: str) -> None:
    sampling = SAMPLINGS[kind]
    whole = host.answer(prompts(1), sampling)[0]
    assert len(whole.text) > 12
    for start in range(1, 12):
        stop = whole.text[start : start + 2]
        cut = whole.text.find(stop)
        stopped = host.answer(prompts(1), replace(sampling, stop=[stop]), speculation=speculation, draft_length=6)[0]
        assert (stopped.text, stopped.reason) == (whole.text[:cut], "stop")
        assert stopped.tokens == whole.tokens[: cut + 2]


# --- negative controls: each breaks one thing that equality rests on ---------------------------------------------


def test_noise_that_ignores_the_place_would_be_noticed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = host.answer(prompts(1), SAMPLINGS["sampled"])
    state = iter(range(1_000_000))
    monkeypatch.setattr(noise, "key", lambda seed, answer, index, salt=0: (next(state) * 7919, seed))
    assert not same(host.answer(prompts(1), SAMPLINGS["sampled"], speculation="draft", draft_length=4), plain)


def test_accepting_every_draft_would_be_noticed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.speculation.verify import verifier
    from engine.speculation.verify.verifier import Verdict

    plain = host.answer(prompts(1), SAMPLINGS["greedy"])

    def credulous(tree: DraftTree, targets: list[int]) -> Verdict:
        return Verdict(tuple(range(len(tree.tokens))), targets[-1], "bonus")

    monkeypatch.setattr(verifier, "verify", credulous)
    assert not same(host.answer(prompts(1), SAMPLINGS["greedy"], speculation="draft", draft_length=4), plain)
