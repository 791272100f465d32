"""`kvasir quantise`: a smaller model of a larger one, layer by layer, so that it goes on where it was stopped.

What is finished lies in a work folder (:class:`engine.services.quantise.plan.UnfinishedWork`). The model
moves to its place when it is whole, its report with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import torch

from engine.base.devices import traits
from engine.base.errors import CheckpointError, is_out_of_memory
from engine.base.fetching.errors import FetchFailed
from engine.base.fetching.lock import lock
from engine.base.fetching.room import MARGIN, disk_errors, room_for, same_disk
from engine.base.sizes import human
from engine.formats.gguf.find import is_gguf
from engine.formats.load import LAYER, Checkpoint
from engine.library import importing, store
from engine.library.local import REPORT
from engine.library.variants import is_safe
from engine.loading.memory.probe import NoSuchDevice, choose_device, free_bytes
from engine.protocol.library import HubFile, HubVariant
from engine.protocol.making import LayerError, MakeProgress, MakeReport, MakeState
from engine.services.quantise import plain, quality, rotation
from engine.services.quantise.assembling import Assembly
from engine.services.quantise.blocks import Blocks
from engine.services.quantise.calibrated import LayerQuantiser, packs
from engine.services.quantise.hidden import HiddenStates
from engine.services.quantise.pieces import cannot_write
from engine.services.quantise.plan import (
    BITS,
    CALIBRATED,
    FORMATS,
    GROUPS,
    ORGANISATION,
    WHOLE_ROW,
    MakePlan,
    UnfinishedWork,
    WorkNote,
    bundled_text,
    write_whole,
)
from engine.services.training.errors import STOPPED, RecipeError, RecipeStopped
from engine.services.training.text import TextEncoder, passages, text_files

LEAST_TOKENS = 128
"""Of a text to calibrate with."""
HELD_OUT, MOST_HELD_OUT = 8, 64
"""Of this number of pieces of a user's text one is not calibrated with but measured on, and at most so many."""
WORST = 5

Report = Callable[[MakeProgress], None]
IsStopped = Callable[[], bool]
Item = TypeVar("Item")


Compare = Callable[[Path, Path, Sequence[str] | None, Callable[[int, int], None], IsStopped], quality.Quality]


def make(plan: MakePlan, report: Report, stopped: IsStopped, compare: Compare | None = None) -> Path:
    """Make the model and return where it lies: its folder, or its GGUF file.

    ``compare`` measures it against its source (None: :func:`quality.compare`); where it cannot be measured the report
    says why. Raises :class:`RecipeStopped` soon after ``stopped()`` says so, and :class:`RecipeError`,
    :class:`CheckpointError` and :class:`FetchFailed` with a sentence for everything else.
    """
    maker = _Maker(plan, report, stopped, compare or partial(quality.compare, device=plan.device))
    try:
        try:
            return maker.make()
        except BrokenPipeError:
            raise  # who was told has gone
        except OSError as error:
            raise cannot_write(maker.work.folder, error) from error
    except RecipeStopped:
        maker.tell("paused", maker.done)
        raise
    except (RecipeError, CheckpointError, FetchFailed) as error:
        maker.tell("failed", maker.done, sentence=str(error))
        raise


