"""PagedAttention: many chats of mixed length in a small cache, handed out page by page or a context at a time."""

from __future__ import annotations

import queue
import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.loading.model import LoadedModel
from engine.loop.cache_view import PagesSnapshot, PageView, TreeSnapshot
from engine.loop.commands import Inspect
from engine.protocol import LoadOptions, Metric, OptionSpec, Sampling, keys
from engine.protocol.lab import LabPage, LabPicture, LabProgress, Pages
from engine.services.client import Answer
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline
from engine.services.experiments.sides import PLAIN, Reloaded, with_cache
from engine.services.experiments.workloads.conversations import asked, reading_speed, too_short, unread
from engine.services.experiments.workloads.traces import log_normal

CHATS = 64
CONTEXTS = 4
"""Whole contexts that the cache holds, and a page for each of them, which admission leaves free."""
WIDTHS = (2048, 1024, 512)
"""The context in tokens: the longest that the model reads the chats of in the time there is."""
SHARE = 10
"""The context over the median length of a chat, which has a log-normal law as real ones have (Kwon et al. 2023)."""
LEAST_CONTEXT = 256
ENDS = [".", "!", "?", "\n"]
"""An answer is one sentence."""
SHOWN = 16
"""Chats whose texts are compared."""
_SENTENCE = Sampling(temperature=0.0, seed=1, stop=ENDS)
LOOK = 0.1
"""Seconds between two looks at the pages."""
AT_ONCE = Measured("chats", Metric(title="chats at once", counted=True))
MOST = Measured("most", Metric(title="chats at once, at most", counted=True))
IN_USE = Measured("used", Metric(title="slots of the pages taken that hold a token", unit="%", counted=True))


