"""A conversation to the text that a model was trained on, by the chat template that came with it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from engine.base.errors import CheckpointError
from engine.base.files import read_json, read_text
from engine.protocol import ChatMessage
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

        A message may be a mapping, for what only templates know: tool calls and their results, thinking. ``tools`` are
        JSON schemas of functions. ``enable_thinking`` is what templates know under that name or as ``thinking``, and
        ``reasoning_effort`` a word such as "low"; ``None`` and "" leave it to them. ``variables`` are what else
        a client hands to the template. Raises :class:`PromptError` when
        the template refuses the conversation, is broken, or leaves its bounds.
        """
        given: dict[str, Any] = {
            **self.special_tokens,
            "tools": list(tools) if tools is not None else None,
            "documents": None,
            **variables,
            "messages": [_plain(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        if enable_thinking is not None:
            given["enable_thinking"] = given["thinking"] = enable_thinking
        if reasoning_effort:
            given["reasoning_effort"] = reasoning_effort
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


def _plain(message: ChatMessage | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, ChatMessage):
        return dict(message)
    # Templates have two names for it.
    thinking = {"reasoning_content": message.thinking, "thinking": message.thinking} if message.thinking else {}
    return {"role": message.role, "content": _content(message), **thinking}


def _content(message: ChatMessage) -> str | list[dict[str, str]]:
    """The text, or parts as templates of models with a vision tower know them: pictures come first."""
    if not message.pictures:
        return message.content
    return [{"type": "image"}] * len(message.pictures) + [{"type": "text", "text": message.content}]


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
