"""A tiny random model, text for it, and plans of a few steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from engine.services.training.rows import Recipe, TrainingRow, block, chosen, held_out
from engine.services.training.target import Opening, TargetModel
from engine.services.training.text import passages
from engine.services.training.train_heads import TrainingPlan
from tests.kit.checkpoints import write_llama

LENGTH = 48
WORDS = "thepagesofacacheholdsixteentokenseachandarefreedwhenananswerends.guessesarecheckedbythemodelitself,"


def write_sure_model(folder: Path) -> None:
    """A tiny random model that is sure of what it says: one without opinions leaves nothing to learn."""
    write_llama(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] *= 8
    save_file(tensors, file, metadata={"format": "pt"})


def write_text(folder: Path) -> Path:
    file = folder / "text.txt"
    file.write_text("".join(WORDS[i % 7 :] + str(i) for i in range(40)), "utf-8")
    return file


def plan(model: Path, text: Path, out: Path, kind: str = "medusa", **changes: object) -> TrainingPlan:
    """12 steps of 4 rows or so, in float32 on the CPU."""
    base = TrainingPlan(
        model=str(model), kind=kind, text=(text,), out=out, steps=12, heads=2, length=LENGTH, batch_tokens=4 * LENGTH,
        opening=Opening("cpu", "float32"),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def open_target(model: Path) -> TargetModel:
    return TargetModel.open(str(model), LENGTH, Opening("cpu", "float32"))


def all_rows(target: TargetModel, plan: TrainingPlan) -> list[TrainingRow]:
    """Made again as the recipe makes them."""
    temperature = 1.0 if plan.temperature is None else plan.temperature  # the tiny model names none of its own
    recipe = Recipe(plan.rows, temperature, plan.distil, plan.seed)
    wanted = chosen(passages(list(plan.text), target.words, target.length), recipe)
    return [
        row
        for number in range(-(-len(wanted) // (2 * target.together)))
        for row in block(target, wanted, number, recipe)
    ]


def held_out_rows(target: TargetModel, plan: TrainingPlan) -> list[TrainingRow]:
    rows = all_rows(target, plan)
    return rows[: held_out(len(rows))]


class Plain:
    """The model by transformers and the heads by plain tensors: nothing of the engine's."""

    def __init__(self, model: Path, heads: Path, file: str) -> None:
        self.model = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.weights = {name: tensor.float() for name, tensor in load_file(heads / file).items()}

    @torch.no_grad()
    def states(self, tokens: list[int]) -> torch.Tensor:
        """What the output layer reads, [n, hidden]."""
        out = self.model(torch.tensor([tokens]), output_hidden_states=True)
        return out.hidden_states[-1][0]

    @torch.no_grad()
    def says(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.model.lm_head.weight.T
