"""Ways to ask one question: what a person types is never the line in the knowledge file."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from pathlib import Path

from knowledge import normalise

PHRASES = json.loads((Path(__file__).resolve().parent / "phrases.json").read_text("utf-8"))
PREFIXES: list[str] = PHRASES["prefixes"]
SUFFIXES: list[str] = PHRASES["suffixes"]
SYNONYMS: dict[str, list[str]] = PHRASES["synonyms"]
FILLERS = frozenset(PHRASES["fillers"])
REWRITES: list[tuple[re.Pattern[str], list[str]]] = [
    (re.compile(row["pattern"], re.IGNORECASE), row["forms"]) for row in PHRASES["rewrites"]
]
"""Each pattern with the forms that a question of that kind can take; {0}, {1} are the groups of the match."""


def rewrite(question: str, rng: random.Random) -> str:
    """The question in another grammatical form, or as it is where no form fits."""
    for pattern, forms in REWRITES:
        match = pattern.match(question)
        if match:
            return re.sub(r"\s+", " ", rng.choice(forms).format(*match.groups(default=""))).strip()
    return question


def swap_synonyms(words: list[str], rng: random.Random, rate: float) -> list[str]:
    return [
        rng.choice(SYNONYMS[word.lower()]) if word.lower() in SYNONYMS and rng.random() < rate else word
        for word in words
    ]


def drop_words(words: list[str], rng: random.Random, fillers: float, others: float) -> list[str]:
    kept = [word for word in words if rng.random() >= (fillers if word.lower() in FILLERS else others)]
    return kept or words


def mistype(word: str, rng: random.Random) -> str:
    """``word`` with two letters swapped, one doubled or one missing."""
    if len(word) < 5 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 2)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    doubled = word[:at] + word[at] + word[at:]
    return rng.choice((swapped, doubled, word[:at] + word[at + 1 :]))


def vary(question: str, rng: random.Random) -> str:
    """One of very many ways to type ``question``; about one in six is unchanged."""
    if rng.random() < 0.16:
        return question
    text = rewrite(question, rng) if rng.random() < 0.55 else question
    mark = "?" if text.endswith("?") else ""
    words = text.rstrip("?.! ").split()
    if rng.random() < 0.35:
        words = swap_synonyms(words, rng, 0.5)
    style = rng.random()
    if style < 0.30:
        words = drop_words(words, rng, 0.35, 0.04)
    elif style < 0.38:
        words = drop_words(words, rng, 0.95, 0.03)
        rng.shuffle(words)
    elif style < 0.44 and len(words) > 3:
        at = rng.randrange(len(words) - 1)
        words[at], words[at + 1] = words[at + 1], words[at]
    if rng.random() < 0.08:
        at = rng.randrange(len(words))
        words[at] = mistype(words[at], rng)
    text = " ".join(words)
    if rng.random() < 0.22:
        lowered = text[0].lower() + text[1:] if not text[:2].isupper() else text
        text = f"{rng.choice(PREFIXES)} {lowered}"
    if rng.random() < 0.15:
        text += rng.choice((" ", ", ")) + rng.choice(SUFFIXES)
    case = rng.random()
    if case < 0.40:
        text = text.lower()
    elif case < 0.80:
        text = text[0].upper() + text[1:]
    ending = rng.random()
    return text + ((mark or "?") if ending < 0.55 else rng.choice(("", "", "", ".", "!", " ?")))


class Asker:
    """Varies questions, but never into one that is held out or that belongs to another answer."""

    def __init__(self, owners: dict[str, str], secret: frozenset[str]) -> None:
        """``owners``: normal form of each known question -> its answer; ``secret``: forms that must not occur."""
        self.owners = owners
        self.secret = secret

    def ask(self, questions: tuple[str, ...], answer: str, rng: random.Random) -> str:
        """A way to ask for ``answer``, made from one of ``questions`` (at times from two)."""
        question = rng.choice(questions)
        for _ in range(8):
            varied = vary(question, rng)
            if rng.random() < 0.05:
                varied = f"{varied} {vary(rng.choice(questions), rng)}"
            key = normalise(varied)
            if key and not self.reveals(key) and self.owners.get(key, answer) == answer:
                return varied
        return question

    def reveals(self, key: str) -> bool:
        """Whether the normal form ``key`` is a held-out question or has one within it, dressed up."""
        padded = f" {key} "
        return any(f" {hidden} " in padded for hidden in self.secret)


def main(arguments: list[str] | None = None) -> int:
    """Print variations of a question."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("question")
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args(arguments)
    rng = random.Random(0)
    for _ in range(options.count):
        sys.stdout.write(vary(options.question, rng) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
