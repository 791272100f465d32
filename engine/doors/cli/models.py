"""`kvasir models check`: one model's numbers for given token ids, written out to be compared with other software."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from engine.base.terminal import say
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.compute.runner.perplexity import reader
from engine.decoding.options import EngineOptions
from engine.doors.cli.errors import CommandFailed
from engine.formats.quantised import repacked
from engine.library import paths as config
from engine.loading.loader import CheckpointLoader
from engine.loading.memory.estimate import size
from engine.loading.model import LoadedModel, LoadFailed, LoadModel, release_memory, without_arenas
from engine.loading.runners import new_runner
from engine.protocol import LoadOptions

CHUNK = 256
MOST_NUMBERS = 1 << 30
"""Logits that are kept in memory before they are written: 4 GB."""


def run_check(model: str, tokens: Path, dump: Path, new_tokens: int, device: str, options: LoadOptions) -> None:
    """Write ``dump`` (npz): ``tokens [n]`` int64, ``logits [n, V]`` float32 of every position, ``continuation`` int64.

    The continuation is greedy, ``new_tokens`` long or up to the end of the context, through the paged cache.
    """
    ids = read_ids(tokens)
    loaded = _load(model, device, options)
    card = loaded.card
    if max(ids) >= card.vocabulary or min(ids) < 0:
        raise CommandFailed(f"{tokens} holds ids outside 0 to {card.vocabulary - 1}. Use the model's own tokenizer.")
    room = min(loaded.limit, (loaded.pages - 1) * PAGE_SIZE)
    if len(ids) > room:
        raise CommandFailed(f"{tokens} holds {len(ids):,} ids, and there is room for {room:,}. Give fewer.")
    if len(ids) * card.vocabulary > MOST_NUMBERS:
        raise CommandFailed(f"The logits of {len(ids):,} ids would take more than 4 GB. Give fewer.")
    logits, continuation = compute(loaded, ids, min(new_tokens, room - len(ids)))
    with dump.open("wb") as file:
        np.savez(file, tokens=np.array(ids), logits=logits, continuation=np.array(continuation, dtype=np.int64))
    runner = str(loaded.model.dtype).removeprefix("torch.") if loaded.model is not None else "unknown"
    sys.stdout.write(f"{card.name}, {card.quantisation}, {runner} on {loaded.device.type}: {len(ids)} ids, ")
    sys.stdout.write(f"{len(continuation)} more, written to {dump}\n")


def run_cache(clear: bool) -> None:
    """List or delete what :mod:`engine.formats.quantised.repacked` keeps."""
    folder = config.quantised_folder()
    if clear:
        say(f"{size(repacked.clear(folder))} deleted from {folder}.")
        return
    kept = repacked.kept_files(folder)
    for file in reversed(kept):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.used))
        say(f"{size(file.size):>10}  last used {used}  {repacked.title_of(file)}")
    say(f"{len(kept)} models, {size(sum(file.size for file in kept))}, in {folder}.")


def read_ids(path: Path) -> list[int]:
    """A JSON list of token ids. Raises :class:`CommandFailed`."""
    try:
        ids = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not ids or not all(type(id) is int for id in ids):
        raise CommandFailed(f"{path} is not a JSON list of token ids, such as [1, 15043, 3186].")
    return ids


def compute(loaded: LoadedModel, ids: list[int], new_tokens: int) -> tuple[np.ndarray, list[int]]:
    """Float32 logits ``[n, V]`` of every position, and the greedy continuation."""
    assert loaded.model is not None
    # Arenas of its own: those of answers hold the windows of layers with one, and here every page is kept.
    read = reader(new_runner(loaded.model, pages_for(len(ids) + new_tokens) + 1, loaded.device))
    continuation: list[int] = []
    with torch.inference_mode():
        starts = range(0, len(ids), CHUNK)
        parts = [read(ids[start : start + CHUNK], start).float().cpu().numpy().copy() for start in starts]
        best = int(parts[-1][-1].argmax())
        for place in range(len(ids), len(ids) + new_tokens):
            continuation.append(best)
            best = int(read([best], place)[0].argmax())
    return np.concatenate(parts), continuation


def _load(model: str, device: str, options: LoadOptions) -> LoadedModel:
    path, _ = config.resolve(model, "")
    try:
        opened = CheckpointLoader(device).open(LoadModel(path, "", options), EngineOptions(), None)
        opened.place = opened.place.unrounded  # other software's numbers are not rounded on their way into the cache
        opened.read(lambda stage, done: None, lambda: False)
        loaded = without_arenas(opened.assemble(lambda stage, done: None))
        release_memory()
        return loaded
    except LoadFailed as error:
        raise CommandFailed(str(error)) from error
