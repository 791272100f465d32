"""The text that comes with the program to measure models on: nothing bundled was trained on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from engine.base.lines import split_lines


class HeldOutText(NamedTuple):
    """Questions with the bundled model's own answers, and more questions."""

    answered: list[tuple[str, str]]
    asked: list[str]


def held_out_text(folder: Path) -> HeldOutText:
    """Held-out text in ``folder``, the folder ``evaluation`` of the bundled models. Raises :class:`OSError` where it is
    not there."""
    entries = {
        name: [json.loads(line) for line in split_lines((folder / f"{name}.jsonl").read_text("utf-8"))]
        for name in ("answers", "distant", "questions", "development")
    }
    answered = [(entry["question"], entry["answer"]) for entry in entries.pop("answers")]
    return HeldOutText(answered, [entry["question"] for some in entries.values() for entry in some])
