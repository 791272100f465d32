"""Traces of requests that share text: chats that go on, one system prompt for many, questions about one document.

The text is random tokens, so that nothing is shared but what a trace shares on purpose; lengths follow a log-normal
law, as those of real conversations do (Kwon et al. 2023, figure 11).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.loading.model import LoadedModel


class ThreadRequest(NamedTuple):
    """One request of a trace: more text of a thread."""

    thread: int
    tokens: list[int]


class Trace(NamedTuple):
    """Waves of requests; those of a wave arrive together, and the next wave when all are answered.

    ``openings[i]`` is what thread i begins with. In a trace that ``grows``, a thread's later prompts hold its earlier
    ones and their answers; else each prompt is the opening and its own text alone.
    """

    name: str
    title: str
    openings: list[list[int]]
    waves: list[list[ThreadRequest]]
    grows: bool
    answer: int

    @property
    def requests(self) -> int:
        return sum(len(wave) for wave in self.waves)


def log_normal(median: float, draw: random.Random) -> int:
    """Length of a text, between a quarter and four times the median."""
    return round(max(median / 4, min(4 * median, median * math.exp(draw.gauss(0.0, 0.6)))))


class Words:
    """Random texts of a vocabulary: the same lengths for the same seed, and the same texts for the same run."""

    def __init__(self, vocabulary: Sequence[int], seed: int, run: int) -> None:
        self._vocabulary = vocabulary
        self._text = random.Random(f"text {seed} {run}")
        self._lengths = random.Random(f"lengths {seed}")

    def some(self, count: int) -> list[int]:
        return self._text.choices(self._vocabulary, k=count)

    def about(self, median: int) -> list[int]:
        """A text of log-normal length."""
        return self.some(max(1, log_normal(median, self._lengths)))


def words_of(model: LoadedModel, run: int) -> Words:
    """Words without the model's special tokens, which would end a text, or mark its parts."""
    named = model.files.tokenizer.special_ids if model.files is not None else frozenset(model.card.eos_ids)
    return Words([id for id in range(model.card.vocabulary) if id not in named], 1, run)


def chats(words: Words, context: int) -> Trace:
    """Three chats of five turns each, answered side by side."""
    turns, answer = 5, max(4, min(48, context // 32))
    room = max(4, 3 * context // (16 * turns) - answer)  # with four times the median everywhere it still fits
    waves = [[ThreadRequest(thread, words.about(min(40, room))) for thread in range(3)] for _ in range(turns)]
    openings = [words.some(min(64, context // 8)) for _ in range(3)]
    return Trace("chats", "chats of five turns", openings, waves, True, answer)


def shared_prompt(words: Words, context: int) -> Trace:
    """One system prompt for twelve users, four of whom ask at a time."""
    system = words.some(min(512, context // 2))
    asks = [ThreadRequest(user, words.about(max(4, min(24, context // 32)))) for user in range(12)]
    waves = [asks[start : start + 4] for start in range(0, 12, 4)]
    return Trace("shared prompt", "one system prompt, twelve users", [system] * 12, waves, False, _short(context))


def document(words: Words, context: int) -> Trace:
    """Four questions about one document, one after the other."""
    text = words.some(min(4000, context * 5 // 8))
    waves = [[ThreadRequest(0, words.about(_question(context)))] for _ in range(4)]
    return Trace("document", f"four questions about {len(text):,} tokens", [text], waves, False, _short(context))


def _short(context: int) -> int:
    """Tokens of a short answer."""
    return max(4, min(16, context // 16))


def _question(context: int) -> int:
    """Tokens of a short question."""
    return max(4, min(20, context // 32))


def crowd(words: Words, context: int) -> Trace:
    """Eight long answers at once, which together outgrow the cache that their prompts fit into."""
    answer = max(8, context // 6)
    wave = [ThreadRequest(number, words.about(max(4, min(128, context // 32)))) for number in range(8)]
    return Trace("crowd", f"eight answers of {answer} tokens in a small cache", [[]] * 8, [wave], False, answer)


def returning(words: Words, context: int) -> Trace:
    """Four documents in turn, and again: only together are they more than the cache holds."""
    texts = [words.some(min(4000, context // 2)) for _ in range(4)]
    waves = [[ThreadRequest(number, words.some(_question(context)))] for _ in range(2) for number in range(4)]
    title = f"four texts of {len(texts[0]):,} tokens, asked about in turn, in a small cache"
    return Trace("returning", title, texts, waves, False, _short(context))


def mixed(words: Words, context: int) -> Trace:
    """Twelve questions about three documents, all waiting at once, in no order."""
    texts = [words.some(min(4000, context // 2)) for _ in range(3)]
    wave = [ThreadRequest(number % 3, words.about(_question(context))) for number in range(12)]
    title = f"twelve questions at once about three texts of {len(texts[0]):,} tokens in a small cache"
    return Trace("mixed", title, texts, [wave], False, _short(context))


def long_answers(words: Words, context: int) -> Trace:
    """Two long answers to long prompts, side by side."""
    answer = max(8, min(256, context // 4))
    wave = [ThreadRequest(number, words.some(min(2000, context // 2))) for number in range(2)]
    return Trace("long answers", f"two answers of {answer} tokens to long prompts", [[], []], [wave], False, answer)


ROOMY: tuple[Callable[[Words, int], Trace], ...] = (chats, shared_prompt, document, long_answers)
"""Traces for a cache with room for several contexts."""
TIGHT: tuple[Callable[[Words, int], Trace], ...] = (crowd, mixed, returning)
"""Traces for a cache with room for little more than one context (:data:`TIGHT_ROOM`)."""
TIGHT_ROOM = 1.2
"""How many contexts the small cache holds."""
