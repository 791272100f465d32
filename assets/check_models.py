"""Compare assets/models.json with the hub: ``python assets/check_models.py [--write]``.

Each entry must name a repository and a variant that are there, of an architecture that Kvasir loads, with the size and
the licence that the hub states; what drafts for it must fit, told from headers (some MB of each). Differences are
printed, and the command fails where there are any that were not written: ``--write`` writes sizes, licences and whether
a model is gated.
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

from engine import paths
from engine.checkpoints.gguf.architectures import ARCHITECTURES
from engine.checkpoints.heads.files import open_heads
from engine.checkpoints.open import open_checkpoint
from engine.checkpoints.quantised.nested import TEXT_MODELS
from engine.cli.errors import CommandFailed
from engine.cli.library import chosen
from engine.errors import CheckpointError
from engine.fetching.errors import FetchFailed
from engine.library import curated, hub
from engine.library.headers import outline
from engine.loading.drafters import multi_token_layout
from engine.models.registry import FAMILIES
from engine.protocol.library import HubRepository, HubVariant
from engine.protocol.recommended import CuratedModel

MENDED = ("bytes", "licence", "gated")


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 where something differs that was not written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what the hub says of sizes, licences and gates")
    parser.add_argument("--file", type=Path, default=paths.models_file())
    parser.add_argument("--only", default="", help="repositories with this in their names")
    options = parser.parse_args(arguments)
    models, file = curated.read(options.file).models, json.loads(options.file.read_text("utf-8"))
    wrong = 0
    for entry, model in zip(file["models"], models, strict=True):
        if options.only not in model.repository:
            continue
        try:
            found = hub.repository(model.repository)
            variant = chosen(found, model.variant)
        except (FetchFailed, CommandFailed) as error:
            print(f"{model.repository} {model.variant}: {error}")
            wrong += 1
            continue
        stated = dict(zip(MENDED, (variant.bytes, found.model.licence, found.model.gated), strict=True))
        for key, value in stated.items():
            if getattr(model, key) != value:
                print(f"{model.repository} {model.variant}: {key} is {value!r}, not {getattr(model, key)!r}")
                wrong += not options.write
        for sentence in problems(model, found, variant):
            print(f"{model.repository} {model.variant}: {sentence}")
            wrong += 1
        if options.write:
            _mend(entry, stated)
            file["sources"]["hub"] = f"the hub at {hub.endpoint()}, asked by assets/check_models.py"
    if options.write:
        options.file.write_text(json.dumps(file, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return int(wrong > 0)


def problems(model: CuratedModel, found: HubRepository, variant: HubVariant) -> Iterator[str]:
    """What is wrong with an entry besides its figures: its family, and what drafts for it."""
    if family := _family(found.model.architecture, variant):
        if family not in FAMILIES:
            yield f"its architecture, {family}, is none that Kvasir loads"
        elif variant.format == "safetensors":  # of GGUF some words stand for several families
            yield from _other_family(family, model)
    draft = model.draft
    if draft is None:
        return
    with tempfile.TemporaryDirectory(prefix="kvasir-check-") as folder:
        try:
            target = open_checkpoint(outline(found, variant, Path(folder) / "model"))
            yield from _other_family(target.config.architecture, model)
            if draft.kind == "mtp":
                if multi_token_layout(target) is None:
                    yield "it has no multi-token layers"
                return
            theirs = hub.repository(draft.repository)
            place = outline(theirs, chosen(theirs, draft.variant), Path(folder) / "draft")
            if draft.kind != "model":
                open_heads(place, target.config, Path(folder) / "copies", draft.kind)
            elif difference := target.tokenizer().difference(open_checkpoint(place).tokenizer()):
                yield f"{draft.repository} cannot draft for it: {difference}"
        except (FetchFailed, CommandFailed, CheckpointError) as error:
            yield f"its draft cannot be used. {error}"


def _family(architecture: str, variant: HubVariant) -> str:
    """Kvasir's name of what the hub says, which for GGUF is llama.cpp's word; "" where it says nothing."""
    if variant.format == "gguf":
        known = ARCHITECTURES.get(architecture)
        return known.family if known is not None else architecture
    return TEXT_MODELS.get(architecture, architecture)


def _other_family(found: str, model: CuratedModel) -> Iterator[str]:
    if FAMILIES.get(found) != FAMILIES.get(model.family):
        yield f"it is of the family {found}, not {model.family}"


def _mend(entry: dict[str, Any], stated: dict[str, Any]) -> None:
    entry |= {key: value for key, value in stated.items() if value or key in entry}
    entry |= {"taken": date.today().isoformat(), "source": "hub"}


if __name__ == "__main__":
    sys.exit(main())
