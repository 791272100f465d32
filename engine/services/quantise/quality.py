"""Loss of quality of a model that was made smaller, measured on text that it was not calibrated with.

The two models are in memory one after the other: the first one's logits wait in a temporary file.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.base.errors import LoadCancelled
from engine.base.fetching.room import free_bytes
from engine.cache.policies import KeepAll
from engine.compute.runner.perplexity import Reader, Scores, chunks, reader, score
from engine.decoding.options import EngineOptions
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.library.paths import bundled_folder
from engine.loading.loader import CheckpointLoader
from engine.loading.memory.probe import choose_device
from engine.loading.model import LoadedModel, LoadFailed, LoadModel, release_memory
from engine.protocol import ChatMessage, DeviceName, LoadOptions, ModelQuality
from engine.services.quantise.pieces import as_bytes
from engine.services.training.errors import STOPPED, RecipeError, RecipeStopped
from engine.services.training.text import TextEncoder, held_out_text, plain_passages

LENGTH = 512
"""Tokens of a piece of text."""
MOST_TOKENS = 8192
MOST_BYTES = 2 << 30
"""Of the file of logits; of a disk with little room it takes a quarter."""
CONTEXT = 2 * LENGTH
"""Tokens of an answer whose speed is measured, its prompt included, at most."""
_WARM, _COUNTED = 8, 48
"""Tokens of the answer whose speed is measured, before and while the clock runs."""
_ASKED = "Why is the sky blue? Explain it to a child."


class Quality(NamedTuple):
    """``kl``: mean KL(before || after) of the next token in nats; ``same_top``: share of positions at which both think
    the same token the likeliest; ``tokens``: predictions that both are means over."""

    before: ModelQuality
    after: ModelQuality
    kl: float
    same_top: float
    tokens: int


def compare(
    source: Path,
    made: Path,
    text: Sequence[str] | None,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
    device: DeviceName = "auto",
) -> Quality:
    """The quality of the models at ``source`` and at ``made``, which was made of it.

    ``text`` None is the program's own. ``report(done, total)`` counts pieces of text, of both models. Both compute on
    the processor where one of them does not fit the device. Raises :class:`RecipeError` with a sentence, and
    :class:`RecipeStopped` soon after ``stopped()``.
    """
    try:
        return _compared(source, made, text, report, stopped, device)
    except _RoomError:
        if choose_device(device).type == "cpu":
            raise
    return _compared(source, made, text, report, stopped, "cpu")


class _RoomError(RecipeError):
    """A model does not fit the memory of the device."""


def _compared(
    source: Path,
    made: Path,
    text: Sequence[str] | None,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
    device: DeviceName,
) -> Quality:
    folder = made if made.is_dir() else made.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file, torch.inference_mode():
            loaded = _load(source, stopped, device)
            before, pieces, vocabulary = _read_source(loaded, text, file, folder, report, stopped)
            del loaded
            release_memory()
            logits = torch.from_numpy(np.memmap(file, np.float32, "c").reshape(-1, vocabulary))
            after, scores = _read_made(_load(made, stopped, device), pieces, logits, report, stopped)
            release_memory()
            del logits
    except BrokenPipeError:
        raise  # who was told has gone
    except OSError as error:
        raise RecipeError(f"{folder} cannot be written to ({error.strerror}). Make room there.") from error
    whole = joined(scores)
    return Quality(
        ModelQuality(before.bytes, whole.exact, before.tokens_per_second),
        ModelQuality(after.bytes, whole.present, after.tokens_per_second),
        whole.divergence,
        whole.same_top,
        whole.tokens,
    )


def joined(pieces: Sequence[Scores]) -> Scores:
    """The scores of a text from those of its pieces: perplexities of all predictions, from their mean logarithms."""
    tokens = sum(piece.tokens for piece in pieces)

    def mean(value: Callable[[Scores], float]) -> float:
        return sum(value(piece) * piece.tokens for piece in pieces) / tokens

    return pieces[0]._replace(
        tokens=tokens,
        exact=math.exp(mean(lambda piece: math.log(piece.exact))),
        present=math.exp(mean(lambda piece: math.log(piece.present))),
        divergence=mean(lambda piece: piece.divergence),
        same_top=mean(lambda piece: piece.same_top),
    )


def unmeasured(source: Path, made: Path) -> Quality:
    """All that is known without loading them. Raises :class:`CheckpointError`."""
    before, after = (whole_bytes(open_checkpoint(path, need_tokenizer=False)) for path in (source, made))
    return Quality(ModelQuality(before), ModelQuality(after), 0.0, 0.0, 0)


def whole_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of all weights on the disk, a tower's among them, which nothing packs."""
    tower = checkpoint.vision
    return checkpoint.weight_bytes + (tower.weight_bytes if tower is not None else 0)


