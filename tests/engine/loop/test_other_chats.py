"""Drafts from other chats: only on request, never in the text, and gone with a chat that is deleted."""

from __future__ import annotations

from engine.protocol import ForgetChat, Sampling
from tests.engine.loop.toy_engine import ToyEngine, sequential

PROMPT = [(7 * i + 3) % 21 for i in range(20)]
SAMPLING = Sampling(seed=5, temperature=1.3, max_tokens=60, ignore_eos=True)


def held(toy: ToyEngine, chat: str, others: bool) -> int:
    """How many drafts hold in an answer of that chat, whose text is that of plain decoding."""
    toy.add(chat, PROMPT, SAMPLING, chat=chat, speculation="ngram", draft_length=4, ngram_chats=others)
    toy.drain()
    answer = toy.heard.answers[chat, 0]
    assert answer.tokens == sequential(PROMPT, SAMPLING)[0]
    return sum(info.source == "ngram" for info in answer.infos)


def test_what_was_said_elsewhere_is_drafted_until_a_chat_is_deleted() -> None:
    toy = ToyEngine()
    alone = held(toy, "apart", False)
    assert held(toy, "first", True) == alone, "a chat that does not take part is not drafted from"
    assert held(toy, "second", True) > alone + 30
    assert held(toy, "third", False) == alone
    toy.engine.submit(ForgetChat(chat="first"))
    assert held(toy, "fourth", True) == alone
    assert held(toy, "fifth", True) > alone + 30


def test_an_answer_that_still_runs_in_a_deleted_chat_is_not_drafted_from() -> None:
    toy = ToyEngine()
    alone = held(toy, "apart", False)
    toy.add("running", PROMPT, SAMPLING, chat="gone", speculation="ngram", draft_length=4, ngram_chats=True)
    for _ in range(5):
        toy.engine.step()
    toy.engine.submit(ForgetChat(chat="gone"))
    toy.drain()
    assert len(toy.heard.answers["running", 0].tokens) == 60
    assert held(toy, "next", True) == alone
