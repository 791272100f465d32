"""Thinking and content come apart alike however the text is cut into tokens, and no mark is ever seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import ThinkingModes, Tool, ToolConfig
from engine.text.channels import PAIRS, WRAPS, HarmonyParser, HarmonyStyle, TagParser, TagStyle, channel_style
from engine.text.formats.style import ToolStyle
from engine.text.grammar import Grammars
from engine.text.stream import Piece, TextStream
from engine.text.template import ChatTemplate
from engine.text.thinking import thinking_modes
from engine.text.tokenizer import Tokenizer
from tests.conformance.templates import CHATML, HARMONY, QWEN3
from tests.engine.text.samples import THINK, byte_level, tagged, trained
from tests.kit.examples import examples

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
R1 = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|im_start|>' + m['content'].split('</think>')[-1] }}"
    "{% else %}{{ '<|im_end|>' + m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|><think>\n' }}{% endif %}"
)
"""Opens the thinking itself, as DeepSeek-R1's does."""


def plain() -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))


def harmonic() -> Tokenizer:
    return Tokenizer(byte_level(MARKS))


def harmony_style(tokenizer: Tokenizer) -> HarmonyStyle:
    style = channel_style(tokenizer, HARMONY)
    assert isinstance(style, HarmonyStyle)
    return style


