"""Speculative decoding: three texts with a draft and without, and where drafts begin to pay on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from engine.bench.speculation.steps import Costs, costs, held, predicted
from engine.lab.drafting import AHEAD, EASY, HARD, PER_STEP, SPEEDS, TEXTS, Method, Writing, asked, methods, refused
from engine.lab.experiment import Found, Lab, Pairs, Refusal, Run, same_text, told
from engine.loading.model import LoadedModel
from engine.protocol import Effect, OptionSpec, keys
from engine.protocol.lab import Axis, LabPage, Plot, Series
from engine.speculation.control.stats import expected_tokens

DRAFTS = ("draft", "ngram")
"""The first of them that the model has."""
CURVE = 50


class Speculation:
    """Off, and a draft of a fixed length: an adaptive one would be switched off where it does not pay."""

    page = LabPage(
        name="speculation",
        number=9,
        title="Speculative decoding",
        group="Guessing",
        keys=[keys.SPECULATION, keys.DRAFT_LENGTH],
        problem="A large model needs one whole pass for each word that it writes, even for a word that anybody could "
        "have guessed. A cheap draft guesses the next few words, the model checks all of them in one pass, and only "
        "those that it would have written itself stay.",
        question=f"A draft guesses {AHEAD} tokens ahead while a text is edited. How much faster is it written?",
        choices=["slower", "as fast", "1.5 times", "3 times"],
        bounds=[0.95, 1.15, 2.1],
        lesson="Guessing pays where the text is easy to foresee and checking is cheap; what is written stays the same.",
        fails="On a text that nobody can foresee the guesses are thrown away, and making and checking them costs time.",
        sides=["no guesses", "guesses, checked"],
        seconds=45,
        use={keys.SPECULATION: "auto"},
    )

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return refused(model, state, DRAFTS)

    def run(self, lab: Lab) -> Run:
        method = methods(lab.client.state(), DRAFTS)[0]
        kinds = asked(lab, len(self.page.sides))
        sides = [Writing(lab, kinds, each) for each in (Method("off", "off"), method)]
        pairs = Pairs(lab, self.page.name, (*SPEEDS.values(), *PER_STEP.values()))
        yield from pairs.shown([side.run for side in sides], lambda side: sides[side].drafts(EASY))
        figures = pairs.figures()
        steps = {key: sides[1].steps(key, sides[0]) for key in TEXTS}
        known = {key: costs(each) for key, each in steps.items()}
        shares = {key: held(each).share for key, each in steps.items()}
        gains = {key: figures[place].effects[0] for place, key in enumerate(SPEEDS)}
        easy = known[EASY]
        return Found(
            headline=told(gains[EASY], "as fast on the text that is easy to foresee", "as slow on the easy text"),
            figures=figures,
            text=same_text([side.all() for side in sides], lab),
            taken="The same prompts with and without guesses, one answer at a time. Tokens, steps and guesses are "
            "counted by the engine, without the step that reads the prompt; speeds leave the first token out.",
            same=[
                "one answer at a time",
                f"a fixed number of guesses in each step ({AHEAD})",
                "the text stays the same",
            ],
            other=[
                f"{lab.model.card.name} on {lab.model.device.type}, with guesses of its {method.title}",
                "a guess is kept only where the model would have written that very token; the paper's test keeps the "
                "distribution, not the text",
                *(["free talk was no harder to foresee for this model than the edit"] * (shares[HARD] >= shares[EASY])),
            ],
            why=[
                "Of the guesses that could be checked the model kept "
                + ", ".join(f"{shares[key]:.0%} ({title})" for key, (title, _) in TEXTS.items())
                + ".",
                f"A step that checks {AHEAD} guesses takes as long as {_check(easy):.2f} without guesses here, making "
                f"them {AHEAD * easy.draft_pass:.2f}. {_break_even(easy)}",
                *(
                    f"For {title} the formula foresees {foreseen:.2f} times the speed from these; "
                    f"measured were {gains[key].ratio:.2f}."
                    for key, (title, _) in TEXTS.items()
                    if (foreseen := predicted(steps[key], known[key])) is not None and gains[key].ratio is not None
                ),
            ],
            settings={
                "draft": method.title,
                "ahead": AHEAD,
                "prompts": sum(len(text.prompts) for text in kinds),
                "tokens": max(prompt.sampling.max_tokens or 0 for text in kinds for prompt in text.prompts),
            },
            pictures=[side.drafts(EASY) for side in sides],
            plots=[_plot(easy, shares, gains)],
        )


def _check(known: Costs) -> float:
    """What a step with all its guesses takes, without making them, in plain steps."""
    return known.verify.get(1 + AHEAD) or known.verify[max(known.verify)]


def _gain(known: Costs, acceptance: float) -> float:
    """The speed-up that the formula gives (Leviathan et al. 2023, section 3.3, with what checking costs here)."""
    return expected_tokens(acceptance, AHEAD) / (AHEAD * known.draft_pass + _check(known))


def _break_even(known: Costs) -> str:
    pays = next((share for share in range(101) if _gain(known, share / 100) > 1), None)
    if pays is None:
        return "So guesses cannot pay here, even if all are kept."
    return f"So guesses pay from an acceptance of {pays} % on."


def _plot(known: Costs, shares: Mapping[str, float], gains: Mapping[str, Effect]) -> Plot:
    curve = [(place / CURVE, _gain(known, place / CURVE)) for place in range(CURVE + 1)]
    measured = [
        Series(name=title, points=[(shares[key], gain)], low=[gains[key].low], high=[gains[key].high])
        for key, (title, _) in TEXTS.items()
        if (gain := gains[key].ratio) is not None
    ]
    return Plot(
        title="When guessing pays",
        x=Axis(title="guesses kept, of those that could be checked"),
        y=Axis(title="speed, times that without guesses"),
        series=[
            Series(name="by the formula, at this machine's costs", points=curve),
            Series(name="break-even", points=[(0.0, 1.0), (1.0, 1.0)]),
            *measured,
        ],
        note=f"{AHEAD} guesses a step, at what they cost for {TEXTS[EASY][0]}; dots are measured. A step for which "
        "there was no guess lowers a dot.",
    )
