"""What several experiments read and ask: conversations that no model here learned from, and how fast a model reads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import msgspec
import torch
from torch import Tensor

from engine.bench.cache.traces import words_of
from engine.cache.stores.recent import packed_until
from engine.cache.stores.store import KVStore
from engine.lab.experiment import GREEDY, PATIENCE, Lab, LabError, Refusal
from engine.loading.model import LoadedModel
from engine.paths import bundled_folder
from engine.protocol import ChatMessage, Value, keys
from engine.recipes.errors import RecipeError
from engine.recipes.text import held_out_text
from engine.runner.perplexity import Reader, chunks
from engine.telemetry.pairs import LEAST
from engine.text.template import PromptError

_PROBE = 64


def too_short(model: LoadedModel, least: int, need: str) -> Refusal | None:
    """The refusal of a model whose context is shorter than ``least`` tokens; ``need`` says what takes those."""
    if model.card.context >= least:
        return None
    why = f"The model's context is {model.card.context:,} tokens; {need} {least:,}."
    return Refusal(why, "Load it with a longer context, or take the bundled model.")


def wordless(model: LoadedModel) -> Refusal | None:
    """The refusal of a model whose text nobody can read."""
    if model.tokenizer is not None:
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


def _encoded(model: LoadedModel, pairs: Sequence[tuple[str, str]], question: str = "") -> list[int]:
    assert model.tokenizer is not None
    if model.card.has_chat_template:
        said = [
            message
            for asks, answers in pairs
            for message in (ChatMessage(role="user", content=asks), ChatMessage(role="assistant", content=answers))
        ]
        said += [ChatMessage(role="user", content=question)] if question else []
        try:
            return model.encode_prompt(said)
        except PromptError as error:
            raise LabError(f"A conversation cannot be written for this model. {error}") from error
    return model.tokenizer.encode("\n".join([f"{asks}\n{answers}\n" for asks, answers in pairs] + [question]))


def losses(read: Reader, ids: Sequence[int], vocabulary: int) -> Iterator[Tensor]:
    """Negative log-likelihoods [n] float64 in nats of the tokens after the first, chunk by chunk."""
    for start, rows in chunks(ids, vocabulary):
        targets = torch.tensor(ids[start + 1 : start + 1 + len(rows)])[:, None]
        likely = torch.log_softmax(read(rows, start).float(), dim=-1)
        yield -likely.gather(1, targets.to(likely.device))[:, 0].double().cpu()


def reading_speed(lab: Lab) -> float:
    """Prompt tokens a second, of a short prompt."""
    once = msgspec.structs.replace(GREEDY, max_tokens=1)
    length = min(_PROBE, lab.model.card.context // 2)
    words = words_of(lab.model, lab.seed)
    switches: dict[str, Value] = {keys.PREFIX_CACHE: False, keys.SPECULATION: "off"}
    times = [lab.client.answer(words.some(length), once, switches).timings.ttft_ms for _ in range(3)]
    return 1000 * length / min(times)


def bytes_of(store: KVStore, tokens: int) -> float:
    """What a store's arenas take for a text of so many tokens, those included that are not packed yet."""
    if store.recent is None:
        return tokens * store.bytes_per_token()
    packed = packed_until(tokens - 1, store.residual)
    return packed * store.bytes_per_token() + (tokens - packed) * store.recent.bytes_per_token()


def rounds(lab: Lab) -> int:
    """How often each side runs for a verdict, its warm-up included."""
    return 1 + (lab.pairs or LEAST)


def affordable(lab: Lab, longest: int, least: int, reads: int) -> int:
    """Tokens of a text that the model reads ``reads`` times before no further round begins, ``longest`` at most.

    A model that is too slow even for ``least`` gets those, or ``longest`` if that is shorter.
    """
    return min(longest, max(least, int(PATIENCE * lab.budget * reading_speed(lab) / reads)))
