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
from engine.text.formats.families import FAMILIES, Family
from engine.text.formats.style import ToolStyle
from engine.text.grammar import Grammars
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

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
def test_whatever_is_drawn_is_read_as_calls_that_hold_to_their_schemas(family: Family, special: bool) -> None:
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
