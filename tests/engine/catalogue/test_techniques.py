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
REGISTERED, OF_CACHE = "engine/loading/techniques.py", "engine/cache/techniques/__init__.py"
TRAINED = "engine/services/training/train_heads.py"
NAMED = {
    "medusa": {
        REGISTERED,
        "engine/decoding/speculation/medusa",
        "engine/services/training/medusa.py",
        TRAINED,
        "engine/services/experiments/lab/heads.py",
        "engine/catalogue/speculation.py",  # cites its paper, which has the rule of typical acceptance
    },
    "eagle": {
        REGISTERED,
        "engine/decoding/speculation/eagle",
        "engine/services/training/eagle.py",
        TRAINED,
        "engine/services/experiments/lab/heads.py",
    },
    "kivi": {
        OF_CACHE,
        "engine/cache/techniques/kivi",
        "engine/cache/techniques/quest/technique.py",  # excludes it
        "engine/cache/stores",  # the layout that has its name
        "engine/compute/attention",  # kernels of that layout
        "engine/compute/native",
        "engine/compute/layers/hadamard.py",  # why its keys are not mixed
        "engine/catalogue/kv_kinds.py",
        "engine/catalogue/cache.py",
        "engine/library/bundled.py",  # the model that shows it
        "engine/services/experiments/lab",
        "app/lab/pictures/examples.py",
    },
    r"\b(?:quest(?![a-z])|QUEST(?!ION)|Quest(?=[A-Z]))": {
        OF_CACHE,
        "engine/protocol/keys.py",  # its budget
        "engine/cache/techniques/quest",
        "engine/cache/stores/packed.py",
        "engine/compute/attention",
        "engine/compute/models/arenas.py",  # which layers its paper leaves out
        "engine/compute/native",
        "engine/catalogue/kv_kinds.py",
        "engine/catalogue/speculation.py",
        "engine/decoding/telemetry/why/rules.py",
        "engine/library/bundled.py",
        "engine/services/experiments/measures/cost.py",
        "engine/services/experiments/lab",
        "app/lab/pictures/examples.py",
    },
}
"""Files and folders that may name a technique: its own, its registration, its training, its experiment."""
MOST = {"medusa": 10, "eagle": 7, "kivi": 24}
"""Files that name one."""


@pytest.mark.parametrize("technique", NAMED)
def test_a_technique_is_named_in_its_folder_and_where_it_is_registered(technique: str) -> None:
    paths = [*ROOT.glob("engine/**/*.py"), *ROOT.glob("app/**/*.py")]
    flags = re.IGNORECASE if technique.isalpha() else 0
    found = {path for path in paths if re.search(technique, path.read_text("utf-8"), flags)}
    allowed = {ROOT / place for place in NAMED[technique]}
    stray = [path.relative_to(ROOT).as_posix() for path in found if not allowed & {path, *path.parents}]
    assert not stray
    assert len(found) <= MOST.get(technique, 24)
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
