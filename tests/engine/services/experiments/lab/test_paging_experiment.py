"""The Lab's paged memory: chats at once as arithmetic says, and the model is loaded as before afterwards."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec import structs

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.library.paths import find_model
from engine.protocol import LoadOptions, keys
from engine.protocol.lab import LabLine, LabPicture, Pages
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Lab, LabError
from engine.services.experiments.lab import paging
from engine.services.experiments.laboratory import run
from engine.services.experiments.sides import Reloaded
from tests.engine.services.experiments.lab.conftest import loaded

CONTEXT, CHATS = 512, 20


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    yield from loaded("", draft="")


@pytest.mark.slow
def test_as_many_fit_as_arithmetic_says(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "WIDTHS", (CONTEXT,))
    monkeypatch.setattr(paging, "CHATS", CHATS)
    before = client.model.command.options, client.model.pages, client.model.card.context
    lines: list[LabLine] = []
    result = run(Lab(client), paging.Paging(), lines.append)
    assert (client.model.command.options, client.model.pages, client.model.card.context) == before
    assert client.state()[keys.PAGE_RESERVATION].value == "on_demand"
    total, each = int(result.settings["pages"]), pages_for(CONTEXT)
    # A chat is admitted while a page stays free for each that runs.
    fit = max(count for count in range(1, CHATS) if count * each + count - 1 <= total)
    chats, used, most = result.figures
    assert most.runs[0] == [fit]
    assert chats.runs[0][0] <= fit < most.runs[1][0] <= CHATS
    assert chats.effects[0].verdict == "better"
    assert used.runs[0][0] < 40
    assert used.runs[1][0] > 80
    assert result.text is not None
    assert result.text.same, result.text.sentence
    whole, paged = result.pictures
    assert isinstance(whole, Pages)
    assert isinstance(paged, Pages)
    assert len(whole.owners) == len(paged.filled) == total
    owned = Counter(owner for owner in whole.owners if owner >= 0)
    assert set(owned.values()) == {each}
    assert len(owned) <= fit
    # Page by page, no chat has more than one page that is not full, and a page that its next token needs.
    open_pages = Counter(
        owner for owner, part in zip(paged.owners, paged.filled, strict=True) if owner >= 0 and part < 1
    )
    assert set(open_pages.values()) <= {1, 2}
    assert all(0 <= part * PAGE_SIZE <= PAGE_SIZE for part in paged.filled)
    assert sum(isinstance(line, LabPicture) for line in lines) >= 2


def test_models_with_states_and_short_contexts_are_refused(client: EngineClient) -> None:
    short = dataclasses.replace(client.model, card=structs.replace(client.model.card, context=128))
    refusal = paging.Paging().refuses(short, client.state())
    assert refusal is not None
    assert "128" in refusal.why
    with EngineClient() as other:
        other.load(find_model("kvasir-hybrid").path, "", LoadOptions(device="cpu"))
        with pytest.raises(LabError, match=r"Recurrent layers .* bundled"):
            run(Lab(other), paging.Paging(), lambda line: None)


def test_a_run_that_is_cancelled_loads_the_model_as_it_was(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "WIDTHS", (CONTEXT,))
    monkeypatch.setattr(paging, "CHATS", 4)
    before = client.model.command.options, client.model.pages
    running = paging.Paging().run(Lab(client))
    next(line for line in running if isinstance(line, LabPicture))
    assert client.model.pages < before[1]
    running.close()
    assert (client.model.command.options, client.model.pages) == before
    assert client.state()[keys.PAGE_RESERVATION].value == "on_demand"


@pytest.mark.long
def test_in_full(client: EngineClient) -> None:
    result = run(Lab(client), paging.Paging(), lambda line: None)
    assert result.figures[0].effects[0].ratio is not None
    assert result.figures[0].effects[0].ratio > 3


def test_what_is_loaded_meanwhile_has_the_memory_of_what_was_loaded_before(client: EngineClient) -> None:
    before, path = weakref.ref(client.model), client.model.command.path
    with Reloaded(client, client.model.command.options, find_model("kvasir-needle")):
        assert client.model.card.name == "kvasir-needle"
        gc.collect()
        assert before() is None, "it is not held"
    assert client.model.command.path == path
