"""A conversation to the text that a model was trained on, by the chat template that came with it."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from engine.base.errors import CheckpointError
from engine.base.files import read_json, read_text
from engine.protocol import ChatMessage, Tool, ToolCall, ToolResult
from engine.text.filters import REMOVED
from engine.text.sandbox import Sandbox, TemplateRefused
from engine.text.token_files import CONFIG, MAX_CONFIG, TokenFiles

log = logging.getLogger(__name__)

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""The template for models without their own, which usually were not trained for chat."""

NO_TEMPLATE = (
    "This model has no chat template: the conversation is written as plain lines (User: …, Assistant: …), "
    "which a model that was not trained for chat follows badly."
)
OTHER_TEMPLATE = (
    "The file {file} cannot be read, so the chat template of another file of this model is used. Download that file "
    "again."
)
UNREADABLE_TEMPLATE = (
    "The file {file} cannot be read, so there is no chat template and the conversation is written as "
    "plain lines (User: …, Assistant: …). Download that file again."
)
Source = str | dict[str, Any] | list[dict[str, Any]]
"""A template, or several by their names or as {"name": …, "template": …}."""
FOR_TOOLS = "tool_use"
"""The name of a template that is taken where there are tools."""
_MISSING = re.compile(r"has no (?:attribute|element) (.{1,100})$")
"""Jinja's words for a key or an item that a value lacks."""

_NO_LOADER = "no loader for this environment"
"""Jinja's words for a template that asks for another."""
_FILTER = re.compile(r"No filter named '(\w{1,30})'")


_SHORT_IDS = "[TOOL_CALLS]"
"""Stands in templates of Mistral's, which refuse names of calls that are not nine letters and digits."""
_NAME, _KEY = "probe_tool", "probe_key"
_PROBE_TOOL = Tool(name=_NAME, parameters=json.dumps({"type": "object", "properties": {_KEY: {"type": "string"}}}))
_PROBE = (
    ChatMessage.of("user", "?"),
    ChatMessage.of("assistant", "", calls=[ToolCall("probe0000", _NAME, json.dumps({_KEY: "a"}))]),
    ChatMessage(role="tool", parts=[ToolResult("probe0000", "b", _NAME)]),
)


class CallForm(NamedTuple):
    """Form in which a template takes calls of tools: what their message has for a content that is empty, and whether
    the arguments are text (else an object)."""

    empty: str | None = ""
    text: bool = False


class PromptError(ValueError):
    """The prompt cannot be made; the message is a sentence for a person."""


class _Config(msgspec.Struct):
    """The part of tokenizer_config.json, or of a file of its own, that is the template."""

    chat_template: Source | None = None


