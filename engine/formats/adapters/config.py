"""adapter_config.json of a LoRA adapter as PEFT writes it, read with care."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.config.raw import RawConfig, is_number
from engine.formats.adapters.patterns import NotRead, Pattern, Steps

FILE = "adapter_config.json"
MOST_RANK = 512
MOST_PATTERNS = 4096
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
"""Reasons for refusing an adapter, by the key of the configuration that asks for what Kvasir does not compute."""
_OTHER_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways to begin a training that change the model's own weights."""


Numbers = tuple[tuple[Pattern, float], ...]
"""Numbers of the modules whose names patterns match, of which the first counts."""


class LoraConfig(NamedTuple):
    """``ranks`` and ``alphas`` are those of modules that patterns match; ``base`` is the model it was trained for."""

    rank: int
    alpha: float
    ranks: Numbers
    alphas: Numbers
    stabilised: bool
    base: str

    def of_modules(self, names: Sequence[str]) -> dict[str, tuple[int, float]]:
        """The rank of each module, and what multiplies its product: alpha / r, or alpha / sqrt(r) (rsLoRA,
        Kalajdzievski 2023, arXiv 2312.03732).

        Raises :class:`NotRead` for a pattern that matches none of them, or takes too long.
        """
        steps = Steps()
        ranks = _by_name("rank_pattern", self.ranks, names, self.rank, steps)
        alphas = _by_name("alpha_pattern", self.alphas, names, self.alpha, steps)
        roots = {name: math.sqrt(rank) if self.stabilised else rank for name, rank in ranks.items()}
        return {name: (int(ranks[name]), alphas[name] / roots[name]) for name in names}


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


def _patterns(raw: RawConfig, key: str, whole: bool) -> Numbers:
    found = raw.values.get(key) or {}
    if not isinstance(found, dict) or len(found) > MOST_PATTERNS:
        raise raw.wrong(f'"{key}" is not a JSON object of up to {MOST_PATTERNS:,} modules')
    for name, value in found.items():
        if not is_number(value) or value <= 0 or (whole and (type(value) is not int or value > MOST_RANK)):
            kind = f"a whole number from 1 to {MOST_RANK}" if whole else "a positive number"
            raise raw.wrong(f'"{key}" gives {name:.100} the value {value!r:.60}, where {kind} is needed')
    return tuple((_read(raw, key, name), value) for name, value in found.items())


def _read(raw: RawConfig, key: str, text: str) -> Pattern:
    try:
        return Pattern.read(text)
    except NotRead as error:
        raise refused(raw.file.parent, _about(key, text, error)) from error


def _about(key: str, text: str, what: object) -> str:
    return f"the pattern {text!r:.100} of its {key} {what}"


def _by_name(key: str, table: Numbers, names: Sequence[str], usual: float, steps: Steps) -> dict[str, float]:
    """The number of each module: of the first pattern that matches its name, else the usual one."""
    found, silent = dict.fromkeys(names, usual), {pattern.text: pattern for pattern, _ in table}
    for name in names:
        for pattern, value in table:
            if _ends(key, pattern, name, steps):
                found[name] = value
                silent.pop(pattern.text, None)
                break
    for pattern in silent.values():
        if not any(_ends(key, pattern, name, steps) for name in names):
            raise NotRead(_about(key, pattern.text, "matches none of the modules that it adapts"))
    return found


def _ends(key: str, pattern: Pattern, name: str, steps: Steps) -> bool:
    try:
        return pattern.ends(name, steps)
    except NotRead as error:
        raise NotRead(_about(key, pattern.text, error)) from error
