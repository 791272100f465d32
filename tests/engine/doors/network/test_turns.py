"""A turn that goes on from an answer begins with that answer's own tokens, however the text would be tokenised anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers

from engine import protocol as p
from engine.loading.model import LoadedModel
from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage
from engine.services.answers.continuing import continued
from engine.services.answers.turns import Turn, Turns
from engine.text.channels import channel_style
from engine.text.prompt import PromptForm, PromptText, rendered
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.conformance.templates import HARMONY, QWEN3
from tests.engine.doors.network.answers import answered, spelled
from tests.engine.doors.network.conftest import Running
from tests.engine.text.samples import CHATML, MISTRAL, byte_level, trained
from tests.kit.servers import Client

ASKED = [ChatMessage.of("user", "What is a page?")]


def continued_ids(tokenizer: Tokenizer, prompt: PromptText, before: Turn) -> list[int]:
    return continued(tokenizer, prompt, [before]).ids


def next_turn(answer: str) -> list[ChatMessage]:
    return [*ASKED, ChatMessage.of("assistant", answer), ChatMessage.of("user", "And then?")]


@pytest.fixture
def chatml() -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))


@pytest.mark.parametrize("end", ["<|im_end|>", "", "<|endoftext|>"])
def test_the_next_prompt_begins_with_the_exact_ids(chatml: Tokenizer, end: str) -> None:
    template = ChatTemplate(CHATML)
    ids = spelled(chatml, "The cache keeps values 🎉")
    tail = [chatml.token_id(end)] if end else []
    turn = answered(chatml, rendered(template, ASKED), ids + tail).finished()
    prompt = rendered(template, next_turn("The cache keeps values 🎉"))
    found = continued_ids(chatml, prompt, turn)
    before = [*turn.prompt_ids, *ids]
    assert found[: len(before)] == before
    assert found[len(before)] == chatml.token_id("<|im_end|>")
    assert found != chatml.encode(prompt.text, special=False)
    assert chatml.decode(found, skip_special=False) == prompt.text


def test_what_was_cut_off_is_not_taken_along(chatml: Tokenizer) -> None:
    """Half a character at the end, and the tokens of a stop string."""
    template = ChatTemplate(CHATML)
    whole = spelled(chatml, "The cache ")
    half = chatml.encode("🎉", special=False)[:1]
    for ids, stop, text in [(whole + half, (), "The cache "), (whole, ("che",), "The ca")]:
        turn = answered(chatml, rendered(template, ASKED), ids, stop).finished()
        assert turn.text == text
        prompt = rendered(template, next_turn(text))
        found = continued_ids(chatml, prompt, turn)
        assert found[: len(turn.prompt_ids) + len(text)] == [*turn.prompt_ids, *ids[: len(text)]]
        assert chatml.decode(found, skip_special=False) == prompt.text


def test_another_text_is_tokenised_as_if_nothing_had_been(chatml: Tokenizer) -> None:
    template = ChatTemplate(CHATML)
    turn = answered(chatml, rendered(template, ASKED), spelled(chatml, "The cache")).finished()
    edited = rendered(template, next_turn("A cache"))
    other = rendered(template, [ChatMessage.of("system", "S"), *next_turn("The cache")])
    plain = PromptText(other.text, special=True, continues=True)
    for prompt in (edited, other, plain):
        assert continued_ids(chatml, prompt, turn) == chatml.encode(prompt.text, special=prompt.special)


def test_plain_text_goes_on_too(chatml: Tokenizer) -> None:
    ids = spelled(chatml, " keeps")
    turn = answered(chatml, PromptText("The cache", special=True, continues=True), ids).finished()
    found = continued_ids(chatml, PromptText("The cache keeps values", special=True, continues=True), turn)
    assert found == [*turn.prompt_ids, *ids, *chatml.encode(" values", special=False)]


def test_sentencepiece_gains_no_space_inside() -> None:
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(trained("sentencepiece")))
    template = ChatTemplate(MISTRAL, {"bos_token": "<s>", "eos_token": "</s>"})
    ids = [tokenizer.token_id("▁"), *(tokenizer.token_id(letter) for letter in "cache"), tokenizer.token_id("</s>")]
    turn = answered(tokenizer, rendered(template, ASKED), ids).finished()
    assert turn.text == "cache"
    prompt = rendered(template, next_turn("cache"))
    plain = tokenizer.encode(prompt.text, special=False)
    found = continued_ids(tokenizer, prompt, turn)
    assert found != plain
    assert found[: len(turn.prompt_ids) + len(ids)] == [*turn.prompt_ids, *ids]
    assert tokenizer.decode(found, skip_special=False) == tokenizer.decode(plain, skip_special=False)
    # Cut in the middle of a word, what follows would be encoded with a space in front of it.
    cut = answered(tokenizer, PromptText("the ca", special=True, continues=True), ids[3:5]).finished()
    text = PromptText("the cache", special=True, continues=True)
    assert continued_ids(tokenizer, text, cut) == tokenizer.encode("the cache")


KEEPS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Shows a model its earlier thinking."""


