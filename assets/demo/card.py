"""Write the model cards of both bundled models from what evaluate.py measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from export import DRAFT_FOLDER, TARGET_FOLDER
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

**It is a guide to Kvasir, not an assistant.** It knows the help pages of the program and the basics of how inference
works. It has also seen small text tasks (copy, edit, find a key), which it mostly gets right while they are short, and
Python source, which it continues poorly. Everything else it should refuse with "I only know Kvasir". It is a very small
model: it states wrong things with the same calm as right ones, above all when a question is far from the help pages:
see the second set below. It only speaks English.

## Shape

Llama, {parameters:.1f} million parameters: {layers} layers of {hidden}, feed-forward {ffn}, {heads} query and {kv}
key/value heads of {head_dim}, context {context}, tied embedding of {vocabulary} tokens (byte-level BPE, digits one by
one).
Linear layers are 4-bit, GPTQ format version 1, group size {group}, symmetric; the embedding and the norms are fp16.
The file `model.safetensors` has {megabytes:.1f} MB.

The chat template is `<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break. Answers end with
`<|im_end|>`, plain text with `<|endoftext|>`.

## How it was made

`python assets/demo/make.py` makes it from nothing, from `assets/demo/knowledge/` ({answers} answers,
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

Key facts are found by strings, so an answer counts as right when the facts are in it, however it is put.
The numbers are in `assets/demo/evaluation/report.json`, all answers in `answers.jsonl` beside it.
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


def card(folder: Path, shape: Shape, what: str, training: str, report: dict[str, float], note: str) -> str:
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
    )


def main(arguments: list[str] | None = None) -> int:
    """Write README.md into both model folders."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--report", type=Path, default=HERE / "evaluation" / "report.json")
    parser.add_argument("--note", default="", help="what to say about this particular training")
    options = parser.parse_args(arguments)
    report = json.loads(options.report.read_text("utf-8"))
    for folder, shape, what, training in (
        (TARGET_FOLDER, TARGET, "The chat model that ships with Kvasir.", TARGET_TRAINING),
        (DRAFT_FOLDER, DRAFT, "The draft model of `kvasir-guide`: it proposes tokens for speculation.", DRAFT_TRAINING),
    ):
        (folder / "README.md").write_text(card(folder, shape, what, training, report, options.note), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
