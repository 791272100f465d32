"""Records are all that is said of a technique: few other files name it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.theme.theme import Tokens
from engine import catalogue
from engine.decoding.speculation.technique import drafting
from engine.protocol import keys

ROOT = Path(__file__).parents[3]
NAMED = {
    "medusa": {
        "engine/loading/techniques.py",  # registers it
        "engine/decoding/speculation/medusa",
        "engine/services/training/medusa.py",
        "engine/services/training/train_heads.py",  # lists what is trained
        "engine/services/experiments/lab/heads.py",
        "engine/catalogue/speculation.py",  # cites its paper, which has the rule of typical acceptance
    },
    "eagle": {
        "engine/loading/techniques.py",
        "engine/decoding/speculation/eagle",
        "engine/services/training/eagle.py",
        "engine/services/training/train_heads.py",
        "engine/services/experiments/lab/heads.py",
    },
}
"""Files and folders that may name a technique: its own, its registration, its training, its experiment."""


@pytest.mark.parametrize("technique", NAMED)
def test_a_technique_is_named_in_its_folder_and_where_it_is_registered(technique: str) -> None:
    paths = [*ROOT.glob("engine/**/*.py"), *ROOT.glob("app/**/*.py")]
    found = {path for path in paths if re.search(technique, path.read_text("utf-8"), re.IGNORECASE)}
    allowed = {ROOT / place for place in NAMED[technique]}
    stray = [path.relative_to(ROOT).as_posix() for path in found if not allowed & {path, *path.parents}]
    assert not stray
    assert len(allowed) <= 6
    assert all(any(place in (path, *path.parents) for path in found) for place in allowed), "and no more than that"


def test_records_say_all_that_tables_are_made_of() -> None:
    choices = [choice.key for choice in catalogue.option(keys.SPECULATION).choices]
    assert choices == ["off", "auto", *(each.name for each in drafting())]
    for each in catalogue.TECHNIQUES:
        assert set(each.choice.needs) <= set(catalogue.exclusions.MISSING)
        assert {*each.uses, *each.shows} <= set(catalogue.BY_KEY)
    for each in drafting():
        assert each.color in Tokens._fields
        assert each.style.offer