def pushed(parser: TagParser | HarmonyParser, tokens: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """(thinking, content) of a whole answer."""
    splits = [parser.push(token, text) for token, text in tokens]
    splits.append(parser.flush())
    return "".join(split.thinking for split in splits), "".join(split.content for split in splits)


def tags(*pieces: str, opened: bool = False, closed: bool = False) -> tuple[str, str]:
    parser = TagParser(PAIRS, THINK if opened else None, closed, wraps=WRAPS)
    return pushed(parser, [(-1, piece) for piece in pieces])


def pieces_of(stream: TextStream, ids: Sequence[int]) -> list[Piece]:
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize(
    ("text", "thinking", "content"),
    [
        ("<think>\nWell.\n</think>\n\nYes.", "Well.", "Yes."),
        (" \n<think>Well.</think>Yes.", "Well.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<seed:think>a</seed:think>b", "a", "b"),
        ("<|begin_of_thought|>a<|end_of_thought|>b", "a", "b"),
        ("Here is my thought process: a\n\nHere is my response: b", "a", "b"),
        ("Here's my thought process: a\n\nHere is my response: b", "a", "b"),
        ("Here is my thought process: a\n\nHere's my response: b", "a", "b"),
        ("Here's my question.", "", "Here's my question."),
        ("<think>a</think>\n<response>\nb</b>\n</response>\n", "a", "b</b>\n"),
        ("<think>a</think><response>never closed </resp", "a", "never closed </resp"),
        ("<think>a</think><response></response>", "a", ""),
        ("<think>a</think><resp", "a", "<resp"),
        ("<think>a</think><answer>b</response></answer>", "a", "b</response>"),
        ("<think>a</think>b <response>c</response>", "a", "b <response>c</response>"),
        ("<response>b</response>", "", "<response>b</response>"),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("<think>a</think>", "a", ""),
        ("<think>a [/THINK] b</think>c", "a [/THINK] b", "c"),
        ("No tag. `<think>` is one, </think> too.", "", "No tag. `<think>` is one, </think> too."),
        ("<think>a</think>Then <think>b</think>", "a", "Then <think>b</think>"),
        ("  indented", "", "  indented"),
        ("<thi", "", "<thi"),
        ("\n", "", "\n"),
    ],
)
def test_tags(text: str, thinking: str, content: str) -> None:
    assert tags(text) == (thinking, content)
    assert tags(*text) == (thinking, content)


def test_a_tag_that_the_prompt_opened_or_closed() -> None:
    assert tags("\nWell.\n</think>\n\nYes.", opened=True) == ("Well.", "Yes.")
    assert tags("Well", opened=True) == ("Well", "")
    assert tags("\n", "<think>", "\nWell", opened=True) == ("Well", "")  # opened twice
    assert tags("<thi", opened=True) == ("<thi", "")
    assert tags("[THINK]", opened=True) == ("[THINK]", "")
    assert tags("<think>is content</think>", closed=True) == ("", "<think>is content</think>")


PARTS = st.sampled_from(["<think>", "</think>", "<", "/think>", "</th", "ink>", " ", "\n", "a", "bc", "[THINK]", "日"])


@given(parts=st.lists(PARTS, max_size=14), cuts=st.sets(st.integers(0, 60)), opened=st.booleans())
@example(parts=["<think>", "a", " ", "</think>", "\n", "a"], cuts={3, 9, 12}, opened=False)
@examples(500)
def test_tags_do_not_depend_on_the_tokens(parts: list[str], cuts: set[int], opened: bool) -> None:
    text = "".join(parts)
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    whole = tags(text, opened=opened)
    assert tags(*pieces, opened=opened) == whole
    # The plain meaning, by other means.
    rest = text if opened else text.lstrip()
    if not opened and not rest.startswith("<think>") and not rest.startswith("[THINK]"):
        assert whole == ("", text)
        return
    closes = "</think>" if opened or rest.startswith("<think>") else "[/THINK]"
    body = rest.lstrip().removeprefix("<think>") if opened else rest[7:]
    thought, closed, said = body.partition(closes)
    assert whole == (thought.strip(), said.lstrip() if closed else "")


@pytest.mark.parametrize("special", [True, False])
def test_tags_that_are_tokens(special: bool) -> None:
    tokenizer = tagged(special)
    style = channel_style(tokenizer, CHATML)  # the vocabulary alone tells
    assert isinstance(style, TagStyle)
    prompt = tokenizer.encode("<|im_start|>What is a page?<|im_end|>")
    ids = tokenizer.encode("<think>\nThe cache</think>\n\nkeeps 🎉 <think>")
    pieces = pieces_of(TextStream(tokenizer, channels=style.parser(prompt)), ids)
    assert "".join(piece.thinking for piece in pieces) == "The cache"
    assert "".join(piece.text for piece in pieces) == "keeps 🎉 " + ("" if special else "<think>")
    opens, closes = ids.index(tokenizer.token_id("<think>")), ids.index(tokenizer.token_id("</think>"))
    channels = [piece.channel for piece in pieces[:-1]]
    assert channels == ["thinking"] * (closes - opens + 1) + ["content"] * (len(ids) - closes - 1)
    assert all(len(piece.text) >= piece.chars for piece in pieces if piece.channel == "content")


def test_the_end_of_the_prompt_opens_or_closes() -> None:
    tokenizer = tagged(False)
    style = channel_style(tokenizer, QWEN3)
    assert style is not None
    template = ChatTemplate(QWEN3)
    asked = [{"role": "user", "content": "Is <think> a tag?"}]
    off = style.parser(tokenizer.encode(template.render(asked, enable_thinking=False)))
    assert pushed(off, [(-1, "<think>a")]) == ("", "<think>a")  # type: ignore[arg-type]
    on = style.parser(tokenizer.encode(template.render(asked, enable_thinking=True)))
    assert pushed(on, [(-1, "<think>a")]) == ("a", "")  # type: ignore[arg-type]
    opened = style.parser(tokenizer.encode(ChatTemplate(R1).render(asked)))
    assert opened.channel == "thinking"
    assert pushed(opened, [(-1, "a</think>b")]) == ("a", "b")  # type: ignore[arg-type]


def test_styles_are_told_from_template_and_vocabulary() -> None:
    assert channel_style(plain(), CHATML) is None
    assert channel_style(plain(), HARMONY) is None  # its marks are no tokens here
    assert channel_style(harmonic(), CHATML) is None  # its template does not use them
    assert isinstance(channel_style(plain(), QWEN3), TagStyle)
    wrapped = channel_style(plain(), "Write between <think></think> and between <response></response>.")
    assert isinstance(wrapped, TagStyle)
    assert (wrapped.pairs, wrapped.wraps) == ((THINK,), WRAPS[:1])
    assert pushed(wrapped.parser([]), [(-1, "<think>a</think><response>b</response>")]) == ("a", "b")
    assert pushed(channel_style(plain(), QWEN3).parser([]), [(-1, "<think>a</think><answer>b")]) == ("a", "<answer>b")  # type: ignore[union-attr,arg-type]


def test_the_end_of_a_message_is_not_the_end_of_an_answer() -> None:
    tokenizer = harmonic()
    ends, end, call = (tokenizer.token_id(mark) or 0 for mark in ("<|return|>", "<|end|>", "<|call|>"))
    assert harmony_style(tokenizer).eos([ends, end, 99]) == [ends, 99, call]
    assert TagStyle(tokenizer, PAIRS).eos([end]) == [end]


def harmony(text: str, prompt: str = "<|start|>assistant") -> tuple[str, str]:
    tokenizer = harmonic()
    stream = TextStream(tokenizer, channels=harmony_style(tokenizer).parser(tokenizer.encode(prompt)))
    pieces = pieces_of(stream, tokenizer.encode(text))
    return "".join(piece.thinking for piece in pieces), "".join(piece.text for piece in pieces)


def test_no_mark_of_harmony_is_a_token_of_the_content() -> None:
    tokenizer = harmonic()
    stream = TextStream(tokenizer, channels=harmony_style(tokenizer).parser(tokenizer.encode("<|start|>assistant")))
    ids = tokenizer.encode(ANALYSIS + FINAL.removesuffix("<|return|>"))
    content = [token for token in ids if stream.push(token).channel == "content"]
    assert tokenizer.decode(content, skip_special=False) == "Yes."


def test_calls_of_functions_in_harmony() -> None:
    """Taken out of the thinking where there are tools, streamed, and forced by a header and a grammar."""
    tokenizer, template = harmonic(), ChatTemplate(HARMONY)
    style = ToolStyle(tokenizer, template, harmony_style(tokenizer))
    tools = [Tool(name="f", parameters='{"type": "object", "properties": {"a": {"type": "integer"}}}'), Tool(name="g")]
    config = ToolConfig(tools=tools, choice="required")
    call = 'f <|constrain|>json<|message|>{"a": 1}'
    whole = f"{ANALYSIS}<|start|>assistant<|channel|>commentary to=functions.{call}<|call|>"
    for begins, written in (("", whole), (style.forced(config).begins, f"{call}<|call|>")):
        prompt = f"<|start|>assistant{begins}"
        stream = TextStream(tokenizer, channels=style.parser(tokenizer.encode(prompt), config))
        pieces = pieces_of(stream, tokenizer.encode(written))
        calls = [call for piece in pieces for call in piece.calls]
        assert [(call.index, call.name) for call in calls if call.id] == [(0, "f")]
        assert "".join(call.arguments for call in calls) == '{"a": 1}'
        assert "".join(piece.text for piece in pieces) == ""
    grammar = Grammars(tokenizer, [tokenizer.token_id("<|call|>") or 0], tokenizer.vocabulary).compile(
        style.forced(config).structured
    )
    constraint, ids = grammar.constraint(0, None), tokenizer.encode(call)
    for place, id in enumerate([*ids, tokenizer.token_id("<|call|>")]):
        allowed = constraint.allowed(ids[:place])
        assert allowed is not None
        assert id is not None
        assert allowed.words[id >> 5] >> (id & 31) & 1


ANALYSIS = "<|channel|>analysis<|message|>Hm 🎉.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Yes.<|return|>"


@pytest.mark.parametrize(
    ("text", "thinking", "content"),
    [
        (ANALYSIS + FINAL, "Hm 🎉.", "Yes."),
        ("<|channel|>final<|message|>Yes.", "", "Yes."),
        (ANALYSIS + "<|start|>assistant" + ANALYSIS + FINAL, "Hm 🎉.\n\nHm 🎉.", "Yes."),
        ("<|channel|>commentary<|message|>I shall look.<|end|>" + FINAL, "", "I shall look.\n\nYes."),
        (' to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a": 1}<|call|>', '{"a": 1}', ""),
        ('<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>', '{"a": 1}', ""),
        ("<|channel|>analysis<|message|>cut", "cut", ""),
        ("<|channel|>analysis", "", ""),
        (" Just text.", "", "Just text."),
        ("<|message|>No channel.", "", "No channel."),
    ],
)
def test_harmony(text: str, thinking: str, content: str) -> None:
    assert harmony(text) == (thinking, content)


def test_harmony_after_other_prompts() -> None:
    assert harmony("Yes.", "<|start|>assistant<|channel|>final<|message|>") == ("", "Yes.")
    assert harmony("Hm.", "<|start|>assistant<|channel|>analysis<|message|>") == ("Hm.", "")
    assert harmony("Yes.", "no header") == ("", "Yes.")


def test_harmonys_marks_count_as_tokens_only() -> None:
    spelled = "The mark is <|chan" + "nel|> and <|end" + "|>."
    tokenizer = harmonic()
    ids = [token for letter in spelled for token in tokenizer.encode(letter)]
    stream = TextStream(tokenizer, channels=harmony_style(tokenizer).parser(tokenizer.encode("<|start|>assistant")))
    pieces = pieces_of(stream, [*tokenizer.encode("<|channel|>final<|message|>"), *ids])
    assert "".join(piece.text for piece in pieces) == spelled


@given(cuts=st.sets(st.integers(1, 60)), data=st.data())
@examples(300)
def test_harmony_does_not_depend_on_the_tokens_of_text(cuts: set[int], data: st.DataObject) -> None:
    parts = data.draw(
        st.lists(st.sampled_from([*MARKS, "assistant", "analysis", "final", " to=x", "a", " "]), max_size=12)
    )
    marks = dict(enumerate(MARKS))
    ids = {mark: index for index, mark in marks.items()}
    merged: list[str] = []  # neighbouring text is one text
    for part in parts:
        if merged and part not in MARKS and merged[-1] not in MARKS:
            merged[-1] += part
        else:
            merged.append(part)
    whole = [(ids.get(part, 99), "" if part in ids else part) for part in merged]
    split = [
        (token, piece)
        for token, text in whole
        for piece in ([text] if token != 99 else [text[a:b] for a, b in _cut(text, cuts)])
    ]

    def run(tokens: Sequence[tuple[int, str]]) -> tuple[str, str]:
        parser = HarmonyParser(marks)
        parser.push(0, "")
        parser.push(99, "assistant")
        return pushed(parser, tokens)

    assert run(split) == run(whole)


def _cut(text: str, cuts: set[int]) -> list[tuple[int, int]]:
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    return list(pairwise(places))


def test_stop_strings_are_looked_for_in_the_content_alone() -> None:
    tokenizer = tagged(False)
    style = channel_style(tokenizer, CHATML)
    assert style is not None
    ids = tokenizer.encode("<think>an END here</think>then END there")
    stream = TextStream(tokenizer, ["END"], channels=style.parser([]))
    text = thinking = ""
    for token in ids:
        piece = stream.push(token)
        text, thinking = text + piece.text, thinking + piece.thinking
        if stream.stopped:
            break
    assert (thinking, text) == ("an END here", "then ")
    assert token == ids[-len(tokenizer.encode(" there")) - 1]


@pytest.mark.parametrize(
    ("template", "tokenizer", "modes"),
    [
        (CHATML, plain, ThinkingModes()),
        (QWEN3, plain, ThinkingModes(kind="switchable")),
        (R1, plain, ThinkingModes(kind="always")),
        (HARMONY, harmonic, ThinkingModes(kind="always", efforts=["low", "medium", "high"])),
        (
            "{% if thinking %}<think>{% else %}</think>{% endif %}",
            plain,
            ThinkingModes(kind="switchable", default=False),
        ),
        ("{{ raise_exception('no') }}</think>", plain, ThinkingModes()),
        (
            "{% if reasoning_effort == 'medium' %}{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}",
            plain,
            ThinkingModes(efforts=["low", "high"]),
        ),
        (
            "{% if enable_thinking %}{{ reasoning_effort }}</think>{% endif %}",
            plain,
            ThinkingModes(kind="switchable", default=False, efforts=["low", "medium", "high"]),
        ),
        ("{% if reasoning_effort == 'low' %}less{% endif %}", plain, ThinkingModes()),
        (
            "{% if reasoning_effort %}{{ raise_exception('no') }}{% endif %}</think>",
            plain,
            ThinkingModes(kind="always"),
        ),
    ],
    ids=[
        "chatml",
        "qwen3",
        "r1",
        "harmony",
        "off-by-default",
        "refuses",
        "refuses-one-effort",
        "efforts-when-on",
        "efforts-alike",
        "refuses-efforts",
    ],
)
def test_what_templates_let_one_choose(template: str, tokenizer: type[Tokenizer], modes: ThinkingModes) -> None:
    made = tokenizer()  # type: ignore[call-arg]
    assert thinking_modes(ChatTemplate(template), channel_style(made, template)) == modes