class _Maker:
    """One model that is being made."""

    def __init__(self, plan: MakePlan, report: Report, stopped: IsStopped, compare: Compare) -> None:
        """Raises what keeps it from being made, before anything is written."""
        self.plan, self._report, self._stopped, self._compare = plan, report, stopped, compare
        self.checkpoint = _opened(plan)
        _check_target(plan)
        self.calibrated = plan.to in CALIBRATED
        self.total = self.checkpoint.config.num_layers if self.calibrated else 1
        self.group = _group(plan, self.checkpoint) if self.calibrated else 0
        texts = text_files(plan.text or bundled_text()) if self.calibrated else []
        self.sequences, self.held_out = _calibration(plan, self.checkpoint, texts) if self.calibrated else ([], [])
        self.id = plan.id(self.checkpoint, self.group, texts)
        self.work = UnfinishedWork.of(self.id)
        self.done = self.work.done(self.total)
        """Of ``total``, as was told last."""

    def make(self) -> Path:
        plan, work = self.plan, self.work
        self.tell("reading")
        self._check_room()
        work.begin(WorkNote(self.id, str(plan.source), plan.to, self.total, plan.options))
        with work.alone():
            if plan.rotate:
                self._rotate()
            if self.calibrated:  # what else lies there was half assembled
                shutil.rmtree(work.made, ignore_errors=True)
            work.made.mkdir(exist_ok=True)
            try:
                errors = self._quantised() if self.calibrated else self._converted()
            except RecipeError:
                if self.done == 0 and not any(work.made.iterdir()):  # nothing to go on with
                    shutil.rmtree(work.folder, ignore_errors=True)
                raise
            self._measure(errors)
            path = self._move()
        self.checkpoint.files.close()
        shutil.rmtree(work.folder, ignore_errors=True)
        self.tell("done", self.total, path=str(path))
        return path

    def _rotate(self) -> None:
        """From here on the rotated model is read in the source's place."""

        def report(done: int, total: int, what: str) -> None:
            self._report(MakeProgress(self.id, str(self.plan.source), self.plan.to, "reading", done, total, 0.0, what))

        began = time.monotonic()
        out = self.work.rotated(self.plan.source.name)
        self.checkpoint = rotation.rotated(self.checkpoint, out, report, self._stopped)
        self.work.took(time.monotonic() - began)

    def _quantised(self) -> list[LayerError]:
        """Make the layers that are missing, and the model's folder; returns the errors of all layers."""
        assembly = Assembly(self.plan, self.checkpoint, self.work, self.group)
        try:
            self._quantise(assembly)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise RecipeError(
                f"The memory does not suffice to quantise {self.plan.source.name}. Close other programs, or give "
                "--device cpu or a smaller --length; what is done is kept."
            ) from error
        return assembly.assemble()

    @torch.inference_mode()
    def _quantise(self, assembly: Assembly) -> None:
        work, sequences = self.work, self.sequences
        first = work.done(self.total)
        if first == self.total:
            return
        device = _device(self.plan)
        _check_memory(self.plan, self.checkpoint, device)
        blocks = Blocks(self.checkpoint, device, max(map(len, sequences)))
        quantiser = LayerQuantiser(blocks, self.checkpoint, self.plan, self.group)
        size = self.checkpoint.config.hidden_size
        self.tell("quantising", first)
        entering = HiddenStates(work.hidden(first), sequences, size, device)
        if first == 0:
            entering.write(blocks.embedded(tokens) for tokens in self._unless_stopped(sequences))
        began = time.monotonic()
        for index in range(first, self.total):
            begun, samples = time.monotonic(), entering
            made = quantiser.quantise(index, lambda samples=samples: self._unless_stopped(samples))  # type: ignore[misc]
            entering = HiddenStates(work.hidden(index + 1), sequences, size, device)
            if index + 1 < self.total:
                entering.write(blocks.forward(index, tokens, x) for tokens, x in self._unless_stopped(samples))
            blocks.let_go()
            assembly.write_layer(index, made)
            work.took(time.monotonic() - begun)
            samples.file.unlink(missing_ok=True)
            done = index + 1
            self.tell("quantising", done, (time.monotonic() - began) / (done - first) * (self.total - done))

    def _converted(self) -> list[LayerError]:
        """One of the formats that need no text, of which no errors are known."""
        began = time.monotonic()

        def report(done: int, total: int, what: str) -> None:
            self.total = total
            left = (time.monotonic() - began) / done * (total - done) if done else 0.0
            self.tell("quantising", done, left, what)

        plain.convert(self.checkpoint.path, self.plan.to, self.work.made, report, self._stopped)
        self.work.took(time.monotonic() - began)
        return []

    def _measure(self, errors: list[LayerError]) -> None:
        """Write the report."""
        plan = self.plan

        def report(done: int, total: int) -> None:
            self._report(MakeProgress(self.id, str(plan.source), plan.to, "measuring", done, total))

        report(0, 0)
        made, text = _model_in(self.work.made), self.held_out or None
        sentence = ""
        try:
            found = self._compare(plan.source, made, text, report, self._stopped)
        except RecipeError as error:  # one of them does not fit, say: the model is whole all the same
            sentence, found = str(error), quality.unmeasured(plan.source, made)
        path = plan.target if made == self.work.made else plan.target / made.name
        worst = sorted(errors, key=lambda error: -error.error)[:WORST]
        seconds = round(self.work.took(), 1)
        lost = MakeReport(plan.target.name, str(path), plan.source.name, plan.to, *found, worst, seconds, sentence)
        write_whole(self.work.made / REPORT, msgspec.json.format(msgspec.json.encode(lost), indent=1))

    def _move(self) -> Path:
        """To where it is looked for, all of it or nothing; returns the model's path."""
        files, out = self.work.made, self.plan.out
        if out is None:
            variant = _variant(self.plan, files)
            with self._on_disk_of_store() as there, store.changing():
                _check_target(self.plan)  # hours may have passed
                return store.move_in(f"{ORGANISATION}/{self.plan.name}", variant, "", there)
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = out.with_name(f".{out.name}.unfinished")
        shutil.rmtree(beside, ignore_errors=True)
        shutil.move(files, beside)
        beside.rename(out)
        return _model_in(out)

    @contextlib.contextmanager
    def _on_disk_of_store(self) -> Iterator[Path]:
        """Yield the folder of what was made; if the store is on another disk, a copy there, deleted at the end."""
        store.need_store()
        root, files = store.store_folder(), self.work.made
        if same_disk(files, root):
            yield files
            return
        beside = root / store.UNFINISHED / f"{importing.PREFIX}{self.id}"
        with store.changing():
            beside.mkdir(parents=True, exist_ok=True)
        busy = RecipeError("Another Kvasir is moving this model to its place. Wait for it.")
        with lock(beside / "lock", busy), disk_errors(root):
            try:
                store.clear(beside / "files")  # of a copy that was broken off
                yield Path(shutil.copytree(files, beside / "files"))
            finally:
                store.clear(beside)

    def _check_room(self) -> None:
        """Raises :class:`FetchFailed` where the disk is too small for the model, were it as large as its source, for
        what enters and leaves a layer, and for the rotated source; or that of its place for the model."""
        rows = sum(map(len, self.sequences))
        weights = 2 * rotation.rotated_bytes(self.checkpoint) if self.plan.rotate else self.checkpoint.weight_bytes
        needed = weights + 2 * 4 * rows * self.checkpoint.config.hidden_size + MARGIN
        there = sum(file.stat().st_size for file in self.work.folder.rglob("*") if file.is_file())
        what = f"quantising {self.plan.source.name}"
        room_for(self.work.folder, max(0, needed - there), what)
        if not same_disk(self.work.folder, self.plan.target):
            room_for(self.plan.target, self.checkpoint.weight_bytes + MARGIN, what)

    def _unless_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            self._check_stopped()
            yield item

    def _check_stopped(self) -> None:
        if self._stopped():
            raise RecipeStopped(STOPPED)

    def tell(self, state: MakeState, done: int = 0, left: float = 0.0, sentence: str = "", path: str = "") -> None:
        self.done = done
        source, to = str(self.plan.source), self.plan.to
        progress = (state, done, self.total, round(left, 1), sentence, path)
        self._report(MakeProgress(self.id, source, to, *progress, self.plan.options))


