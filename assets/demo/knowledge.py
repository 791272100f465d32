"""The questions and answers that the bundled model is made of: techniques from engine/catalogue, the rest by hand.

A file in knowledge/ is "# Title", then blocks separated by blank lines: lines "Q: ..." (the first is the heading, the
others ask the same differently) and one "A: ..." line; then, as often as needed, lines "F: ..." with what may be asked
next and one "A: ..." line. Answers may quote the catalogue (techniques.py).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from techniques import pairs, quoted

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "knowledge"
QUESTIONS = HERE / "evaluation" / "questions.jsonl"
"""The 100 questions of the measurement, asked once, of a finished model."""
DISTANT = HERE / "evaluation" / "distant.jsonl"
"""100 whose writer knew the training questions and kept as far away from their wording as he could."""
DEVELOPMENT = HERE / "evaluation" / "development.jsonl"
"""100 others, whose failures may be read while the training is being improved."""
SETS = (QUESTIONS, DISTANT, DEVELOPMENT)
TASKS = ("copy", "repeat", "write this", "replace", "put", "the ", "please ", "reverse ")
"""How evaluation questions begin that carry their answer within them."""


@dataclass(frozen=True)
class Block:
    """One answer and the ways to ask for it; the first question is the heading."""

    topic: str
    questions: tuple[str, ...]
    answer: str
    further: tuple[Block, ...] = ()
    """What may be asked right after this answer, in words that need it ("Why does that save memory?")."""


@dataclass(frozen=True)
class EvaluationQuestion:
    """A question kept out of training. Each group of ``must`` needs one of its strings in the answer."""

    question: str
    must: tuple[tuple[str, ...], ...]


def normalise(text: str) -> str:
    """Lower-case words only, so that two spellings of one question compare equal."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def parse(text: str, name: str) -> list[Block]:
    """The blocks of one file. Raises ValueError, naming ``name`` and the block, where the format is broken."""
    title, *parts = re.split(r"\n\s*\n", text.strip())
    if not title.startswith("# ") or "\n" in title:
        raise ValueError(f"{name}: the file must begin with one line '# Title' and a blank line")
    blocks = []
    for part in parts:
        lines = [line.strip() for line in part.splitlines() if line.strip()]
        if not re.fullmatch(
            r"Q+A(F+A)*", "".join(line[0] for line in lines if line[1:2] == ":").ljust(len(lines), "?")
        ):
            raise ValueError(
                f"{name}: a block must be 'Q:' lines, one 'A:' line, then 'F:' lines and 'A:': {lines[0]!r}"
            )
        first, *further = _runs(title[2:].strip(), lines)
        blocks.append(replace(first, further=tuple(further)))
    return blocks


def _runs(topic: str, lines: list[str]) -> Iterator[Block]:
    questions: list[str] = []
    for line in lines:
        if line.startswith("A:"):
            yield Block(topic, tuple(questions), quoted(line[2:].strip()))
            questions = []
        else:
            questions.append(line[2:].strip())


def techniques(known: frozenset[str]) -> list[Block]:
    """The blocks of the catalogue, without the questions whose normal form is in ``known`` or held out."""
    blocks, taken = [], set(known | held_out())
    for topic, asked, answer, further in pairs():
        questions = tuple(question for question in asked if normalise(question) not in taken)
        taken.update(normalise(question) for question in questions)
        if questions:
            then = tuple(Block(topic, forms, reply) for forms, reply in further)
            blocks.append(Block(topic, questions, answer, then))
    return blocks


def written(folder: Path = FOLDER) -> list[Block]:
    """Every block of every file in ``folder``, in the order of the file names."""
    return [block for path in sorted(folder.glob("*.txt")) for block in parse(path.read_text("utf-8"), path.name)]


def load(folder: Path = FOLDER) -> list[Block]:
    """All that the model learns: what is written in ``folder``, then the catalogue."""
    blocks = written(folder)
    return [*blocks, *techniques(frozenset(normalise(question) for block in blocks for question in block.questions))]


def load_evaluation(path: Path = QUESTIONS) -> list[EvaluationQuestion]:
    """The evaluation questions with their key facts."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [EvaluationQuestion(row["question"], tuple(tuple(group) for group in row["must"])) for row in rows]


def held_out() -> frozenset[str]:
    """The questions of all sets in normal form: no training text may ask one of these."""
    return frozenset(normalise(item.question) for path in SETS for item in load_evaluation(path))


def states_facts(answer: str, must: tuple[tuple[str, ...], ...]) -> bool:
    """Whether ``answer`` has one string of every group; one with capitals must be there in just that case."""
    lowered = answer.lower()
    return all(any(option in (lowered if option.islower() else answer) for option in group) for group in must)


def main(arguments: list[str] | None = None) -> int:
    """Count the knowledge and check it: format, leaks of evaluation questions, questions with two answers."""
    argparse.ArgumentParser(description=main.__doc__).parse_args(arguments)
    blocks, secret = load(), held_out()
    seen: dict[str, str] = {}
    problems = []
    for block in blocks:
        for question in block.questions:
            key = normalise(question)
            if key in secret:
                problems.append(f"evaluation question in the knowledge: {question}")
            if seen.setdefault(key, block.answer) != block.answer:
                problems.append(f"two answers to: {question}")
    for item in (item for path in SETS for item in load_evaluation(path)):
        known = any(states_facts(block.answer, item.must) for block in blocks)
        if not known and not item.question.lower().startswith(TASKS):
            problems.append(f"no answer states the facts of: {item.question}")
    count = sum(len(block.questions) for block in blocks)
    sys.stdout.write(f"{len(blocks)} answers, {count} questions\n" + "".join(line + "\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
