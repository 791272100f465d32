"""Small text tasks made of random words: copy, edit this text, find the key; and refusals of every other subject."""

from __future__ import annotations

import functools
import json
import random
import re
from pathlib import Path

from knowledge import load

PHRASES = json.loads((Path(__file__).resolve().parent / "phrases.json").read_text("utf-8"))
WORDS: list[str] = PHRASES["words"]
NAMES: list[str] = PHRASES["names"]
THINGS = ("key", "code", "number", "password", "secret", "token", "room", "colour")
PLACES = ("door", "box", "room", "gate", "chest", "drawer", "house", "lamp")


SYLLABLES = [
    "ba",
    "be",
    "do",
    "du",
    "fa",
    "ka",
    "ki",
    "la",
    "lo",
    "ma",
    "mi",
    "na",
    "ne",
    "po",
    "ra",
    "ri",
    "sa",
    "so",
    "ta",
    "te",
    "ti",
    "to",
    "va",
    "vi",
    "zu",
]


@functools.cache
def sentences() -> tuple[list[str], ...]:
    """The words of every question and answer of the knowledge, without punctuation."""
    lines = (line for block in load() for line in (*block.questions, block.answer))
    return tuple(words for line in lines if len(words := re.findall(r"[A-Za-z0-9]+", line)) > 1)


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """Every word of the knowledge in lower case, once."""
    return tuple(sorted({word.lower() for words in sentences() for word in words if word.isalpha()}))


def some_word(rng: random.Random) -> str:
    """A common word, a word of the knowledge, a made-up one, a name or a number."""
    draw = rng.random()
    if draw < 0.5:
        return rng.choice(WORDS)
    if draw < 0.8:
        return rng.choice(vocabulary())
    if draw < 0.9:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3)))
    return rng.choice(NAMES) if draw < 0.95 else str(rng.randint(1, 9999))


def some_words(rng: random.Random, low: int, high: int) -> list[str]:
    """Between ``low`` and ``high`` words: random ones, or at times a stretch of a real sentence."""
    count = rng.randint(low, high)
    if rng.random() < 0.3:
        words = rng.choice(sentences())
        if len(words) >= count:
            start = rng.randint(0, len(words) - count)
            return words[start : start + count]
    if rng.random() < 0.5:
        return [rng.choice(WORDS) for _ in range(count)]
    return [some_word(rng) for _ in range(count)]


def copy(rng: random.Random) -> tuple[str, str]:
    """Say it again, unchanged."""
    text = " ".join(some_words(rng, 2, 9))
    form = rng.choice(
        (
            "Copy this: {}",
            "copy this text: {}",
            "Repeat: {}",
            "Repeat this exactly: {}",
            "repeat after me: {}",
            "Copy: {}",
            "Say exactly: {}",
            "Write this again: {}",
            "repeat the text: {}",
            "copy exactly: {}",
            "Please copy this text: {}",
            "repeat these words: {}",
            "Repeat exactly this: {}",
        )
    )
    return form.format(text), text


def capitals(rng: random.Random) -> tuple[str, str]:
    text = " ".join(some_words(rng, 1, 5))
    form = rng.choice(
        (
            "Write in capital letters: {}",
            "write this in capitals: {}",
            "upper case: {}",
            "Make this upper case: {}",
            "change to capital letters: {}",
            "put this text in upper case: {}",
            "Write this text in capital letters: {}",
        )
    )
    return form.format(text), text.upper()


def replace(rng: random.Random) -> tuple[str, str]:
    words = some_words(rng, 3, 9)
    old, new = rng.choice(words), some_word(rng)
    form = rng.choice(
        (
            "Replace {0} with {1}: {2}",
            "Replace the word {0} by {1} in this text: {2}",
            "change {0} to {1} in: {2}",
            "replace {0} by {1} in this sentence: {2}",
            "In this text, replace {0} with {1}: {2}",
            "replace the word {0} with {1}: {2}",
            "Put {1} for {0}: {2}",
            "edit this text, {0} becomes {1}: {2}",
            "Replace the word {0} with {1} here: {2}",
        )
    )
    return form.format(old, new, " ".join(words)), " ".join(new if word == old else word for word in words)


