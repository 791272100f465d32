"""adapter_config.json of a LoRA adapter as PEFT writes it, read with care."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.errors import CheckpointError
from engine.files import read_json
from engine.model_config.raw import RawConfig, is_number

FILE = "adapter_config.json"
T = TypeVar("T")
MOST_RANK = 512
MOST_PATTERNS = 4096
_LITERAL = re.compile(r"\^?[\w.\\]+\$?")
_REFUSED = {
    "use_dora": "it is a DoRA adapter, whose magnitudes Kvasir does not compute",
    "fan_in_fan_out": "its matrices are transposed (fan_in_fan_out), which no model that Kvasir knows needs",
    "modules_to_save": "it brings whole modules of its own (modules_to_save), which Kvasir does not exchange",
    "lora_bias": "its products have biases (lora_bias), which Kvasir does not add",
    "use_qalora": "its inputs are pooled (QA-LoRA), which Kvasir does not compute",
    "layer_replication": "it copies layers of the model (layer_replication), which Kvasir does not",
    "target_parameters": "it adapts single parameters (target_parameters, such as stacked experts), not linear modules",
    "trainable_token_indices": "it brings tokens of its own (trainable_token_indices), which Kvasir does not exchange",
    "alora_invocation_tokens": "it acts from certain tokens on (activated LoRA), and Kvasir's adapters act on all",
}
"""What Kvasir does not compute, by the key of the configuration that asks for it."""
_OTHER_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways to begin a training that change the model's own weights."""


class LoraConfig(NamedTuple):
    """``ranks`` and ``alphas`` are those of modules that end with a name; ``base`` is the model it was trained for."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    stabilised: bool
    base: str

    def rank_of(self, module: str) -> int:
        return _by_end(self.ranks, module, self.rank)

    def scale_of(self, module: str) -> float:
        """What multiplies the product: alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732)."""
        rank, alpha = self.rank_of(module), _by_end(self.alphas, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.stabilised else rank)


def read_lora_config(folder: Path) -> LoraConfig:
    """Raises :class:`CheckpointError` with a sentence for what is no LoRA adapter that Kvasir computes."""
    values = read_json(folder / FILE)
    if values is None:
        raise CheckpointError(f"{folder} has no {FILE}. Choose the folder of a LoRA adapter in PEFT's format.")
    raw = RawConfig(values, folder / FILE)
    if values.get("peft_type") != "LORA":
        raise refused(folder, f'its "peft_type" is {values.get("peft_type")!r:.60}, and Kvasir serves "LORA" alone')
    for key, reason in _REFUSED.items():
        if values.get(key):
            raise refused(folder, reason)
    if values.get("bias") not in (None, "none"):
        raise refused(folder, f'it brings biases ("bias" is {values["bias"]!r:.60}), which Kvasir does not exchange')
    start = values.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_OTHER_BASE):
        raise refused(folder, f"its training changed the model's own weights ({start:.60}): convert it to plain LoRA")
    return LoraConfig(
        rank=raw.integer("r", 8, most=MOST_RANK),
        alpha=raw.positive("lora_alpha", 8.0),
        ranks=_patterns(raw, "rank_pattern", whole=True),
        alphas=_patterns(raw, "alpha_pattern", whole=False),
        stabilised=raw.flag("use_rslora", False),
        base=str(values.get("base_model_name_or_path") or "")[:300],
    )


def refused(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"The adapter {folder.name} cannot be used: {reason}. Choose another adapter.")


def _patterns(raw: RawConfig, key: str, whole: bool) -> dict[str, Any]:
    """Numbers by the ends of modules' names. PEFT takes any regular expression; here it is a plain name, because one
    from a stranger's file may take for ever to match."""
    found = raw.values.get(key) or {}
    if not isinstance(found, dict) or len(found) > MOST_PATTERNS:
        raise raw.wrong(f'"{key}" is no JSON object of up to {MOST_PATTERNS:,} modules')
    for name, value in found.items():
        if not _LITERAL.fullmatch(name):
            raise raw.wrong(f'"{key}" has the pattern {name!r:.100}, where a plain name of modules is needed')
        if not is_number(value) or value <= 0 or (whole and (type(value) is not int or value > MOST_RANK)):
            kind = f"a whole number from 1 to {MOST_RANK}" if whole else "a positive number"
            raise raw.wrong(f'"{key}" gives {name:.100} the value {value!r:.60}, where {kind} is needed')
    return {name.replace("\\.", "."): value for name, value in found.items()}


def _by_end(table: Mapping[str, T], module: str, usual: T) -> T:
    """The first entry whose name the module's ends with, after a dot; one that begins with ^ is the whole name."""
    for name, value in table.items():
        end = name.removesuffix("$")
        if module == end.removeprefix("^") or (not end.startswith("^") and module.endswith(f".{end}")):
            return value
    return usual