class Paging:
    """All chats arrive at once. While any of them waits, the cache holds as many as its pages allow."""

    page = LabPage(
        name="paging",
        number=3,
        title="Paged memory",
        group="Memory",
        keys=[keys.PAGE_RESERVATION],
        problem="Nobody knows how long a chat will get, so servers kept memory for the longest possible one, most of "
        "which stayed empty. PagedAttention hands memory out in pages of sixteen tokens, as the text reaches them.",
        question="How many times as many chats fit into the same memory at once?",
        choices=["no more", "2 times", "5 times", "20 times"],
        bounds=[1.4, 3.2, 10.0],
        lesson="Memory that is taken page by page holds text instead of waiting for it: far more chats fit at once.",
        fails="One chat alone is not faster, and chats that fill their whole context take as much memory either way.",
        sides=["whole context", "page by page"],
        seconds=30,
        use={keys.PAGE_RESERVATION: "on_demand"},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        if (refusal := too_short(model, LEAST_CONTEXT, "chats of mixed length need")) is not None:
            return refusal
        if model.model is not None and model.model.config.recurrent is not None:
            why = "Recurrent layers carry a state for each chat, which takes the same memory however long the chat is."
            return Refusal(why, "Take a model whose layers all use attention, such as the bundled one.")
        return unread(model)

    def run(self, lab: Lab) -> Run:
        context = _context(lab)
        yield LabProgress(name=self.page.name, done=0, total=2, sentence="loading the model with a small cache")
        with Reloaded(lab.client, _small(lab.model, context)):
            draw = lab.random
            prompts = [asked(lab.model, log_normal(context / SHARE, draw), draw)[-context // 2 :] for _ in range(CHATS)]
            total = lab.model.pages - 1
            sides = [_PagingSide(lab, prompts, mode) for mode in ("whole_context", "on_demand")]
            pairs = Pairs(lab, self.page.name, (AT_ONCE, IN_USE, MOST))
            for place, side in enumerate(sides):
                yield LabProgress(name=self.page.name, done=place, total=2, run=1 + place, side=place)
                for picture in side.run():
                    yield LabPicture(name=self.page.name, side=place, picture=picture)
                yield LabPicture(name=self.page.name, side=place, picture=side.picture)
            pairs.runs = [[side.figures()] for side in sides]
            yield LabProgress(name=self.page.name, done=2, total=2)
            answers = [side.answers[:SHOWN] for side in sides]
            text = yield from exact_text(self.page.name, lab, [side.write for side in sides], answers, prompts)
        figures = pairs.figures()
        chats, used, most = (figure.effects[0] for figure in figures)
        mean = statistics.mean(len(a.ids) + a.usage.prompt_tokens for a in sides[1].answers)
        return Found(
            headline=headline(chats, "as many chats at once", "fewer chats at once"),
            figures=figures,
            text=text,
            taken=f"{CHATS} chats that arrive at once, in {total:,} pages of {PAGE_SIZE} tokens; the context is "
            f"{context:,} tokens. Counted by the engine in every step: chats at once are the mean over the steps while "
            "another one waits. Nothing is timed.",
            same=["chats of mixed length in a cache of fixed size", "memory for the longest text against pages of 16"],
            other=[
                f"the paper's requests came from real logs, at random moments; these {CHATS} are there at once",
                f"the cache is small on purpose, so that {CONTEXTS} whole contexts fill it",
            ],
            why=[
                f"A chat here has {mean:.0f} tokens in the end, so that a context of {context:,} is "
                f"{context / mean:.1f} times too much for it.",
                f"Of the slots that are taken {used.before:.0f} % held a token with whole contexts, {used.after:.0f} % "
                f"page by page: at most {PAGE_SIZE - 1} slots of a chat's last page are empty. The most chats at once "
                f"were {most.before:.0f} and {most.after:.0f}.",
            ],
            settings={"chats": CHATS, "context": context, "pages": total},
            pictures=[side.picture for side in sides],
        )


class _PagingSide:
    """One side. ``picture`` are the pages at the fullest moment that was seen."""

    def __init__(self, lab: Lab, prompts: list[list[int]], mode: str) -> None:
        self._lab, self._prompts, self._mode = lab, prompts, mode
        self.answers: list[Answer] = []
        self.picture = Pages(owners=[], filled=[])

    def write(self) -> list[Answer]:
        """The answers whose texts are compared, once more."""
        with self._lab.switched({keys.PAGE_RESERVATION: self._mode}):
            return self._lab.client.together(self._prompts[:SHOWN], _SENTENCE, PLAIN)

    def run(self) -> Iterator[Pages]:
        """Answer all chats, with a look at the pages now and then. Raises EngineError."""
        fullest = -1
        with self._lab.switched({keys.PAGE_RESERVATION: self._mode}), ThreadPoolExecutor(1) as thread:
            answering = thread.submit(self._lab.client.together, self._prompts, _SENTENCE, PLAIN)
            while not answering.done():
                seen: queue.SimpleQueue[PagesSnapshot | TreeSnapshot | PageView | None] = queue.SimpleQueue()
                self._lab.client.engine.submit(Inspect("pages", seen.put))
                try:
                    pages = seen.get(timeout=LOOK)
                except queue.Empty:
                    continue  # a long step
                if isinstance(pages, PagesSnapshot) and (picture := _picture(pages)).owners:
                    taken = sum(owner >= 0 for owner in picture.owners)
                    if taken > fullest:
                        fullest, self.picture = taken, picture
                    yield picture
                wait([answering], LOOK)
            self.answers = answering.result()

    def figures(self) -> dict[str, float]:
        steps = [step for step in self.answers[0].steps if step.queue.waiting] or self.answers[0].steps
        taken = sum(step.pages.used - step.pages.cached for step in steps) * PAGE_SIZE
        return {
            AT_ONCE.key: statistics.mean(step.queue.running for step in steps),
            MOST.key: float(max(step.queue.running for step in steps)),
            IN_USE.key: 100 * sum(step.pages.live_tokens for step in steps) / taken if taken else 0.0,
        }


def _picture(seen: PagesSnapshot) -> Pages:
    """Pages of chats alone: what is kept of other texts makes way for them."""
    held = {number for number, owner in enumerate(seen.legend, 1) if owner.id}
    owners = [int(owner) - 1 if owner in held else -1 for owner in seen.owners]
    names = [f"chat {1 + int(owner.id.rpartition(' ')[2])}" if owner.id else owner.chat for owner in seen.legend]
    filled = [float(tokens) / PAGE_SIZE for tokens in seen.filled]
    return Pages(owners=owners, filled=filled, names=names)


def _context(lab: Lab) -> int:
    """The context that is loaded with."""
    rate = reading_speed(lab)
    fitting = [width for width in WIDTHS if width <= lab.model.card.context] or [lab.model.card.context]
    read = 2 * CHATS / SHARE  # tokens of all prompts for each token of the context
    return next((width for width in fitting if read * width / rate <= lab.budget), fitting[-1])


def _small(model: LoadedModel, context: int) -> LoadOptions:
    """Load options with which the model's cache holds :data:`CONTEXTS` contexts."""
    page = model.fit.kv / (model.fit.kv_tokens / PAGE_SIZE + 1)
    pages = 1 + CONTEXTS * (pages_for(context) + 1)
    return with_cache(model, page * (pages + 0.5), context)