def after_thinking(thinking: str, content: str) -> list[ChatMessage]:
    said = ChatMessage.of("assistant", content, thinking=thinking)
    return [*ASKED, said, ChatMessage.of("user", "And then?")]


def test_thinking_that_the_template_keeps_is_gone_on_from(chatml: Tokenizer) -> None:
    template = ChatTemplate(KEEPS)
    ids = [*spelled(chatml, "<think>The cache</think>keeps"), chatml.token_id("<|im_end|>")]
    turn = answered(chatml, rendered(template, ASKED), ids, source=KEEPS).finished()
    assert (turn.thinks, turn.text) == (True, "keeps")
    prompt = rendered(template, after_thinking("The cache", "keeps"))
    found = continued_ids(chatml, prompt, turn)
    assert found[: len(turn.prompt_ids) + len(ids)] == [*turn.prompt_ids, *ids]
    assert found != chatml.encode(prompt.text, special=False)
    assert chatml.decode(found, skip_special=False) == prompt.text
    edited = rendered(template, after_thinking("The cache", "keep it"))
    assert continued_ids(chatml, edited, turn) == chatml.encode(edited.text, special=False)


def test_an_answer_that_goes_on_is_one_turn(chatml: Tokenizer) -> None:
    """Its ids are those of both parts, and what it went on from is still known."""
    template, turns = ChatTemplate(CHATML), Turns()
    begun, rest = spelled(chatml, "The cache keeps"), spelled(chatml, " values")
    first = answered(chatml, rendered(template, ASKED), begun).finished()._replace(parent="earlier")
    turns.remember("a", first, chatml)
    asked = rendered(template, [*ASKED, ChatMessage.of("assistant", "The cache keeps")], form=PromptForm(prefills=True))
    ids = continued(chatml, asked, turns.line("a", chatml)).ids
    assert ids == [*first.prompt_ids, *begun]
    said = [*ASKED, ChatMessage.of("assistant", "The cache keeps")]
    more = answered(chatml, asked, rest, prompt_ids=ids, messages=said).finished()._replace(parent="a")
    turns.remember("a", more, chatml)
    (whole,) = turns.line("a", chatml)
    assert (whole.text, whole.parent, [*whole.ids]) == ("The cache keeps values", "earlier", begun + rest)
    prompt = rendered(template, next_turn("The cache keeps values"))
    found = continued(chatml, prompt, [whole])
    assert (found.ids[: len(ids + rest)], found.diverged) == (ids + rest, None)
    edited = rendered(template, [*ASKED, ChatMessage.of("assistant", "A cache")], form=PromptForm(prefills=True))
    other = answered(chatml, edited, rest).finished()._replace(parent="b")
    turns.remember("b", other, chatml)
    assert turns.line("b", chatml)[0].parent == "", "of no turn that is known"


def test_a_thought_that_was_cut_goes_on_in_its_channel(chatml: Tokenizer) -> None:
    asked = rendered(ChatTemplate(KEEPS), ASKED)
    prompt, begun = chatml.encode(asked.text, special=asked.special), spelled(chatml, "<think>The cache")
    files = SimpleNamespace(tokenizer=chatml, channels=channel_style(chatml, KEEPS), tools=None)
    model: Any = SimpleNamespace(files=files)
    stream = LoadedModel.open_stream(model, (), False, [*prompt, *begun], True, None, len(begun))
    pieces = [stream.push(token) for token in spelled(chatml, " keeps</think>values")]
    assert "".join(piece.thinking for piece in pieces) == " keeps"
    assert "".join(piece.text for piece in pieces) == "values"


def test_an_answer_goes_on_with_the_ids_that_it_drew(client: Client, running: Running) -> None:
    client.send(p.Generate(id="c", prompt=ASKED, sampling=p.Sampling(max_tokens=9)))
    said = client.until(p.Delta).text
    while not isinstance(message := client.receive(), p.Finished):
        said += message.text if isinstance(message, p.Delta) else ""
    prompt = [*ASKED, ChatMessage.of("assistant", said)]
    client.send(p.Generate(id="c", prompt=prompt, parent="c", continues=True))
    client.until(p.Finished)
    first, command = running.asked
    drawn = list(first.prompt_ids)[::-1][:9]
    assert list(command.prompt_ids) == [*first.prompt_ids, *drawn[: command.written]]
    assert command.written > 0


def test_a_thought_that_is_not_known_does_not_go_on(client: Client) -> None:
    prompt = [*ASKED, ChatMessage.of("assistant", "", thinking="hm")]
    client.send(p.Generate(id="c", prompt=prompt, parent="gone", continues=True))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("not_continued", "c")