def _opened(plan: MakePlan) -> Checkpoint:
    """The source, if it can be quantised so. Raises :class:`CheckpointError` and :class:`RecipeError`."""
    name = plan.source.name
    if plan.to not in FORMATS:
        raise RecipeError(f"{plan.to!r} is not a format that models are made in. Choose one of {', '.join(FORMATS)}.")
    if plan.to in BITS and plan.bits not in BITS[plan.to]:
        known = " or ".join(map(str, BITS[plan.to]))
        raise RecipeError(f"{plan.to.upper()} has {known} bits here, not {plan.bits}. Give --bits {BITS[plan.to][0]}.")
    checkpoint = plain.plain_checkpoint(plan.source)
    config = checkpoint.config
    if plan.to in CALIBRATED and config.moe is not None:
        raise RecipeError(f"{name} has experts, which {plan.to.upper()} is not made for here yet. Choose --to nf4.")
    if plan.to in CALIBRATED and config.attention.kv_sources:
        raise RecipeError(
            f"{name} has layers that read each other's keys, so it cannot be quantised layer by layer. Choose --to nf4."
        )
    if plan.rotate:
        rotation.check(checkpoint)
    return checkpoint


def _check_target(plan: MakePlan) -> None:
    """Raises :class:`RecipeError` where there is something already, and for a name that the store does not keep."""
    if plan.out is None and not is_safe(plan.name):
        raise RecipeError(f"{plan.name!r} is not a valid name for a model here. Name a folder for it with --out.")
    there = plan.target.exists()
    if plan.out is None and there:  # what was broken off while it moved in is no model
        there = any(plan.target in (path, path.parent) for _, path in store.models())
    if there:
        raise RecipeError(f"{plan.target} exists already. Name another folder with --out, or delete it first.")


