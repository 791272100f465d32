"""What excludes what is said once, agrees with the code that does it, and switches are named in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import catalogue
from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.catalogue.exclusions import EXCLUSIONS, IDLE, SHAPES, Setting
from engine.decoding.options import EngineOptions
from engine.protocol import keys

ROOT = Path(__file__).parents[3]
OTHER_WORDS = {
    "app/chat/transcript/offered.py": {"speculation"},  # an experiment's name
    "app/lab/pictures/examples.py": {"kv_cache", "weights", "speculation"},  # experiments
    "app/models/load_settings.py": {"kv_kind"},  # a field of what the person set for a model
    "app/plots/charts.py": {"weights"},  # an owner of memory
    "app/plots/strip.py": {"weights"},  # an owner of memory
    "engine/compute/attention/backends/batch_invariant.py": {"batch_invariant"},  # a backend
    "engine/services/experiments/bench.py": {"speculation"},  # a part of the report
    "engine/formats/quantised/quantisation.py": {"weights"},  # a field of other programs' files
    "engine/doors/cli/doctor.py": {"weights"},  # an owner of memory
    "engine/doors/cli/library.py": {"weights"},  # an owner of memory, and a line of a model's details
    "engine/services/experiments/lab/kv_cache.py": {"kv_cache"},  # an experiment's name
    "engine/services/experiments/lab/speculation.py": {"speculation"},  # an experiment's name
    "engine/services/experiments/lab/weights.py": {"weights"},  # an experiment's name
    "engine/compute/native/experts.py": {"weights"},  # a field of an argument
    "engine/compute/layers/numerics.py": {"batch_invariant", "cascade"},  # slots
    "engine/loading/advice/fit.py": {"kv_kind"},  # a kind of suggestion
    "engine/protocol/library.py": {"kv_kind"},  # a kind of suggestion
    "engine/services/training/eagle.py": {"acceptance"},  # a field of a recipe's record
    "engine/services/quantise/packed.py": {"weights"},  # a field of other programs' files
    "engine/decoding/speculation/self_drafting/technique.py": {"speculation"},  # an experiment's name
    "engine/decoding/speculation/proposers/layer_choice.py": {"exit_layer"},  # a field of speculation.json
    "engine/decoding/telemetry/prometheus.py": {"weights"},  # an owner of memory
}
"""Files with a string that is also the key of a switch, and what it is there."""


def settings() -> Iterator[Setting]:
    for rule in EXCLUSIONS:
        yield from (rule.one, rule.other)
    yield from (rule.under for rule in IDLE)
    yield from (rule.setting for rule in SHAPES)


def test_rules_name_values_that_switches_have() -> None:
    for setting in settings():
        entry = catalogue.option(setting.key)
        assert [entry.parse(value) for value in setting.values] == list(setting.values)
    assert {rule.key for rule in IDLE} <= set(catalogue.BY_KEY)
    assert {value for name, value in vars(keys).items() if name.isupper()} == set(catalogue.BY_KEY)


@pytest.mark.parametrize(
    "policy", [KeepAll(), WindowWithSinks(64), QuestPolicy(64, 200)], ids=lambda policy: policy.name
)
def test_page_policies_do_what_the_rules_say(policy: PagePolicy) -> None:
    chosen = {keys.PAGE_POLICY: policy.name}
    assert (policy.shareable(1000) == 0) is bool(catalogue.idle(keys.PREFIX_CACHE, chosen))
    assert policy.branches is not bool(catalogue.idle(keys.TREE_NODES, chosen))


def test_a_request_without_a_kv_cache_shares_no_prefix() -> None:
    options = EngineOptions()
    assert options.for_request({}).prefix_cache
    assert not options.for_request({keys.KV_CACHE: False}).prefix_cache


def test_a_draft_method_is_refused_without_a_kv_cache() -> None:
    """Auto is the default and may stay: it drafts nothing there."""
    entry = catalogue.option(keys.SPECULATION)
    for choice in entry.choices:
        refused = catalogue.conflict({keys.KV_CACHE: False, entry.key: choice.key})
        assert bool(refused) is (choice.key not in ("off", "auto"))
    assert entry.default == "auto"
    assert catalogue.idle(entry.key, {keys.KV_CACHE: False})


@pytest.mark.slow
def test_switches_are_named_in_one_file() -> None:
    names = set(catalogue.BY_KEY)
    found: dict[str, set[str]] = {}
    for path in [*ROOT.glob("engine/**/*.py"), *ROOT.glob("app/**/*.py"), *ROOT.glob("docs/*.py")]:
        if path.parent.name == "catalogue" and path.name != "keys.py":
            continue  # `also` has names of techniques
        strings = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        if used := names & strings:
            found[path.relative_to(ROOT).as_posix()] = used
    assert found.pop("engine/protocol/keys.py") == names
    assert found == OTHER_WORDS, "use engine.protocol.keys"
