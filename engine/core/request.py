"""One answer on its way: its tokens, how far the arenas hold them, and what it cost so far."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from engine.cache.policies import Quest, WindowWithSinks
from engine.cache.pool import PAGE_SIZE
from engine.cache.radix_node import Drafts
from engine.core.batch import MAX_TREE_ROWS
from engine.core.options import Acceptance, RequestOptions
from engine.protocol import Timings, Usage
from engine.sampling.params import SamplingParams

if TYPE_CHECKING:
    from engine.cache.radix_node import Held, Key, Node
    from engine.sampling.processors import History
    from engine.speculation.pilot import Guessing
    from engine.text.stream import TextStream


class Request:
    """A sequence of known tokens (prompt, then output) of which the cache holds the first ``num_computed``.

    There are no phases: rows = known - num_computed, and a token is drawn when all known tokens are computed.
    ``drafts`` says the same of the arenas of those who guess. ``pages`` cover what is computed; the first ``shared``
    of them belong to the prefix tree too. ``arrival`` numbers requests in order of arrival. ``cached_tokens`` were
    found in the cache when it was first admitted. Times are seconds of the engine's clock. Only the engine thread
    touches a request.
    """

    __slots__ = (
        "accepted",
        "admitted_at",
        "answer",
        "arrival",
        "arrived_at",
        "cached_tokens",
        "chat",
        "context",
        "drafts",
        "first_token_at",
        "fork_of",
        "found",
        "guessing",
        "held",
        "history",
        "id",
        "last_step",
        "namespace",
        "node",
        "num_computed",
        "options",
        "overtaken",
        "owner",
        "page_keys",
        "pages",
        "params",
        "preemptions",
        "prompt_length",
        "proposed",
        "recent",
        "shared",
        "steps",
        "stream",
        "thinking_tokens",
        "tokens",
    )

    def __init__(
        self,
        id: str,
        answer: int,
        arrival: int,
        prompt_ids: list[int],
        params: SamplingParams,
        options: RequestOptions,
        context: int,
        stream: TextStream,
        now: float,
    ) -> None:
        self.id, self.answer, self.arrival = id, answer, arrival
        self.owner = (id, answer)
        self.tokens = list(prompt_ids)
        self.prompt_length = len(prompt_ids)
        self.params, self.options = params, options
        self.context = context
        self.stream = stream
        self.history: History | None = None
        self.guessing: Guessing | None = None
        self.num_computed = 0
        self.drafts = Drafts()
        self.pages: list[int] = []
        self.namespace: Hashable = None
        self.chat = ""
        self.fork_of: Request | None = None
        self.node: Node | None = None
        self.shared = 0
        self.recent: list[int] = []
        self.held: Held | None = None
        self.found = (-1, 0)
        self.page_keys: list[Key] = []
        self.cached_tokens: int | None = None
        self.overtaken = 0
        self.last_step = -1
        self.arrived_at = now
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.steps = self.proposed = self.accepted = self.preemptions = self.thinking_tokens = 0

    @property
    def known(self) -> int:
        """Tokens of prompt and output."""
        return len(self.tokens)

    @property
    def pending(self) -> int:
        """Rows still to compute before the next token can be drawn."""
        return len(self.tokens) - self.num_computed

    @property
    def generated(self) -> int:
        """Output tokens, an end-of-text token included."""
        return len(self.tokens) - self.prompt_length

    @property
    def cached(self) -> bool:
        """Whether keys and values outlive a step."""
        return self.options.kv_cache

    @property
    def shareable(self) -> int:
        """Tokens whose keys and values are what anybody else would compute: not those of rows that choose pages."""
        return self.prompt_length if isinstance(self.options.policy, Quest) else len(self.tokens)

    @property
    def dead_pages(self) -> tuple[int, int]:
        """Pages [first, stop) of the sequence that no row of it will read again."""
        return self.options.policy.dead_pages(self.num_computed)

    @property
    def longest_chunk(self) -> int:
        """The most rows of it that one step may read: under a window, pages come back only between steps."""
        policy = self.options.policy
        return max(PAGE_SIZE, policy.window // 4) if isinstance(policy, WindowWithSinks) else 1 << 40

    def kept_pages(self, length: int) -> int:
        """The most pages that it holds between steps when it has so many tokens."""
        return self.options.policy.kept_pages(length)

    @property
    def reach(self) -> int:
        """The longest that the sequence may become, in tokens."""
        most = self.params.max_tokens
        return self.context if most is None else min(self.context, self.prompt_length + most)

    @property
    def most_depth(self) -> int:
        """How many guesses may follow each other: after the last of them the model still draws a token of its own."""
        return max(0, self.reach - self.known - 1)

    @property
    def most_guesses(self) -> int:
        """See :class:`engine.scheduling.policy.Schedulable`: alternatives need room in the context, but no length."""
        return min(MAX_TREE_ROWS, self.context - self.known) - 1 if self.most_depth else 0

    @property
    def acceptance(self) -> Acceptance:
        """How its guesses are judged. At temperature 0 one token is certain, and all tests come to the keyed one."""
        return "keyed" if self.params.greedy else self.options.acceptance

    @property
    def branches(self) -> bool:
        """Whether its guesses may be alternatives to each other: rows that choose pages are a chain."""
        return not isinstance(self.options.policy, Quest)

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_length,
            cached_tokens=self.cached_tokens or 0,
            generated_tokens=self.generated,
            seed=self.params.seed,
            thinking_tokens=self.thinking_tokens,
        )

    def timings(self, now: float) -> Timings:
        """As of ``now``. A span that never happened is 0."""
        first = self.first_token_at
        after_first = self.generated - 1
        writing = now - first if first is not None else 0.0
        return Timings(
            queued_ms=1e3 * ((self.admitted_at if self.admitted_at is not None else now) - self.arrived_at),
            ttft_ms=1e3 * (first - self.arrived_at) if first is not None else 0.0,
            total_ms=1e3 * (now - self.arrived_at),
            tokens_per_second=after_first / writing if after_first > 0 and writing > 0 else 0.0,
            tokens_per_step=self.generated / self.steps if self.steps else 0.0,
            steps=self.steps,
            proposed=self.proposed,
            accepted=self.accepted,
            preemptions=self.preemptions,
        )
