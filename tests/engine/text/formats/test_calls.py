"""Calls of tools in the formats of the families: read whole, and cut anywhere, they are the same."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from engine.protocol import CallCollector, Delta, Tool, ToolCall
from engine.text.formats.calls import CUT_SHORT, CallFormat, CallWriter
from engine.text.formats.families import FAMILIES, HERMES, format_of
from engine.text.formats.parser import ToolParser
from engine.text.stream import TextStream
from engine.text.template import as_schema
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import byte_level

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "wind": {"type": "boolean"},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}
TOOLS = [Tool(name="weather", parameters=json.dumps(SCHEMA)), Tool(name="now")]
NESTED = {"city": 'São "Paulo"\n{x}', "days": 3, "wind": True, "where": {"lat": 1.5}, "tags": ["a", "b"]}
ARGUMENTS = json.dumps(NESTED, ensure_ascii=False)
TAGGED = (
    '<function=weather>\n<parameter=city>\nSão "Paulo"\n{x}\n</parameter>\n<parameter=days>\n3\n</parameter>\n'
    '<parameter=wind>\ntrue\n</parameter>\n<parameter=where>\n{"lat": 1.5}\n</parameter>\n'
    '<parameter=tags>\n["a", "b"]\n</parameter>\n</function>'
)
GLM = (
    '<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>São "Paulo"\n{x}</arg_value>\n<arg_key>days</arg_key>\n'
    "<arg_value>3</arg_value>\n<arg_key>wind</arg_key><arg_value>true</arg_value>\n<arg_key>where</arg_key>"
    '<arg_value>{"lat": 1.5}</arg_value><arg_key>tags</arg_key><arg_value>["a", "b"]</arg_value>\n</tool_call>'
)
MINIMAX = (
    '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">São "Paulo"\n{x}</parameter>\n'
    '<parameter name="days">3</parameter>\n<parameter name="wind">true</parameter>\n<parameter name="where">'
    '{"lat": 1.5}</parameter>\n<parameter name="tags">["a", "b"]</parameter>\n</invoke>\n</minimax:tool_call>'
)
GEMMA = 'call:weather{city:%sSão "Paulo"\n{x}%s,days:3,wind:true,where:{lat:1.5},tags:[%sa%s,%sb%s]}'
PYTHON = 'weather(city=\'São "Paulo"\\n{x}\', days=3, wind=True, where={\'lat\': 1.5}, tags=["a", "b"])'
HARMLESS = [("weather", NESTED), ("now", {})]


class Case(NamedTuple):
    """Two calls as a family writes them, with what its template is known by."""

    template: str
    text: str


def dsv3(name: str, arguments: str) -> str:
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"


CASES = {
    "hermes": Case(
        "<tool_call>",
        f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>',
    ),
    "qwen coder": Case(
        "<tool_call> <function= <parameter=",
        f"<tool_call>\n{TAGGED}\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ),
    "seed": Case(
        "<seed:tool_call> <function=",
        f"<seed:tool_call>\n{TAGGED}\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n"
        "</seed:tool_call>",
    ),
    "glm": Case("<arg_key> <arg_value>", f"{GLM}\n<tool_call>now\n</tool_call>"),
    "minimax": Case(
        "<minimax:tool_call> <invoke name=",
        f'{MINIMAX}\n<minimax:tool_call><invoke name="now"></invoke></minimax:tool_call>',
    ),
    "gemma 4": Case(
        "<|tool_call>",
        "<|tool_call>" + GEMMA % (('<|"|>',) * 6) + "<tool_call|><|tool_call>call:now{}<tool_call|>",
    ),
    "functiongemma": Case(
        "<start_function_call>",
        "<start_function_call>" + GEMMA % (("<escape>",) * 6) + "<end_function_call>"
        "<start_function_call>call:now{}<end_function_call>",
    ),
    "lfm2": Case("<|tool_call_start|>", f"<|tool_call_start|>[{PYTHON}, now()]<|tool_call_end|>"),
    "kimi": Case(
        "<|tool_call_begin|> <|tool_call_argument_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        f"{ARGUMENTS}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{{}}"
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "deepseek v3": Case(
        "<｜tool▁call▁begin｜> ```json",
        f"<｜tool▁calls▁begin｜>{dsv3('weather', ARGUMENTS)}\n{dsv3('now', '{}')}<｜tool▁calls▁end｜>",
    ),
    "deepseek v3.1": Case(
        "<｜tool▁call▁begin｜>",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "mistral": Case("[TOOL_CALLS] [ARGS]", f"[TOOL_CALLS]weather[ARGS]{ARGUMENTS}[TOOL_CALLS]now[CALL_ID]a1[ARGS]{{}}"),
    "mistral lists": Case(
        "[TOOL_CALLS]",
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {ARGUMENTS}, "id": "123456789"}}, '
        '{"name": "now", "arguments": {}}]',
    ),
    "nemotron": Case(
        "<TOOLCALL>",
        f'<TOOLCALL>[{{"name": "weather", "arguments": {ARGUMENTS}}}, {{"name": "now", "arguments": {{}}}}]</TOOLCALL>',
    ),
    "command": Case(
        "<|START_ACTION|>",
        f'<|START_ACTION|>[\n{{"tool_call_id": "0", "tool_name": "weather", "parameters": {ARGUMENTS}}},\n'
        '{"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
    ),
    "phi": Case(
        "<|tool_call|> <|/tool_call|>",
        f'<|tool_call|>[{{"name": "weather", "arguments": {ARGUMENTS}}}, {{"name": "now"}}]<|/tool_call|>',
    ),
    "granite": Case(
        "<|tool_call|>", f'<|tool_call|>[{{"name": "weather", "arguments": {ARGUMENTS}}}, {{"name": "now"}}]'
    ),
    "llama 3": Case(
        '"parameters": <|start_header_id|>',
        f'{{"name": "weather", "parameters": {ARGUMENTS}}}; {{"name": "now", "parameters": {{}}}}',
    ),
    "llama 3 tagged": Case(
        '"parameters": <|start_header_id|>',
        f'<|python_tag|>{{"type": "function", "function": {{"name": "weather", "parameters": {ARGUMENTS}}}}}'
        ' {"name": "now", "parameters": null}',
    ),
    "llama 4": Case("<|python_start|>", f"[{PYTHON}, now()]"),
}


class Answer(NamedTuple):
    content: str
    calls: list[ToolCall]
    notice: str = ""

    @property
    def called(self) -> list[tuple[str, Any]]:
        return [(call.name, json.loads(call.arguments)) for call in self.calls]


def read(format: CallFormat, pieces: list[str], one: bool = False) -> Answer:
    parser = ToolParser(None, format, CallWriter(TOOLS, format.id_length), {}, (), one)
    content, calls = "", CallCollector()
    for split in (*(parser.push(0, piece) for piece in pieces), parser.flush()):
        content += split.content
        calls.take(Delta(id="", text="", channel="tool", calls=list(split.calls)))
    return Answer(content, calls.calls, parser.notice)


def form(case: Case) -> CallFormat:
    found = format_of(case.template)
    assert found is not None
    return found


@pytest.mark.parametrize("name", CASES)
def test_reads_calls_whole_and_cut_anywhere(name: str) -> None:
    case = CASES[name]
    whole = read(form(case), [case.text])
    assert whole.called == HARMLESS
    assert not whole.content
    assert not whole.notice
    for place in range(1, len(case.text)):
        cut = read(form(case), [case.text[:place], case.text[place:]])
        assert (cut.content, cut.called, cut.notice) == ("", HARMLESS, "")
    each = read(form(case), list(case.text))
    assert (each.content, each.called) == ("", HARMLESS)


def test_every_family_has_a_case() -> None:
    assert {id(form(case)) for case in CASES.values()} == {id(family.format) for family in FAMILIES}


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("llama")])
def test_text_around_calls_stays(name: str) -> None:
    case = CASES[name]
    answer = read(form(case), list(f"Let me see. < [1] {{}}\n\n{case.text}\n\nDone."))
    assert answer.called == HARMLESS
    assert answer.content == "Let me see. < [1] {}Done."


@pytest.mark.parametrize("name", CASES)
def test_text_alone_is_told_as_it_comes(name: str) -> None:
    text = 'A < b [and] {"x": 1}, and so on.\n'
    assert read(form(CASES[name]), list(text)) == Answer(text, [])


@pytest.mark.parametrize("name", CASES)
def test_an_answer_that_is_cut_short_loses_nothing(name: str) -> None:
    """Wherever the answer ends, its calls begin as whole ones do, or its text is there."""
    case, begun = CASES[name], CASES[name].text
    whole = read(form(case), [begun])
    for place in range(len(begun)):
        cut = read(form(case), [begun[:place]])
        for ours, full in zip(cut.calls, whole.calls, strict=False):
            assert ours.name == full.name
            assert full.arguments.startswith(ours.arguments.rstrip('}"') or "")
        if not cut.calls:
            assert begun[:place].strip() in (cut.content.strip(), *form(case).dropped) or cut.content in begun


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nnot JSON\n</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        "<tool_call>",
    ],
)
def test_what_is_no_call_stays_in_the_text(text: str) -> None:
    answer = read(HERMES, [f"So: {text}"])
    assert not answer.calls
    assert answer.content.replace(" ", "") == f"So:{text}".replace(" ", "")
    assert answer.notice == CUT_SHORT


def test_arguments_come_as_they_are_written() -> None:
    parser = ToolParser(None, HERMES, CallWriter(TOOLS), {}, ())
    parser.push(0, '<tool_call>{"name": "weather", "arguments": ')
    told = [parser.push(0, piece).calls for piece in ('{"city', '": "B', 'asel"}', "}</tool_call>")]
    assert [[call.arguments for call in calls] for calls in told] == [['{"city'], ['": "B'], ['asel"}'], []]


def test_arguments_in_tags_come_as_they_are_written() -> None:
    parser = ToolParser(None, form(CASES["qwen coder"]), CallWriter(TOOLS), {}, ())
    parser.push(0, "<tool_call>\n<function=weather>\n<parameter=city>\n")
    told = ["".join(call.arguments for call in parser.push(0, piece).calls) for piece in ("Ba", 's"', "el\n</para")]
    assert told == ["Ba", 's\\"', "el"]


def test_one_call_ends_an_answer_that_may_have_no_more() -> None:
    case = CASES["hermes"]
    parser = ToolParser(None, HERMES, CallWriter(TOOLS), {}, (), one=True)
    stopped = [parser.push(0, piece) and parser.stopped for piece in case.text]
    assert case.text[: stopped.index(True) + 1].count("</tool_call>") == 1
    assert read(HERMES, list(case.text), one=True).called == HARMLESS[:1]


def test_text_that_may_become_a_stop_string_is_told_before_a_last_call() -> None:
    tokenizer = Tokenizer(byte_level([]))
    parser = ToolParser(None, HERMES, CallWriter(TOOLS), {}, (), one=True)
    stream = TextStream(tokenizer, ["So far"], channels=parser)
    pieces = [stream.push(token) for token in tokenizer.encode(f"So{CASES['hermes'].text}") if not stream.stopped]
    assert ("".join(piece.text for piece in pieces), stream.stopped) == ("So", True)
    assert [call.name for piece in pieces for call in piece.calls if call.id] == ["weather"]


def test_calls_have_names_of_their_own() -> None:
    ids = [call.id for call in read(HERMES, [CASES["hermes"].text]).calls]
    assert len(set(ids)) == 2
    assert all(id.startswith("call_") for id in ids)
    first, second = read(form(CASES["mistral"]), [CASES["mistral"].text]).calls
    assert len(first.id) == 9
    assert first.id.isalnum()
    assert second.id == "a1"
    assert next(call.id for call in read(form(CASES["kimi"]), [CASES["kimi"].text]).calls) == "functions.weather:0"


def template(**calls: Any) -> dict[str, Any]:
    """A response template of transformers' with one field of calls, in the shape that chat templates want."""
    shape = {"type": "function", "function": "{content}"} if "transform" not in calls else calls.pop("transform")
    field = {"repeats": True, "transform": shape, **calls}
    return {"start_anchor": "<start>", "fields": {"content": {"repeats": True, "join": ""}, "tool_calls": field}}


