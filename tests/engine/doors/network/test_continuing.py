"""Which chat templates keep a conversation a token prefix of its next turn, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import tokenizers

from engine.protocol import ChatMessage
from engine.services.answers.continuing import (
    ANOTHER_KIND,
    CHANGED,
    CUT,
    EDITED,
    LEFT_OUT,
    REWRITTEN,
    THINKING,
    TRIMMED,
    Continued,
    continued,
    going_on,
)
from engine.services.answers.turns import Turn, Turns, named
from engine.text.prompt import PromptForm, PromptText, rendered
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.conformance.templates import STYLES
from tests.engine.doors.network.answers import answered, spelled
from tests.engine.text.samples import LLAMA3_SPECIAL, byte_level, sentencepiece, trained


class Family(NamedTuple):
    """A template's style with a tokenizer of its kind, and the token that ends its answers."""

    style: str
    marks: tuple[str, ...]
    end: str
    think: str = ""
    """What stands around a thought, with {} for it."""

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(byte_level(self.marks) if self.marks else sentencepiece())

    def template(self) -> ChatTemplate:
        return ChatTemplate(
            STYLES[self.style], {"bos_token": self.marks[0] if self.marks else "<s>", "eos_token": self.end}
        )


IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_sep|>")
FAMILIES = {
    "chatml": Family("chatml", IM, "<|im_end|>"),
    "llama3": Family("llama3", LLAMA3_SPECIAL, "<|eot_id|>"),
    "mistral-v1": Family("mistral-v1", (), "</s>"),
    "mistral-v3": Family("mistral-v3", (), "</s>"),
    "gemma": Family("gemma", ("<bos>", "<start_of_turn>", "<end_of_turn>"), "<end_of_turn>"),
    "phi3": Family("phi3", ("<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), "<|end|>"),
    "phi4": Family("phi4", IM, "<|im_end|>"),
    "qwen3": Family("qwen3", IM, "<|im_end|>", "<think>\n{}\n</think>\n\n"),
    "harmony": Family(
        "harmony",
        ("<|endoftext|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"),
        "<|return|>",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant",
    ),
}
SYSTEM = ChatMessage.of("system", "Be brief.")
ASKED = ("What is a page?", "And then?", "Why is that so?", "Thanks")
SAID = ("The cache keeps keys", "values", "so that every new token costs one row")


class Chat:
    """A conversation of which every answer is spelled as no tokenizer would."""

    def __init__(self, family: Family, system: bool = False) -> None:
        self.tokenizer, self.template, self.family = family.tokenizer(), family.template(), family
        self.messages: list[ChatMessage] = [SYSTEM] if system else []
        self.line: list[Turn] = []

    def ask(self, text: str) -> Continued:
        self.messages.append(ChatMessage.of("user", text))
        self.prompt = rendered(self.template, self.messages)
        self.found = continued(self.tokenizer, self.prompt, self.line, self.messages)
        plain = self.tokenizer.encode(self.prompt.text, special=self.prompt.special)
        reads = self.tokenizer.decode(self.found.ids, skip_special=False)
        if self.family.style == "mistral-v1":  # drops the space that the model drew
            reads = reads.replace("[/INST] ", "[/INST]")
        assert reads == self.tokenizer.decode(plain, skip_special=False)
        return self.found

    def say(self, text: str, thinking: str = "", end: str | None = None, stop: tuple[str, ...] = ()) -> None:
        final = "<|channel|>final<|message|>" if self.family.style == "harmony" else ""
        marks = self.tokenizer.encode(final, special=False)
        before = []
        if thinking:
            opening, closing = self.family.think.split("{}")
            before = [*self._marks(opening), *spelled(self.tokenizer, thinking), *self._marks(closing)]
        ids = [*before, *marks, *spelled_inside(self.tokenizer, text), self.tokenizer.token_id(self.family.end)]
        source = STYLES[self.family.style]
        turn = answered(self.tokenizer, self.prompt, ids, stop, source, self.found.ids, self.messages).finished()
        self.line = [turn, *self.line]
        self.messages.append(ChatMessage.of("assistant", turn.text, thinking=thinking))

    def _marks(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, special=False)


def spelled_inside(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokens of single characters without the space that SentencePiece puts in front of each."""
    if tokenizer.rules is not None and tokenizer.rules.byte_level:
        return spelled(tokenizer, text)
    ids = [tokenizer.token_id(letter) for letter in ("▁" + text.replace(" ", "▁"))]
    assert None not in ids
    return [id for id in ids if id is not None]


def share(chat: Chat, count: int = 3, thinking: str = "") -> list[Continued]:
    found = []
    for asked, said in zip(ASKED, SAID[:count], strict=False):
        found.append(chat.ask(asked))
        chat.say(said, thinking)
    return [*found, chat.ask(ASKED[count])]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_turn_begins_with_all_of_the_one_before(name: str) -> None:
    chat = Chat(FAMILIES[name])
    found = share(chat)
    assert [(one.diverged, one.divergence) for one in found] == [(None, "")] * 4
    for turn, before in zip(chat.line, chat.line[1:], strict=False):
        read = before.all_ids[:-1]
        assert turn.prompt_ids[: len(read)] == read
    assert found[-1].ids != chat.tokenizer.encode(chat.prompt.text, special=False), "the answers' own ids are in it"


@pytest.mark.parametrize(
    ("name", "thinking"), [(name, said) for name, each in FAMILIES.items() for said in ("", *SAID[: bool(each.think)])]
)
def test_an_answer_that_goes_on_is_one_turn(name: str, thinking: str) -> None:
    """Cut, continued, and gone on from: what was read and written is never read again, whatever the template."""
    chat, turns = Chat(FAMILIES[name]), Turns()
    chat.ask(ASKED[0])
    tokenizer, asked = chat.tokenizer, list(chat.messages)
    chat.say("The cache keeps", thinking)
    cut = chat.line[0]._replace(ids=chat.line[0].ids[:-1], parent="earlier")  # without the end that it never drew
    turns.remember("a", cut, tokenizer)
    prompt = rendered(chat.template, chat.messages, form=PromptForm(prefills=True))
    found = going_on(tokenizer, rendered(chat.template, asked), "The cache keeps", cut)
    assert found == Continued([*cut.prompt_ids, *cut.ids], written=len(cut.ids))
    written = continued(tokenizer, prompt, turns.line("a", tokenizer), chat.messages)
    if name not in ("qwen3", "harmony"):  # their templates show an empty thought, or leave out what was thought
        assert written == found._replace(written=0)
    assert going_on(tokenizer, rendered(chat.template, asked), "The cache", cut) is None
    assert going_on(tokenizer, rendered(chat.template, chat.messages), "The cache keeps", cut) is None
    ids = [*spelled_inside(tokenizer, " keys"), tokenizer.token_id(chat.family.end)]
    if chat.tokenizer.rules is not None and not chat.tokenizer.rules.byte_level:
        ids = ids[1:]  # the space in front of a text that begins
    source = STYLES[chat.family.style]
    rest = answered(tokenizer, prompt, ids, (), source, found.ids, chat.messages).finished()
    assert rest.text == " keys"
    turns.remember("a", rest._replace(parent="a"), tokenizer)
    (whole,) = turns.line("a", tokenizer)
    assert (whole.text, whole.parent) == ("The cache keeps keys", "earlier")
    assert [*whole.all_ids] == [*found.ids, *ids]
    said = [*asked, ChatMessage.of("assistant", whole.text, thinking=thinking), ChatMessage.of("user", ASKED[1])]
    after = continued(tokenizer, rendered(chat.template, said), [whole], said)
    if thinking:
        assert after.divergence == THINKING
    else:
        assert (after.ids[: len(whole.all_ids) - 1], after.diverged) == ([*whole.all_ids[:-1]], None)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "mistral-v1"])
def test_a_system_prompt_is_kept_but_where_it_moves_to_the_last_message(name: str) -> None:
    chat = Chat(FAMILIES[name], system=True)
    found = share(chat)
    if name != "mistral-v3":
        assert [one.diverged for one in found] == [None] * 4
        return
    assert [one.divergence for one in found] == ["", REWRITTEN, REWRITTEN, REWRITTEN]
    assert found[1].diverged is not None
    same = chat.tokenizer.decode(found[1].ids[: found[1].diverged], skip_special=False)
    assert same.endswith(("[INST]", "[INST] ")), "what follows was the system prompt"


@pytest.mark.parametrize("name", ["qwen3", "harmony"])
def test_thinking_that_is_dropped_is_where_the_prompt_diverges(name: str) -> None:
    chat = Chat(FAMILIES[name])
    found = share(chat, thinking="The cache keeps")
    assert [one.divergence for one in found] == ["", THINKING, THINKING, THINKING]
    for one, before in zip(found[1:], reversed(chat.line), strict=True):
        prompt = len(before.prompt_ids)
        assert one.ids[:prompt] == list(before.prompt_ids), "the prompt of the turn before is read only once"
        assert one.diverged in ((prompt,) if name == "qwen3" else (prompt + 1,)), "harmony's <|channel|> is shared"


def test_qwen3_without_thoughts_keeps_the_prefix_after_one_with() -> None:
    chat = Chat(FAMILIES["qwen3"])
    chat.ask(ASKED[0])
    chat.say(SAID[0], thinking="The cache")
    assert chat.ask(ASKED[1]).divergence == THINKING
    chat.say(SAID[1])
    assert chat.ask(ASKED[2]) == Continued(chat.found.ids)


@pytest.mark.parametrize("text", ["The cache\n", "\n The cache", " keeps  "])
@pytest.mark.parametrize("name", ["chatml", "llama3", "gemma"])
def test_templates_that_trim(name: str, text: str) -> None:
    chat = Chat(FAMILIES[name])
    chat.ask(ASKED[0])
    chat.say(text)
    found = chat.ask(ASKED[1])
    turn = chat.line[0]
    assert found.divergence == TRIMMED
    kept = len(turn.prompt_ids) + (0 if text != text.lstrip() else len(text.rstrip()))
    assert found.diverged == kept
    assert found.ids[:kept] == list(turn.all_ids[:kept])


def test_what_else_changes() -> None:
    chat = Chat(FAMILIES["chatml"])
    chat.ask(ASKED[0])
    chat.say("The cache keeps keys; values", stop=("; val",))
    assert chat.messages[-1].content == "The cache keeps keys"
    found = chat.ask(ASKED[1])
    turn = chat.line[0]
    assert (found.diverged, found.divergence) == (len(turn.prompt_ids) + len(turn.text), CUT)

    def again(messages: Sequence[ChatMessage], cut: bool = False) -> str:
        prompt = rendered(chat.template, messages)
        other = continued(chat.tokenizer, prompt, chat.line, messages, cut)
        assert other.diverged is not None
        return other.divergence

    asked, said, then = chat.messages
    assert again([asked, ChatMessage.of("assistant", "No"), then]) == EDITED
    assert again([ChatMessage.of("user", "Other"), said, then]) == CHANGED
    assert again([SYSTEM, *chat.messages]) == CHANGED
    plain = PromptText("The cache", special=True, continues=True)
    assert continued(chat.tokenizer, plain, chat.line, plain.text).divergence == ANOTHER_KIND
    shorter = rendered(chat.template, [then])
    assert continued(chat.tokenizer, shorter, chat.line, chat.messages, cut=True).divergence == LEFT_OUT


def test_an_older_turn_serves_where_the_newest_does_not() -> None:
    """The last answer was written anew by hand: those before it still have their own ids."""
    chat = Chat(FAMILIES["chatml"])
    share(chat, 2)
    messages = [*chat.messages[:2], ChatMessage.of("user", "Something else")]
    prompt = rendered(chat.template, messages)
    found = continued(chat.tokenizer, prompt, chat.line, messages)
    older = chat.line[1]
    assert found.ids[: len(older.all_ids)] == list(older.all_ids)
    assert found.divergence == CHANGED
    assert found.diverged is not None
    assert found.diverged >= len(older.all_ids)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))


def test_a_conversation_is_found_by_what_was_said(tokenizer: Tokenizer) -> None:
    turns = Turns()
    chat = Chat(FAMILIES["chatml"])
    share(chat, 2)
    first, second = reversed(chat.line)
    for turn in (first, second):
        assert turn.messages is not None
        turns.remember(named(turn.messages, turn.text), turn, tokenizer)
    found = turns.match(chat.messages, tokenizer)
    assert turns.line(found, tokenizer)[0] is second
    sent = [ChatMessage.of(m.role, f" {m.content}\n") for m in chat.messages]
    assert turns.match(sent, tokenizer) == found, "spaces do not count"
    other = [*chat.messages[:3], ChatMessage.of("assistant", "another"), chat.messages[4]]
    assert turns.line(turns.match(other, tokenizer), tokenizer)[0] is first
    assert turns.match([SYSTEM, *chat.messages], tokenizer) == ""
    assert turns.match(chat.messages[:1], tokenizer) == ""
    assert turns.match(chat.messages, FAMILIES["chatml"].tokenizer()) == "", "another model's"


def test_plain_text_is_found_by_its_beginning(tokenizer: Tokenizer) -> None:
    turns = Turns()
    for text, answer in (("The", " cache"), ("The", " cache keeps"), ("A", " page")):
        prompt = PromptText(text, special=True, continues=True)
        turn = answered(tokenizer, prompt, spelled(tokenizer, answer)).finished()
        turns.remember(named(text, turn.text), turn, tokenizer)
    (found,) = turns.line(turns.match("The cache keeps values", tokenizer), tokenizer)
    assert found.text == " cache keeps"
    assert turns.match("Another", tokenizer) == ""


def test_the_line_of_a_turn_and_the_last_of_a_chat(tokenizer: Tokenizer) -> None:
    turns = Turns()
    plain = answered(tokenizer, PromptText("x", special=True, continues=True), []).finished()
    for name, parent, chat in (("a", "", "one"), ("b", "a", "one"), ("c", "b", "two"), ("loop", "loop", "")):
        turns.remember(name, plain._replace(parent=parent, chat=chat, text=name), tokenizer)
    assert [turn.text for turn in turns.line("c", tokenizer)] == ["c", "b", "a"]
    assert [turn.text for turn in turns.line("loop", tokenizer)] == ["loop"]
    assert turns.line("unknown", tokenizer) == []
    last = turns.last_of("one", tokenizer)
    assert last is not None
    assert last.text == "b"
    turns.line("a", tokenizer)
    last = turns.last_of("one", tokenizer)
    assert last is not None
    assert last.text == "a"
    assert turns.last_of("", tokenizer) is None
