"""Sliding window with sinks (StreamingLLM): a text of three windows, its first tokens forgotten, kept, or all kept."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import torch
from torch import Tensor

from engine.cache.policies import KEEP_ALL, LEAST_WINDOW, PagePolicy, WindowWithSinks
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.decoding.telemetry.pairs import estimate
from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec, keys
from engine.protocol.compared import wide
from engine.protocol.lab import Axis, LabPage, LabPicture, LabProgress, Plot, Series, Strip
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import conversation, losses, too_short, unread

WINDOW, SINKS, WINDOWS = 256, 4, 3
"""Tokens of the window where the context allows, first tokens that stay, and the length of a text in windows."""
TEXTS = 10
BINS = 12
"""Points of a curve."""
UNSHOWN = (
    "The memory of a window stays flat however long the text is. Many models need their first tokens kept for that; "
    "with this one it made no difference."
)
LOSS = Measured("perplexity", Metric(title="perplexity past the window", lower_is_better=True))
PAGES = Measured("pages", Metric(title="KV pages at most", lower_is_better=True, counted=True))


class Window:
    """Every text is read on all sides, so that it makes a pair of figures; nothing is timed."""

    page = LabPage(
        name="window",
        number=6,
        title="Sliding window + sinks",
        group="Memory",
        keys=[keys.PAGE_POLICY, keys.WINDOW_TOKENS],
        problem="A chat that never ends needs a cache that never ends, unless only its last tokens are kept: a sliding "
        "window. Many models look at their very first tokens all the time (attention sinks) and fail without them, so "
        "those few stay as well.",
        question="Beyond the window, how much worse does the model get (perplexity) if the first "
        f"{SINKS} tokens are dropped?",
        choices=["about the same", "2 times", "10 times", "100 times"],
        bounds=[1.4, 5.0, 32.0],
        lesson="The memory of a window stays flat however long the text is, and models that lean on their first tokens "
        "need those few kept.",
        fails="What lies before the window is forgotten: a fact from the beginning cannot be found again. A model that "
        "does not lean on its first tokens gains nothing from keeping them.",
        sides=["window alone", f"window + {SINKS} sinks", "full cache"],
        seconds=15,
        use={keys.PAGE_POLICY: WindowWithSinks.name},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        instead = "Take the bundled model."
        if (refusal := too_short(model, WINDOWS * LEAST_WINDOW, f"{WINDOWS} windows take")) is not None:
            return refusal
        refused = state[keys.PAGE_POLICY].disabled_reason or WindowWithSinks(LEAST_WINDOW).name in (
            state[keys.PAGE_POLICY].disabled_choices
        )
        if refused:
            reason = WindowWithSinks(LEAST_WINDOW).refuses(model.model.config) if model.model is not None else ""
            return Refusal(reason or "A sliding window does not go together with what is set now.", instead)
        return unread(model)

    def run(self, lab: Lab) -> Run:
        window = min(WINDOW, lab.model.card.context // WINDOWS // PAGE_SIZE * PAGE_SIZE)
        length = WINDOWS * window
        policies = (WindowWithSinks(window, 0), WindowWithSinks(window, SINKS), KEEP_ALL)
        draw, ended = lab.random, time.monotonic() + lab.budget
        texts = lab.pairs or TEXTS
        sums = [torch.zeros(length - 1, dtype=torch.float64) for _ in policies]
        pairs = Pairs(lab, self.page.name, (PAGES, LOSS))
        pairs.runs = [[] for _ in policies]
        served: tuple[float, float, float] | None = None
        for number in range(texts):
            ids = conversation(lab.model, length, draw)
            served = served or _served(lab, ids, window)
            for side, policy in enumerate(policies):
                at = number * len(policies) + side
                yield LabProgress(name=self.page.name, done=at, total=texts * len(policies), run=1 + at, side=side)
                found: list[Tensor] = []
                assert lab.model.readers is not None
                read = lab.model.readers(policy).present(length)
                for chunk in losses(read, ids, lab.model.card.vocabulary):
                    found.append(chunk)
                    at = sum(map(len, found))
                    yield LabPicture(name=self.page.name, side=side, picture=_seen(policy, at, length))
                nll = torch.cat(found)
                sums[side] += nll
                past = math.exp(float(nll[window:].mean()))
                pairs.runs[side].append({LOSS.key: past, PAGES.key: served[side]})
            if time.monotonic() > ended:
                break
        yield LabProgress(name=self.page.name, done=1, total=1)
        assert served is not None
        count = len(pairs.runs[0])
        figures = pairs.figures()
        sinks, full = figures[1].effects
        lower = (f"lower perplexity with {SINKS} sinks", f"higher perplexity with {SINKS} sinks")
        return Found(
            headline=headline(
                estimate([served[2]], [served[1]], PAGES.metric),
                "fewer KV pages than the full cache",
                "more KV pages than the full cache",
            ),
            second=timed(sinks, *lower, lab.pairs),
            asked=1,
            told_of=0,
            figures=figures,
            text=None,
            taken=f"{count} conversations of {length:,} tokens, made of questions that training did not see and of the "
            f"bundled model's answers, in random order; the window is {window} tokens. Perplexity is of the "
            f"tokens from the {window + 2}th on, compared text by text. Pages are what the engine held at most while "
            "it answered the first text; without sinks the engine serves none, and the page of the sinks is left out.",
            lesson=UNSHOWN if sinks.verdict == "none" and not wide(sinks) else "",
            same=[f"{SINKS} sinks, positions counted within what is kept, as in the paper"],
            other=[
                f"the texts have {length:,} tokens, the paper's up to 4 million",
                f"{lab.model.card.name} has {lab.model.card.parameters / 1e6:,.0f} million parameters",
            ],
            why=[
                f"Past the window perplexity is {sinks.before:.1f} with the window alone, {sinks.after:.1f} with its "
                f"{SINKS} sinks and {full.after:.1f} with the full cache: {_leans(sinks)}",
                f"The full cache grows by a page for every {PAGE_SIZE} tokens; the window with sinks holds "
                f"{served[1]:.0f} pages, for a longer text no more.",
            ],
            settings={"window": window, "sinks": SINKS, "length": length, "texts": count},
            pictures=[_seen(policy, length - 1, length) for policy in policies],
            plots=[
                _curves(self.page.sides, sums, count, window),
                Plot(
                    title="Memory",
                    x=Axis(title="tokens of the text so far"),
                    y=Axis(title="KV pages"),
                    series=[
                        Series(
                            name=name,
                            points=[(float(at), float(policy.kept_pages(at))) for at in range(16, length + 1, 16)],
                        )
                        for name, policy in zip(self.page.sides, policies, strict=True)
                    ],
                    note="the most that a text of that length holds",
                ),
            ],
        )


def _leans(sinks: Effect) -> str:
    match sinks.verdict:
        case "better":
            return "this model leans on its first tokens."
        case "worse":
            return "this model does better here without its first tokens."
        case "few":
            return "too few texts to tell whether this model leans on its first tokens."
    if wide(sinks):
        return "the texts differ too widely to tell whether this model leans on its first tokens."
    return "this model does not lean on its first tokens."


def _served(lab: Lab, ids: list[int], window: int) -> tuple[float, float, float]:
    """KV pages that the engine held at most for an answer to the text, of each side; it serves no window alone."""
    held = []
    for policy in (WindowWithSinks.name, KEEP_ALL.name):
        with lab.switched({keys.WINDOW_TOKENS: window, keys.PAGE_POLICY: policy}):
            steps = lab.client.answer(ids[: len(ids) - PAGE_SIZE], greedy(PAGE_SIZE), PLAIN).steps
        held.append(max(step.pages.used - step.pages.cached for step in steps))
    return held[0] - pages_for(SINKS), held[0], held[1]


def _seen(policy: PagePolicy, at: int, length: int) -> Strip:
    """The pages of the text, and the share of each that row ``at`` reads."""
    sights = policy.sights(torch.tensor([at]).numpy())
    first, sinks = int(sights.first[0]), int(sights.sinks[0])
    read = []
    for page in range(pages_for(length)):
        start, stop = page * PAGE_SIZE, min((page + 1) * PAGE_SIZE, length)
        seen = max(0, min(stop, at + 1) - max(start, first)) or max(0, min(stop, sinks) - start)
        read.append(seen / (stop - start))
    return Strip(read=read)


def _curves(names: list[str], sums: list[Tensor], count: int, window: int) -> Plot:
    width = -(-len(sums[0]) // BINS)
    series = [
        Series(
            name=name,
            points=[
                (float(1 + number * width + len(part) / 2), math.exp(float(part.mean()) / count))
                for number, part in enumerate(total.split(width))
            ],
        )
        for name, total in zip(names, sums, strict=True)
    ]
    note = f"{count} texts; from {window} tokens on the window hides the beginning"
    return Plot(
        title="Perplexity over the text",
        x=Axis(title="place in the text", unit="tokens"),
        y=Axis(title="perplexity", log=True),
        series=series,
        note=note,
    )
