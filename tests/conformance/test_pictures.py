"""Pictures in a conversation: what transformers says to them, however a prompt is read and whatever is remembered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache.groups.state import StateGroup
from engine.cache.offload.saved import SavedChats
from engine.compute.vision.embeddings import PictureEmbeddings
from engine.doors.websocket.cache_messages import PICTURE, _reads
from engine.loop.cache_view import radix_tree
from engine.loop.commands import AddRequest, Inspect
from engine.protocol import Sampling
from tests.conformance.seeing_host import CHATS, COUNT, FIRST, QUESTION, Seeing
from tests.conformance.seeing_models import END, IMAGE, START, inputs_of, photo, theirs, user, write_seeing
from tests.conformance.texts import VARIANTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("models") / "seeing"


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return write_seeing(folder)


@pytest.fixture(scope="module")
def host(folder: Path, model: Any) -> Iterator[Seeing]:
    with Seeing(folder) as host:
        yield host


@pytest.fixture(scope="module")
def expected(host: Seeing, model: Any) -> dict[str, list[int]]:
    """What transformers answers; the answers differ, so that seeing the wrong picture is noticed."""
    found = {name: theirs(model, chat, host.tokens(chat).ids, COUNT)[0] for name, chat in CHATS.items()}
    assert len({tuple(answer) for answer in found.values()}) == len(CHATS)
    return found


def fresh(host: Seeing) -> None:
    """Nothing is known of any text or picture."""
    host.fresh(VARIANTS["16bit"].switches)
    (states,) = host.stepper.cache.manager.groups
    assert isinstance(states, StateGroup)
    states.snapshots.make_room(states.pool.total)
    host.stepper.cache.check(idle=True)


def test_a_picture_takes_the_place_of_its_mark(host: Seeing) -> None:
    tokens = host.tokens(CHATS["two at once"])
    assert tokens.pictures is not None
    assert [picture.grid for picture in tokens.pictures.pictures] == [(9, 5), (7, 8)]
    ids = tokens.ids
    assert (ids.count(START), ids.count(IMAGE), ids.count(END)) == (2, 45 + 56, 2)
    assert ids[ids.index(START) :][: 1 + 45 + 2] == [START, *[IMAGE] * 45, END, START]


def test_positions_are_those_of_transformers(host: Seeing, model: Any) -> None:
    for chat in CHATS.values():
        tokens = host.tokens(chat)
        if tokens.pictures is None:
            continue
        given = inputs_of(chat, tokens.ids)
        theirs, less = model.model.get_rope_index(
            given["input_ids"], given["mm_token_type_ids"], image_grid_thw=given["image_grid_thw"]
        )
        index = torch.arange(len(tokens.ids) + 9)
        ours = torch.from_numpy(tokens.pictures.axes(index.numpy()))
        assert torch.equal(ours[:, : len(tokens.ids)], theirs[:, 0])
        assert torch.equal(ours[:, -9:], (index[-9:] + less[0]).expand(3, -1))


@pytest.mark.parametrize("budget", [512, 64, 33, 16, 7])
def test_answers_are_those_of_transformers(host: Seeing, expected: dict[str, list[int]], budget: int) -> None:
    """In chunks that end before, within and after pictures."""
    fresh(host)
    for name, chat in CHATS.items():
        assert host.reply(chat, budget, prefix_cache=False) == expected[name], name
    ids = host.say(list(CHATS.values()), prefix_cache=False)
    host.run(budget)
    assert host.of(ids) == list(expected.values())


def test_logits_are_those_of_transformers(host: Seeing, model: Any) -> None:
    """After each token of an answer, not only of the largest."""
    sampling = Sampling(temperature=0.0, max_tokens=COUNT, ignore_eos=True, logprobs=8)
    for name, chat in CHATS.items():
        tokens = host.tokens(chat)
        host.engine.submit(AddRequest(name, tokens.ids, sampling, pictures=tokens.pictures))
        host.run(50)
        for info, logs in zip(host.answers[name, 0].infos, theirs(model, chat, tokens.ids, COUNT)[1], strict=True):
            for token, logprob in info.top:
                assert logprob == pytest.approx(float(logs[token]), abs=2e-3)


def test_the_same_picture_is_read_once(host: Seeing, expected: dict[str, list[int]], monkeypatch: Any) -> None:
    """Also with other words after it; another picture of the same size is another text."""
    fresh(host)
    seen: list[bytes] = []
    tower = host.stepper.model.pictures.embeddings.tower  # type: ignore[union-attr]
    forward = type(tower).forward
    monkeypatch.setattr(
        type(tower), "forward", lambda self, shown: (seen.extend(p.key for p in shown), forward(self, shown))[1]
    )
    host.stepper.model.pictures.embeddings._kept.clear()  # type: ignore[union-attr]
    for name in ("one", "one", "no longer", "other"):
        assert host.reply(CHATS[name], 40) == expected[name], name
    cached = list(host.cached.values())[-4:]
    length = len(host.tokens(CHATS["one"]).ids)
    assert cached[0] == 0
    assert cached[1] >= length // 16 * 16 - 32
    assert cached[2] >= 56, "the picture lies before what differs"
    assert cached[3] < 16, "pages with parts of another picture are others"
    assert len(seen) == len(set(seen)) == 2, "each is computed once, in however many chunks"


def test_two_pictures_of_one_size_share_nothing(host: Seeing, model: Any) -> None:
    fresh(host)
    turned = photo(100, 80, "PNG")
    chats = [[user(QUESTION, FIRST)], [user(QUESTION, turned)]]
    assert host.tokens(chats[0]).ids == host.tokens(chats[1]).ids, "told apart by nothing but the picture"
    for chat in chats:
        assert host.reply(chat) == theirs(model, chat, host.tokens(chat).ids, COUNT)[0]
        assert list(host.cached.values())[-1] < 16


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preemption_at_random_moments(host: Seeing, expected: dict[str, list[int]], mode: str) -> None:
    fresh(host)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(3):
        host.stepper.model.pictures.embeddings._kept.clear()  # type: ignore[union-attr]
        ids = host.say(list(CHATS.values()), n=2)
        assert host.run(60, random.Random(seed)) > 2
        assert host.of(ids, 2) == [answer for answer in expected.values() for _ in range(2)]
    host.set(preemption="auto")


@pytest.mark.parametrize("method", ["ngram", "mtp", "auto"])
def test_drafts_change_nothing(host: Seeing, expected: dict[str, list[int]], method: str) -> None:
    fresh(host)
    drafted: set[str] = set()
    for budget, disturbed in ((512, None), (40, None), (90, random.Random(5))):
        ids = host.say(list(CHATS.values()), speculation=method, draft_length=4)
        host.run(budget, disturbed)
        assert host.of(ids) == list(expected.values())
        drafted |= set(host.sources(ids))
    assert method != "mtp" or "mtp" in drafted


@pytest.mark.slow
def test_a_chat_goes_on_after_a_restart(folder: Path, model: Any, tmp_path: Path) -> None:
    """From files, and only with the picture that it had."""
    turned = photo(100, 80, "PNG")
    filling = Sampling(temperature=0.0, max_tokens=24, ignore_eos=True)  # a page, where a state is kept
    said: list[int] = []
    for number, (name, found) in enumerate(((FIRST, False), (turned, False), (turned, True))):
        host = Seeing(folder, saved=(saved := SavedChats(tmp_path / "chats", 1 << 30)))
        host.set(disk_cache=1.0)
        prompt = host.tokens([user(QUESTION, name)])
        longer = [*(said or prompt.ids), 5, 6, 7]
        ids = [str(number)]
        host.engine.submit(AddRequest(ids[0], longer, filling, chat="a chat", pictures=prompt.pictures))
        host.run()
        assert host.cached[ids[0]] == ((len(longer) - 4) // 16 * 16 if found else 0)
        said = [*longer, *host.of(ids)[0]]
        assert saved.flush(20)
        alone = AddRequest("alone", longer, filling, optimisations={"prefix_cache": False}, pictures=prompt.pictures)
        host.engine.submit(alone)
        host.run()
        assert host.of(["alone"]) == host.of(ids)
        saved.close()


def test_pages_are_shown_with_their_pictures(host: Seeing) -> None:
    fresh(host)
    host.reply(CHATS["one"])
    found: list[Any] = []
    host.engine.submit(Inspect("tree", found.append))
    host.engine.step()
    loaded = host.engine.loaded
    assert loaded is not None
    assert loaded.files is not None
    texts = [node.text for node in radix_tree(found[0], _reads(loaded.files.tokenizer)).nodes]
    assert any(text.startswith(f"user:<|vision_start|>{PICTURE}") for text in texts), texts


def test_embeddings_are_kept_within_their_budget(host: Seeing) -> None:
    model = host.stepper.model
    assert model.pictures.embeddings is not None
    one = host.tokens(CHATS["two at once"]).pictures
    assert one is not None
    kept = PictureEmbeddings(model.pictures.embeddings.tower, budget=60 * 64 * 4)
    rows = kept.rows(one, 0, 1000)
    assert [tuple(each.vectors.shape) for each in rows] == [(45, 64), (56, 64)]
    assert kept.storage_size() == 56 * 64 * 4, "the first gave way"
    again = kept.rows(one, rows[0].first + 3, rows[0].first + 7)
    assert torch.equal(again[0].vectors, rows[0].vectors[3:7])
    assert again[0].first == 0
