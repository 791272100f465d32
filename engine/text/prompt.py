"""A prompt of either kind to token ids."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import ChatMessage
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, template: ChatTemplate, prompt: Sequence[ChatMessage] | str) -> list[int]:
    """Token ids of a conversation (through the chat template) or of plain text to continue.

    A model's own template writes begin-of-text itself; plain text and the plain template leave it to the tokenizer.
    Raises :class:`engine.text.template.PromptError`.
    """
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, special=True)
    return tokenizer.encode(template.render(prompt), special=not template.own)
