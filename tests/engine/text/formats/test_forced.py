"""Grammars of calls that must be made: whatever is drawn under one, the parser of its family reads as such calls."""

from __future__ import annotations

import json
import random
from functools import cache

import jsonschema
import pytest
import tokenizers
from tokenizers import decoders, pre_tokenizers

from engine.protocol import CallCollector, Delta, Tool, ToolConfig
from engine.text.channels import channel_style
from engine.text.detokenise import detokeniser
from engine.text.formats.families import FAMILIES, FamilyFormat
from engine.text.formats.style import ToolStyle
from engine.text.grammar import Grammars
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.kit.tool_scripts import PATCH_GRAMMAR

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "where": {"$ref": "#/$defs/place"},
    },
    "required": ["city", "days"],
    "$defs": {"place": {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}},
}
TOOLS = [Tool(name="weather", parameters=json.dumps(PARAMETERS)), Tool(name="now")]
SHOWS = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}
{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"""
"""Shows calls in no family's format, which does not matter here; its source has the marks of one besides."""
END = 0


@cache
def bytewise(special: tuple[str, ...]) -> Tokenizer:
    """A token for each byte, and these special tokens."""
    vocabulary = {"<end>": END} | {
        letter: 1 + n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(["<end>", *special])
    return Tokenizer(inner)


def style_of(seen: str, special: tuple[str, ...]) -> tuple[Tokenizer, ToolStyle]:
    tokenizer, template = bytewise(special), ChatTemplate(f"{{# {seen} #}}{SHOWS}")
    style = ToolStyle(tokenizer, template, channel_style(tokenizer, template.source))
    assert style.own
    return tokenizer, style


def drawn(tokenizer: Tokenizer, style: ToolStyle, config: ToolConfig, seed: int) -> list[int]:
    """Tokens of an answer, each any that is allowed; text is kept short by what ends it."""
    choose = random.Random(seed)
    constraint = Grammars(tokenizer, [END], 300).compile(style.forced(config).structured).constraint(0, None)
    marks = [mark for each in ("parameter", "quote") for mark in [getattr(style.format, each, None)] if mark]
    closing = [mark if isinstance(mark, str) else "\n" * (style.format.padding == "\n") + mark.ends for mark in marks]  # type: ignore[attr-defined]
    ids: list[int] = []
    due: list[int] = []
    while len(ids) < 3000:
        allowed = constraint.allowed(ids)
        assert allowed is not None
        assert not constraint.failed
        may = [id for id in range(300) if allowed.words[id >> 5] >> (id & 31) & 1]
        if not due and len(may) > 100 and closing and choose.random() < 0.5:
            due = tokenizer.encode(closing[0], special=False)
        ends = [id for id in may if id in tokenizer.special_ids or tokenizer.piece(id) in (*'"}]',)]
        letters = [id for id in may if tokenizer.piece(id) in (*"abc1<",)]
        due = due if due and due[0] in may else []  # inside JSON it may not stand
        id = due.pop(0) if due else choose.choice(ends if ends and choose.random() < 0.7 else letters or may)
        if id == END:
            return ids
        ids.append(id)
    raise AssertionError(f"no end: {tokenizer.decode(ids, skip_special=False)}")


def called(style: ToolStyle, config: ToolConfig, tokenizer: Tokenizer, ids: list[int]) -> list[tuple[str, str]]:
    parser, calls, content = style.parser((), config), CallCollector(), ""
    decoder = detokeniser(tokenizer)
    for split in (*(parser.push(id, decoder.push(id)) for id in ids), parser.flush()):
        calls.take(Delta(id="", text="", calls=list(split.calls)))
        content += split.content
    assert (content.strip(), parser.notice) == ("", ""), tokenizer.decode(ids, skip_special=False)
    return [(call.name, call.arguments) for call in calls.calls]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_whatever_is_drawn_is_read_as_calls_that_hold_to_their_schemas(family: FamilyFormat, special: bool) -> None:
    marks = tuple(dict.fromkeys(mark for mark in family.format.marks if "\n" not in mark)) if special else ()
    tokenizer, style = style_of(" ".join(family.seen), marks)
    for seed, config in enumerate(
        [ToolConfig(tools=TOOLS, choice="required"), ToolConfig(tools=TOOLS, choice="required", parallel=False)]
    ):
        ids = drawn(tokenizer, style, config, seed)
        found = called(style, config, tokenizer, ids)
        assert found
        assert config.parallel or len(found) == 1
        for name, arguments in found:
            assert name in ("weather", "now")
            jsonschema.validate(json.loads(arguments), PARAMETERS if name == "weather" else {"type": "object"})


INPUT = json.dumps({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})
PATCHING = ToolConfig(tools=[*TOOLS, Tool(name="apply_patch", parameters=INPUT, grammar=PATCH_GRAMMAR)])
PATCH = '*** Begin Patch\n*** Update File: a {}.py\n@@ def f():\n-    "1"\n+    </é>\n*** End Patch'
HOLDING = [family for family in FAMILIES if family.format.holds(PATCHING.tools[-1])]


def test_the_families_that_write_texts_as_they_stand() -> None:
    names = [family.name for family in HOLDING]
    assert names == [
        "Qwen 3 Coder, Qwen 3.5, Nemotron 3",
        "Seed-OSS",
        "GLM 4.5 to 4.7",
        "MiniMax M2",
        "Gemma 4",
        "FunctionGemma",
    ]
    assert all(
        style_of(" ".join(each.seen), ())[1].watched(PATCHING) is None for each in FAMILIES if each not in HOLDING
    )


class Written:
    """An answer under a constraint, written by hand."""

    def __init__(self, family: FamilyFormat, special: bool, forced: bool) -> None:
        marks = tuple(dict.fromkeys(mark for mark in family.format.marks if "\n" not in mark)) if special else ()
        self.tokenizer, self.style = style_of(" ".join(family.seen), marks)
        self.config = (
            PATCHING if not forced else ToolConfig(tools=PATCHING.tools, choice="required", names=["apply_patch"])
        )
        held = self.style.forced(self.config).structured if forced else self.style.watched(self.config)
        assert held is not None
        self.constraint = Grammars(self.tokenizer, [END], 300).compile(held).constraint(0, None)
        self.ids: list[int] = []

    def may(self, id: int) -> bool:
        allowed = self.constraint.allowed(self.ids)
        assert allowed is not None
        assert not self.constraint.failed
        return bool(allowed.words[id >> 5] >> (id & 31) & 1)

    def write(self, text: str) -> str:
        """Write a text as far as it may be written; returns the rest."""
        ids = self.tokenizer.encode(text, special=False)
        for place, id in enumerate(ids):
            if not self.may(id):
                return self.tokenizer.decode(ids[place:], skip_special=False)
            self.ids.append(id)
        return ""

    def head(self, name: str) -> str:
        """What stands before the first argument of a call."""
        (tool,) = (each for each in PATCHING.tools if each.name == name)
        head, *rest = self.style.format.terms(tool)
        assert isinstance(head, str)
        return head + (rest[0] if rest and isinstance(rest[0], str) else "")

    @property
    def tail(self) -> str:
        """What stands behind the only argument of a call."""
        *_, ends, closes = self.style.format.terms(PATCHING.tools[-1])
        assert isinstance(ends, str)
        assert isinstance(closes, str)
        return ends + closes

    def calls(self) -> list[tuple[str, str]]:
        parser, calls = self.style.parser((), self.config), CallCollector()
        decoder = detokeniser(self.tokenizer)
        for split in (*(parser.push(id, decoder.push(id)) for id in self.ids), parser.flush()):
            calls.take(Delta(id="", text="", calls=list(split.calls)))
        return [(call.name, call.arguments) for call in calls.calls]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("family", HOLDING, ids=lambda family: family.name)
def test_a_text_that_is_called_holds_to_its_grammar(family: FamilyFormat, special: bool) -> None:
    for forced in (True, False):
        answer = Written(family, special, forced)
        if not forced:
            assert answer.write("I shall < patch it.\n") == ""
        assert answer.write(answer.head("apply_patch")) == ""
        assert answer.write("Sure! *** Begin Patch") == "Sure! *** Begin Patch"
        assert answer.write(PATCH) == ""
        assert not answer.may(END)
        assert answer.write("x").startswith("x")
        assert answer.write(answer.tail) == ""
        assert answer.may(END)
        assert answer.calls() == [("apply_patch", json.dumps({"input": PATCH}, ensure_ascii=False))]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("family", HOLDING, ids=lambda family: family.name)
def test_calls_of_other_tools_stay_free_and_tools_that_are_not_there_cannot_be_called(
    family: FamilyFormat, special: bool
) -> None:
    answer = Written(family, special, forced=False)
    other = answer.head("weather")
    assert answer.write(other.replace("weather", "wind")) != ""
    answer = Written(family, special, forced=False)
    assert answer.write(f"{other}what is no city{answer.tail}And more {answer.head('apply_patch')}{PATCH}") == ""
    assert answer.write("!") == "!"
