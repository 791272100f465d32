"""What a chat does when it outgrows the context."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import httpx
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine import protocol as p
from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage
from engine.services.answers.answering import LONG
from engine.services.answers.continuing import LEFT_OUT
from engine.services.answers.overflow import (
    MOST_TEXT,
    SINKS,
    DroppedMessages,
    check_length,
    chosen_cut,
    cuts,
    reserve,
    window_of,
)
from engine.services.answers.refused import Refused
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.doors.network.conftest import Running
from tests.engine.text.samples import CHATML, trained
from tests.kit.servers import Client

SYSTEM = ChatMessage.of("system", "s " * 4)


def words(message: ChatMessage) -> int:
    return len(message.content.split())


def said(turns: int, size: int = 10) -> list[ChatMessage]:
    """Turns of ``size`` words each way, and a last message."""
    messages = [SYSTEM]
    for turn in range(turns):
        messages.append(ChatMessage.of("user", f"u{turn} " * size))
        messages.append(ChatMessage.of("assistant", f"a{turn} " * size))
    return [*messages, ChatMessage.of("user", f"u{turns} " * size)]


def length(messages: list[ChatMessage]) -> int:
    return sum(words(message) + 5 for message in messages)


def test_room_for_the_answer() -> None:
    assert reserve(4096, None) == 1024
    assert reserve(800, None) == 256
    assert reserve(400, None) == 200, "a small context is not given away"
    assert reserve(4096, 100) == 100
    assert reserve(4096, 100_000) == 2048


def test_cuts_are_whole_turns_behind_the_first_one() -> None:
    messages = said(20)
    found = list(cuts(messages, words, context=400))
    assert all(cut.first == 3 for cut in found), "system prompt, question and answer stay"
    assert all(messages[cut.last].role == "user" for cut in found)
    assert found[-1] == DroppedMessages(3, len(messages) - 1)
    lasts = [cut.last for cut in found]
    assert lasts == sorted(set(lasts))
    # A turn has 2 * 15 tokens, and a place to cut comes after each 100.
    assert [(last - 3) // 2 for last in lasts[:3]] == [4, 7, 10]


def test_a_chat_that_grows_keeps_its_beginning() -> None:
    """Of 60 turns after the context was full, only every third or fourth has another beginning than the one before."""
    context, limit = 400, 300
    before: DroppedMessages | None = None
    changes, prompts = [], 0
    for turns in range(2, 80):
        messages = said(turns)
        if length(messages) <= limit:
            continue
        cut = chosen_cut(messages, words, lambda cut, all=messages: length(cut.without(all)) <= limit, context)
        assert cut is not None
        kept = cut.without(messages)
        assert length(kept) <= limit
        assert length(kept) > limit - 100 - 2 * 30, "not more is left out than a step and a turn"
        assert kept[:3] == messages[:3]
        assert kept[-1] == messages[-1]
        prompts += 1
        if cut != before:
            changes.append(turns)
        before = cut
    assert prompts == 70
    assert len(changes) <= prompts / 3 + 1
    assert min(b - a for a, b in itertools.pairwise(changes)) >= 3


def test_the_same_conversation_is_cut_alike_by_whoever_sees_it_first() -> None:
    messages = said(30)
    shorter = messages[:-2]
    assert list(cuts(shorter, words, 400))[:-1] == [c for c in cuts(messages, words, 400) if c.last < len(shorter) - 1]


TOKENIZER = Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))


@given(
    contents=st.lists(st.text("ab cé<|>\n", max_size=60), min_size=1, max_size=40),
    roles=st.lists(st.sampled_from(["user", "assistant"]), min_size=40, max_size=40),
    context=st.integers(40, 400),
    answer=st.integers(1, 100),
)
def test_the_cut_is_the_first_that_fits(contents: list[str], roles: list, context: int, answer: int) -> None:
    """The same as by trying one after the other, through a template and a tokenizer."""
    messages = [ChatMessage.of(role, text) for role, text in zip(roles, contents, strict=False)]
    template, limit = ChatTemplate(CHATML), context - reserve(context, answer)

    def tokens(text: str) -> int:
        return len(TOKENIZER.encode(text, special=False))

    def fits(cut: DroppedMessages) -> bool:
        return tokens(template.render(cut.without(messages))) <= limit

    def count(message: ChatMessage) -> int:
        return tokens(message.content)

    places = list(cuts(messages, count, context))
    first = next((cut for cut in places if fits(cut)), places[-1] if places else None)
    assert chosen_cut(messages, count, fits, context) == first


def test_a_long_conversation_is_rendered_a_few_times_only() -> None:
    tried: list[DroppedMessages] = []

    def fits(cut: DroppedMessages) -> bool:
        tried.append(cut)
        return length(cut.without(messages)) <= 300

    messages = said(2000)
    found = chosen_cut(messages, words, fits, 400)
    assert len(list(cuts(messages, words, 400))) > 400
    assert len(tried) <= 10
    assert found in tried


def test_prompts_have_a_length_in_bytes() -> None:
    longest = TOKENIZER.longest
    assert longest is not None
    check_length("x" * 10 * longest, TOKENIZER, context=10)
    with pytest.raises(Refused, match=r"context length is 10 tokens, which are .* at most") as refused:
        check_length("x" * (10 * longest + 1), TOKENIZER, context=10)
    assert refused.value.code == "prompt_too_long"
    check_length("é" * 1000, TOKENIZER)
    with pytest.raises(Refused, match="read at once") as refused:
        check_length("é" * (MOST_TEXT // 2 + 1), TOKENIZER)
    assert refused.value.code == "too_large"
    unbounded = Tokenizer(tokenizers.Tokenizer.from_str(trained("wordpiece")))
    check_length("x" * 100_000, unbounded, context=10)


def test_without_a_middle_there_is_nothing_to_leave_out() -> None:
    assert chosen_cut(said(1), words, lambda cut: False, 100) is None
    messages = said(2)
    assert chosen_cut(messages, words, lambda cut: False, 100) == DroppedMessages(3, 5), (
        "the longest, though it does not fit"
    )


def test_turns_longer_than_a_step() -> None:
    messages = said(6, size=100)
    assert [cut.last for cut in cuts(messages, words, 200)] == [5, 7, 9, 11, 13]


def test_the_window_leaves_no_distance_beyond_the_context() -> None:
    for context in range(37, 600):
        window = window_of(context)
        assert window % 16 == 0
        # The oldest key in sight is at most window + 15 rows back, behind the sinks.
        assert SINKS + window + 15 < context
        # A quarter of the context is left for what is being read, and no more than a page besides.
        assert min(context - SINKS - 16, context * 3 // 4) - 16 < window <= context * 3 // 4
    with pytest.raises(Refused, match="no room"):
        window_of(35)


# --- over the wire ----------------------------------------------------------------------------------------------------


def ask(client: Client, id: str, messages: list[ChatMessage], **more) -> p.Finished | p.Error:
    client.send(p.Generate(id=id, prompt=messages, sampling=p.Sampling(max_tokens=2), **more))
    client.passed = []
    while True:
        message = client.receive()
        if isinstance(message, p.Finished | p.Error):
            return message
        client.passed.append(message)


def chat(turns: int) -> list[ChatMessage]:
    messages = []
    for turn in range(turns):
        messages.append(ChatMessage.of("user", f"question {turn}"))
        messages.append(ChatMessage.of("assistant", f"answer {turn}"))
    return [*messages, ChatMessage.of("user", "and now?")]


def resized(running: Running, context: int) -> None:
    running.engine.context = context
    running.engine.loaded = running.engine._model("/models/tiny")


def test_stop_refuses_as_before(client: Client, running: Running) -> None:
    resized(running, 128)
    assert isinstance(ask(client, "a", chat(8)), p.Error)
    assert not any(isinstance(message, p.ContextCut) for message in client.passed)


def test_the_middle_is_dropped_and_it_is_said(client: Client, running: Running) -> None:
    resized(running, 192)
    messages = chat(8)
    assert isinstance(ask(client, "a", messages, overflow="drop_middle"), p.Finished)
    cut, prefill = client.passed[0], client.passed[1]
    assert isinstance(cut, p.ContextCut)
    assert isinstance(prefill, p.Prefill)
    assert (cut.id, cut.policy, cut.first) == ("a", "drop_middle", 2)
    command = running.engine.seen[-1]
    assert isinstance(command, AddRequest)
    assert command.window is None
    tokenizer = running.engine.loaded.files.tokenizer
    read = tokenizer.decode(list(command.prompt_ids), skip_special=False)
    for turn in range(8):
        assert (f"question {turn}" in read) == (not cut.first <= 2 * turn < cut.last)
    assert "question 0" in read
    assert read.endswith("and now?<|im_end|>\n<|im_start|>assistant\n")
    whole = running.engine.loaded.files.template.render(messages)
    assert cut.tokens == len(tokenizer.encode(whole, special=False)) - prefill.total
    assert prefill.total <= 190


def test_a_short_chat_is_left_whole(client: Client, running: Running) -> None:
    resized(running, 512)
    for overflow in ("drop_middle", "window"):
        assert isinstance(ask(client, overflow, chat(2), overflow=overflow), p.Finished)
        assert not any(isinstance(message, p.ContextCut) for message in client.passed)


def test_a_new_cut_is_the_reason_why_the_prompt_diverges(client: Client, running: Running) -> None:
    resized(running, 192)
    told, cut, parent = [], [], ""
    messages = chat(2)
    for number in range(16):
        assert isinstance(ask(client, f"g{number}", messages, overflow="drop_middle", parent=parent), p.Finished)
        parent = f"g{number}"
        text = "".join(message.text for message in client.passed if isinstance(message, p.Delta))
        found = [message for message in client.passed if isinstance(message, p.ContextCut)]
        cut.append((found[0].first, found[0].last) if found else None)
        told.append(next(message for message in client.passed if isinstance(message, p.Prefill)).divergence)
        messages += [ChatMessage.of("assistant", text), ChatMessage.of("user", "and then?")]
    assert len({*cut}) >= 3
    for number in range(1, 16):
        assert (told[number] == LEFT_OUT) == (cut[number] != cut[number - 1])


def test_what_does_not_fit_even_without_its_middle_is_refused(client: Client, running: Running) -> None:
    resized(running, 128)
    messages = [*chat(4)[:-1], ChatMessage.of("user", "long " * 200)]
    error = ask(client, "a", messages, overflow="drop_middle")
    assert isinstance(error, p.Error)
    assert (error.code, error.id) == ("prompt_too_long", "a")
    assert "even without the middle" in error.message
    error = ask(client, "b", messages[-1:], overflow="drop_middle")
    assert isinstance(error, p.Error)
    assert "and the prompt has" in error.message


def test_a_prompt_that_is_far_too_long_is_not_tokenised(
    client: Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, special=True: encoded.append(text) or [5])
    error = ask(client, "a", [ChatMessage.of("user", "long " * 100_000)])
    assert isinstance(error, p.Error)
    assert error.code == "prompt_too_long"
    assert "the prompt has 500," in error.message
    endless = [ChatMessage.of("user", "x" * MOST_TEXT)]
    for overflow in ("drop_middle", "window"):
        error = ask(client, "b", endless, overflow=overflow)
        assert isinstance(error, p.Error)
        assert error.code == "too_large"
    for message in (p.CountTokens(id="c", prompt=endless), p.MeasureCost(id="c", prompt=endless[0].content + "x")):
        client.send(message)
        error = client.until(p.Error)
        assert (error.id, error.code) == ("c", "too_large")
    assert not encoded


def test_long_prompts_hold_up_nobody(
    client: Client, running: Running, open_client: Callable[[Running], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads wait to be read; what is short is counted and answered meanwhile."""
    encode, began, go_on = Tokenizer.encode, [], threading.Event()

    def held(self: Tokenizer, text: str, special: bool = True) -> list[int]:
        if len(text) >= LONG:
            began.append(text)
            assert go_on.wait(300)
            return [5]
        return encode(self, text, special)

    monkeypatch.setattr(Tokenizer, "encode", held)
    for number in range(40):
        client.send(p.CountTokens(id=f"long {number}", prompt="x" * LONG))
    try:
        other = open_client(running)
        assert isinstance(ask(other, "a", chat(1)), p.Finished)
        assert httpx.get(f"{running.url}/health").status_code == 200
        client.send(p.CountTokens(id="short", prompt="abc"))
        assert client.until(p.Counted).id == "short"
        assert len(began) == 1, "one at a time"
    finally:
        go_on.set()
    assert [client.until(p.Counted).id for _ in range(40)] == [f"long {number}" for number in range(40)]


def test_a_window_slides(client: Client, running: Running) -> None:
    resized(running, 128)
    assert isinstance(ask(client, "a", chat(8), overflow="window", chat="c1"), p.Finished)
    cut = client.passed[0]
    assert isinstance(cut, p.ContextCut)
    assert (cut.policy, cut.sinks, cut.window) == ("window", 4, 96)
    command = running.engine.seen[-1]
    assert isinstance(command, AddRequest)
    assert (command.window, command.chat) == (96, "c1")
    assert cut.tokens == len(command.prompt_ids) - 100
    resized(running, 32)
    error = ask(client, "b", chat(1), overflow="window")
    assert isinstance(error, p.Error)
    assert "no room for a sliding window" in error.message
