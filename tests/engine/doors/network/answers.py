"""Answers of given tokens, as the engine streams them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import ChatMessage, Delta, TokenInfo
from engine.services.answers.turns import AnswerCollector
from engine.text.channels import channel_style
from engine.text.prompt import PromptText
from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer


def answered(
    tokenizer: Tokenizer,
    prompt: PromptText,
    ids: list[int],
    stop: tuple[str, ...] = (),
    source: str = "",
    prompt_ids: list[int] | None = None,
    messages: Sequence[ChatMessage] | str = "",
) -> AnswerCollector:
    """An answer of exactly these tokens, as the engine streams it."""
    prompt_ids = prompt_ids or tokenizer.encode(prompt.text, special=prompt.special)
    style = channel_style(tokenizer, source)
    channels = style.parser(prompt_ids) if style is not None else None
    stream = TextStream(tokenizer, stop, prompt_ids if prompt.continues else None, channels)
    answer = AnswerCollector(prompt, prompt_ids, messages)
    for token in ids:
        piece = stream.push(token)
        text = piece.text if piece.channel == "content" else piece.thinking
        answer.take(Delta(id="r1", answer=0, text=text, tokens=[TokenInfo(id=token)], channel=piece.channel))
        if stream.stopped:
            break
    else:
        answer.take(Delta(id="r1", answer=0, text=stream.flush().text, tokens=[]))
    return answer


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokens of single characters: what no tokenizer would make of ``text``."""
    ids = [token for character in text for token in tokenizer.encode(character, special=False)]
    assert ids != tokenizer.encode(text, special=False)
    return ids
