"""Texts and questions of several experiments, on which no model here was trained, and a model's reading speed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.cache.stores.recent import packed_until
from engine.cache.stores.store import KVStore
from engine.compute.runner.perplexity import Reader, chunks
from engine.decoding.telemetry.pairs import LEAST
from engine.library.paths import bundled_folder
from engine.loading.model import LoadedModel
from engine.protocol import ChatMessage
from engine.services.experiments.experiment import Lab, LabError, Refusal
from engine.services.experiments.pairs import PATIENCE
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.traces import words_of
from engine.services.training.errors import RecipeError
from engine.services.training.text import held_out_text
from engine.text.template import PromptError

_PROBE = 64
LEAST_ANSWER = 8
HELD_OUT, APART = 100, 7
"""Held-out questions, and by how many of them conversations begin apart: never twice with the same one."""
QUESTIONS, ASKING = 24, 0.25
"""Questions that are tried for the length of their answers, and the share of the budget that this may take."""


def too_short(model: LoadedModel, least: int, need: str) -> Refusal | None:
    """The refusal of a model whose context is shorter than ``least`` tokens; ``need`` says what takes those."""
    if model.card.context >= least:
        return None
    why = f"The model's context is {model.card.context:,} tokens; {need} {least:,}."
    return Refusal(why, "Load it with a longer context, or take the bundled model.")


def wordless(model: LoadedModel) -> Refusal | None:
    """The refusal of a model whose text nobody can read."""
    if model.files is not None:
        return None
    return Refusal("The model has no tokenizer, so there is no text to show it with.", "Take the bundled model.")


def unread(model: LoadedModel) -> Refusal | None:
    """The refusal of a model that text cannot be read with, or be scored with."""
    if (refusal := wordless(model)) is not None:
        return refusal
    if model.readers is None:
        why = f"{model.card.name} runs over a cache of its own, so texts cannot be scored with it."
        return Refusal(why, "Take the bundled model.")
    return None


def turns(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Questions with their answers in an order drawn by lot, without end. Raises :class:`LabError` without the text."""
    try:
        answered = held_out_text(bundled_folder() / "evaluation").answered
    except RecipeError as error:
        raise LabError(str(error)) from error
    while True:
        yield from draw.sample(answered, len(answered))


def conversation(model: LoadedModel, length: int, draw: random.Random) -> list[int]:
    """The first ``length`` tokens of a conversation, in the chat template where the model has one."""
    ids: list[int] = []
    pairs = turns(draw)
    some: list[tuple[str, str]] = []
    while len(ids) < length:
        some += itertools.islice(pairs, max(8, len(some)))
        ids = _encoded(model, some)
    return ids[:length]


def asked(model: LoadedModel, length: int, draw: random.Random) -> list[int]:
    """A prompt of about ``length`` tokens: the turns of a chat so far, and its next question."""
    some: list[tuple[str, str]] = []
    for pair in turns(draw):
        ids = _encoded(model, some, pair[0])
        if len(ids) >= length:
            break
        some.append(pair)
    return ids


def long_answer(lab: Lab, most: int) -> tuple[list[int], int]:
    """A question, and how many tokens its answer has: the longest of those that were tried, ``most`` at most.

    So an answer need not be written on past its own end, where what a model says means nothing; only where all are
    shorter than :data:`LEAST_ANSWER` must it.
    """
    room = max(1, lab.model.card.context - most)
    best: tuple[list[int], int] = ([], 0)
    until = time.monotonic() + ASKING * lab.budget
    for asked in questions(lab, QUESTIONS):
        prompt = asked[-room:]
        length = len(lab.client.answer(prompt, greedy(most, ends=True), PLAIN).ids)
        best = max(best, (prompt, length), key=lambda each: each[1])
        if best[1] >= most or time.monotonic() > until:
            break
    prompt, length = best
    return prompt, max(length, min(most, LEAST_ANSWER))


def questions(lab: Lab, count: int) -> list[list[int]]:
    """Prompts of so many questions, each of a chat of its own."""
    return [_encoded(lab.model, [], question) for question, _ in itertools.islice(turns(lab.random), count)]


def asking(lab: Lab, length: int, users: int, turn: int) -> list[list[int]]:
    """Prompts of so many users about one conversation of ``length`` tokens at most: its turns, and a question each.

    Each ``turn`` has another conversation: it begins with another question.
    """
    order = list(itertools.islice(turns(lab.random), HELD_OUT))
    begin = turn * APART % len(order)
    order = order[begin:] + order[:begin]
    asked, said = order[:users], order[users:]
    few, many = 1, 2
    while len(_encoded(lab.model, _repeated(said, many))) <= length:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        fits = len(_encoded(lab.model, _repeated(said, middle))) <= length
        few, many = (middle, many) if fits else (few, middle)
    return [_encoded(lab.model, _repeated(said, few), question) for question, _ in asked]


def _repeated(pairs: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return list(itertools.islice(itertools.cycle(pairs), count))


def _encoded(model: LoadedModel, pairs: Sequence[tuple[str, str]], question: str = "") -> list[int]:
    assert model.files is not None
    if model.card.has_chat_template:
        said = [
            message
            for asks, answers in pairs
            for message in (
                ChatMessage.of("user", asks),
                ChatMessage.of("assistant", answers),
            )
        ]
        said += [ChatMessage.of("user", question)] if question else []
        try:
            return model.encode_prompt(said)
        except PromptError as error:
            raise LabError(f"A conversation cannot be written for this model. {error}") from error
    return model.files.tokenizer.encode("\n".join([f"{asks}\n{answers}\n" for asks, answers in pairs] + [question]))


def losses(read: Reader, ids: Sequence[int], vocabulary: int) -> Iterator[Tensor]:
    """Negative log-likelihoods [n] float64 in nats of the tokens after the first, chunk by chunk."""
    for start, rows in chunks(ids, vocabulary):
        targets = torch.tensor(ids[start + 1 : start + 1 + len(rows)])[:, None]
        likely = torch.log_softmax(read(rows, start).float(), dim=-1)
        yield -likely.gather(1, targets.to(likely.device))[:, 0].double().cpu()


def reading_speed(lab: Lab) -> float:
    """Prompt tokens a second, of a short prompt."""
    length = min(_PROBE, lab.model.card.context // 2)
    words = words_of(lab.model, lab.seed)
    times = [lab.client.answer(words.some(length), greedy(1), PLAIN).timings.ttft_ms for _ in range(3)]
    return 1000 * length / min(times)


def bytes_of(store: KVStore, tokens: int) -> float:
    """Bytes that a store's arenas take for a text of ``tokens`` tokens, those included that are not packed yet."""
    if store.recent is None:
        return tokens * store.bytes_per_token()
    packed = packed_until(tokens - 1, store.residual)
    return packed * store.bytes_per_token() + (tokens - packed) * store.recent.bytes_per_token()


def rounds(lab: Lab) -> int:
    """Number of runs of each side for a verdict, its warm-up included."""
    return 1 + (lab.pairs or LEAST)


def affordable(lab: Lab, longest: int, least: int, reads: int) -> int:
    """Tokens of a text that the model reads ``reads`` times before no further round begins, ``longest`` at most.

    A model that is too slow even for ``least`` gets those, or ``longest`` if that is shorter.
    """
    return min(longest, max(least, int(PATIENCE * lab.budget * reading_speed(lab) / reads)))
