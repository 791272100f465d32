"""generation_config.json: the model maker's own sampling defaults and the ids that end a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.protocol import Sampling


class GenerationConfig(msgspec.Struct, frozen=True):
    """``sampling`` holds what the file says and the neutral value where it is silent; ``eos_ids`` may be several."""

    eos_ids: list[int] = []
    bos_id: int | None = None
    sampling: Sampling = Sampling()


def _ids(value: Any) -> list[int]:
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        return [value]
    if isinstance(value, list):
        return [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
    return []


def _number(raw: dict[str, Any], key: str, neutral: float) -> float:
    value = raw.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else neutral


def read_generation_config(folder: Path, model_config: dict[str, Any]) -> GenerationConfig:
    """Reads the folder's file when there is one; end-of-text ids of config.json count too.

    An unreadable file is taken as silent: it only holds defaults.
    """
    raw: dict[str, Any] = {}
    file = folder / "generation_config.json"
    if file.is_file():
        try:
            loaded = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            loaded = {}
        raw = loaded if isinstance(loaded, dict) else {}
    eos = _ids(raw.get("eos_token_id")) or _ids(model_config.get("eos_token_id"))
    bos = _ids(raw.get("bos_token_id")) or _ids(model_config.get("bos_token_id"))
    # `do_sample: false` is greedy whatever temperature stands beside it.
    temperature = 0.0 if raw.get("do_sample") is False else _number(raw, "temperature", 1.0)
    sampling = Sampling(
        temperature=temperature,
        top_k=int(_number(raw, "top_k", 0)),
        top_p=_number(raw, "top_p", 1.0),
        min_p=_number(raw, "min_p", 0.0),
        typical_p=_number(raw, "typical_p", 1.0),
        repetition_penalty=_number(raw, "repetition_penalty", 1.0),
    )
    return GenerationConfig(list(dict.fromkeys(eos)), bos[0] if bos else None, sampling)
