"""Details of a model from its headers, for people; and a text as its tokenizer reads it. No weight is read."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from engine.base.errors import plain
from engine.base.files import read_json, read_small
from engine.formats.gguf.container import part_files, read_header
from engine.formats.gguf.find import gguf_model, projectors_beside
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.library import store
from engine.protocol.library import HubFile, ModelDetails, TextToken, TextTokens
from engine.text.tokenizer import Tokenizer

MOST_SHOWN = 400
"""Characters of a value."""
MOST_TOKENS = 4096
"""Tokens of a text that is shown in pieces."""
_LICENCE_BYTES = 1 << 16


def details_of(path: Path, name: str = "") -> ModelDetails:
    """Raises :class:`CheckpointError` for a model that cannot be opened."""
    checkpoint = open_checkpoint(path, need_tokenizer=False)
    gguf, config = gguf_model(path), checkpoint.config
    metadata: dict[str, Any] = {}
    if gguf is not None:
        metadata, _ = read_header(part_files(gguf)[0])
    else:
        metadata = _flat(read_json(path / "config.json") or {})
    receipt = store.receipt_of(path)
    fetched = [each.name for _, each in store.variants_at(path)]
    revision = next((receipt.revisions.get(each, "") for each in fetched), "") if receipt else ""
    return ModelDetails(
        name=name or path.name,
        path=str(path),
        format="gguf" if gguf is not None else "safetensors",
        architecture=config.architecture,
        parameters=checkpoint.parameters,
        quantisation=checkpoint.quantisation_title,
        layers=config.num_layers,
        heads=config.attention.num_heads,
        kv_heads=config.attention.num_kv_heads,
        head_dim=config.attention.head_dim,
        width=config.hidden_size,
        context=config.positions.max_position,
        vocabulary=config.vocab_size,
        licence=_licence(gguf, path, metadata),
        repository=receipt.repository if receipt and revision else "",
        revision=revision,
        files=[HubFile(name=file.name, bytes=file.stat().st_size) for file in _files(gguf, path)],
        template=_template(checkpoint),
        metadata=[(plain(key, most=MOST_SHOWN), _shown(value)) for key, value in metadata.items()],
        notices=list(checkpoint.notices),
    )


def tokens_of(tokenizer: Tokenizer, text: str) -> TextTokens:
    """The text in pieces, without what a chat template puts around it. Raises :class:`PromptError`."""
    ids = tokenizer.encode(text, special=False)[:MOST_TOKENS]
    return TextTokens(
        tokens=[TextToken(id=id, text=tokenizer.piece(id), special=id in tokenizer.special_ids) for id in ids]
    )


def _files(gguf: Path | None, path: Path) -> list[Path]:
    if gguf is not None:
        return [*part_files(gguf), *projectors_beside(gguf)[0]]
    return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))


def _template(checkpoint: Checkpoint) -> str:
    with contextlib.suppress(Exception):  # one that has no tokenizer, or a broken one, has no template either
        template = checkpoint.chat_template()
        return template.source if template.own else ""
    return ""


def _licence(gguf: Path | None, folder: Path, metadata: dict[str, Any]) -> str:
    """Licence that a GGUF file states, or the first line of a folder's licence file; "" without one."""
    if gguf is not None:
        return str(metadata.get("general.license", ""))
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE"):
        with contextlib.suppress(Exception):
            text = (read_small(folder / name, _LICENCE_BYTES) or b"").decode(errors="replace")
            if line := next((line.strip(" #") for line in text.splitlines() if line.strip(" #")), ""):
                return line[:80]
    return ""


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Objects within objects as keys with dots."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat


def _shown(value: object) -> str:
    if isinstance(value, list) and len(value) > 16:
        first = plain(", ".join(json.dumps(each, ensure_ascii=False, default=str)[:40] for each in value[:4]))
        return f"{len(value):,} values: {first}, …"
    text = plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), keep="\n\t")
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + " …"
