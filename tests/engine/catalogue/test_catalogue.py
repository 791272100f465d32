"""The catalogue: values keep their type, refusals say why, and the state tells the window what cannot apply."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import catalogue
from engine.catalogue import BY_KEY, OptionError
from engine.decoding.options import EngineOptions
from engine.protocol import keys


def test_keys_are_unique_and_every_entry_explains_itself() -> None:
    assert list(BY_KEY) == [value for name, value in vars(keys).items() if name.isupper()]
    for entry in BY_KEY.values():
        assert entry.parse(entry.default) == entry.default
        assert entry.explains.endswith(".")
        assert entry.explains.count(". ") == 1, f"{entry.key}: two sentences for a person"
        assert entry.measure.shows
        assert entry.exactness in ("lossless", "same distribution", "approximate", "model property")
        assert all(entry.parse(value) == value for value in entry.measure.compare)


def test_the_defaults_do_not_exclude_each_other() -> None:
    assert catalogue.conflict(catalogue.defaults()) == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"speculation": "draft"}, "draft model"),
        ({"kv_cache": "maybe"}, "on or off"),
        ({"token_budget": 3}, "between 16 and 8192"),
        ({"token_budget": True}, "number"),
        ({"draft_length": 2.5}, "whole number"),
        ({"draft_length": float("nan")}, "number"),
        ({"draft_length": 10**400}, "between 0 and 16"),
        ({"draft_length": -(10**400)}, "between 0 and 16"),
        ({"draft_length": "1e400"}, "between 0 and 16"),
        ({"draft_length": "x" * 5000}, "'xxx.{0,60} is not"),
        ({"weights": "16bit"}, "not quantised"),
        ({"nonsense": 1}, "no optimisation called"),
        ({"kv_cache": False, "speculation": "ngram"}, "speculation off first"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_a_sentence(changes: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        catalogue.validated(changes, catalogue.defaults(), {"model"})  # type: ignore[arg-type]


def test_words_from_the_command_line_become_values() -> None:
    values = catalogue.validated(
        {"kv_cache": "off", "token_budget": "64", "speculation": "off"}, catalogue.defaults(), {"model"}
    )
    assert values["kv_cache"] is False
    assert values["token_budget"] == 64
    assert type(values["token_budget"]) is int


def test_the_state_gives_the_reason_for_what_cannot_apply() -> None:
    spec = {entry.key: entry for entry in catalogue.state(catalogue.defaults(), {"model"})}
    assert "draft" in spec["speculation"].disabled_choices
    assert spec["weights"].disabled_reason
    assert not spec["weights"].measure.compare
    assert not spec["kv_cache"].disabled_reason
    spec = {
        entry.key: entry
        for entry in catalogue.state({**catalogue.defaults(), "kv_cache": False}, {"model", "draft model"})
    }
    assert set(spec["speculation"].disabled_choices) == {*spec["speculation"].titles} - {"off", "auto"}
    assert not spec["kv_cache"].disabled_reason, "the switch that is off can be switched on again"


def test_what_means_nothing_with_the_loaded_model_is_hidden() -> None:
    def hidden(*capabilities: catalogue.Capability) -> list[str]:
        return [spec.key for spec in catalogue.state(catalogue.defaults(), capabilities) if spec.hidden]

    assert hidden() == [], "not before it is known"
    graphs = ["cuda_graphs", "early_launch", "fetched_ahead", "resident_products"]
    assert hidden("model") == ["window_pages", "cascade", "async_scheduling", "activations", *graphs]
    reads: tuple[catalogue.Capability, ...] = ("model", "layer windows", "shared reads", "quantised activations")
    assert hidden(*reads) == ["async_scheduling", *graphs]
    assert hidden(*reads, "graphs", "async steps") == graphs[1:]
    assert hidden(*reads, "graphs", "async steps", "early launch", "resident products") == []


VALUES = st.one_of(st.booleans(), st.integers(-2, 9000), st.sampled_from(["on", "off", "draft", "16bit", "", "7"]))


@given(st.lists(st.tuples(st.sampled_from(sorted(catalogue.BY_KEY)), VALUES), max_size=6))
def test_validated_values_are_always_consistent_or_refused(changes: list[tuple[str, bool | int | str]]) -> None:
    refusal, values = "", catalogue.defaults()
    try:
        values = catalogue.validated(dict(changes), values, {"model", "draft model", "packed weights"})
    except OptionError as error:
        refusal = str(error)
    assert not refusal or refusal.endswith(".")
    assert catalogue.conflict(values) == ""
    for key, value in values.items():
        assert catalogue.option(key).parse(value) == value
        assert type(value) is type(catalogue.option(key).default)


def test_sizes_of_the_cache_are_gigabytes() -> None:
    options = EngineOptions()
    assert (options.preemption, options.host_cache_bytes, options.disk_cache_bytes) == ("auto", 1_000_000_000, 0)
    for key, value in (("preemption", "swap"), ("host_cache", "0"), ("disk_cache", 2.5)):
        options.set(key, value)
    assert (options.preemption, options.host_cache_bytes, options.disk_cache_bytes) == ("swap", 0, 2_500_000_000)
    for value in (-1, "inf", "nan", 1e9):
        with pytest.raises(OptionError):
            options.set("disk_cache", value)


def test_a_gpu_reads_prompts_in_larger_steps_unless_told_otherwise() -> None:
    options = EngineOptions()
    devices = [torch.device(name) for name in ("cpu", "cuda")]
    assert [options.reading_budget(device) for device in devices] == [512, 2048]
    options.values["token_budget"] = 64
    assert [options.reading_budget(device) for device in devices] == [64, 64]
