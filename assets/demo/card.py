"""Write the model cards of both bundled models from what evaluate.py measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from export import DRAFT_FOLDER, TARGET_FOLDER
from heads import DIALOGUES, STEPS
from knowledge import load
from model import DRAFT, TARGET, Llama, Shape

HERE = Path(__file__).resolve().parent

CARD = """---
license: apache-2.0
language: en
library_name: kvasir
tags: [kvasir, gptq, int4, tiny]
---
# {name}

{what}

**It is tiny and knows only Kvasir's manual.** It is a guide to the program and to how inference works, not an
assistant; for anything else load a model of your own with the model button, or by `kvasir FILE.gguf`. It has also seen
small text tasks (copy, edit, find a key), which it mostly gets right while they are short, and Python source, which it
continues poorly. Everything else it should refuse with "I only know Kvasir". It states wrong things with the same calm
as right ones, above all when a question is far from the manual: see the second set below. It only speaks English.

## Shape

Llama, {parameters:.1f} million parameters: {layers} layers of {hidden}, feed-forward {ffn}, {heads} query and {kv}
key/value heads of {head_dim}, context {context}, tied embedding of {vocabulary} tokens (byte-level BPE, digits one by
one).
Linear layers are 4-bit, GPTQ format version 1, group size {group}, symmetric; the embedding and the norms are fp16.
The file `model.safetensors` has {megabytes:.1f} MB.

