"""Train the bundled model and, on the same batches, its draft.

The target learns from the text with layer dropout and an early-exit loss (Elhoushi et al. 2024, "LayerSkip"); the draft
learns from the text and from the target's logits (Hinton et al. 2015), in the second half. Over the last tenth both
compute with weights on the 4-bit grid. Matrices inside the layers are updated by Muon (Jordan et al. 2024), scaled as
in Liu et al. 2025 so that one learning rate serves AdamW as well, which updates the embedding and the norms. The
learning rate follows the share of the budget that is used up, in steps or in minutes. No document of a row sees
another one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from build_text import POOLS
from export import DRAFT_FOLDER, TARGET_FOLDER, read
from model import DRAFT, TARGET, Llama, document_mask
from torch import Tensor

from engine.loading.memory.probe import has_bfloat16

HERE = Path(__file__).resolve().parent
QUANTISED_SHARE = 0.1
BRIEF_SHARE = 0.65
"""Part of the budget in which four of five short batches are brief ones."""
DRAFT_FROM = 0.5
SEPARATOR = 0
"""The id of <|endoftext|>, the first special token."""
LONG_EVERY = 16
"""One batch in so many has long rows, which makes a fifth of the tokens."""


@dataclass(frozen=True)
class Plan:
    """What one training run does. ``minutes`` or ``steps``, whichever is set and used up first, ends it."""

    steps: int = 4000
    minutes: float = 0.0
    batch_tokens: int = 2048
    peak_rate: float = 4e-3
    warm_up: float = 0.02
    hold: float = 0.35
    weight_decay: float = 0.1
    layer_dropout: float = 0.1
    exit_weight: float = 0.15
    distilled: float = 0.5
    save_minutes: float = 4.0


@dataclass
class Progress:
    """How far a run is: steps done, seconds spent in them (also before a resume)."""

    step: int = 0
    seconds: float = 0.0

    def share(self, plan: Plan) -> float:
        """Used part of the budget, 0 to 1 and above."""
        by_time = self.seconds / (60 * plan.minutes) if plan.minutes else 0.0
        return max(by_time, self.step / plan.steps if plan.steps else 0.0)


@dataclass(frozen=True)
class Batch:
    """inputs and targets int64 [B, T]; weights float [B, T] of each target in the loss.

    mask: see document_mask; None where each row is one document.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    mask: Tensor | None


def products(device: torch.device) -> torch.dtype:
    """What matrices are multiplied in: bfloat16 where the device does it in hardware, else float32."""
    return torch.bfloat16 if has_bfloat16(device) else torch.float32


