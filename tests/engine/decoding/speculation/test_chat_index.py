"""The texts of other chats: found as a scan finds them, bounded, and only for those who take part."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

import pytest

from engine.decoding.speculation.base import DraftRequest
from engine.decoding.speculation.ngram.chat_index import LEAST, LONGEST, ChatIndex
from engine.decoding.speculation.ngram.proposer import NgramProposer
from tests.contracts.proposer import GREEDY, Make, ProposerContract
from tests.engine.decoding.speculation.decoding import Decoding, prompt
from tests.engine.decoding.speculation.simulated_time import FakeRequest
from tests.engine.decoding.speculation.target_support import EOS, small_model


def scanned(texts: list[list[int]], tokens: list[int], count: int) -> tuple[int, ...]:
    """The definition: the longest suffix (up to LONGEST) in any text, the latest text, the latest place in it."""
    for n in range(min(LONGEST, len(tokens)), LEAST - 1, -1):
        for text in reversed(texts):
            for end in range(len(text) - 1, n - 1, -1):
                if text[end - n : end] == tokens[-n:]:
                    return tuple(text[end : end + count])
    return ()


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_a_scan(seed: int) -> None:
    rng = random.Random(seed)
    index = ChatIndex()
    texts: list[list[int]] = []
    letters = rng.choice([4, 6, 12])
    for number in range(6):
        # Few enough occurrences that all of them are looked at.
        texts.append([rng.randrange(letters) for _ in range(rng.randint(1, 60))])
        index.feed(number, texts[-1])
        for _ in range(10):
            tokens = [rng.randrange(letters) for _ in range(rng.randint(1, 12))]
            assert index.lookup(tokens, 5) == scanned(texts, tokens, 5)


def test_it_stays_bounded_and_keeps_the_latest() -> None:
    rng = random.Random(1)
    index = ChatIndex(limit=500)
    sizes = (len(index._ring), len(index._before), len(index._latest))
    texts = [[rng.randrange(50) for _ in range(rng.randint(5, 200))] for _ in range(400)]
    for number, text in enumerate(texts):
        index.feed(number, text)
    assert (len(index._ring), len(index._before), len(index._latest)) == sizes
    assert len(index._fed) <= 256
    assert index.lookup(texts[-1][:8], 3) == tuple(texts[-1][8:11])
    whole = [number for number, text in enumerate(texts) if index.lookup(text[:8], 3) == tuple(text[8:11]) and text[8:]]
    assert min(whole) > 300


def test_a_text_longer_than_all_room_leaves_its_end() -> None:
    index = ChatIndex(limit=100)
    text = [i // 10 * 37 % 101 + i % 10 * 101 for i in range(1000)]
    index.feed("a", text)
    assert index.lookup(text[950:960], 4) == tuple(text[960:964])
    assert index.lookup(text[100:110], 4) == ()


def test_a_chat_that_goes_on_is_fed_once() -> None:
    index = ChatIndex()
    text = list(range(300))
    for turn in range(1, 11):
        index.feed("chat", text[: 30 * turn])
    assert index._written < 300 + 10 * (LONGEST + 1)
    for place in range(8, 290, 7):
        found = index.lookup(text[place - 8 : place], 3)  # shorter where a turn ended
        assert found
        assert found == tuple(text[place : place + len(found)])
    index.feed("chat", [7, 7, *text[:50]])  # edited: another text
    assert index.lookup([7, 7, 0], 2) == (1, 2)


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    host = Decoding(small_model(), lambda _: NgramProposer())
    asked = [prompt(*each, EOS) for each in ((3, 0), (11, 0), (20, 1), (37, 2))]
    written = host.decode([host.request(str(n), each, GREEDY) for n, each in enumerate(asked)], 60)
    for text in written:
        text[6::7] = [(token + 1) % EOS for token in text[6::7]]
    return [[*ours, *text] for ours, text in zip(asked, written, strict=True)]


class TestOtherChats(ProposerContract):
    """They wrote the same texts, but for each seventh token."""

    eos, samples, reads = EOS, False, False
    samplings = (GREEDY,) * 3
    without: ClassVar[Mapping[str, str]] = {
        "test_nothing_follows_the_end_of_the_text": "it copies a text, in which an end may stand",
        "test_a_released_request_leaves_nothing": "its text is what others draft from, until a chat is deleted",
        "test_as_many_as_asked_for_and_no_more": "the other text may end before; TestNgram drafts by the same code",
    }

    @pytest.fixture
    def make(self, texts: list[list[int]]) -> Make:
        def drafter(host: Decoding) -> NgramProposer:
            made = NgramProposer()
            for number, text in enumerate(texts):
                ended = FakeRequest(90 + number, ngram_chats=True)
                ended.tokens = text
                made.release(ended)  # type: ignore[arg-type]
            return made

        return lambda: Decoding(small_model(), drafter, ngram_chats=True)


def ask(request: FakeRequest, tokens: list[int]) -> tuple[int, ...]:
    request.tokens = tokens
    proposer_ask = DraftRequest(request, 3, len(tokens))  # type: ignore[arg-type]
    return PROPOSER[0].propose([proposer_ask])[0].tokens


PROPOSER: list[NgramProposer] = []


@pytest.fixture(autouse=True)
def proposer() -> NgramProposer:
    PROPOSER[:] = [NgramProposer()]
    return PROPOSER[0]


def finished(number: int, tokens: list[int], chats: bool) -> None:
    request = FakeRequest(number, ngram_chats=chats)
    request.tokens = tokens
    PROPOSER[0].release(request)  # type: ignore[arg-type]


def test_only_chats_that_take_part_are_read_and_fed() -> None:
    finished(1, [1, 2, 3, 4, 5, 6], chats=True)
    finished(2, [11, 12, 13, 14, 15], chats=False)
    assert ask(FakeRequest(3, ngram_chats=True), [9, 2, 3, 4]) == (5, 6)
    assert ask(FakeRequest(4, ngram_chats=False), [9, 2, 3, 4]) == ()
    assert ask(FakeRequest(5, ngram_chats=True), [9, 11, 12, 13]) == ()


def test_nothing_is_drafted_from_deleted_chats(proposer: NgramProposer) -> None:
    finished(1, [1, 2, 3, 4, 5, 6], chats=True)
    proposer.forget_chats()
    assert ask(FakeRequest(2, ngram_chats=True), [9, 2, 3, 4]) == ()
    finished(3, [1, 2, 3, 4, 7], chats=True)
    assert ask(FakeRequest(4, ngram_chats=True), [9, 2, 3, 4]) == (7,)


def test_two_tokens_alike_in_another_chat_are_chance() -> None:
    finished(1, [1, 2, 3, 4, 5, 6], chats=True)
    assert ask(FakeRequest(2, ngram_chats=True), [9, 3, 4]) == ()


def test_the_own_text_goes_first_unless_the_other_is_more_alike() -> None:
    finished(1, [1, 2, 3, 4, 50], chats=True)
    own_long = [1, 2, 3, 4, 60, 9, 1, 2, 3, 4]
    own_short = [3, 4, 70, 9, 1, 2, 3, 4]
    assert ask(FakeRequest(2, ngram_chats=True), own_long)[0] == 60
    assert ask(FakeRequest(3, ngram_chats=True), own_short)[0] == 50
    assert ask(FakeRequest(4, ngram_chats=False), own_short)[0] == 70


def test_ready_says_what_propose_finds(proposer: NgramProposer) -> None:
    request = FakeRequest(1)
    for tokens in ([1, 2, 3], [1, 2, 3, 1, 2], [1, 2, 3, 1, 2, 9]):
        request.tokens = tokens
        assert proposer.has_match(request) == bool(ask(request, tokens))  # type: ignore[arg-type]
