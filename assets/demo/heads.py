"""Train the heads of the bundled model by `kvasir train-heads`, and measure them on the evaluation questions.

They learn from fresh dialogues as build_text.py writes them, from docs/ and the README; half of the answers are the
model's own. What it says to the evaluation questions, none of which is asked in that text, is what they are measured on
here; the command itself measures on rows that it keeps apart, with the same answers in them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from build_text import Writer
from export import TARGET_FOLDER
from knowledge import QUESTIONS, load, load_evaluation

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STEPS = {"medusa": 4800, "eagle": 3400}
DIALOGUES = 3000
SEED = 41
"""Of the text, other than build_text.py's."""
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)


def _place(text: str) -> Path:
    """Of an argument; the command that trains runs in the repository's root, wherever this does."""
    return Path(text).resolve()


def lines(count: int, seed: int) -> list[str]:
    """JSON lines of chats. No code and no echoes: the model goes on with these for ever, in circles."""
    writer = Writer(load(), seed)
    texts = ("".join(part.text for part in writer.dialogue()) for _ in range(count))
    chats = ([{"role": role, "content": said} for role, said in _TURN.findall(text)] for text in texts)
    return [json.dumps({"messages": chat}) + "\n" for chat in chats]


def train(kind: str, text: Path, out: Path, steps: int, rows: int, start: Path | None = None) -> int:
    """The command, as a user would type it; an unfinished training is gone on with. ``start``: heads to begin with."""
    texts = [text, *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
    command = [sys.executable, "-m", "engine.doors.cli.main", "train-heads", str(TARGET_FOLDER), "--kind", kind]
    command += ["--out", str(out), "--steps", str(steps), "--rows", str(rows), "--dtype", "float32"]
    if start is not None:
        command += ["--start", str(start)]
    for path in texts:
        command += ["--text", str(path)]
    return subprocess.run([*command, "--device", "cpu"], check=False, cwd=ROOT).returncode


def measure(folder: Path, most: int | None = None) -> dict[str, dict[str, object]]:
    """What each kind of heads is worth on greedy answers to the evaluation questions, the first ``most`` if given."""
    from engine.protocol import ChatMessage
    from engine.services.training.features import FeatureCache
    from engine.services.training.rows import TrainingRow
    from engine.services.training.target import Opening, TargetModel
    from engine.services.training.train_heads import load_heads
    from engine.text.prompt import prompt_ids

    target = TargetModel.open(str(TARGET_FOLDER), 256, Opening("cpu", "float32"))
    questions = [item.question for item in load_evaluation(QUESTIONS)[:most]]
    asked = [[ChatMessage.of("user", question)] for question in questions]
    prompts = [prompt_ids(target.words.tokenizer, target.words.template, messages) for messages in asked]
    rows: list[TrainingRow] = []
    for at in range(0, len(prompts), target.together):
        some = prompts[at : at + target.together]
        texts = target.write(some, 0.0, torch.Generator())
        rows += [TrainingRow(text, len(prompt)) for text, prompt in zip(texts, some, strict=True)]
    found: dict[str, dict[str, object]] = {}
    cache = FeatureCache(target.config.hidden_size, folder / "unused.bin")
    cache.append(rows, target.features([row.tokens for row in rows]))
    for kind in STEPS:
        heads = load_heads(folder / kind, target)
        seen = heads.measure((cache.batch([place], target.device) for place in range(len(rows))), target)
        found[kind] = {
            "positions": seen.positions,
            "first_guess_right": [round(row[0], 4) for row in seen.accuracies],
            "right_so_far": [round(share, 4) for share in seen.reached],
            "tokens_per_step": round(seen.tokens_per_step, 3),
            "trees": {str(size): round(length, 3) for size, length in seen.trees.items()},
        }
    return found


def main(arguments: list[str] | None = None) -> int:
    """Train both kinds of heads into kvasir-guide/heads and write evaluation/heads.json."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--build", type=_place, default=HERE / "build")
    parser.add_argument("--out", type=_place, default=TARGET_FOLDER / "heads")
    parser.add_argument("--measure-only", action="store_true", help="train nothing")
    parser.add_argument("--warm-start", action="store_true", help="begin with the heads that are there")
    parser.add_argument("--dialogues", type=int, default=DIALOGUES, help="of the text; half as many as the rows")
    parser.add_argument("--steps", type=int, help="instead of those of a training from nothing")
    parser.add_argument("--kind", choices=tuple(STEPS), help="train these only")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not options.measure_only:
        options.build.mkdir(parents=True, exist_ok=True)
        text = options.build / "heads.jsonl"
        text.write_text("".join(lines(options.dialogues, SEED)), "utf-8")
        for kind in (options.kind,) if options.kind else STEPS:
            start = TARGET_FOLDER / "heads" / kind if options.warm_start else None
            code = train(kind, text, options.out / kind, options.steps or STEPS[kind], 2 * options.dialogues, start)
            if code:
                return code
        if options.kind:
            return 0
    found = measure(options.out)
    (HERE / "evaluation" / "heads.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
