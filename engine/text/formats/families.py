"""The formats of the families, told from a model's chat template and vocabulary, never from its name.

Sources: the chat templates and model cards of the families, and the parsers of vLLM (vllm/tool_parsers) and llama.cpp
(common/chat.cpp), which they are compared with in tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.text.formats.calls import Brackets, CallFormat, JsonCalls, KeyedCalls, NamedCalls, PythonCalls, TaggedCalls

_FUNCTION = Brackets("<function=", ">", "</function>")
_PARAMETER = Brackets("<parameter=", ">", "</parameter>")
HERMES = JsonCalls(opens=["<tool_call>"], closes="</tool_call>")
"""Also what models without a format of their own are told to write."""


class FamilyFormat(NamedTuple):
    """A format, and texts of which each stands in the templates of the models that write it."""

    name: str
    format: CallFormat
    seen: Sequence[str]


FAMILIES = (
    FamilyFormat(
        "Qwen 3 Coder, Qwen 3.5, Nemotron 3",
        TaggedCalls(opens=["<tool_call>"], closes="</tool_call>", function=_FUNCTION, parameter=_PARAMETER),
        ["<tool_call>", "<function=", "<parameter="],
    ),
    FamilyFormat(
        "Seed-OSS",
        TaggedCalls(opens=["<seed:tool_call>"], closes="</seed:tool_call>", function=_FUNCTION, parameter=_PARAMETER),
        ["<seed:tool_call>", "<function="],
    ),
    FamilyFormat(
        "GLM 4.5 to 4.7",
        TaggedCalls(
            opens=["<tool_call>"],
            closes="</tool_call>",
            function=Brackets("", "\n", "</tool_call>"),
            parameter=Brackets("<arg_key>", "</arg_key>", "</arg_value>"),
            value="<arg_value>",
            padding="",
        ),
        ["<arg_key>", "<arg_value>"],
    ),
    FamilyFormat(
        "MiniMax M2",
        TaggedCalls(
            opens=["<minimax:tool_call>"],
            closes="</minimax:tool_call>",
            function=Brackets('<invoke name="', '">', "</invoke>"),
            parameter=Brackets('<parameter name="', '">', "</parameter>"),
            padding="",
        ),
        ["<minimax:tool_call>", "<invoke name="],
    ),
    FamilyFormat("Gemma 4", KeyedCalls(opens=["<|tool_call>"], closes="<tool_call|>", quote='<|"|>'), ["<|tool_call>"]),
    FamilyFormat(
        "FunctionGemma",
        KeyedCalls(opens=["<start_function_call>"], closes="<end_function_call>", quote="<escape>"),
        ["<start_function_call>"],
    ),
    FamilyFormat(
        "LFM2",
        PythonCalls(opens=["<|tool_call_start|>"], closes="<|tool_call_end|>"),
        ["<|tool_call_start|>"],
    ),
    FamilyFormat(
        "Kimi K2",
        NamedCalls(
            opens=["<|tool_call_begin|>"],
            closes="<|tool_call_end|>",
            dropped=["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
            between=["<|tool_call_argument_begin|>"],
            numbered=True,
            joint="",
        ),
        ["<|tool_call_begin|>", "<|tool_call_argument_begin|>"],
    ),
    FamilyFormat(
        "DeepSeek V3, R1",
        NamedCalls(
            opens=["<｜tool▁call▁begin｜>"],
            closes="<｜tool▁call▁end｜>",
            dropped=["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
            before="function<｜tool▁sep｜>",
            between=["\n```json\n"],
            after="\n```",
        ),
        ["<｜tool▁call▁begin｜>", "```json"],
    ),
    FamilyFormat(
        "DeepSeek V3.1",
        NamedCalls(
            opens=["<｜tool▁call▁begin｜>"],
            closes="<｜tool▁call▁end｜>",
            dropped=["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
            between=["<｜tool▁sep｜>"],
            joint="",
        ),
        ["<｜tool▁call▁begin｜>"],
    ),
    FamilyFormat(
        "Mistral 3, Ministral, Magistral",
        NamedCalls(opens=["[TOOL_CALLS]"], between=["[CALL_ID]", "[ARGS]"], joint="", id_length=9),
        ["[TOOL_CALLS]", "[ARGS]"],
    ),
    FamilyFormat("Mistral", JsonCalls(opens=["[TOOL_CALLS]"], listed=True, joint=", ", id_length=9), ["[TOOL_CALLS]"]),
    FamilyFormat(
        "Nemotron Nano 2",
        JsonCalls(opens=["<TOOLCALL>"], closes="</TOOLCALL>", listed=True, joint=", "),
        ["<TOOLCALL>"],
    ),
    FamilyFormat(
        "Command A, Command R7B",
        JsonCalls(opens=["<|START_ACTION|>"], closes="<|END_ACTION|>", listed=True, arguments="parameters", joint=", "),
        ["<|START_ACTION|>"],
    ),
    FamilyFormat(
        "Phi 4 mini",
        JsonCalls(opens=["<|tool_call|>"], closes="<|/tool_call|>", listed=True, joint=", "),
        ["<|tool_call|>", "<|/tool_call|>"],
    ),
    FamilyFormat("Granite 3", JsonCalls(opens=["<|tool_call|>"], listed=True, joint=", "), ["<|tool_call|>"]),
    FamilyFormat("Qwen 2.5, Qwen 3, Hermes, SmolLM 3, Granite 4", HERMES, ["<tool_call>"]),
    FamilyFormat(
        "Llama 3",
        JsonCalls(opens=["<|python_tag|>"], arguments="parameters", space="", bare=True, joint="; "),
        ['"parameters":', "<|start_header_id|>"],
    ),
    FamilyFormat(
        "Llama 4", PythonCalls(opens=["<|python_start|>"], closes="<|python_end|>", bare=True), ["<|python_start|>"]
    ),
)


def format_of(template: str) -> CallFormat | None:
    """The format of models with this chat template (its source); None where it shows none."""
    return next((each.format for each in FAMILIES if all(seen in template for seen in each.seen)), None)