class _Size(NamedTuple):
    """Size and speed of a model, which need no text."""

    bytes: int
    tokens_per_second: float

    @classmethod
    def of(cls, loaded: LoadedModel) -> _Size:
        assert loaded.files is not None
        return cls(whole_bytes(loaded.files.checkpoint), tokens_per_second(loaded))


def _read_source(
    loaded: LoadedModel,
    text: Sequence[str] | None,
    file: IO[bytes],
    folder: Path,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> tuple[_Size, list[list[int]], int]:
    """Writes its logits; gives the pieces of the text, too, and the width of the logits."""
    vocabulary = loaded.card.vocabulary
    room = min(MOST_BYTES, free_bytes(folder) // 4) // (4 * vocabulary)
    pieces = _pieces(loaded, _bundled() if text is None else text, min(MOST_TOKENS, room))
    for number, piece in enumerate(pieces, 1):
        read = _exact_reader(loaded, len(piece))
        for start, rows in chunks(piece, vocabulary):
            _go_on(stopped)
            file.write(as_bytes(read(rows, start).float().cpu()).data)
        report(number, 2 * len(pieces))
    file.flush()
    return _Size.of(loaded), pieces, vocabulary


def _read_made(
    loaded: LoadedModel,
    pieces: Sequence[Sequence[int]],
    logits: Tensor,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> tuple[_Size, list[Scores]]:
    if loaded.card.vocabulary != logits.shape[1]:
        name = loaded.card.name
        raise RecipeError(f"{name} is made of another model: the vocabularies differ in size. Make it again.")
    scores, at = [], 0
    for number, piece in enumerate(pieces, 1 + len(pieces)):
        kept = logits[at : at + len(piece) - 1]
        at += len(piece) - 1
        scores.append(_scored(loaded, piece, kept, stopped))
        report(number, 2 * len(pieces))
    return _Size.of(loaded), scores


def _scored(loaded: LoadedModel, piece: Sequence[int], kept: Tensor, stopped: Callable[[], bool]) -> Scores:
    """``kept``: the logits of the other model."""

    def before(length: int) -> Reader:
        return lambda tokens, start: kept[start : start + len(tokens)].to(loaded.device)

    work = score(piece, before, lambda length: _exact_reader(loaded, length), loaded.card.vocabulary, "")
    try:
        while True:
            _go_on(stopped)
            next(work)
    except StopIteration as end:
        scores: Scores = end.value
        return scores


def tokens_per_second(loaded: LoadedModel) -> float:
    """Decoding speed of a single chat's answer, the likeliest token each time, as the model is served."""
    read = reader(loaded.runner)
    room = min(loaded.card.context, CONTEXT) - _WARM - _COUNTED
    ids = loaded.encode_prompt([ChatMessage.of("user", _ASKED)])[-room:]
    logits, begun = read(ids, 0), 0.0
    for place in range(len(ids), len(ids) + _WARM + _COUNTED):
        token = int(logits[-1].argmax())
        if place == len(ids) + _WARM:
            begun = time.perf_counter()
        logits = read([token], place)
    int(logits[-1].argmax())  # waits for the device
    return _COUNTED / (time.perf_counter() - begun)


def _load(path: Path, stopped: Callable[[], bool], device: DeviceName) -> LoadedModel:
    """Load a model with room for one text. Keys and values are not rounded on their way into the cache."""
    command = LoadModel(str(path), "", LoadOptions(context=CONTEXT))
    try:
        opened = CheckpointLoader(device).open(command, EngineOptions(), None)
        opened.place = opened.place.unrounded
        opened.read(lambda stage, done: None, stopped)
        return opened.assemble(lambda stage, done: None)
    except LoadFailed as error:
        raise (_RoomError if error.code == "out_of_memory" else RecipeError)(str(error)) from error
    except LoadCancelled as error:
        raise RecipeStopped(STOPPED) from error


def _exact_reader(loaded: LoadedModel, length: int) -> Reader:
    assert loaded.readers is not None
    return loaded.readers(KeepAll()).exact(length)


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise RecipeStopped(STOPPED)


def _pieces(loaded: LoadedModel, texts: Sequence[str], most: int) -> list[list[int]]:
    """Tokens in pieces, ``most`` at most, spread over the texts. Raises :class:`RecipeError` for too little text."""
    assert loaded.files is not None
    words = TextEncoder.of(
        loaded.files.tokenizer, loaded.files.template, loaded.files.checkpoint.generation_config.bos_id
    )
    length = min(LENGTH, loaded.card.context)
    found = [passage.tokens for text in texts for passage in plain_passages(text, words, length)]
    if not found:
        raise RecipeError("The text to measure on is too short. Give more of it.")
    count = min(len(found), max(1, most // length))
    return [found[place * len(found) // count] for place in range(count)]


def _bundled() -> list[str]:
    text = held_out_text(bundled_folder() / "evaluation")
    return ["\n".join(f"{question}\n{answer}\n" for question, answer in text.answered), "\n".join(text.asked)]
