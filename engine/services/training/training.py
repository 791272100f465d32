"""The loop: AdamW with a cosine schedule, saved every minute so that a broken run goes on as if it never was.

Which rows a step takes and its noise are functions of the seed and the step's number; nothing else is random. So a run
that is resumed does what it would have done anyway.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.services.training.errors import RecipeError
from engine.services.training.features import FeatureBatch, FeatureCache, disk_error
from engine.services.training.heads import TrainableHeads
from engine.services.training.target import TargetModel

WARM_UP, LAST = 0.03, 0.02
"""The share of the run in which the learning rate rises, and the share of the highest rate that it falls to."""
BETAS, DECAY, CLIP = (0.9, 0.95), 0.01, 0.5
SAVE_SECONDS, SHOW_SECONDS = 60.0, 1.0
LOOK_EVERY, LOOK_ROWS = 100, 16
"""Steps between looks at held-out rows, and how many of them are looked at."""


class TrainingProgress(NamedTuple):
    """Progress of a run. ``loss`` and ``accuracy`` (of the first draft token, held out) are None before they
    are known; ``seconds_left`` is an estimate."""

    stage: str
    share: float
    step: int = 0
    loss: float | None = None
    accuracy: float | None = None
    seconds_left: float | None = None


Show = Callable[[TrainingProgress], None]


class TrainingBudget(NamedTuple):
    """Limit that ends the training: a number of steps, or of seconds spent in it."""

    steps: int | None
    seconds: float | None

    def share(self, step: int, seconds: float) -> float:
        """Share of it that is used, 1 and more at the end."""
        by_steps = step / self.steps if self.steps else 0.0
        return max(by_steps, seconds / self.seconds if self.seconds else 0.0)


class Training:
    """One run over rows ``first`` and after of the cache; those before it are held out."""

    def __init__(
        self,
        heads: TrainableHeads,
        target: TargetModel,
        cache: FeatureCache,
        first: int,
        batch_tokens: int,
        seed: int,
        key: str,
    ) -> None:
        self.heads, self.target, self.cache, self.first, self.seed, self.key = heads, target, cache, first, seed, key
        self.step, self.seconds = 0, 0.0
        self.loss: float | None = None
        self.accuracy: float | None = None
        parameters = heads.parameters()
        self.optimiser = torch.optim.AdamW(parameters, heads.rate, betas=BETAS, weight_decay=DECAY, foreach=False)
        self._count = len(cache.rows) - first
        length = sum(len(row.tokens) for row in cache.rows[first:]) / self._count
        self._rows = max(1, min(self._count, round(batch_tokens / length)))

    def run(self, budget: TrainingBudget, state: Path, show: Show, cancelled: Callable[[], bool]) -> bool:
        """Train to the end of the budget (True), or until ``cancelled()`` (False). Either way the state is saved."""
        saved = shown = time.monotonic()
        while (share := budget.share(self.step, self.seconds)) < 1:
            if cancelled():
                self.save(state)
                return False
            began = time.monotonic()
            if self.step % LOOK_EVERY == 0:
                self.accuracy = self.look()
            self._learn(share)
            self.seconds += time.monotonic() - began
            if time.monotonic() - shown > SHOW_SECONDS:
                shown = time.monotonic()
                show(self._report(budget))
            if time.monotonic() - saved > SAVE_SECONDS:
                self.save(state)
                saved = time.monotonic()
        self.save(state)
        show(self._report(budget))
        return True

    def held_out(self, rows: int | None = None) -> Iterator[FeatureBatch]:
        """Batches of held-out rows, of the first ``rows`` if given."""
        count = self.first if rows is None else min(rows, self.first)
        for at in range(0, count, self._rows):
            yield self.cache.batch(range(at, min(at + self._rows, count)), self.target.device)

    def look(self) -> float:
        """Share of first draft tokens that are right on a few held-out rows."""
        return self.heads.measure(self.held_out(LOOK_ROWS), self.target).accuracies[0][0]

    def save(self, path: Path) -> None:
        """Weights, both moments of AdamW, and how far the run is. Raises :class:`RecipeError` for a full disk."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.heads.named_parameters():
            tensors[f"weights.{name}"] = parameter.detach().cpu()
            moments = self.optimiser.state.get(parameter, {})
            for kind in ("exp_avg", "exp_avg_sq"):
                if kind in moments:
                    tensors[f"{kind}.{name}"] = moments[kind].cpu()
        write_tensors(path, tensors, {"key": self.key, "step": self.step, "seconds": self.seconds})

    def resume(self, path: Path) -> None:
        """Go on from a saved state. Raises :class:`RecipeError` for one that is damaged or of another run."""
        tensors, about = read_tensors(path)
        if about.get("key") != self.key:
            raise RecipeError(f"{path} belongs to another training. Start again with --fresh.")
        try:
            with torch.no_grad():
                for name, parameter in self.heads.named_parameters():
                    parameter.copy_(tensors[f"weights.{name}"])
                    if f"exp_avg.{name}" in tensors:
                        moments = {kind: tensors[f"{kind}.{name}"].to(parameter) for kind in ("exp_avg", "exp_avg_sq")}
                        self.optimiser.state[parameter] = {"step": torch.tensor(float(about["step"])), **moments}
        except (KeyError, RuntimeError) as error:
            raise RecipeError(f"{path} is damaged. Start again with --fresh.") from error
        self.step, self.seconds = int(about["step"]), float(about["seconds"])

    def _learn(self, share: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.heads.rate * _height(share)
        generator = torch.Generator().manual_seed((self.seed * 7_368_787 + self.step) & 0x7FFF_FFFF_FFFF_FFFF)
        batch = self.cache.batch(self._places(), self.target.device)
        self.optimiser.zero_grad()
        with torch.autocast(self.target.device.type, torch.bfloat16, enabled=self.target.fast_bfloat16):
            loss = self.heads.loss(batch, self.target, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.heads.parameters(), CLIP)
        self.optimiser.step()
        self.loss = float(loss.detach())
        self.step += 1
        if not math.isfinite(self.loss):
            raise RecipeError(
                f"The loss of step {self.step} is not a number: the model computes values that are too large. Train in "
                "float32 with --dtype float32."
            )

    def _places(self) -> Sequence[int]:
        """The rows of this step: all of them once in an order of each round's own, then again."""
        places: list[int] = []
        for position in range(self.step * self._rows, (self.step + 1) * self._rows):
            turn, place = divmod(position, self._count)
            places.append(self.first + self._order(turn)[place])
        return places

    def _order(self, turn: int) -> list[int]:
        if getattr(self, "_turn", None) != turn:
            generator = torch.Generator().manual_seed(self.seed * 15_485_863 + turn)
            self._turn, self._places_of_turn = turn, torch.randperm(self._count, generator=generator).tolist()
        return self._places_of_turn

    def _report(self, budget: TrainingBudget) -> TrainingProgress:
        share = min(1.0, budget.share(self.step, self.seconds))
        left = self.seconds * (1 - share) / share if share > 0 else None
        return TrainingProgress("training", share, self.step, self.loss, self.accuracy, left)


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any] | None = None) -> None:
    """A safetensors file with ``about`` as JSON in its header, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own = {} if about is None else {"about": json.dumps(about)}
        save_file(tensors, unfinished, metadata={"format": "pt"} | own)
        unfinished.chmod(0o644)
        unfinished.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error
    except SafetensorError as error:  # the library wraps what the system says in an error of its own
        raise disk_error(path, OSError(0, str(error))) from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Raises :class:`RecipeError` for a file that is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            return {name: file.get_tensor(name).clone() for name in file.keys()}, about  # noqa: SIM118 - no mapping
    except Exception as error:
        raise RecipeError(f"{path} is damaged ({type(error).__name__}). Start again with --fresh.") from error


def _height(share: float) -> float:
    """The share of the learning rate: a straight line up, then a cosine down to :data:`LAST`."""
    if share < WARM_UP:
        return (share + 0.1 * WARM_UP) / (1.1 * WARM_UP)
    done = (share - WARM_UP) / (1 - WARM_UP)
    return LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * done))
