"""Every family that sees pictures answers as transformers does, in chunks, from the prefix cache and with drafts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from engine.cache.stores.windowed import WindowedStore
from engine.compute.vision.processor import ImageProcessor
from engine.loading.model import LoadModel
from engine.loop.engine import Engine
from engine.loop.events import Event
from engine.protocol import ChatMessage, LoadOptions, Unload
from engine.services.answers.pictures import PromptImages
from engine.services.answers.refused import Refused
from tests.conformance.seeing_host import CHATS, COUNT, QUESTION, Seeing
from tests.conformance.seeing_models import FAMILIES, photo, theirs, user, write_seeing
from tests.conformance.texts import VARIANTS

ELSEWHERE = ("qwen3.5", "gemma3", "gemma4-12b", "gemma4-26b", "gemma4-31b")
"""Those of test_pictures.py and test_pictures_ahead.py."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ELSEWHERE])
def test_answers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_seeing(tmp_path, name)
    host = Seeing(tmp_path)
    expected = [theirs(model, chat, host.tokens(chat).ids, COUNT, name)[0] for chat in CHATS.values()]
    assert len({tuple(answer) for answer in expected}) == len(CHATS)
    for budget, disturbed, method in ((512, None, "off"), (33, None, "ngram"), (60, random.Random(1), "ngram")):
        host.fresh(VARIANTS["16bit"].switches)
        for _ in range(2):
            ids = host.say(list(CHATS.values()), speculation=method)
            host.run(budget, disturbed)
            assert host.of(ids) == expected
        # What gave way may have lost the slots of its windows meanwhile, and is read again.
        if disturbed is None or not isinstance(host.stepper.model.stores[0], WindowedStore):
            assert all(host.cached[id] for id in ids), "the second time all of them are known"


class Given(NamedTuple):
    """What a load says of pictures."""

    sees: bool
    notices: list[str]
    refusal: str


def loaded(folder: Path, memory: float = 200e6) -> Given:
    """A load with so much memory, and what a conversation with a picture is told."""
    events: list[Event] = []
    engine = Engine(events.append, device="cpu")
    engine.submit(LoadModel(str(folder), "", LoadOptions(device="cpu", dtype="float32", memory=memory)))
    engine.step()
    model = engine.loaded
    assert model is not None, events
    told = ""
    try:
        PromptImages(model, CHATS["one"])
    except Refused as refused:
        told = f"{refused.code}: {refused}"
    engine.submit(Unload())
    engine.step()
    return Given(model.card.pictures, model.card.notices, told)


def test_where_it_sees_nothing_it_says_why(tmp_path: Path) -> None:
    write_seeing(tmp_path)
    assert loaded(tmp_path).sees
    short = loaded(tmp_path, 130e6)
    assert not short.sees
    assert short.refusal == f"no_pictures: {short.notices[-1]}"
    assert short.refusal.endswith("because its vision tower does not fit into memory together with it.")
    (tmp_path / "preprocessor_config.json").unlink()
    lacking = loaded(tmp_path)
    assert not lacking.sees
    assert lacking.refusal == f"no_pictures: {lacking.notices[0]}"
    assert "because preprocessor_config.json, which says how pictures are prepared, is missing" in lacking.refusal


def test_pictures_that_take_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_seeing(tmp_path)
    host = Seeing(tmp_path)
    monkeypatch.setattr(ImageProcessor, "most_bytes", 150_000)
    with pytest.raises(Refused, match="The first 2 pictures of the conversation take more than 0 GiB"):
        host.tokens(CHATS["two at once"])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeing]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "seeing"
    write_seeing(folder, "qwen3-vl")
    with Seeing(folder) as host:
        yield host


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", ["kivi", *(pytest.param(name, marks=pytest.mark.long) for name in ("int4", "quest", "window"))]
)
def test_other_caches_tell_pictures_apart(host: Seeing, variant: str) -> None:
    """Two pictures of one size, whose prompts have the same tokens, each asked twice and gone on from."""
    host.fresh(VARIANTS[variant].switches)
    chats = [[user(f"{QUESTION} {'in some detail ' * 6}", photo(100, 80, turned=turned))] for turned in (0, 180)]
    chats += [[*chat, ChatMessage.of("assistant", "grey"), user("why?")] for chat in chats]
    assert host.tokens(chats[0]).ids == host.tokens(chats[1]).ids
    expected = [host.reply(chat, prefix_cache=False) for chat in chats]
    assert expected[0] != expected[1]
    host.fresh(VARIANTS[variant].switches)
    for _ in range(2):
        assert [host.reply(chat, 40) for chat in chats] == expected
    assert VARIANTS[variant].shares is False or list(host.cached.values())[-1] > 64
