"""A prompt of either kind to token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.protocol import ChatMessage, Thinking, ToolConfig
from engine.text.formats.style import ToolStyle
from engine.text.template import ChatTemplate, PromptError, as_schema
from engine.text.tokenizer import Tokenizer

_END = "CONTINUE_FINAL_MESSAGE_TAG"
"""Stands at the end of a message while it is rendered, so that it is found again whatever the template writes there."""


class PromptText(NamedTuple):
    """A prompt as the model is to read it.

    ``special``: the tokenizer adds what belongs around it (begin-of-text). ``continues``: the answer goes on from plain
    text or from the last message, so that its first space belongs to it.
    """

    text: str
    special: bool
    continues: bool


class PromptForm(NamedTuple):
    """Form in which a conversation is written. ``prefills``: the answer goes on from the last message, else with
    ``opens`` a new turn of the assistant begins, of which ``begins`` is written already. ``variables`` are what else
    the chat template is given, ``tools`` what the model may call. ``special``: as of :class:`PromptText`; None: where
    the template leaves it to the tokenizer."""

    prefills: bool = False
    opens: bool = True
    variables: Mapping[str, Any] = {}
    tools: ToolConfig | None = None
    begins: str = ""
    special: bool | None = None


def rendered(
    template: ChatTemplate,
    prompt: Sequence[ChatMessage] | str,
    thinking: Thinking = Thinking(),
    form: PromptForm = PromptForm(),
    style: ToolStyle | None = None,
) -> PromptText:
    """A conversation through the chat template, or plain text to continue as it is. ``style`` is the model's way with
    tools.

    A model's own template writes begin-of-text itself; plain text and the plain template leave it to the tokenizer.
    Raises :class:`engine.text.template.PromptError`.
    """
    if isinstance(prompt, str):
        return PromptText(prompt, special=form.special is not False, continues=True)
    tools = form.tools.tools if form.tools is not None and (style is None or style.own) else []
    if style is not None:
        prompt = style.messages(prompt, form.tools)
    render = partial(
        template.render,
        tools=[as_schema(tool) for tool in tools] or None,
        enable_thinking=thinking.on,
        reasoning_effort=thinking.effort,
        variables=form.variables,
    )
    text = _prefilled(render, prompt) if form.prefills else render(prompt, add_generation_prompt=form.opens)
    special = not template.own if form.special is None else form.special
    return PromptText(text + form.begins, special, continues=form.prefills)


def _prefilled(render: Callable[..., str], messages: Sequence[ChatMessage]) -> str:
    """The conversation up to the end of its last message's text, without what closes the turn.

    Where the template does not show that text, it follows what begins a new turn. Source: transformers,
    ``continue_final_message``; llama.cpp's server for the second way.
    """
    *before, last = messages
    try:
        text = render([*before, last.with_text(_END)], add_generation_prompt=False)
    except PromptError:
        text = ""
    found = text.rfind(_END)
    return text[:found] if found >= 0 else render(before) + last.content


def prompt_ids(tokenizer: Tokenizer, template: ChatTemplate, prompt: Sequence[ChatMessage] | str) -> list[int]:
    """Token ids of a prompt. Raises :class:`engine.text.template.PromptError`."""
    made = rendered(template, prompt)
    return tokenizer.encode(made.text, special=made.special)