def _group(plan: MakePlan, checkpoint: Checkpoint) -> int:
    """Input features to a scale. Raises :class:`RecipeError` for a number that does not divide those of all modules."""
    widths = {
        entry.shape[1]
        for name, entry in checkpoint.files.entries.items()
        if LAYER.match(name) and name.endswith(".weight") and len(entry.shape) == 2
        and packs(entry.shape, name.removesuffix(".weight"), plan.bits)
    }  # fmt: skip
    if not widths:
        raise RecipeError(f"{plan.source.name} has no layer whose size suits {plan.to.upper()}. Choose another format.")
    fitting = [size for size in GROUPS if all(width % size == 0 for width in widths)] + [WHOLE_ROW]
    if plan.group_size is None:
        return fitting[0]
    if plan.group_size not in fitting:
        known = ", ".join(map(str, fitting))
        raise RecipeError(
            f"Groups of {plan.group_size} do not suit {plan.source.name}, whose layers read {min(widths)} values or "
            f"more. Choose --group-size among {known} ({WHOLE_ROW}: one group a row)."
        )
    return plan.group_size


def _calibration(plan: MakePlan, checkpoint: Checkpoint, texts: list[Path]) -> tuple[list[list[int]], list[str]]:
    """Sequences of tokens to calibrate with, and texts that are not among them; none where all are the program's own,
    which has others to measure on. Raises :class:`RecipeError`.
    """
    tokenizer, template = checkpoint.tokenizer(), checkpoint.chat_template()
    words = TextEncoder.of(tokenizer, template, checkpoint.generation_config.bos_id)
    found = passages(texts, words, min(plan.length, checkpoint.config.positions.max_position))
    random.Random(0).shuffle(found)
    held_out = found[::HELD_OUT] if plan.text else []
    rest = [piece for i, piece in enumerate(found) if i % HELD_OUT] if plan.text else found
    sequences = [piece.tokens for piece in rest[: plan.samples]]
    tokens = sum(map(len, sequences))
    if tokens < LEAST_TOKENS:
        raise RecipeError(
            f"The text is too short to calibrate with: {tokens} tokens besides those to measure on, where at least "
            f"{LEAST_TOKENS} are needed. Name more files with --text."
        )
    return sequences, [tokenizer.decode(piece.tokens) for piece in held_out[:MOST_HELD_OUT]]


def _device(plan: MakePlan) -> torch.device:
    """Choose the device to compute on: not Apple's GPU, which has neither float64 nor all decompositions."""
    try:
        found = choose_device(plan.device)
        return found if traits(found).float64 else torch.device("cpu")
    except NoSuchDevice as error:
        raise RecipeError(str(error)) from error


def _check_memory(plan: MakePlan, checkpoint: Checkpoint, device: torch.device) -> None:
    """Raises :class:`RecipeError` where the largest layer does not fit: its weights in float32, and of its widest
    module the Hessian, what its inversion takes, and six copies of its weights."""
    layers: dict[str, int] = {}
    widest = 0
    for name, entry in checkpoint.files.entries.items():
        match = LAYER.match(name)
        if match and len(entry.shape) == 2:
            layers[match[1]] = layers.get(match[1], 0) + 4 * entry.numel
            widest = max(widest, 20 * entry.shape[1] ** 2 + 24 * entry.numel)
    needed, allowed = max(layers.values(), default=0) + widest, free_bytes(device)
    allowed = allowed if plan.memory is None else min(allowed, plan.memory)
    if needed > allowed:
        raise RecipeError(
            f"The largest layer of {plan.source.name} takes {human(needed)} of memory while it is quantised, and "
            f"{human(allowed)} may be taken. Close other programs, or raise --memory."
        )


def _model_in(folder: Path) -> Path:
    """Path to load: the GGUF file in the folder, else the folder."""
    return next(iter(sorted(folder.glob("*.gguf"))), folder)


def _variant(plan: MakePlan, folder: Path) -> HubVariant:
    """The files of a folder as the store notes them, a GGUF file first."""
    files = sorted((file for file in folder.iterdir() if file.is_file()), key=lambda file: (not is_gguf(file), file))
    noted = [HubFile(file.name, file.stat().st_size, _sha256(file)) for file in files]
    kind = "gguf" if is_gguf(files[0]) else "safetensors"
    return HubVariant(plan.name, kind, plan.to, sum(file.bytes for file in noted), noted)  # type: ignore[arg-type]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
