"""Train draft heads for a model, on the user's own machine and text.

The model is frozen. Its states are computed once (rows.py, features.py), heads learn from them (training.py), and what
they are worth is counted on rows that they never learned from (acceptance.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.services.training.acceptance import AcceptanceFigures
from engine.services.training.eagle import EagleHead
from engine.services.training.errors import RecipeError
from engine.services.training.features import FeatureCache
from engine.services.training.heads import TrainableHeads
from engine.services.training.medusa import TrainableMedusaHeads
from engine.services.training.places import place_for, rounded, unfinished_folder, write_heads
from engine.services.training.rows import (
    Recipe,
    TrainingRow,
    block,
    block_rows,
    chosen,
    from_tensors,
    held_out,
    to_tensors,
)
from engine.services.training.target import Opening, TargetModel
from engine.services.training.text import Passage, passages, text_files
from engine.services.training.training import (
    Show,
    Training,
    TrainingBudget,
    TrainingProgress,
    read_tensors,
    write_tensors,
)

KINDS: Mapping[str, type[TrainableHeads]] = {each.kind: each for each in (TrainableMedusaHeads, EagleHead)}
"""Kinds of heads that are trained, by the names of their proposers."""
ROWS_SHARE = 0.4
"""The largest share of the minutes that goes into making rows."""
_SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class TrainingPlan:
    """Plan of one training. ``steps`` or ``minutes`` end it; ``temperature`` None is the model's own.

    ``resume``: True wants an unfinished training to go on with, False begins again, None takes one if it exists.
    ``start`` is a folder of trained heads whose weights a new training begins with, None for untrained ones.
    """

    model: str
    kind: str
    text: tuple[Path, ...]
    out: Path | None = None
    minutes: float | None = None
    steps: int | None = None
    heads: int = 4
    rows: int = 4096
    length: int = 256
    batch_tokens: int = 1024
    temperature: float | None = None
    distil: bool = True
    seed: int = 0
    resume: bool | None = None
    start: Path | None = None
    opening: Opening = field(default_factory=Opening)


class TrainingResult(NamedTuple):
    """``before`` and ``after`` are None where the run was stopped; ``folder`` then holds what it goes on from."""

    folder: Path
    steps: int
    rows: int
    tokens: int
    resumed: bool
    before: AcceptanceFigures | None
    after: AcceptanceFigures | None


def train_heads(
    plan: TrainingPlan, show: Show = lambda report: None, cancelled: Callable[[], bool] = lambda: False
) -> TrainingResult:
    """Run the plan to its end, or until ``cancelled()``. ``show`` is called every second or so.

    Raises :class:`RecipeError` and :class:`engine.base.errors.CheckpointError` with sentences.
    """
    files = text_files(plan.text)
    target = TargetModel.open(
        plan.model, plan.length, plan.opening, lambda stage, done: show(TrainingProgress(stage, done))
    )
    folder = plan.out or place_for(target, plan.kind)
    work = unfinished_folder(folder)
    run = _TrainingRun(plan, target, work, show, cancelled)
    try:
        done = run.rows(passages(files, target.words, target.length))
        return run.train(folder) if done else run.stopped(folder)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise RecipeError(
            "Training takes more memory than there is. What was done is kept: begin again with --fresh and a smaller "
            "--length, or train with --device cpu."
        ) from error
    finally:
        run.cache.close()
        with contextlib.suppress(OSError):  # raised where there is something in them
            work.rmdir()
            folder.rmdir()


def load_heads(folder: Path, target: TargetModel) -> TrainableHeads:
    """The heads that a training wrote there, in float32. Raises :class:`RecipeError`."""
    try:
        values = read_json(folder / "config.json")
        if values is None:
            raise CheckpointError(f"{folder} has no config.json.")
        found = (kind.like(values, target.config) for kind in KINDS.values())
        heads = next((each for each in found if each is not None), None)
        if heads is None:
            raise ValueError("heads of no kind that is trained")
        heads.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / heads.file).items()})
    except (CheckpointError, OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise RecipeError(f"{folder} holds no heads that were trained for {target.name}. Train them again.") from error
    return heads.to(target.device)


class _TrainingRun:
    def __init__(
        self, plan: TrainingPlan, target: TargetModel, work: Path, show: Show, cancelled: Callable[[], bool]
    ) -> None:
        self.plan, self.target, self.show, self.cancelled = plan, target, show, cancelled
        self.rows_file, self.state_file = work / "rows.safetensors", work / "state.safetensors"
        self.cache = FeatureCache(target.config.hidden_size, work / "features.bin")
        self.resumed = False
        self.seconds = 0.0
        """Seconds that making rows took, those before a resume included."""
        own = target.checkpoint.generation_config.sampling.temperature
        temperature = plan.temperature if plan.temperature is not None else 1.0 if own is None else own
        self.recipe = Recipe(plan.rows, temperature, plan.distil, plan.seed)
        self.key = ""
        self._made = 0

    # --- rows ------------------------------------------------------------------------------------------------------

    def rows(self, found: Sequence[Passage]) -> bool:
        """Make the rows and their features, or take those of the run that is resumed; False if cancelled before."""
        wanted = chosen(found, self.recipe)
        self.key = self._key(wanted)
        made, complete = self._kept_rows()
        self._made = len(made)
        limit = None if self.plan.minutes is None else self.plan.minutes * 60 * ROWS_SHARE
        saved = began = time.monotonic()
        size = block_rows(self.target)
        blocks = -(-len(wanted) // size)
        for number in range(blocks):
            fresh = number * size >= len(made)
            if fresh and (complete or (limit is not None and number and self.seconds > limit)):
                break
            if self.cancelled():
                self._keep_rows(False)
                return False
            rows = block(self.target, wanted, number, self.recipe) if fresh else made[number * size :][:size]
            self.cache.append(rows, self.target.features([row.tokens for row in rows]))
            self.seconds += (time.monotonic() - began) if fresh else 0.0
            began = time.monotonic()
            self.show(TrainingProgress("reading and writing rows", (number + 1) / blocks))
            if began - saved > _SAVE_SECONDS:
                self._keep_rows(False)
                saved = began
        self._keep_rows(True)
        return True

    def _kept_rows(self) -> tuple[list[TrainingRow], bool]:
        """Rows of the run that is resumed, and whether they are all."""
        plan = self.plan
        if plan.resume is False or not self.rows_file.is_file():
            if plan.resume:
                raise RecipeError(f"{self.rows_file.parent} holds no training to go on with. Leave --resume out.")
            self.state_file.unlink(missing_ok=True)
            return [], False
        tensors, about = read_tensors(self.rows_file)
        if about.get("key") != self.key:
            raise RecipeError(
                f"{self.rows_file.parent} holds an unfinished training with other text or other settings. Repeat "
                "these, or begin again with --fresh."
            )
        self.resumed, self.seconds = True, float(about.get("seconds", 0.0))
        return from_tensors(tensors), bool(about.get("complete"))

    def _keep_rows(self, complete: bool) -> None:
        if not complete and 0 < self._made >= len(self.cache.rows):
            return  # all of them are kept already, and more perhaps
        about = {"key": self.key, "complete": complete, "seconds": self.seconds}
        write_tensors(self.rows_file, to_tensors(self.cache.rows), about)

    def _key(self, wanted: Sequence[Passage]) -> str:
        """Hash of all that makes two runs the same but for how long they last."""
        plan, digest = self.plan, hashlib.sha256(self.target.fingerprint.encode())
        start = None if plan.start is None else str(plan.start)
        about = (plan.kind, plan.heads, plan.batch_tokens, self.target.length, self.recipe, plan.opening, start)
        digest.update(repr((about, str(self.target.model.dtype))).encode())
        for passage in wanted:
            digest.update(repr(passage).encode())
        return digest.hexdigest()

    # --- training --------------------------------------------------------------------------------------------------

    def train(self, folder: Path) -> TrainingResult:
        """Train, measure what is written, and write it."""
        plan, target, cache = self.plan, self.target, self.cache
        heads = self._heads()
        training = Training(heads, target, cache, held_out(len(cache.rows)), plan.batch_tokens, plan.seed, self.key)
        before = heads.measure(training.held_out(), target)
        if before.positions == 0:
            raise RecipeError("No held-out row is long enough to measure drafts on. Add text, or longer texts.")
        if self.resumed and self.state_file.is_file():
            training.resume(self.state_file)
        seconds = None if plan.minutes is None else max(1.0, plan.minutes * 60 - self.seconds)
        if not training.run(TrainingBudget(plan.steps, seconds), self.state_file, self.show, self.cancelled):
            return self.stopped(folder, training.step)
        kept = torch.bfloat16 if target.config.dtype == torch.bfloat16 else torch.float16
        tensors = rounded(dict(heads.named_parameters()), kept)
        heads.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        after = heads.measure(training.held_out(), target)
        values = {**heads.config(target, after), "torch_dtype": str(kept).removeprefix("torch.")}
        write_heads(folder, heads.file, tensors, values)
        return TrainingResult(folder, training.step, len(cache.rows), cache.tokens, self.resumed, before, after)

    def stopped(self, folder: Path, steps: int = 0) -> TrainingResult:
        return TrainingResult(folder, steps, len(self.cache.rows), self.cache.tokens, self.resumed, None, None)

    def _heads(self) -> TrainableHeads:
        shape = self.target.config
        if self.plan.start is not None:
            heads = load_heads(self.plan.start, self.target)
            if heads.kind != self.plan.kind:
                raise RecipeError(f"{self.plan.start} holds heads of another kind than {self.plan.kind}.")
            return heads
        generator = torch.Generator().manual_seed(self.plan.seed)
        return KINDS[self.plan.kind].new(shape, self.plan.heads, generator).to(self.target.device)