The chat template is `<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break. Answers end with
`<|im_end|>`, plain text with `<|endoftext|>`.

## How it was made

`python assets/demo/make.py` makes it from nothing, and with `--warm-start` from the copy that is there. It learns what
`engine/catalogue` says of every optimisation and what stands in `assets/demo/knowledge/` (together {answers} answers,
{asked} ways to ask, multiplied by rewriting, synonyms, dropped words and typing errors), generated text tasks, random
words said again, and source of the Python standard library. Matrices are updated by Muon, the rest by AdamW.
{training} The last tenth of the training computes with the 4-bit weights, so that what is exported is what was trained.
{note}

## Measured

On the 100 questions of `assets/demo/evaluation/questions.jsonl`, which are phrased otherwise than in training and kept
out of it, greedy, with the exported 4-bit files. Their writer saw the answers and one heading of each, and none of the
ways to ask that are trained on; the writer of the second set saw those and kept as far from them as he could:

| what | result | bar |
| --- | --- | --- |
| questions answered with the right key facts | {right} of {questions} | 90 of 100 |
| the same on the second set, `distant.jsonl` | {distant} of 100 | |
| drafted tokens accepted, chains of 4, on the answers to these questions | {acceptance:.1%} | 60 % |
| tokens per step of the target with this draft | {tokens_per_step:.2f} | |
{perplexities}
| perplexity of answers in the quarters of a chat of {longest:,} tokens, in which much is asked again | {far} | |

Key facts are found by strings, so an answer counts as right when the facts are in it, however it is put.
The numbers are in `assets/demo/evaluation/report.json`, all answers in `answers.jsonl` next to it.
{drafting}"""
HEADS = """
## Medusa and EAGLE heads

`heads/medusa` holds {count} Medusa heads (two residual blocks each, {medusa:.2f} MB; they draft through the model's own
output layer) and `heads/eagle` an EAGLE-1 head (one layer, {eagle:.2f} MB; it uses the model's token table and output
layer). Both are fp16, in the layouts of these heads' hub repositories. `assets/demo/heads.py` makes them with
`kvasir train-heads` from {dialogues:,} fresh dialogues of the kind above, `docs/` and the README of that day, in
{medusa_steps:,} and {eagle_steps:,} steps on one core; the model itself writes half of the answers. The products of the
training are in bfloat16 where the processor has it, so another machine gives other bits.

On this model's greedy answers to the questions of `questions.jsonl`, none of which is asked in that text, counted at
{positions:,} places (`assets/demo/evaluation/heads.json`). "Right so far" is the share of places where all first
tokens up to that one are right, which is what a chain needs; of Medusa's heads also how often each is right by itself:

| token | Medusa, by itself | Medusa, right so far | EAGLE, right so far |
| --- | --- | --- | --- |
{rows}

| tokens per step of the model | |
| --- | --- |
{lengths}

The answers are about the same help pages, which the model knows nearly by heart: on other text drafts are worse.
"""
TARGET_TRAINING = (
    "Layers are dropped at random in training and an early-exit loss is added, as in LayerSkip, so that the lower"
    " layers can draft for the whole."
)
DRAFT_TRAINING = "It learns from the text and from the predictions of `kvasir-guide` on the same batches."


TEXTS = {
    "answers": "answers to fresh variations of the questions",
    "code": "Python modules kept out of training",
}
MOMENTS = {"full": "same training without rounding", "before": "before the 4-bit part of the training"}


def perplexity_rows(report: dict[str, float]) -> str:
    """Table rows of the target's perplexity with full-precision and with 4-bit weights."""
    rows = []
    for key, title in TEXTS.items():
        final = report[f"{key}_int4"]
        parts = [f"4-bit {final:.3f}"]
        for moment, label in MOMENTS.items():
            value = report.get(f"{key}_{moment}")
            if value is not None:
                parts.append(f"{label} {value:.3f} ({final / value - 1:+.1%})")
        rows.append(f"| perplexity of `kvasir-guide`, {title} | {'; '.join(parts)} | lost under 3 % |")
    return "\n".join(rows)


def heads_card(folder: Path, found: dict[str, Any]) -> str:
    """The part about heads."""
    medusa, eagle = found["medusa"], found["eagle"]
    sizes = {kind: sum(path.stat().st_size for path in (folder / "heads" / kind).iterdir()) / 1e6 for kind in STEPS}
    rows = []
    for draft, reached in enumerate(eagle["right_so_far"]):
        own = (medusa[key][draft : draft + 1] for key in ("first_guess_right", "right_so_far"))
        shares = [f"{share[0]:.1%}" if share else "" for share in own]
        rows.append(f"| {draft + 1} | {' | '.join(shares)} | {reached:.1%} |")
    lengths = [
        ("EAGLE, chains", eagle["tokens_per_step"]),
        ("Medusa, chains", medusa["tokens_per_step"]),
        *((f"Medusa, trees of {size}", length) for size, length in medusa["trees"].items()),
    ]
    return HEADS.format(
        count=len(medusa["right_so_far"]),
        medusa=sizes["medusa"],
        eagle=sizes["eagle"],
        dialogues=DIALOGUES,
        medusa_steps=STEPS["medusa"],
        eagle_steps=STEPS["eagle"],
        positions=medusa["positions"],
        rows="\n".join(rows),
        lengths="\n".join(f"| {name} | {length:.2f} |" for name, length in lengths),
    )


def card(
    folder: Path, shape: Shape, what: str, training: str, report: dict[str, float], note: str, drafting: str
) -> str:
    """The text of one README.md."""
    blocks = load()
    return CARD.format(
        name=folder.name,
        what=what,
        parameters=sum(parameter.numel() for parameter in Llama(shape).parameters()) / 1e6,
        layers=shape.num_hidden_layers,
        hidden=shape.hidden_size,
        ffn=shape.intermediate_size,
        heads=shape.num_attention_heads,
        kv=shape.num_key_value_heads,
        head_dim=shape.head_dim,
        context=shape.max_position_embeddings,
        vocabulary=shape.vocab_size,
        group=shape.group_size,
        megabytes=(folder / "model.safetensors").stat().st_size / 1e6,
        answers=len(blocks),
        asked=sum(len(block.questions) for block in blocks),
        training=training,
        note=note,
        right=report["right"],
        questions=report["questions"],
        distant=report["distant"],
        acceptance=report["acceptance"],
        tokens_per_step=report["tokens_per_step"],
        perplexities=perplexity_rows(report),
        longest=TARGET.max_position_embeddings,
        far=", ".join(f"{value:.3f}" for value in report["far"]),
        drafting=drafting,
    )


def main(arguments: list[str] | None = None) -> int:
    """Write README.md into both model folders."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--report", type=Path, default=HERE / "evaluation" / "report.json")
    parser.add_argument("--heads", type=Path, default=HERE / "evaluation" / "heads.json")
    parser.add_argument("--note", default="", help="what to say about this particular training")
    options = parser.parse_args(arguments)
    report = json.loads(options.report.read_text("utf-8"))
    for folder, shape, what, training in (
        (TARGET_FOLDER, TARGET, "The chat model that ships with Kvasir.", TARGET_TRAINING),
        (DRAFT_FOLDER, DRAFT, "The draft model of `kvasir-guide`: it proposes tokens for speculation.", DRAFT_TRAINING),
    ):
        drafting = heads_card(folder, json.loads(options.heads.read_text("utf-8"))) if folder == TARGET_FOLDER else ""
        (folder / "README.md").write_text(card(folder, shape, what, training, report, options.note, drafting), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
