"""The way in which one model is told of tools and calls them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from engine.protocol import ChatMessage, StructuredOutput, Tool, ToolConfig
from engine.text.channels import ChannelParser, ChannelStyle, HarmonyStyle
from engine.text.formats import generic
from engine.text.formats.calls import CallFormat, CallWriter, Schema, Term
from engine.text.formats.families import HERMES, format_of
from engine.text.formats.grammar import called, forced, watched
from engine.text.formats.parser import ToolParser
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

_HARMONY_HEAD, _HARMONY_BODY = "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>"


class ForcedCalls(NamedTuple):
    """What an answer is held to that must call a tool. ``begins`` is what its prompt ends with in addition; it then is
    held from its first token on, and cannot think before."""

    structured: StructuredOutput
    begins: str = ""


class ToolStyle:
    """The format of a model's calls, and whether its chat template shows tools. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, channels: ChannelStyle | None) -> None:
        self._tokenizer, self._template, self._channels = tokenizer, template, channels
        self._harmony = isinstance(channels, HarmonyStyle)

    @cached_property
    def own(self) -> bool:
        """True if the model has a format that is known here, and a template that shows tools."""
        known = self._harmony or format_of(self._template.tool_source) is not None
        return known and self._template.call_form is not None

    @cached_property
    def notice(self) -> str:
        """Sentence for whoever gives tools to this model; "" where it was made for them."""
        return "" if self.own else generic.GENERIC

    @cached_property
    def format(self) -> CallFormat:
        return (format_of(self._template.tool_source) if self.own else None) or HERMES

    def parser(self, prompt_ids: Sequence[int], config: ToolConfig) -> ChannelParser:
        """The parser of an answer to this prompt that may call tools."""
        one, id_length = not config.parallel, self.format.id_length
        calls = CallWriter(config.tools, id_length)
        if isinstance(self._channels, HarmonyStyle) and self.own:
            return self._channels.parser(prompt_ids, calls, one)
        inner = self._channels.parser(prompt_ids) if self._channels is not None else None
        marks = (self._tokenizer.token_id(mark) for mark in (*self.format.opens, *self.format.dropped))
        names = {id: mark for mark, id in self._special.items()}
        return ToolParser(inner, self.format, calls, names, {id for id in marks if id is not None}, one)

    def messages(self, messages: Sequence[ChatMessage], config: ToolConfig | None) -> Sequence[ChatMessage]:
        """The conversation as the template is to have it."""
        tools = [] if config is None else config.tools
        if not (tools or any(message.calls or message.results for message in messages)) or self.own:
            return messages
        return generic.told(messages, tools)

    def forced(self, config: ToolConfig, otherwise: StructuredOutput | None = None) -> ForcedCalls:
        """What holds an answer to calling one of the tools that are allowed, or ``otherwise`` to being JSON."""
        if not (self._harmony and self.own):
            schema = Schema(json.loads(otherwise.source or '{"type": "object"}')) if otherwise is not None else None
            source = forced(self.format, config, self._special, [] if schema is None else [schema])
            return ForcedCalls(StructuredOutput(kind="grammar", source=source))
        marks = ("<|constrain|>", "<|message|>")
        special = {mark: id for mark in marks if (id := self._tokenizer.token_id(mark)) is not None}
        calls: list[list[Term]] = [
            [tool.name + _HARMONY_BODY, Schema(json.loads(tool.parameters))] for tool in config.allowed
        ]
        return ForcedCalls(StructuredOutput(kind="grammar", source=called(calls, special)), _HARMONY_HEAD)

    def holds(self, tool: Tool) -> bool:
        """True if a call of this tool is held to the tool's own grammar."""
        return bool(tool.grammar) and not (self._harmony and self.own) and self.format.holds(tool)

    def watched(self, config: ToolConfig) -> StructuredOutput | None:
        """What holds an answer that may call tools to the grammars of their texts; None where none can be held."""
        if not any(map(self.holds, config.allowed)):
            return None
        return StructuredOutput(kind="grammar", source=watched(self.format, config, self._special))

    @cached_property
    def _special(self) -> dict[str, int]:
        """Marks of the format that are tokens without text."""
        found = {mark: self._tokenizer.token_id(mark) for mark in self.format.marks}
        return {mark: id for mark, id in found.items() if id is not None and id in self._tokenizer.special_ids}
