"""Request of a client, whichever door it came through, and the command that the engine is given for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.config.pooling import Pooling
from engine.loop.commands import AddRequest
from engine.protocol import ChatMessage, Overflow, Sampling, StructuredOutput, Thinking, ToolConfig, Value
from engine.text.grammar import Grammar
from engine.text.prompt import PromptForm

if TYPE_CHECKING:
    from engine.compute.vision.placeholders import PlaceholderSpans


class PromptTokens(NamedTuple):
    """A prompt as the engine reads it, where pictures are in it (None: it has none), and what its answer has to be.
    ``second`` and ``written`` are those of :class:`AddRequest`."""

    ids: list[int]
    pictures: PlaceholderSpans | None = None
    grammar: Grammar | None = None
    second: int = 0
    written: int = 0


class AnswerRequest(NamedTuple):
    """A prompt that a client wants answered: a conversation, or plain text to continue.

    Of a prompt that came as ids it is empty: "" where they are plain text, else [].

    ``form`` is how a conversation is written, ``overflow`` what becomes of one that outgrows the context. The other
    fields are those of :class:`AddRequest`.
    """

    prompt: Sequence[ChatMessage] | str
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking()
    overflow: Overflow = "stop"
    form: PromptForm = PromptForm()
    n: int = 1
    optimisations: Mapping[str, Value] = {}
    chat: str = ""
    adapter: str = ""
    prompt_logprobs: int | None = None
    structured: StructuredOutput | None = None
    pooling: Pooling | None = None
    service: str = ""

    @property
    def tools(self) -> ToolConfig | None:
        """Tools that the answer may call."""
        return self.form.tools

    def command(self, tokens: PromptTokens, window: int | None = None, id: str = "") -> AddRequest:
        """The engine's command for this prompt, made of ``tokens``, under a ``window`` that slides over it."""
        return AddRequest(
            id=id,
            prompt_ids=tokens.ids,
            sampling=self.sampling,
            n=self.n,
            optimisations=self.optimisations,
            continues=isinstance(self.prompt, str),
            window=window,
            chat=self.chat,
            adapter=self.adapter,
            pictures=tokens.pictures,
            prefilled=self.form.prefills,
            written=tokens.written,
            prompt_logprobs=self.prompt_logprobs,
            grammar=tokens.grammar,
            thinks=self.thinking.on is not False,
            tools=self.tools,
            pooling=self.pooling,
            second=tokens.second,
            service=self.service,
        )
