"""A long text with something to find in it: sentences about nothing, numbers to remember among them, and a question.

The numbers of a name are the needle (Mohtashami and Jaggi 2023, "Landmark Attention", whose passkey is one number); the
other names and their numbers are there so that it does not suffice to find any number. The bundled kvasir-needle is
trained on such texts (assets/demo/needle.py); other models know the words as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

NAMES = (
    *("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo", "lima"),
    *("mike", "november", "oscar", "papa", "quebec", "romeo"),
    *("sierra", "tango", "uniform", "victor", "whiskey", "zulu"),
)
NOUNS = (
    *("river", "tower", "garden", "road", "house", "window", "letter", "horse", "bird", "field", "stone", "boat"),
    *("market", "winter", "lamp", "table", "cloud", "forest"),
    *("bridge", "baker", "sailor", "farmer", "teacher", "clock"),
    *("basket", "bell", "candle", "door", "island", "mountain"),
    *("painter", "shadow", "village", "wheel", "child", "dog"),
)
ADJECTIVES = (
    *("old", "small", "quiet", "green", "heavy", "warm", "dark", "narrow", "empty", "bright", "early", "cold"),
    *("long", "soft", "round", "young", "wide", "slow", "blue", "plain", "tall", "wet", "kind", "red"),
)
VERBS = (
    *("follows", "finds", "leaves", "watches", "keeps", "carries", "passes", "meets", "draws", "hears", "paints"),
    *("crosses", "counts", "covers", "opens", "turns", "holds", "brings", "forgets", "sees"),
)
ADVERBS = ("slowly", "again", "today", "often", "alone", "twice", "gladly", "there", "late", "now")
TOPIC = (8, 6, 5, 3)
"""How many of the nouns, adjectives, verbs and adverbs one text is about."""
NUMBERS = range(10, 100)
CODE = 4
"""Numbers of a name."""


class Needle(NamedTuple):
    name: str
    numbers: list[str]

    @property
    def hidden(self) -> list[str]:
        return ["remember", "code", self.name, *self.numbers, "."]

    @property
    def question(self) -> list[str]:
        return ["now", "say", "code", self.name]

    @property
    def answer(self) -> list[str]:
        return [*self.numbers, "."]


def needles(count: int, chance: random.Random) -> list[Needle]:
    """No two share a name or a number."""
    numbers = chance.sample(NUMBERS, count * CODE)
    return [
        Needle(name, [str(number) for number in numbers[place * CODE : (place + 1) * CODE]])
        for place, name in enumerate(chance.sample(NAMES, count))
    ]


def sentences(chance: random.Random) -> Iterator[list[str]]:
    """Endless: the words of one sentence after the other, all of them of one text's few words."""
    kinds = zip((NOUNS, ADJECTIVES, VERBS, ADVERBS), TOPIC, strict=True)
    nouns, adjectives, verbs, adverbs = (chance.sample(words, count) for words, count in kinds)
    while True:
        some = [chance.choice(each) for each in (adjectives, nouns, verbs, adjectives, nouns, adverbs)]
        yield ["the", *some[:3], "the", *some[3:], "."]


def written(words: Sequence[str]) -> str:
    """The text of words and full stops."""
    return "".join(word if word == "." else f" {word}" for word in words)


class HiddenNeedle(NamedTuple):
    """A needle in a text, as tokens: from ``start`` to ``stop`` of it. ``answer``: the numbers to be said."""

    start: int
    stop: int
    question: list[int]
    answer: list[int]


class Haystack(NamedTuple):
    """A text, and what was hidden in it, in the order of the depths asked for."""

    ids: list[int]
    hidden: list[HiddenNeedle]


def haystack(
    encode: Callable[[str], list[int]], opening: Sequence[int], length: int, depths: Sequence[float], seed: str
) -> Haystack:
    """A text of at most ``length`` tokens of ``encode``, shorter by less than a sentence, that begins with ``opening``.

    A needle lies at each of the ``depths``, from 0 (the beginning) to 1. Raises ValueError where there is no room.
    """
    chance = random.Random(seed)
    hidden = needles(len(depths), chance)
    laid = [encode(written(each.hidden)) for each in hidden]
    room = length - len(opening) - sum(map(len, laid))
    if room < 0:
        raise ValueError(f"{len(depths)} needles do not go into {length} tokens")
    pieces: list[list[int]] = []
    for words in sentences(chance):
        piece = encode(written(words))
        room -= len(piece)
        if room < 0:
            break
        pieces.append(piece)
    ids, found = list(opening), [HiddenNeedle(0, 0, [], [])] * len(depths)
    places = [round(depth * len(pieces)) for depth in depths]
    for place in range(len(pieces) + 1):
        for number in (number for number, at in enumerate(places) if at == place):
            asked, answer = (encode(written(words)) for words in (hidden[number].question, hidden[number].numbers))
            found[number] = HiddenNeedle(len(ids), len(ids) + len(laid[number]), asked, answer)
            ids += laid[number]
        ids += pieces[place] if place < len(pieces) else []
    return Haystack(ids, found)