RESPONSES = {
    "hermes": template(open="<tool_call>", close="</tool_call>", content="json"),
    "qwen coder": template(
        open_pattern=r"<tool_call>\s*<function=(?P<name>[^>]+)>",
        close_pattern=r"</function>\s*</tool_call>",
        content="xml-inline",
        content_args={"tag_pattern": r"<parameter=(?P<key>[^>]+)>\n(?P<value>.*?)\n</parameter>"},
        transform={"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
    ),
    "gemma 4": template(
        open_pattern=r"<\|tool_call>call:(?P<name>\w+)",
        close="<tool_call|>",
        content="json",
        content_args={"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
        transform={"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_calls_are_those_that_transformers_finds(name: str) -> None:
    """By response templates as checkpoints bring them, with the types of the tools' schemas."""
    from transformers.utils.chat_parsing import parse_response

    text = f"Let me see.\n{CASES[name].text}"
    tools: Any = [as_schema(tool) for tool in TOOLS]
    theirs = parse_response(text, RESPONSES[name], prefix="<start>", tools=tools)
    ours = read(form(CASES[name]), [text])
    called = [(call["function"]["name"], call["function"]["arguments"]) for call in theirs["tool_calls"]]
    assert (ours.called, ours.content) == (called, theirs["content"].strip())