class ChatTemplate:
    """One chat template. ``notice`` is a sentence when it is not the model's own; safe to use from several threads.

    ``for_tools`` is the template of conversations with tools, "" where that is the same.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str] | None = None, notice: str = "", for_tools: str = ""
    ) -> None:
        self.source, self.for_tools = source, for_tools
        self.notice = notice
        self.special_tokens = dict(special_tokens or {})
        self._sandbox = Sandbox()

    @property
    def own(self) -> bool:
        """True if the model brought this template."""
        return self.source != PLAIN_TEMPLATE

    @property
    def tool_source(self) -> str:
        """The template of conversations with tools."""
        return self.for_tools or self.source

    @cached_property
    def call_form(self) -> CallForm | None:
        """The form in which this template takes calls, found by rendering one; None where it shows none."""
        forms = (CallForm(empty, text) for text in (False, True) for empty in ("", None))
        return next((form for form in forms if self._shows(form)), None)

    def _shows(self, form: CallForm) -> bool:
        """Return True if tools and calls of this form are shown, and the arguments as a template ought to."""
        with suppress(PromptError):
            tools = self._render(_PROBE[:1], form, tools=[as_schema(_PROBE_TOOL)])
            text = self._render(_PROBE, form, tools=[as_schema(_PROBE_TOOL)])[len(tools) :]
            wrong = (f"'{_KEY}'", f'\\"{_KEY}\\"', "None")
            return _NAME in tools and _NAME in text and _KEY in text and not any(each in text for each in wrong)
        return False

    @classmethod
    def open(cls, folder: str | Path) -> ChatTemplate:
        """The template of a model folder: chat_template.jinja, else chat_template.json, else tokenizer_config.json's
        (of several the one named "default"). Without any, a plain one with a ``notice``."""
        folder = Path(folder)
        files = TokenFiles.open(folder)
        config = _converted(files.config)
        source, unreadable = _own_file(folder)
        source = source or (config.chat_template if config is not None else None)
        unreadable = unreadable or (CONFIG if config is None else "")
        missing = UNREADABLE_TEMPLATE.format(file=unreadable) if unreadable else NO_TEMPLATE
        template = cls.chosen(source, files.names, missing)
        if unreadable and template.own:
            template.notice = OTHER_TEMPLATE.format(file=unreadable)
        return template

    @classmethod
    def chosen(
        cls, source: Source | None, special_tokens: Mapping[str, str], missing: str = NO_TEMPLATE
    ) -> ChatTemplate:
        """One of what a model brings: its template, or several with names, of which the one named "default" is taken,
        else the first. Without any, a plain one with the notice ``missing``."""
        named = _named(source)
        found, for_tools = named.get("default") or next(iter(named.values()), ""), named.get(FOR_TOOLS, "")
        if not found:
            return cls(PLAIN_TEMPLATE, special_tokens, missing)
        return cls(found, special_tokens, for_tools=for_tools if for_tools != found else "")

    def render(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        reasoning_effort: str = "",
        variables: Mapping[str, Any] = {},
    ) -> str:
        """The conversation as text, special tokens included.

        A message may be a mapping, for what only templates know. ``tools`` are
        JSON schemas of functions. ``enable_thinking`` is what templates know under that name or as ``thinking``, and
        ``reasoning_effort`` a word such as "low"; ``None`` and "" leave it to them. ``variables`` are what else
        a client hands to the template. Raises :class:`PromptError` when
        the template refuses the conversation, is broken, or leaves its bounds.
        """
        given: dict[str, Any] = {**variables, "add_generation_prompt": add_generation_prompt}
        if enable_thinking is not None:
            given["enable_thinking"] = given["thinking"] = enable_thinking
        if reasoning_effort:
            given["reasoning_effort"] = reasoning_effort
        called = any(isinstance(message, ChatMessage) and message.calls for message in messages)
        form = (self.call_form if called else None) or CallForm()
        try:
            return self._render(messages, form, tools, given)
        except PromptError:
            if (apart := list(_apart(messages))) == list(messages):
                raise
            return self._render(apart, form, tools, given)  # some templates take one call a message

    def _render(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        form: CallForm,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] = {},
    ) -> str:
        short = _SHORT_IDS in self.tool_source
        given: dict[str, Any] = {
            **self.special_tokens,
            "tools": list(tools) if tools is not None else None,
            "documents": None,
            **variables,
            "messages": [each for message in messages for each in _plain(message, form, short)],
        }
        try:
            return self._sandbox.render_bounded(self.for_tools if tools and self.for_tools else self.source, given)
        except TemplateRefused as error:
            raise PromptError(
                f"The model's chat template refused the conversation: {_sentence(error)} Change the messages to fit it."
            ) from error
        except SecurityError as error:
            raise PromptError(
                f"The model's chat template was stopped because {_sentence(error)} "
                "Use the model without its template, or from another source."
            ) from error
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise PromptError(self._broken(error)) from error
        except (RecursionError, MemoryError) as error:
            raise PromptError("The model's chat template does not end. Use the model from another source.") from error

    def _broken(self, error: Exception) -> str:
        filtered = _FILTER.search(str(error))
        if filtered is not None and filtered[1] in REMOVED:
            return (
                f"The model's chat template uses the filter {filtered[1]!r}, which Kvasir leaves out. Use the model "
                "without its template, or choose another version of it."
            )
        where = f" in line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        return (
            f"The model's chat template does not work{where}: {_cause(error)} "
            "Download the file with the chat template again."
        )


def _converted(config: dict[str, Any] | None) -> _Config | None:
    """None for a tokenizer_config.json that cannot be read, or whose template is none."""
    try:
        return None if config is None else msgspec.convert(config, _Config)
    except msgspec.ValidationError:
        return None


def _own_file(folder: Path) -> tuple[Source | None, str]:
    """The template of a file that holds nothing else, and the name of such a file that cannot be read."""
    unreadable = ""
    for name in ("chat_template.jinja", "chat_template.json"):
        path = folder / name
        try:
            if path.suffix == ".jinja":
                source: Source | None = read_text(path, MAX_CONFIG)
            else:
                source = msgspec.convert(read_json(path, MAX_CONFIG) or {}, _Config).chat_template
            if source is not None:
                return source, unreadable
        except (CheckpointError, msgspec.ValidationError) as error:
            log.warning("%s is not readable and counts as missing: %s", path, error)
            unreadable = unreadable or name
    return None, unreadable


def as_schema(tool: Tool) -> dict[str, Any]:
    """The tool as chat templates and OpenAI's interface have it."""
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}


