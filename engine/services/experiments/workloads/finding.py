"""Asking the loaded model for what was hidden in a text (engine/services/experiments/workloads/needle.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.cache.pool import PAGE_SIZE
from engine.decoding.telemetry.records import StepRecord
from engine.library.paths import BUNDLED, bundled_folder
from engine.loading.model import LoadedModel
from engine.services.client import Answer, whole_steps
from engine.services.experiments.experiment import Lab, Refusal
from engine.services.experiments.sides import SHARING, greedy
from engine.services.experiments.workloads import needle

MODEL = "kvasir-needle"
"""The bundled model that is trained for it."""
INSTEAD = f"{MODEL}, which comes with Kvasir, can show it."
UNLEARNED = f"{BUNDLED} never learned to find a code that is hidden in a long text."
DEPTHS = (0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.98)
KEPT = 0.75
"""The share of what is found with everything that a technique must keep, so that it shows what it teaches."""
LEAST_FOUND = 50.0
"""Share in % that a model must find with everything kept, so that what others find says something."""
QUESTION = 32
"""Room for a question, in tokens."""
SCALED = "large channels of the keys that were made by scaling, which changes no score: so small a model learns none"


def refuses(model: LoadedModel, least: int) -> Refusal | None:
    """Refuse a model that cannot find codes, or has no room in its context for ``least`` tokens, question, answer."""
    if model.model is None or model.files is None:
        return Refusal("The model keeps its keys and values in a way of its own.", INSTEAD)
    if Path(model.command.path) == bundled_folder() / BUNDLED:
        return Refusal(UNLEARNED, INSTEAD)
    if model.card.context < least + 2 * QUESTION:
        why = f"The model's context is {model.card.context:,} tokens; a text in which finding something is hard has "
        return Refusal(f"{why}{least:,} or more.", INSTEAD)
    return None


def room(model: LoadedModel, longest: int) -> int:
    """Tokens of a text that the context and the pages have room for, its question and the answer beside it."""
    return min(longest, model.card.context - 2 * QUESTION, (model.pages - 1) * PAGE_SIZE - 2 * QUESTION)


def text_for(model: LoadedModel, length: int, seed: str) -> needle.Haystack:
    """A text with a needle at each of :data:`DEPTHS`."""
    assert model.files is not None
    tokenizer = model.files.tokenizer
    return needle.haystack(
        lambda text: tokenizer.encode(text, special=False), tokenizer.encode(""), length, DEPTHS, seed
    )


def ask_for_all(lab: Lab, text: needle.Haystack, tokens: int) -> list[Answer]:
    """An answer of so many tokens for each needle, one after the other; the text is read once and shared."""
    return [lab.client.answer([*text.ids, *each.question], greedy(tokens), SHARING) for each in text.hidden]


def written(answers: Sequence[Answer]) -> list[StepRecord]:
    """The steps that wrote one token each, but for the first tokens: those come from reading the questions."""
    return [step for answer in answers for step in whole_steps(answer.steps, 1) if not step.ttfts]


def found(text: needle.Haystack, answers: Sequence[Answer]) -> float:
    """The share of needles in % whose numbers the answers begin with."""
    right = [answer.ids[: len(each.answer)] == each.answer for each, answer in zip(text.hidden, answers, strict=True)]
    return 100 * sum(right) / len(right)


def shares(before: float, after: float, sides: tuple[str, str]) -> str:
    """The shares of codes in % that were found with each of two sides."""
    return f"{after:.0f} % of the codes were found with {sides[1]}, {before:.0f} % with {sides[0]}."


def lost(before: float, after: float, side: str) -> str:
    """Lesson for a side that finds much less than keeping everything does; else ""."""
    return "" if after >= KEPT * before else f"Here too much is lost: {shares(before, after, ('everything', side))}"


def unfit(share: float) -> str:
    """Reason a model cannot show what is lost, if it finds only ``share`` % with everything kept; else ""."""
    if share >= LEAST_FOUND:
        return ""
    return f"With everything kept this model finds {share:.0f} % of the codes, so that it cannot show what is lost."


def made_large(model: LoadedModel) -> list[str]:
    """Note on the keys of the bundled model; empty for other models."""
    return [SCALED] if Path(model.command.path).name == MODEL else []
