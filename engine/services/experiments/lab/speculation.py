"""Speculative decoding: three texts with a draft and without, and where drafts begin to pay on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from engine.decoding.speculation.control.stats import expected_tokens
from engine.loading.model import LoadedModel
from engine.protocol import Effect, OptionSpec, keys
from engine.protocol.lab import Axis, LabPage, Plot, Series
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.measures.steps import Costs, costs, held, predicted
from engine.services.experiments.pairs import Pairs
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import steady, timed
from engine.services.experiments.workloads.drafting import (
    AHEAD,
    EASY,
    HARD,
    OFF,
    PER_STEP,
    SPEEDS,
    TEXTS,
    Writing,
    asked,
    methods,
    refused,
)

DRAFTS = ("draft", "ngram")
"""The first of them that the model has."""
CURVE = 50
UNTOLD = "What making and checking drafts takes could not be told here: the times of this run differ too widely."


class Speculation:
    """Off, and a draft of a fixed length: an adaptive one would be switched off where it does not pay."""

    page = LabPage(
        name="speculation",
        number=12,
        title="Speculative decoding",
        group="Speculation",
        keys=[keys.SPECULATION, keys.DRAFT_LENGTH],
        problem="A large model needs one whole pass for each word that it writes, even for a word that anybody could "
        "have foreseen. A cheap draft proposes the next few words, the model checks all of them in one pass, and only "
        "those that it would have written itself stay.",
        question=f"A draft runs {AHEAD} tokens ahead while a text is edited. How much faster is it written?",
        choices=["slower", "as fast", "1.5 times", "3 times"],
        bounds=[0.95, 1.15, 2.1],
        lesson="Speculation pays where the text is easy to foresee and checking is cheap; what is written stays the "
        "same.",
        fails="On a text that nobody can foresee drafts are rejected, and making and checking them costs time.",
        sides=["no drafts", "drafts, checked"],
        seconds=45,
        use={keys.SPECULATION: "auto"},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return refused(model, state, DRAFTS)

    def run(self, lab: Lab) -> Run:
        method = methods(lab.client.state(), DRAFTS)[0]
        kinds = asked(lab, len(self.page.sides))
        sides = [Writing(lab.client, kinds, each) for each in (OFF, method)]
        pairs = Pairs(lab, self.page.name, (*PER_STEP.values(), *SPEEDS.values()), SPEEDS[EASY])
        yield from pairs.run([side.run for side in sides], lambda side: sides[side].drafts(EASY))
        figures = pairs.figures()
        steps = {key: sides[1].steps(key, sides[0]) for key in TEXTS}
        known = {key: costs(each) for key, each in steps.items() if each}
        shares = {key: held(steps[key]).share for key in known}
        gains = {key: figures[place].effects[0] for place, key in enumerate(SPEEDS, len(PER_STEP))}
        easy = known.get(EASY) if steady(gains[EASY], pairs.others) else None
        ahead = _ahead(easy) if easy is not None else 0
        answers, writes = [side.all() for side in sides], [side.write for side in sides]
        text = yield from exact_text(self.page.name, lab, writes, answers, sides[0].prompts)
        fast = ("as fast while a text is edited", "as slow while a text is edited")
        return Found(
            headline=_headline(figures[0].effects[0]),
            second=timed(gains[EASY], *fast, lab.pairs),
            asked=len(PER_STEP),
            others=pairs.others,
            figures=figures,
            text=text,
            taken="The same prompts with and without drafts, one answer at a time. Tokens, steps and draft tokens "
            "are counted by the engine, without the step that reads the prompt; speeds leave the first token out.",
            same=[
                "one answer at a time",
                f"a fixed number of draft tokens in each step ({AHEAD})",
                *(["the text stays the same"] if text.same else []),
            ],
            other=[
                f"{lab.model.card.name} on {lab.model.device.type}, with drafts of its {method.title}",
                "a draft token is accepted only where the model would have written that very token; the paper's test "
                "keeps the distribution, not the text",
                *(
                    ["free talk was no harder to foresee for this model than the edit"]
                    if shares.get(HARD, 0.0) >= shares.get(EASY, 1.0)
                    else []
                ),
            ],
            why=[
                *([_accepted(shares) + (f" {_break_even(easy)}" if easy is not None and ahead else "")] * bool(shares)),
                _cost(easy)
                if easy is not None and ahead
                else UNTOLD
                if EASY in known
                else f"No draft token was checked in {TEXTS[EASY][0]}.",
                *(
                    f"For {TEXTS[key][0]} the formula foresees {foreseen:.2f} times the speed from these; "
                    f"{gains[key].ratio:.2f} times was measured."
                    for key in known
                    if (foreseen := predicted(steps[key], known[key])) is not None
                    and gains[key].ratio is not None
                    and steady(gains[key], pairs.others)
                ),
            ],
            settings={
                "draft": method.title,
                "ahead": AHEAD,
                "prompts": sum(len(text.prompts) for text in kinds),
                "tokens": max(prompt.sampling.max_tokens or 0 for text in kinds for prompt in text.prompts),
            },
            pictures=[side.drafts(EASY, sides[1].typical(EASY)) for side in sides],
            plots=[_plot(easy, shares, gains)] if easy is not None and ahead else [],
        )


def _headline(per_step: Effect) -> str:
    """Headline on the tokens a step of the edit."""
    before, after = f"{per_step.before:.2f}", f"{per_step.after:.2f}"
    if before == after:
        return f"{after} tokens a step with drafts as without: none was accepted."
    return f"{after} tokens a step instead of {before} while a text is edited."


def _ahead(known: Costs) -> int:
    """Draft tokens of the steps that say what checking costs: :data:`AHEAD`, or the most that any step checked."""
    return AHEAD if 1 + AHEAD in known.verify else max(known.verify) - 1


def _gain(known: Costs, acceptance: float) -> float:
    """The speed-up that the formula gives (Leviathan et al. 2023, section 3.3, with what checking costs here)."""
    ahead = _ahead(known)
    return expected_tokens(acceptance, ahead) / (ahead * known.draft_pass + known.verify[1 + ahead])


def _cost(known: Costs) -> str:
    ahead = _ahead(known)
    return (
        f"A step that checks {ahead} draft tokens ({1 + ahead} rows) takes as long as {known.verify[1 + ahead]:.2f} "
        f"plain steps here, and drafting them {ahead * known.draft_pass:.2f}."
    )


def _accepted(shares: Mapping[str, float]) -> str:
    each = ", ".join(f"{100 * share:.0f} % ({TEXTS[key][0]})" for key, share in shares.items())
    return f"Of the draft tokens that were checked the model accepted {each}."


def _break_even(known: Costs) -> str:
    pays = next((share for share in range(101) if _gain(known, share / 100) > 1), None)
    if pays is None:
        return "Drafts cannot pay here, even if all are accepted: making and checking them takes too long."
    return f"By what making and checking them takes here, drafts pay from an acceptance of {pays} % on."


def _plot(known: Costs, shares: Mapping[str, float], gains: Mapping[str, Effect]) -> Plot:
    curve = [(place / CURVE, _gain(known, place / CURVE)) for place in range(CURVE + 1)]
    measured = [
        Series(name=TEXTS[key][0], points=[(share, gain)], low=[gains[key].low], high=[gains[key].high])
        for key, share in shares.items()
        if (gain := gains[key].ratio) is not None
    ]
    return Plot(
        title="When speculation pays",
        x=Axis(title="acceptance rate of the draft tokens that were checked"),
        y=Axis(title="speed, times that without drafts"),
        series=[
            Series(name="by the formula, at this machine's costs", points=curve),
            Series(name="break-even", points=[(0.0, 1.0), (1.0, 1.0)]),
            *measured,
        ],
        note=f"{_ahead(known)} draft tokens a step, at what they cost for {TEXTS[EASY][0]}; dots are measured. A step "
        "without a draft lowers a dot.",
    )
