"""Patterns of LoRA adapters against Python's regular expressions, as PEFT matches them."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import CheckpointError
from engine.formats.adapters.config import FILE, read_lora_config
from engine.formats.adapters.patterns import MOST_CHARACTERS, NotRead, Pattern, Steps
from tests.kit.examples import examples

PIECES = ["a", "b", "1", "_", "q_proj", r"\.", ".", "*", "+", "?", "*?", "{2}", "{1,2}", "{,2}", "|", "(", ")", "(?:",
          "^", "$", "[", "]", "[^a]", "[a-c.]", r"[\d_]", "-", "{", "}", r"\d", r"\W", r"\S", r"\b", r"\Z"]  # fmt: skip
NAMES = st.lists(st.sampled_from(["a", "b", "c", "1", "_", "q_proj", ".", "-"]), max_size=7).map("".join)


def due(pattern: str, name: str) -> bool | None:
    """PEFT's rule; None for what is no expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
            return re.match(rf"(.*\.)?({pattern})$", name) is not None
        except re.error:
            return None


@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=7), names=st.lists(NAMES, min_size=4, max_size=8))
@examples(150)
def test_what_is_read_is_matched_as_by_peft(pieces: list[str], names: list[str]) -> None:
    text = "".join(pieces)
    try:
        pattern = Pattern.read(text)
    except NotRead:
        return
    for name in names:
        assert pattern.ends(name, Steps()) == due(text, name)


@pytest.mark.parametrize(
    "text",
    [r".*\.layers\.\d+\.self_attn\.(q_proj|v_proj)", "q_proj", r"^model\.layers\.(?:0|1[0-9])\..*", r"\w+_proj$",
     r"layers.1.self.attn.q.proj", r"(model\.)?layers\.[0-4]\.mlp\.(up|down)_proj", "(a+)+b", r"(\w*)*\.v_proj",
     r"layers\.(0|2|4)\..+?proj", "[qv]_proj", r"\S{3,}proj"],
)  # fmt: skip
def test_usual_ones_are_read(text: str) -> None:
    """And expressions for which Python's own matcher takes for ever end."""
    names = [f"model.layers.{layer}.{module}" for layer in (0, 1, 14)
             for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")]  # fmt: skip
    pattern, steps = Pattern.read(text), Steps()
    assert [pattern.ends(name, steps) for name in names] == [due(text, name) for name in names]
    pattern.ends("a" * 200 + "c", steps)


@pytest.mark.parametrize(
    "text",
    ["(?=a)b", "(?i)a", "(?P<x>a)", r"(a)\1", "a*+", "a**", "*a", "(a", "a)", "[a", r"\q", "a" * (MOST_CHARACTERS + 1),
     "a{2,1}", "a{99999}", "(" * 30 + ")" * 30, "\\", "^*", "[b-a]"],
)  # fmt: skip
def test_others_are_refused(text: str) -> None:
    with pytest.raises(NotRead):
        Pattern.read(text)


def test_steps_are_bounded() -> None:
    with pytest.raises(NotRead, match="takes too long"):
        Pattern.read("(.*.*.*)*x").ends("a." * 200, Steps(1000))


MODULES = ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"]


def numbers(folder: Path, **values: Any) -> dict[str, tuple[int, float]]:
    (folder / FILE).write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8} | values))
    return read_lora_config(folder).of_modules(MODULES)


def test_the_first_pattern_counts(tmp_path: Path) -> None:
    patterns = {r"layers\.1\..*": 2, "q_proj": 8, r"1\.mlp\.up_proj": 3}
    found = numbers(tmp_path, rank_pattern=patterns, alpha_pattern={r"layers\.\d\.self_attn\.q_proj": 64})
    assert list(found.values()) == [(8, 8.0), (2, 32.0), (2, 4.0)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"alpha_pattern": {"k_proj": 4}}, r"'k_proj' of its alpha_pattern matches none of the modules that it adapts"),
        ({"rank_pattern": {"(?=q)q_proj": 4}}, r"of its rank_pattern has a group of a kind that Kvasir does not match"),
        ({"rank_pattern": {"q_proj": 4.5}}, "a whole number from 1 to 512 is needed"),
    ],
)
def test_what_is_wrong_with_patterns_is_told(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, NotRead), match=says) as refused:
        numbers(tmp_path, **values)
    assert "Download" not in str(refused.value) or "4.5" in str(refused.value)
