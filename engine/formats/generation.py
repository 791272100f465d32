"""generation_config.json: the model maker's own sampling defaults and the ids that end a text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.compute.sampling.params import RANGES, TOP_K_OFF, SamplingParams
from engine.config.raw import is_number
from engine.protocol import Sampling

FILE = "generation_config.json"
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
MAX_ID = 1 << 31


class GenerationConfig(msgspec.Struct, frozen=True):
    """``sampling`` holds what the file says and the neutral value where it is silent; ``eos_ids`` are those that the
    files declare (:meth:`engine.formats.load.Checkpoint.end_ids` knows more).

    ``notices`` are sentences for a person about what is not as the file says.
    """

    eos_ids: list[int] = []
    bos_id: int | None = None
    sampling: Sampling = Sampling()
    notices: tuple[str, ...] = ()


def token_ids(value: Any) -> list[int]:
    """The valid token ids of a value; a file may name a list, one, or none."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if type(item) is int and 0 <= item < MAX_ID]


def sampling_defaults(stated: Mapping[str, Any], source: str) -> tuple[Sampling, tuple[str, ...]]:
    """The settings of ``stated``, neutral where it is silent or out of range.

    Also a sentence about each value out of range; ``source`` is named in it.
    """
    neutral, notices = SamplingParams(seed=0), []
    found: dict[str, Any] = {}
    for name in SETTINGS:
        usual = getattr(neutral, name)
        found[name] = usual if stated.get(name) is None else _setting(name, stated[name])
        if found[name] is None:
            found[name] = usual
            notices.append(f"{source} sets {name} to {stated[name]!r:.40}, which cannot be: {usual:g} is used instead.")
    return Sampling(**found), tuple(notices)


def _setting(name: str, value: Any) -> float | None:
    """The value as the setting has it; None for one outside its range."""
    if not is_number(value):
        return None
    if name == "top_k":
        if value in TOP_K_OFF:
            return 0
        value = int(value) if value == int(value) else -1
    low, high = RANGES[name]
    return value if low <= value <= high else None


def read_generation_config(folder: Path, model_config: dict[str, Any]) -> GenerationConfig:
    """Reads the folder's file when there is one; end-of-text ids of config.json count too.

    An unreadable file is taken as silent, with a notice: it only holds defaults.
    """
    notices: tuple[str, ...] = ()
    try:
        raw = read_json(folder / FILE) or {}
    except CheckpointError as error:
        raw, notices = {}, (f"The model's own sampling settings are left out. {error}",)
    # Whoever trains a model further often changes one of the files, and a text ends with either.
    eos = token_ids(raw.get("eos_token_id")) + token_ids(model_config.get("eos_token_id"))
    bos = token_ids(raw.get("bos_token_id")) or token_ids(model_config.get("bos_token_id"))
    # `do_sample: false` is greedy whatever temperature the file has.
    greedy = {"temperature": 0.0} if raw.get("do_sample") is False else {}
    sampling, more = sampling_defaults(raw | greedy, f"{folder.name}'s {FILE}")
    return GenerationConfig(list(dict.fromkeys(eos)), bos[0] if bos else None, sampling, (*notices, *more))
