"""Sparse attention (QUEST): how much of a long text a token reads, and whether what it needs is among it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from engine.cache.policies import KEEP_ALL
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.kinds import KVKind
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.cache.techniques.quest.store import DENSE_LAYERS
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.models.arenas import refuses
from engine.compute.runner.perplexity import chunks, reader
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner
from engine.protocol import Metric, OptionSpec, keys
from engine.protocol.lab import Axis, LabPage, LabPicture, LabProgress, LabSetting, Plot, Series, Strip
from engine.services.client import Answer
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.same_text import same_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.workloads import finding, needle
from engine.services.experiments.workloads.conversations import affordable

LONGEST, LEAST_TEXT = 8000, 2048
ANSWER = 16
BUDGETS = (1024, 512, 256, 64)
"""Tokens that a head reads; the first side reads all."""
SHOWN = 3
"""The needle of the pictures: the fourth of eight."""
READ = Measured("read", Metric(title="keys and values read a token", unit="MB", lower_is_better=True, counted=True))
FOUND = Measured("found", Metric(title="codes found again", unit="%", counted=True))
STEP = Measured("step_ms", Metric(title="time a token", unit="ms", lower_is_better=True))


def _sides(budgets: Sequence[int]) -> list[str]:
    return ["all of the text", *(f"{budget:,} tokens" for budget in budgets)]


class QuestExperiment:
    """Every side runs over the same kind of cache, with bounds of its pages; the first one's budget is all of them."""

    page = LabPage(
        name="quest",
        number=5,
        title="Reading only what matters (QUEST)",
        group="Memory",
        keys=[keys.PAGE_POLICY, keys.QUEST_TOKENS],
        problem="For each new token the model looks at the keys and values of all that came before, so the longer the "
        "text, the longer a token takes. QUEST keeps of every page of sixteen tokens the least and the greatest key, "
        "and reads only those pages that may matter to this token.",
        question=f"Eight codes lie hidden in a text of {LONGEST:,} tokens. If each head may read no more than "
        f"{BUDGETS[-1]}, how many times less is read for a token?",
        choices=["as much", "2 times less", "4 times less", "50 times less"],
        bounds=[1.4, 3.0, 10.0],
        lesson="A token needs few pages of a long text, and which ones can be told without reading them.",
        fails="A text shorter than the budget is read whole, and so are prompts; where many places matter a little, as "
        "for a summary, a small budget loses something.",
        sides=_sides(BUDGETS),
        seconds=40,
        use={keys.PAGE_POLICY: "quest", keys.QUEST_TOKENS: 1024},
        brings=finding.MODEL,
        adjustable=[
            LabSetting(key="budget", title="Tokens that a head reads", least=64, most=2048, step=64, usual=BUDGETS[-1])
        ],
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        refusal = finding.refuses(model, LEAST_TEXT)
        if refusal is not None or model.model is None:
            return refusal
        reason = refuses(model.model.config, KVKind(bounds=True))
        if model.reads.sparse.dense == 1:
            reason = reason or "No layer of this model chooses pages: its first ones and those with a window never do."
        return Refusal(reason, finding.INSTEAD) if reason else None

    def run(self, lab: Lab) -> Run:
        # The pictures read the text once, and the engine, whose tree keeps it for all sides.
        length = affordable(lab, finding.room(lab.model, LONGEST), LEAST_TEXT, reads=2)
        chosen = lab.chosen.get("budget", BUDGETS[-1])
        budgets = (*(each for each in BUDGETS[:-1] if each != chosen), chosen)
        yield LabProgress(name=self.page.name, done=0, total=0, sentence="choosing pages", sides=_sides(budgets))
        strips: list[Strip] = []
        for side, strip in choices(lab.model, finding.text_for(lab.model, length, f"{lab.seed} 0"), budgets):
            strips[side:] = [strip]
            yield LabPicture(name=self.page.name, side=side, picture=strip)
        sides = [_BudgetSide(lab, length, budget) for budget in (lab.model.card.context, *budgets)]
        pairs = Pairs(lab, self.page.name, (READ, STEP, FOUND))
        with lab.switched({keys.KV_KIND: "16bit", keys.PAGE_POLICY: "quest", keys.QUEST_TOKENS: length}):
            yield from pairs.run([side.run for side in sides], lambda side: strips[side])
        figures = pairs.figures()
        read, steps, found = ([statistics.mean(runs) for runs in figure.runs] for figure in figures)
        model = lab.model
        assert model.model is not None
        layers = len(model.model.config.attention_layers)
        dense = round(model.reads.sparse.dense * layers)
        unfit = finding.unfit(found[0])
        marked = [max(strip.read[page] for page in strip.marked) for strip in strips]
        return Found(
            headline=headline(figures[0].effects[-1], "less read for a token", "more read for a token")
            + f" {unfit or finding.shares(found[0], found[-1], ('all of the text', f'{budgets[-1]} tokens'))}",
            figures=figures,
            second=timed(figures[1].effects[-1], "sooner for a token", "later for a token", lab.pairs),
            others=pairs.others,
            text=same_text([side.answers for side in sides], lab, differ=", as they may: less of the text was read"),
            taken=f"In a text of {length:,} tokens {len(finding.DEPTHS)} codes are hidden, from its beginning to its "
            "end, and each is asked for. The first number of an answer comes from reading the question, which sees "
            "everything; all others from tokens that choose. Bytes are counted by the engine, bounds of the pages "
            "included; times are medians.",
            same=["a code to be found", f"pages of {PAGE_SIZE}, the first {DENSE_LAYERS} layers read everything"],
            other=[
                f"a model of {model.card.parameters / 1e6:,.1f} million weights and {layers} layers, where the "
                "paper's have billions",
                f"texts of {length:,} tokens",
            ],
            why=[
                f"For a token {read[0]:.2f} MB of keys and values were read, {read[-1]:.2f} MB with {budgets[-1]} "
                f"tokens a head. {dense} of the {layers} layers read everything in any case, which is "
                f"{read[0] * dense / layers:.2f} MB.",
                f"A token took {steps[0]:.2f} ms, and {steps[-1]:.2f} ms with {budgets[-1]}: besides keys and values "
                f"it reads {model.reads.weights / 1e6:.1f} MB of weights.",
                f"Of the codes {found[0]:.0f} % were found when everything was read, {found[1]:.0f} % with "
                f"{budgets[0]:,} tokens and {found[-1]:.0f} % with {budgets[-1]}. The page of the code in the picture "
                f"was read by {100 * marked[-1]:.0f} % of the heads that choose.",
                *([unfit] if unfit else []),
            ],
            settings={"text": length, "budget": budgets[-1], "codes": len(finding.DEPTHS), "answer": ANSWER},
            pictures=list(strips),
            plots=[
                Plot(
                    title="What a token reads",
                    x=Axis(title="tokens that a head may read", log=True),
                    y=Axis(title="keys and values read", unit="MB"),
                    series=[Series(name=model.card.name, points=sorted(zip((length, *budgets), read, strict=True)))],
                    note=f"{length:,} tokens",
                )
            ],
            lesson=unfit or finding.lost(found[0], found[-1], f"{budgets[-1]} tokens"),
            sides=_sides(budgets),
        )


class _BudgetSide:
    """One side: every code of a text is asked for with one budget, one after the other."""

    def __init__(self, lab: Lab, length: int, budget: int) -> None:
        self._lab, self._length, self._budget = lab, length, budget
        self.answers: list[Answer] = []

    def run(self) -> Side:
        text = finding.text_for(self._lab.model, self._length, f"{self._lab.seed} 0")
        self._lab.client.set(keys.QUEST_TOKENS, self._budget)
        self.answers = finding.ask_for_all(self._lab, text, ANSWER)
        steps = finding.written(self.answers)
        read = statistics.mean(step.bytes_read for step in steps) - self._lab.model.reads.weights
        return {
            READ.key: read / 1e6,
            STEP.key: 1000 * statistics.median(step.duration for step in steps),
            FOUND.key: finding.found(text, self.answers),
        }


def choices(model: LoadedModel, text: needle.Haystack, budgets: Sequence[int]) -> Iterator[tuple[int, Strip]]:
    """Yield what the tokens of one answer read of the text, token by token with each budget in turn: the place of the
    side and, of each page, the share of the heads that choose which read it.

    Each is a step that predicts a number of the code: what follows on the last number is not looked for.
    """
    asked = text.hidden[SHOWN]
    written = asked.answer[:-1]
    pages = pages_for(len(text.ids) + len(asked.question) + len(written))
    marked = list(range(asked.start // PAGE_SIZE, (asked.stop - 1) // PAGE_SIZE + 1))
    yield 0, Strip(read=[1.0] * pages, marked=marked)
    for side, chosen in chosen_pages(model, [*text.ids, *asked.question], written, budgets):
        counts = torch.stack([torch.bincount(each.flatten().cpu(), minlength=pages) for each in chosen]).sum(0)
        heads = sum(each.shape[1] for each in chosen)
        yield side, Strip(read=[round(count / heads, 4) for count in counts.tolist()], marked=marked)


def chosen_pages(
    model: LoadedModel, prompt: Sequence[int], answer: Sequence[int], budgets: Sequence[int]
) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield, for each budget, whose number counts from 1, and each token of the answer: the pages [1, H, n] that the
    heads read in each layer that chooses.

    They are chosen by their definition, in arenas of their own, and for this answer, whatever the model would say.
    """
    assert model.model is not None
    runner = new_runner(model.model, pages_for(len(prompt) + len(answer)) + 1, model.device, KVKind(bounds=True))
    assert isinstance(runner.attention, AttentionDispatcher)
    everything = reader(runner, KEEP_ALL)
    for start, rows in chunks([*prompt, 0], model.card.vocabulary):  # of which the last is not read
        everything(rows, start)
    for number, budget in enumerate(budgets, start=1):
        choosing = reader(runner, QuestPolicy(budget, len(prompt)))
        for place, token in enumerate(answer, start=len(prompt)):
            chosen: list[Tensor] = []
            runner.attention.quest.watched = chosen
            choosing([token], place)
            yield number, chosen
