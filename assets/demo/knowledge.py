"""The questions and answers that both the help pages and the bundled model are made of.

A file in knowledge/ is "# Title", then blocks separated by blank lines: lines "Q: ..." (the first is the
heading of the help entry, the others ask the same differently) and one "A: ..." line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

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
        questions = tuple(line[2:].strip() for line in lines if line.startswith("Q:"))
        answers = [line[2:].strip() for line in lines if line.startswith("A:")]
        if not questions or len(answers) != 1 or not lines[-1].startswith("A:") or len(questions) + 1 != len(lines):
            raise ValueError(f"{name}: a block must be 'Q:' lines and one 'A:' line at the end: {lines[0]!r}")
        blocks.append(Block(title[2:].strip(), questions, answers[0]))
    return blocks


def load(folder: Path = FOLDER) -> list[Block]:
    """Every block of every file in ``folder``, in the order of the file names."""
    return [block for path in sorted(folder.glob("*.txt")) for block in parse(path.read_text("utf-8"), path.name)]


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
