"""Whether all sides wrote the same text, and how near the scores were where they did not."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

from msgspec import structs

from engine.cache.policies import KEEP_ALL
from engine.compute.runner.perplexity import chunks
from engine.loading.model import LoadedModel
from engine.protocol import keys
from engine.protocol.compared import FAULT
from engine.protocol.lab import LabProgress, LabText
from engine.services.answers.continuing import common
from engine.services.client import Answer
from engine.services.experiments.experiment import Lab, RunEvent
from engine.services.experiments.pairs import PARTS
from engine.services.experiments.sentences import lowered

NEAR_TIE = 1e-4
"""Between two log-probabilities, in nats: below it, rounding decides which token comes first."""
ROUNDED = "the fast kernels, which round otherwise when rows are computed together"
"""Why a technique that is exact changes a token all the same."""
AS_THEY_MAY = ", as they may: what is rounded changes a model"
"""Of a technique that is lossy, after the sentence that texts differ."""


Writes = Callable[[], Sequence[Answer]]
"""Lets a side write its answers once more."""


def exact_text(
    name: str,
    lab: Lab,
    sides: Sequence[Writes],
    answers: Sequence[Sequence[Answer]],
    prompts: Sequence[Sequence[int]],
) -> Generator[RunEvent, None, LabText]:
    """Compare what all sides of a lossless technique wrote, ``answers`` and ``prompts`` as for :func:`same_text`.

    Fast kernels round otherwise when rows are computed together, which may change a token. Where it did, all sides
    write once more in batch-invariant arithmetic, in which the technique is exact, and those texts are shown.
    """
    fast = same_text(answers, lab, prompts)
    spec = lab.client.state()[keys.BATCH_INVARIANT]
    if fast.same:
        return fast
    if spec.value is True:
        return structs.replace(fast, sentence=f"{fast.sentence} {FAULT}")
    if not spec.disabled_reason:
        yield LabProgress(name=name, done=PARTS, total=PARTS, sentence="writing the text in batch-invariant arithmetic")
        with lab.switched({keys.BATCH_INVARIANT: True}):
            exact = same_text([side() for side in sides], lab)
        if exact.same:
            told = (
                f"{exact.sentence.removesuffix('.')}, in batch-invariant arithmetic, in which the technique is exact."
            )
            return structs.replace(exact, sentence=f"{told} With {ROUNDED}, {lowered(fast.sentence)}")
        return structs.replace(exact, sentence=f"{exact.sentence} Batch-invariant arithmetic was on. {FAULT}")
    exactly = f"The technique is exact; with {ROUNDED}, that was enough to change a token here."
    return structs.replace(fast, sentence=f"{fast.sentence} {exactly}")


def same_text(
    answers: Sequence[Sequence[Answer]], lab: Lab, prompts: Sequence[Sequence[int]] = (), differ: str = ""
) -> LabText:
    """Compare what all sides wrote: ``answers[side][number]``, each pair of answers to the same prompt.

    With ``prompts[number]`` a difference is told with the scores of both tokens, where the model can give them;
    ``differ`` is said of it after that.
    """
    first, *others = answers
    count = sum(len(answer.ids) for answer in first)
    assert lab.model.files is not None
    decode = lab.model.files.tokenizer.decode
    for side in others:
        for number, (one, two) in enumerate(zip(first, side, strict=True)):
            if one.ids != two.ids:
                at = common(one.ids, two.ids)
                near, sentence = False, f"The texts differ from token {at + 1} on{differ}."
                if prompts and at < min(len(one.ids), len(two.ids)):
                    gap = gap_of(lab.model, [*prompts[number], *one.ids[:at]], one.ids[at], two.ids[at])
                    near, sentence = gap < NEAR_TIE, sentence + apart(gap)
                texts = [decode(answers_of[number].ids) for answers_of in answers]
                return LabText(same=False, tokens=count, sentence=sentence, at=at, near_tie=near, texts=texts)
    texts = [decode(side[0].ids) for side in answers]
    return LabText(same=True, tokens=count, sentence=f"The same text: identical, {count} tokens.", texts=texts)


def gap_of(model: LoadedModel, text: Sequence[int], one: int, other: int) -> float:
    """Between the log-probabilities of two tokens after a text, by the model's exact arithmetic; infinite where the
    model cannot be asked."""
    if model.readers is None:
        return math.inf
    read = model.readers(KEEP_ALL).exact(len(text) + 1)
    for start, rows in chunks([*text, 0], model.card.vocabulary):
        logits = read(rows, start)
    scores = logits[-1].double().log_softmax(-1)
    return abs(float(scores[one] - scores[other]))


def apart(gap: float) -> str:
    """After a sentence that two texts differ: how far apart the two tokens were."""
    if gap == math.inf:
        return ""
    if gap < NEAR_TIE:
        far = f"were {gap:.1e} apart" if gap else "were equal"
        return f" A near-tie: the two tokens' log-probabilities {far} there."
    return f" The two tokens' log-probabilities were {gap:.3f} apart there."