@pytest.mark.parametrize("asked", ["abc", [ChatMessage.of("user", "abc")]])
def test_only_an_answer_is_continued(client: Client, asked: list[ChatMessage] | str) -> None:
    client.send(p.Generate(id="c", prompt=asked, continues=True))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("bad_prompt", "c")
    assert "Only a message of the assistant" in error.message


def test_no_other_server_is_asked_to_continue(client: Client) -> None:
    prompt = [*ASKED, ChatMessage.of("assistant", "It")]
    client.send(p.Generate(id="c", prompt=prompt, continues=True, remote=p.RemoteModel(server="box", model="big")))
    assert "may begin a new answer" in client.until(p.Error).message


def test_an_answer_is_continued_over_the_wire(client: Client, running: Running) -> None:
    prompt = [*ASKED, ChatMessage.of("assistant", "It keeps")]
    client.send(p.Generate(id="c", prompt=prompt, continues=True, service="batch"))
    client.until(p.Finished)
    command = running.last
    tokenizer = running.engine.loaded.files.tokenizer
    assert tokenizer.decode(list(command.prompt_ids), skip_special=False).endswith("assistant\nIt keeps")
    assert (command.prefilled, command.service) == (True, "batch")


@pytest.mark.parametrize(("thinking", "content"), [("The cache", "The cache keeps"), ("Hm", "Yes")])
def test_after_thinking_that_the_template_drops_the_prompt_is_tokenised_anew(
    chatml: Tokenizer, thinking: str, content: str
) -> None:
    template = ChatTemplate(QWEN3)
    ids = spelled(chatml, f"<think>\n{thinking}\n</think>\n\n{content}")
    turn = answered(chatml, rendered(template, ASKED), ids, source=QWEN3).finished()
    assert turn.text == content
    prompt = rendered(template, after_thinking(thinking, content))
    assert thinking not in prompt.text.replace(content, "")
    assert continued_ids(chatml, prompt, turn) == chatml.encode(prompt.text, special=False)


def test_harmony_is_gone_on_from_where_nothing_was_dropped() -> None:
    marks = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
    tokenizer = Tokenizer(byte_level(marks))
    template = ChatTemplate(HARMONY)
    final = [*tokenizer.encode("<|channel|>final<|message|>"), *spelled(tokenizer, "The cache keeps values")]
    prompt = rendered(template, next_turn("The cache keeps values"))
    turn = answered(
        tokenizer, rendered(template, ASKED), [*final, tokenizer.token_id("<|return|>")], source=HARMONY
    ).finished()
    found = continued_ids(tokenizer, prompt, turn)
    assert found[: len(turn.prompt_ids) + len(final)] == [*turn.prompt_ids, *final]
    assert found[len(turn.prompt_ids) + len(final)] == tokenizer.token_id("<|end|>")
    assert tokenizer.decode(found, skip_special=False) == prompt.text
    analysis = tokenizer.encode("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant")
    thought = answered(tokenizer, rendered(template, ASKED), [*analysis, *final], source=HARMONY).finished()
    assert continued_ids(tokenizer, prompt, thought) == tokenizer.encode(prompt.text, special=False)


def test_turns_are_forgotten_with_their_model_and_when_there_are_many(
    chatml: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.services.answers.turns.MOST_TURNS", 3)
    turns = Turns()
    turn = answered(chatml, PromptText("x", special=True, continues=True), []).finished()
    for name in "abc":
        turns.remember(name, turn, chatml)
    assert turns.line("a", chatml) == [turn]
    turns.remember("d", turn, chatml)
    assert [name for name in "abcd" if turns.line(name, chatml)] == ["a", "c", "d"]
    another = Tokenizer(tokenizers.Tokenizer.from_str(trained("llama3")))
    assert turns.line("a", another) == []
    turns.remember("e", turn, another)
    assert len(turns._turns) == 1
    assert turns.line("a", chatml) == []


def test_over_the_wire(client: Client, running: Running) -> None:
    """The fake answers with the prompt's tokens in reverse, which no tokenizer would make of that text."""
    client.send(p.Generate(id="one", prompt="The cache keeps keys"))
    client.until(p.Finished)
    text = "".join(message.text for message in client.passed if isinstance(message, p.Delta))
    first = running.engine.seen[-1]
    assert isinstance(first, AddRequest)
    answer = list(first.prompt_ids)[::-1]
    for parent, joined in (("one", True), ("", False), ("unknown", False)):
        prompt = f"The cache keeps keys{text} and values"
        client.send(p.Generate(id=f"next to {parent!r}", prompt=prompt, parent=parent))
        client.until(p.Finished)
        request = running.engine.seen[-1]
        assert isinstance(request, AddRequest)
        assert (list(request.prompt_ids)[: 2 * len(answer)] == [*first.prompt_ids, *answer]) is joined
        assert running.engine.loaded.files.tokenizer.decode(list(request.prompt_ids)) == prompt
