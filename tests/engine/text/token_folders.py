"""Folders whose files say the same of three special tokens, each in another place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.engine.text.samples import trained

MARKS = {"<|im_start|>": 1, "<|im_end|>": 2}
ENTRY = {"special": True, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
DECODER = {str(number): {"content": mark, **ENTRY} for mark, number in MARKS.items()}
WHOLE = {"__type": "AddedToken", "content": "<|im_start|>", **ENTRY}
TEXT = "<|im_start|>user\nhi<|im_end|> <|endoftext|>"


def folder_of(path: Path, registered: int = 1, **files: Any) -> Path:
    """A folder whose tokenizer.json registers so many of its three special tokens; ``files`` without ".json"."""
    path.mkdir(exist_ok=True)
    state = json.loads(trained("chatml"))
    state["added_tokens"] = [entry for entry in state["added_tokens"] if entry["id"] < registered]
    (path / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value), "utf-8")
    return path


PLACES: list[dict[str, Any]] = [
    {"tokenizer_config": {"added_tokens_decoder": DECODER}},
    {"added_tokens": MARKS, "tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": "<|im_start|>"}},
    {"tokenizer_config": {"additional_special_tokens": list(MARKS)}},
    {"tokenizer_config": {"extra_special_tokens": [WHOLE, "<|im_end|>"]}},
    {"tokenizer_config": {"extra_special_tokens": {"other": WHOLE, "one_token": "<|im_end|>"}}},
    {"tokenizer_config": {"model_specific_special_tokens": {"one": "<|im_start|>", "own": "<|im_end|>"}}},
    {"special_tokens_map": {"additional_special_tokens": list(MARKS)}},
    {"special_tokens_map": {"bos_token": WHOLE, "eos_token": "<|im_end|>"}},
]