def _plain(message: ChatMessage | Mapping[str, Any], form: CallForm, short: bool) -> Iterator[dict[str, Any]]:
    """The message as templates have it, or several of a role "tool". ``short``: names of calls are nine letters."""
    if not isinstance(message, ChatMessage):
        yield dict(message)
        return
    for result in message.results:
        content = _content(result.content, len(result.pictures))
        told = {"name": result.name} if result.name else {}
        yield {"role": "tool", "tool_call_id": _id(result.id, short), **told, "content": content}
    if message.role == "tool":
        return
    # Templates have two names for it.
    thinking = {"reasoning_content": message.thinking, "thinking": message.thinking} if message.thinking else {}
    content = _content(message.content, len(message.pictures))
    if calls := [_call(call, form, short) for call in message.calls]:
        yield {"role": message.role, "content": content or form.empty, **thinking, "tool_calls": calls}
    else:
        yield {"role": message.role, "content": content, **thinking}


def _call(call: ToolCall, form: CallForm, short: bool) -> dict[str, Any]:
    given: Any = call.arguments or "{}"
    if not form.text:
        with suppress(ValueError):
            given = json.loads(given)
    return {"id": _id(call.id, short), "type": "function", "function": {"name": call.name, "arguments": given}}


def _id(id: str, short: bool) -> str:
    if not short or (len(id) == 9 and id.isalnum()):
        return id
    return hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:9]


def _apart(messages: Sequence[ChatMessage | Mapping[str, Any]]) -> Iterator[ChatMessage | Mapping[str, Any]]:
    """The messages with one call each, and its result behind it."""
    results = {result.id: result for each in messages if isinstance(each, ChatMessage) for result in each.results}
    told: set[str] = set()
    for message in messages:
        if isinstance(message, ChatMessage) and len(message.calls) > 1:
            for number, call in enumerate(message.calls):
                first = message if not number else ChatMessage.of(message.role, "")
                parts = [part for part in first.parts if not isinstance(part, ToolCall)]
                yield ChatMessage(role=message.role, parts=[*parts, call])
                if call.id in results:
                    told.add(call.id)
                    yield ChatMessage(role="tool", parts=[results[call.id]])
        elif not isinstance(message, ChatMessage) or not message.results:
            yield message
        elif left := [each for each in message.results if each.id not in told]:
            yield ChatMessage(role=message.role, parts=[*left])


def _content(text: str, pictures: int) -> str | list[dict[str, str]]:
    """The text, or parts as templates of models with a vision tower know them: pictures come first."""
    if not pictures:
        return text
    return [{"type": "image"}] * pictures + [{"type": "text", "text": text}]


def _named(template: Source | None) -> dict[str, str]:
    """The templates that are text by their names; a single one is "default"."""
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template if {"name", "template"} <= entry.keys()}
    named = template if isinstance(template, dict) else {"default": template}
    return {name: text for name, text in named.items() if isinstance(name, str) and isinstance(text, str)}


def _cause(error: Exception) -> str:
    """Sentence that says what the template does wrong, without Python's own words."""
    missing = _MISSING.search(str(error))
    if missing is not None:
        return f"it reads {missing[1]}, which is not there."
    if _NO_LOADER in str(error):
        return "it includes another file, and a template is alone."
    return "it joins values that do not go together." if isinstance(error, TypeError) else _sentence(error)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return text if text.endswith((".", "!", "?")) else text + "."
