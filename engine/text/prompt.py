"""A prompt of either kind to token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol import ChatMessage, Thinking
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


class PromptText(NamedTuple):
    """A prompt as the model is to read it.

    ``special``: the tokenizer adds what belongs around it (begin-of-text). ``continues``: the answer goes on from plain
    text (no chat template), so that its first space belongs to it.
    """

    text: str
    special: bool
    continues: bool


def rendered(
    template: ChatTemplate, prompt: Sequence[ChatMessage] | str, thinking: Thinking = Thinking()
) -> PromptText:
    """A conversation through the chat template, or plain text to continue as it is.

    A model's own template writes begin-of-text itself; plain text and the plain template leave it to the tokenizer.
    Raises :class:`engine.text.template.PromptError`.
    """
    if isinstance(prompt, str):
        return PromptText(prompt, special=True, continues=True)
    text = template.render(prompt, enable_thinking=thinking.on, reasoning_effort=thinking.effort)
    return PromptText(text, special=not template.own, continues=False)


def prompt_ids(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    prompt: Sequence[ChatMessage] | str,
    thinking: Thinking = Thinking(),
) -> list[int]:
    """Token ids of a prompt. Raises :class:`engine.text.template.PromptError`."""
    made = rendered(template, prompt, thinking)
    return tokenizer.encode(made.text, special=made.special)