class Batches:
    """Batches of the rows that build_text.py wrote, each row once in random order, then again."""

    def __init__(
        self, folder: Path, batch_tokens: int, seed: int, device: torch.device, longest: int | None = None
    ) -> None:
        """Rows are cut to ``longest`` tokens, where that is set."""
        self.batch_tokens, self.device = batch_tokens, device
        self.rng = np.random.default_rng(seed)
        files = {name: np.load(folder / f"{name}.npz") for name, *_ in POOLS}
        end = longest and longest + 1
        self.rows = {name: (file["ids"][:, :end], file["weights"][:, :end]) for name, file in files.items()}
        self.order: dict[str, list[int]] = {name: [] for name in files}
        self.count = 0

    def next(self, share: float) -> Batch:
        """The next batch, when ``share`` of the budget is used up; one in LONG_EVERY has long rows."""
        self.count += 1
        brief = share < BRIEF_SHARE and self.rng.random() < 0.8
        name = "long" if self.count % LONG_EVERY == 0 else "brief" if brief else "short"
        ids, weights = self.rows[name]
        count = min(len(ids), max(1, self.batch_tokens // (ids.shape[1] - 1)))
        if len(self.order[name]) < count:
            self.order[name] = self.rng.permutation(len(ids)).tolist()
        chosen = [self.order[name].pop() for _ in range(count)]
        tokens = torch.from_numpy(ids[chosen].astype(np.int64)).to(self.device)
        counts = torch.from_numpy(weights[chosen][:, 1:].astype(np.float32) / 10).to(self.device)
        inputs = tokens[:, :-1]
        mask = document_mask(inputs, SEPARATOR, products(self.device)) if (inputs == SEPARATOR).any() else None
        return Batch(inputs, tokens[:, 1:], counts, mask)


def learning_rate(share: float, plan: Plan) -> float:
    """Warm-up, a plateau, then a straight line to 2 % of the peak."""
    if share < plan.warm_up:
        return plan.peak_rate * max(share, 1e-3) / plan.warm_up
    fall = min(1.0, max(0.0, (share - plan.hold) / (1 - plan.hold)))
    return plan.peak_rate * (1 - 0.98 * fall)


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum() / weights.sum()


def dropped_layers(plan: Plan, layers: int, rng: random.Random) -> frozenset[int]:
    """Layers to skip in this step; the chance grows with depth up to ``layer_dropout``."""
    return frozenset(i for i in range(layers) if rng.random() < plan.layer_dropout * i / (layers - 1))


def optimisers(model: Llama, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the rest; weight decay for matrices only."""
    inner, outer, vectors = [], [], []
    for name, parameter in model.named_parameters():
        (vectors if parameter.dim() != 2 else outer if "embed" in name else inner).append(parameter)
    decayed = {"params": outer, "weight_decay": plan.weight_decay}
    others = {"params": vectors, "weight_decay": 0.0}
    return [
        torch.optim.Muon(inner, lr=plan.peak_rate, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([decayed, others], lr=plan.peak_rate, betas=(0.9, 0.95), fused=True),
    ]


def target_loss(
    target: Llama, batch: Batch, plan: Plan, rng: random.Random, calm: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss to learn from, plain loss, and logits [rows, vocabulary] of the rows that count, for the draft."""
    layers = target.shape.num_hidden_layers
    skip = frozenset() if calm else dropped_layers(plan, layers, rng)
    hidden, early = target(batch.inputs, rng.randrange(2, layers), skip, batch.mask)
    counted = batch.weights > 0
    targets, weights = batch.targets[counted], batch.weights[counted]
    logits = target.logits(hidden[counted])
    loss = weighted_loss(logits, targets, weights)
    some = torch.arange(rng.randrange(5), len(targets), 5, device=targets.device)
    exit_loss = weighted_loss(target.logits(early[counted][some]), targets[some], weights[some])
    return loss + plan.exit_weight * exit_loss, loss.detach(), logits.detach().float()


def draft_loss(draft: Llama, batch: Batch, teacher: Tensor, plan: Plan) -> Tensor:
    """Cross entropy against the text mixed with the target's distribution."""
    hidden, _ = draft(batch.inputs, mask=batch.mask)
    counted = batch.weights > 0
    weights = batch.weights[counted]
    scores = draft.logits(hidden[counted]).float().log_softmax(-1)
    goal = teacher.softmax(-1).mul_(plan.distilled)
    goal.scatter_add_(1, batch.targets[counted].unsqueeze(1), torch.full_like(goal[:, :1], 1 - plan.distilled))
    return -((goal * scores).sum(-1) * weights).sum() / weights.sum()


def apply(loss: Tensor, model: Llama, optimisers: list[torch.optim.Optimizer], rate: float) -> None:
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


class Run:
    """Both models, their optimisers and the progress; saved to and resumed from one file."""

    def __init__(self, plan: Plan, folder: Path, device: torch.device) -> None:
        self.plan, self.folder, self.device = plan, folder, device
        self.progress = Progress()
        self.target, self.draft = Llama(TARGET).to(device), Llama(DRAFT).to(device)
        self.optimisers = [optimisers(self.target, plan), optimisers(self.draft, plan)]

    def autocast(self) -> torch.autocast:
        dtype = products(self.device)
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    def save(self, name: str = "checkpoint.pt") -> None:
        """Write all state, whole or not at all."""
        state = {
            "target": self.target.state_dict(),
            "draft": self.draft.state_dict(),
            "optimisers": [[optimiser.state_dict() for optimiser in both] for both in self.optimisers],
            "step": self.progress.step,
            "seconds": self.progress.seconds,
        }
        temporary = self.folder / f"{name}.part"
        torch.save(state, temporary)
        temporary.replace(self.folder / name)

    def start_from(self, path: Path) -> None:
        """Begin with the weights of a checkpoint, or with those of the exported models in the folder ``path``."""
        if not path.is_dir():
            self.resume(path, weights_only=True)
            return
        self.target.load_state_dict(read(path / TARGET_FOLDER.name).state_dict())
        self.draft.load_state_dict(read(path / DRAFT_FOLDER.name).state_dict())

    def resume(self, path: Path, weights_only: bool) -> None:
        """Continue from ``path``, or only start from its weights."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.target.load_state_dict(state["target"])
        self.draft.load_state_dict(state["draft"])
        if not weights_only:
            for both, saved in zip(self.optimisers, state["optimisers"], strict=True):
                for optimiser, values in zip(both, saved, strict=True):
                    optimiser.load_state_dict(values)
            self.progress = Progress(state["step"], state["seconds"])

    def step(self, batch: Batch, rng: random.Random) -> tuple[float, float]:
        """One update of both models; returns their losses."""
        share = self.progress.share(self.plan)
        calm = share >= 1 - QUANTISED_SHARE
        for model in (self.target, self.draft):
            model.set_quantised(calm)
        rate = learning_rate(share, self.plan)
        with self.autocast():
            loss, plain, teacher = target_loss(self.target, batch, self.plan, rng, calm)
        apply(loss, self.target, self.optimisers[0], rate)
        if share < DRAFT_FROM:
            return plain.item(), float("nan")
        with self.autocast():
            small = draft_loss(self.draft, batch, teacher, self.plan)
        apply(small, self.draft, self.optimisers[1], rate)
        return plain.item(), small.item()

    def report(self, share: float, losses: tuple[float, float], rate: float) -> None:
        """One line about the last step, ``rate`` its tokens a second."""
        done = f"step {self.progress.step} {share:.1%}"
        sys.stdout.write(f"{done} target {losses[0]:.3f} draft {losses[1]:.3f} {rate:.0f} tokens/s\n")
        sys.stdout.flush()

    def train(self, seed: int) -> None:
        """Run to the end of the budget: before.pt is saved just before the 4-bit part, checkpoint.pt now and then."""
        rng = random.Random(seed + self.progress.step)
        source = Batches(self.folder, self.plan.batch_tokens, seed + self.progress.step, self.device)
        last_save = time.monotonic()
        while self.progress.share(self.plan) < 1:
            started, before = time.monotonic(), self.progress.share(self.plan)
            batch = source.next(before)
            losses = self.step(batch, rng)
            self.progress.step += 1
            self.progress.seconds += time.monotonic() - started
            now = self.progress.share(self.plan)
            if self.progress.step % 20 == 0:
                self.report(now, losses, batch.inputs.numel() / (time.monotonic() - started))
            if before < 1 - QUANTISED_SHARE <= now:
                self.save("before.pt")
            if time.monotonic() - last_save > 60 * self.plan.save_minutes:
                self.save()
                last_save = time.monotonic()
        self.save()


def main(arguments: list[str] | None = None) -> int:
    """Train both models on the text that build_text.py made."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="text, checkpoints")
    parser.add_argument("--steps", type=int, default=Plan.steps, help="0: no limit")
    parser.add_argument("--minutes", type=float, default=Plan.minutes, help="0: no limit")
    parser.add_argument("--rate", type=float, default=Plan.peak_rate, help="peak learning rate")
    parser.add_argument(
        "--warm-start",
        type=Path,
        help="begin with the weights of this checkpoint, or of the exported models in this folder",
    )
    parser.add_argument("--fresh", action="store_true", help="do not resume from checkpoint.pt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    if not options.steps and not options.minutes:
        parser.error("give --steps, --minutes or both")
    torch.manual_seed(options.seed)
    plan = Plan(steps=options.steps, minutes=options.minutes, peak_rate=options.rate)
    run = Run(plan, options.folder, torch.device(options.device))
    if not options.fresh and (options.folder / "checkpoint.pt").is_file():
        run.resume(options.folder / "checkpoint.pt", weights_only=False)
    elif options.warm_start:
        run.start_from(options.warm_start)
    run.train(options.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