def reverse(rng: random.Random) -> tuple[str, str]:
    words = some_words(rng, 2, 5)
    form = rng.choice(
        (
            "Reverse this list: {}",
            "reverse the list: {}",
            "Put the list in reverse order: {}",
            "list backwards: {}",
            "turn this list around: {}",
            "Write this list in reverse order: {}",
            "reverse order please: {}",
        )
    )
    return form.format(", ".join(words)), ", ".join(reversed(words))


def spacing(rng: random.Random) -> tuple[str, str]:
    words = some_words(rng, 3, 7)
    messy = "".join(word + " " * rng.choice((1, 1, 2, 3)) for word in words).strip()
    form = rng.choice(
        ("Fix the spacing: {}", "fix the spaces: {}", "Remove the extra spaces: {}", "clean up the spaces in: {}")
    )
    return form.format(messy), " ".join(words)


def keys(rng: random.Random, entries: int) -> tuple[str, str, str]:
    """Facts that give ``entries`` owners a key each, the name of one of those keys, and the answer that tells it."""
    thing = rng.choice(THINGS)
    if rng.random() < 0.5:
        owners = rng.sample(NAMES, min(entries, len(NAMES)))
    else:
        place = rng.choice(PLACES)
        owners = [f"the {word} {place}" for word in rng.sample(WORDS[:60], min(entries, 60))]
    joint = rng.choice(("of", "of", "for"))
    digits = rng.random() < 0.6
    names = [f"{thing} {joint} {owner}" for owner in owners]
    values = [str(rng.randint(100, 99999)) if digits else some_word(rng) for _ in owners]
    facts = " ".join(f"The {name} is {value}." for name, value in zip(names, values, strict=True))
    chosen = rng.randrange(len(names))
    return facts, names[chosen], f"The {names[chosen]} is {values[chosen]}."


def find_key(rng: random.Random, entries: int) -> tuple[str, str]:
    """A list of keys and a question for one of them."""
    facts, name, answer = keys(rng, entries)
    form = rng.choice(
        (
            "{0} What is the {1}?",
            "{0} Tell me the {1}.",
            "{0} {1}?",
            "What is the {1}? {0}",
            "Find the {1}: {0}",
            "{0} What's the {1}?",
            "{0} Now what is the {1}?",
        )
    )
    return form.format(facts, name), answer


def refuse(rng: random.Random) -> tuple[str, str]:
    """A question about something else, and the refusal."""
    row = rng.choice(PHRASES["refusals"])
    asked = rng.choice(row["questions"]).format(
        country=rng.choice(PHRASES["countries"]),
        city=rng.choice(PHRASES["cities"]),
        city2=rng.choice(PHRASES["cities"]),
        subject=rng.choice(PHRASES["subjects"]),
        sick=rng.choice(PHRASES["sick"]),
        food=rng.choice(PHRASES["foods"]),
        food2=rng.choice(PHRASES["foods"]),
        name=rng.choice(NAMES),
        a=rng.randint(2, 999),
        b=rng.randint(2, 999),
        year=rng.randint(1500, 2020),
    )
    return asked, row["answer"]


def task(rng: random.Random) -> tuple[str, str]:
    """One random task as (question, answer)."""
    draw = rng.random()
    if draw < 0.28:
        return copy(rng)
    if draw < 0.40:
        return capitals(rng)
    if draw < 0.60:
        return replace(rng)
    if draw < 0.70:
        return reverse(rng)
    if draw < 0.74:
        return spacing(rng)
    return find_key(rng, rng.choice((2, 2, 2, 3, 3, 4, 6, 10, 20)))
