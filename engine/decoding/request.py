"""A request in progress: its tokens, its cache, and its cost so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.cache.sequences import SequenceCache
from engine.compute.batch import MAX_TREE_ROWS, Axes
from engine.compute.sampling.params import SamplingParams
from engine.config.pooling import Pooling
from engine.decoding.options import Acceptance, RequestOptions
from engine.decoding.scheduling.policy import QueueStanding
from engine.protocol import Timings, TokenInfo, Usage

if TYPE_CHECKING:
    from torch import Tensor

    from engine.compute.sampling.processors import History
    from engine.compute.vision.placeholders import PlaceholderSpans
    from engine.decoding.hand_over import BegunAnswer
    from engine.text.grammar import GrammarConstraint
    from engine.text.stream import TextStream


@dataclass(slots=True)
class Progress:
    """Times at which an answer arrived and began, in seconds of the engine's clock, and its cost; written by the step
    loop.

    ``cached_tokens`` were found in the prefix cache when the request was first admitted. ``worst_gap`` is the longest
    time between two tokens so far.
    """

    arrived_at: float
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    worst_gap: float = 0.0
    cached_tokens: int = 0
    steps: int = 0
    proposed: int = 0
    accepted: int = 0
    thinking_tokens: int = 0

    def token_came(self, now: float) -> None:
        if self.last_token_at is None:
            self.first_token_at = now
        else:
            self.worst_gap = max(self.worst_gap, now - self.last_token_at)
        self.last_token_at = now


class HeldToken(NamedTuple):
    """A token that was drawn and is not told yet, since some of its ``chars`` characters may begin a stop string."""

    info: TokenInfo
    chars: int


@dataclass(slots=True)
class PromptTask:
    """Results that are computed of a prompt's own tokens: log-probabilities, or an embedding in place of an answer.

    ``logprobs`` is how many alternatives to each token are told (None: nothing is), and ``scored`` counts those that
    were. With ``pooling``, ``pooled`` [hidden_size] float32 sums the states of ``scored`` tokens. ``second``: where
    the second of two texts begins, or 0.
    """

    logprobs: int | None = None
    pooling: Pooling | None = None
    second: int = 0
    scored: int = 0
    pooled: Tensor | None = None

    def pool(self, states: Tensor, computed: int) -> None:
        """Add the sum of the states of those of the ``computed`` tokens that were not computed before."""
        self.pooled = states if self.pooled is None else self.pooled + states
        self.scored = computed


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """A sequence of known tokens (prompt, then output) of which the cache holds the first ``num_computed``.

    There are no phases: rows = known - num_computed, and a token is drawn when all known tokens are computed.
    ``arrival`` numbers requests in order of arrival. ``standing`` is the scheduler's, ``drafting`` is speculation's; no
    other code writes them. Only the engine thread touches a request.
    ``cache`` has the name of the request and its prompt, and ``pictures`` are where placeholders stand in it.
    ``held`` are its newest tokens that are not told yet; those told have ``content_chars`` characters of content.
    ``adapter`` is the number of the one that answers (`engine.compute.models.adapters`), 0 for the model alone.
    ``constraint`` says which tokens may come next, None: any.
    ``hand_over`` takes it for another engine once it has all of its tokens.
    """

    arrival: int
    cache: SequenceCache
    params: SamplingParams
    options: RequestOptions
    context: int
    stream: TextStream
    now: InitVar[float]
    history: History | None = None
    pictures: PlaceholderSpans | None = None
    drafting: Any = None
    adapter: int = 0
    standing: QueueStanding = field(default_factory=QueueStanding)
    task: PromptTask = field(default_factory=PromptTask)
    held: list[HeldToken] = field(default_factory=list)
    content_chars: int = 0
    constraint: GrammarConstraint | None = None
    hand_over: Callable[[BegunAnswer], None] | None = None
    id: str = field(init=False)
    answer: int = field(init=False)
    progress: Progress = field(init=False)

    def __post_init__(self, now: float) -> None:
        self.id, self.answer = self.cache.owner
        self.progress = Progress(now)
        self.standing.arrived_at = now

    @property
    def owner(self) -> tuple[str, int]:
        """Its name: of the request, and the number of the answer."""
        return self.cache.owner

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return self.cache.tokens

    @property
    def prompt_length(self) -> int:
        return self.cache.prompt_length

    @property
    def num_computed(self) -> int:
        """Tokens whose keys and values the cache holds."""
        return self.cache.num_computed

    @property
    def pages(self) -> list[int]:
        """Page table of its :class:`engine.cache.sequences.SequenceCache`."""
        return self.cache.pages

    @property
    def axes(self) -> Axes | None:
        """Positions of its tokens for the rotary embedding; None: their indices."""
        return self.pictures if self.pictures is not None and self.pictures.grids else None

    @property
    def known(self) -> int:
        """Tokens of prompt and output."""
        return len(self.cache.tokens)

    @property
    def pending(self) -> int:
        """Rows still to compute before the next token can be drawn."""
        return self.cache.pending

    @property
    def chat(self) -> str:
        """The chat that it belongs to, "" if none."""
        return self.cache.chat

    @property
    def generated(self) -> int:
        """Output tokens, an end-of-text token included."""
        return len(self.cache.tokens) - self.cache.prompt_length

    @property
    def cached(self) -> bool:
        """True if keys and values outlive a step."""
        return self.options.kv_cache

    @property
    def reach(self) -> int:
        """The maximum length of the sequence in tokens."""
        most = self.params.max_tokens
        return self.context if most is None else min(self.context, self.prompt_length + most)

    @property
    def most_depth(self) -> int:
        """The maximum depth of a draft: after its last token the model still draws a token of its own."""
        return max(0, self.reach - self.known - 1)

    @property
    def max_draft_tokens(self) -> int:
        """Implements `Schedulable.max_draft_tokens`: branches need room in the context but do not add depth."""
        return min(MAX_TREE_ROWS, self.context - self.known) - 1 if self.most_depth else 0

    @property
    def acceptance(self) -> Acceptance:
        """Test that verifies draft tokens. At temperature 0 only one token is possible, and the keyed test serves."""
        return "keyed" if self.params.greedy else self.options.acceptance

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_length,
            cached_tokens=self.progress.cached_tokens,
            generated_tokens=self.generated,
            seed=self.params.seed,
            thinking_tokens=self.progress.thinking_tokens,
        )

    def timings(self, now: float) -> Timings:
        """Timings as of ``now``. A span that never happened is 0."""
        progress, first = self.progress, self.progress.first_token_at
        after_first = self.generated - 1
        writing = now - first if first is not None else 0.0
        queued = (progress.admitted_at if progress.admitted_at is not None else now) - progress.arrived_at
        return Timings(
            queued_ms=1e3 * queued,
            ttft_ms=1e3 * (first - progress.arrived_at) if first is not None else 0.0,
            total_ms=1e3 * (now - progress.arrived_at),
            tokens_per_second=after_first / writing if after_first > 0 and writing > 0 else 0.0,
            tokens_per_step=self.generated / progress.steps if progress.steps else 0.0,
            steps=progress.steps,
            proposed=progress.proposed,
            accepted=progress.accepted,
            preemptions=self.standing.preemptions,
        )
