"""Compare assets/models.json with the hub: ``python assets/check_models.py [--write]``.

Each entry must name a repository and a variant that are there, of an architecture that Kvasir loads, with the size, the
licence and the gate that the hub states, and the context and bytes of keys and values that its headers tell (some MB of
each are fetched); what drafts for it must fit. Differences are printed, and the command fails where there are any that
were not written: ``--write`` writes those figures and words.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.base.fetching.errors import FetchFailed
from engine.compute.models.registry import FAMILIES
from engine.decoding.speculation.heads.files import open_heads
from engine.decoding.speculation.mtp.files import multi_token_layout
from engine.formats.gguf.architectures import ARCHITECTURES
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.formats.quantised.nested import TEXT_MODELS
from engine.library import curated, hub, paths
from engine.library.headers import outline
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.protocol.library import HubVariant
from engine.protocol.recommended import CuratedModel
from engine.services.models.hub import chosen
from engine.services.operations import OperationFailed


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 where something differs that was not written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what the hub and the headers state")
    parser.add_argument("--file", type=Path, default=paths.models_file())
    parser.add_argument("--only", default="", help="repositories with this in their names")
    options = parser.parse_args(arguments)
    models, file = curated.read(options.file).models, json.loads(options.file.read_text("utf-8"))
    wrong = 0
    for entry, model in zip(file["models"], models, strict=True):
        if options.only not in model.repository:
            continue
        stated, sentences = compared(model)
        wrong += len(sentences)
        for key, value in stated.items():
            if getattr(model, key) != value:
                sentences.append(f"{key} is {value!r}, not {getattr(model, key)!r}")
                wrong += not options.write
        for sentence in sentences:
            print(f"{model.repository} {model.variant}: {sentence}")
        if options.write and stated:
            _mend(entry, stated)
            file["sources"]["hub"] = f"the hub at {hub.endpoint()}, asked by assets/check_models.py"
    if options.write:
        options.file.write_text(json.dumps(file, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return int(wrong > 0)


def compared(model: CuratedModel) -> tuple[dict[str, Any], list[str]]:
    """What the hub and the headers state of an entry, and what is wrong with it besides, as sentences."""
    stated: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kvasir-check-") as folder:
        try:
            found = hub.repository(model.repository)
            variant = chosen(found, model.variant)
            stated |= {"bytes": variant.bytes, "licence": found.model.licence, "gated": found.model.gated}
            family = _family(found.model.architecture, variant)
            if family and family not in FAMILIES:
                return stated, [f"its architecture, {family}, is none that Kvasir loads"]
            target = open_checkpoint(outline(found, variant, Path(folder) / "model"))
            kept = kv_bytes_per_token(target.config, torch.bfloat16, in_window=False)
            stated |= {"context": target.config.positions.max_position, "kv_bytes": int(kept)}
            sentences = list(_problems(model, target, Path(folder)))
        except (FetchFailed, OperationFailed, CheckpointError) as error:
            sentences = [str(error)]
    return stated, sentences


def _problems(model: CuratedModel, target: Checkpoint, folder: Path) -> Iterator[str]:
    """An entry's family, and what drafts for it."""
    if FAMILIES.get(target.config.architecture) != FAMILIES.get(model.family):
        yield f"it is of the family {target.config.architecture}, not {model.family}"
    draft = model.draft
    if draft is None:
        return
    if draft.kind == "mtp":
        if multi_token_layout(target) is None:
            yield "it has no multi-token layers"
        return
    try:
        theirs = hub.repository(draft.repository)
        place = outline(theirs, chosen(theirs, draft.variant), folder / "draft")
        if draft.kind != "model":
            open_heads(place, target.config, folder / "copies", draft.kind)
        elif difference := target.tokenizer().difference(open_checkpoint(place).tokenizer()):
            yield f"{draft.repository} cannot draft for it: {difference}"
    except (FetchFailed, OperationFailed, CheckpointError) as error:
        yield f"its draft cannot be used. {error}"


def _family(architecture: str, variant: HubVariant) -> str:
    """Kvasir's name of what the hub says, which for GGUF is llama.cpp's word; "" where it says nothing."""
    if variant.format == "gguf":
        known = ARCHITECTURES.get(architecture)
        return known.family if known is not None else architecture
    return TEXT_MODELS.get(architecture, architecture)


def _mend(entry: dict[str, Any], stated: dict[str, Any]) -> None:
    entry |= {key: value for key, value in stated.items() if value or key in entry}
    entry |= {"taken": date.today().isoformat(), "source": "hub"}


if __name__ == "__main__":
    sys.exit(main())
