"""Prefix caching (RadixAttention): many users ask about one text, which is read once or for each of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from engine.cache.pool import PAGE_SIZE
from engine.loading.model import LoadedModel
from engine.protocol import Metric, OptionSpec, keys
from engine.protocol.lab import LabPage, LabSetting, LabTreeNode, Tree
from engine.services.answers.continuing import common
from engine.services.client import Answer
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, SHARING, greedy
from engine.services.experiments.workloads.conversations import affordable, asking, rounds, too_short, wordless

USERS, QUESTION, ANSWER = 12, 32, 8
"""``QUESTION``: about so many tokens one has."""
LONGEST, LEAST_TEXT = 3000, 128
EXACT_TEXT = 512
"""Tokens of the shared text where the answers are written once more in slower arithmetic."""
QUEUED = (
    "All users but the first ask at once and wait for each other, so that the first word comes sooner by more than the "
    "computed tokens are fewer."
)
LEAST_CONTEXT = 512
FIRST = Measured("first_ms", Metric(title="first token, median", unit="ms", lower_is_better=True))
COMPUTED = Measured("computed", Metric(title="prompt tokens computed", lower_is_better=True, counted=True))
PAGES = Measured("pages", Metric(title="KV pages at most", lower_is_better=True))
"""Not "counted", which has no noise: moments of arrival decide who holds pages at the same time."""


class Prefixes:
    """Users after the first arrive together. Every run has a text of its own, so that no run finds another's."""

    page = LabPage(
        name="prefixes",
        number=7,
        title="Prefix caching",
        group="Sharing",
        keys=[keys.PREFIX_CACHE],
        problem="Twelve people ask about the same long text, and each question would read all of it again before the "
        "first word. A prefix tree keeps the keys and values of what was read, and every prompt that begins alike "
        "continues from there.",
        question=f"{USERS} users ask about one long text. How much sooner does the first word come?",
        choices=["not at all", "2 times", "5 times", "20 times"],
        bounds=[1.4, 3.2, 10.0],
        lesson="Text that was read once need not be read again: prompts that begin alike share their pages.",
        fails="The first prompt of all gains nothing, and neither do texts that differ from their first token on.",
        sides=["each prompt read whole", "prefix tree"],
        seconds=30,
        use={keys.PREFIX_CACHE: True},
        adjustable=[
            LabSetting(
                key="text", title="Tokens of the shared text, at most", least=200, most=8000, step=200, usual=LONGEST
            ),
            LabSetting(key="users", title="Users", least=3, most=32, step=1, usual=USERS),
        ],
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return too_short(model, LEAST_CONTEXT, "a text worth sharing needs") or wordless(model)

    def run(self, lab: Lab) -> Run:
        users = lab.chosen.get("users", USERS)
        longest = min(lab.chosen.get("text", LONGEST), lab.model.card.context * 5 // 8, _fitting(lab, users))
        length = affordable(lab, longest, LEAST_TEXT, reads=(users + 1) * rounds(lab))
        sides = [_Users(lab, length, users, shared=shared) for shared in (False, True)]
        pairs = Pairs(lab, self.page.name, (COMPUTED, FIRST, PAGES), FIRST)
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].picture())
        figures = pairs.figures()
        computed, first = (figure.effects[0] for figure in figures[:2])
        writes = [side.write_short for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, [side.answers for side in sides], sides[0].prompts)
        shared = common_of(sides[0].prompts)
        return Found(
            headline=headline(computed, "fewer prompt tokens computed", "more prompt tokens computed"),
            second=timed(first, "sooner to the first word", "later to the first word", lab.pairs),
            asked=1,
            others=pairs.others,
            figures=figures,
            text=text,
            taken=f"{users} questions after one conversation of {shared:,} tokens; the first alone, then the others at "
            "once. Each run has another conversation. Tokens and pages are counted by the engine, times are medians "
            "over the users.",
            same=["one shared text, one question a user", "greedy, lossless" if text.same else "greedy"],
            other=[
                f"the paper's server ran programs of many calls on a GPU; here {users} users ask once",
                f"the shared text has {shared:,} tokens",
            ],
            why=[
                f"Of the prompts' tokens {computed.before:,.0f} were computed without the tree, {computed.after:,.0f} "
                "with it; the time to the first word falls with them, as far as it is spent on reading the prompt.",
                *(
                    [QUEUED]
                    if first.verdict == "better" and (first.ratio or 0.0) > 1.2 * (computed.ratio or math.inf)
                    else []
                ),
                f"The first user, who finds nothing of the text, waited {sides[1].first_share:.1f} times as long as "
                "the median user of the same run.",
            ],
            settings={"users": users, "text": shared, "answer": ANSWER},
            pictures=[side.picture() for side in sides],
        )


class _Users:
    """One side: the users' prompts, and what its last run gave."""

    def __init__(self, lab: Lab, length: int, users: int, *, shared: bool) -> None:
        self._lab, self._length, self._users, self._shared = lab, length, users, shared
        self._turn = 0
        self.answers: list[Answer] = []
        self.prompts: list[list[int]] = []
        self.first_share = 0.0
        """How long the first user waited, in medians of all."""

    def run(self) -> Side:
        self.prompts = prompts = self._prompts(self._length)
        self._turn += 1
        self.answers = self._asked(prompts)
        first, *others = self.answers
        median = statistics.median(answer.timings.ttft_ms for answer in self.answers)
        self.first_share = first.timings.ttft_ms / max(1e-9, median)
        steps = [*first.steps, *others[0].steps]
        return {
            FIRST.key: median,
            COMPUTED.key: float(sum(a.usage.prompt_tokens - a.usage.cached_tokens for a in self.answers)),
            PAGES.key: float(max(step.pages.used - step.pages.cached for step in steps)),
        }

    def write_short(self) -> list[Answer]:
        """Answers about a text of :data:`EXACT_TEXT` tokens or less."""
        return self._asked(self._prompts(min(self._length, EXACT_TEXT)))

    def _asked(self, prompts: list[list[int]]) -> list[Answer]:
        sampling, switches = greedy(ANSWER), SHARING if self._shared else PLAIN
        first = self._lab.client.answer(prompts[0], sampling, switches)
        return [first, *self._lab.client.together(prompts[1:], sampling, switches)]

    def _prompts(self, length: int) -> list[list[int]]:
        """The same texts for both sides of a round, others for another round."""
        return asking(self._lab, length, self._users, self._turn)

    def picture(self) -> Tree:
        """Draw who reads what: one text of all, or one each."""
        users, lengths = list(range(self._users)), list(map(len, self.prompts))
        if not self._shared:
            return Tree(nodes=[LabTreeNode(parent=-1, tokens=lengths[user], readers=[user]) for user in users])
        cached = min(answer.usage.cached_tokens for answer in self.answers[1:])
        return Tree(
            nodes=[
                LabTreeNode(parent=-1, tokens=cached, readers=users),
                *(LabTreeNode(parent=0, tokens=lengths[user] - cached, readers=[user]) for user in users),
            ]
        )


def common_of(prompts: Sequence[Sequence[int]]) -> int:
    """Number of tokens that all begin with."""
    first, *others = prompts
    return min(common(first, other) for other in others)


def _fitting(lab: Lab, users: int) -> int:
    """The longest text of which a copy for each user fits into the pool, so that the side without the tree can run."""
    each = lab.model.pages * PAGE_SIZE // (users + 1)
    return max(PAGE_SIZE, each - QUESTION - ANSWER - PAGE_SIZE)
