"""Make the bundled models: knowledge, tokenizer, text, training, export, evaluation, heads, cards.

From nothing, or (``--warm-start``) from the weights and the tokenizer of the models that are there, at a lower rate:
that takes fewer minutes where only some of the answers changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WARM_RATE = "0.0012"
"""Peak learning rate of a warm start; from nothing it is that of train.py."""
# glibc returns large blocks to the system at every free; keeping them saves a quarter of the training time.
# Threads that wait without spinning train several times faster when other programs use the cores as well.
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONPATH": str(HERE.parents[1]),  # heads.py measures with what tests/ has
}


def steps(minutes: float, tokens: int, build: Path, warm: bool = False) -> list[list[str]]:
    """The scripts to run, in order, with their arguments."""
    folder = str(build)
    learner = ["--learner", str(HERE / "kvasir-guide")] if warm else []
    start = ["--warm-start", str(HERE), "--rate", WARM_RATE] if warm else []
    return [
        ["knowledge.py"],
        *([] if warm else [["tokenizer.py", "--out", folder]]),
        ["build_text.py", "--out", folder, "--tokens", str(tokens), *learner],
        ["train.py", "--folder", folder, "--minutes", str(minutes), "--steps", "0", *start],
        ["export.py", "--build", folder],
        ["evaluate.py", "--build", folder],
        ["heads.py", "--build", folder],
        ["card.py"],
    ]


def main(arguments: list[str] | None = None) -> int:
    """Make both models; takes the minutes of training and about twenty more. Resumes an interrupted training."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=65.0, help="training time; fewer are enough on a GPU")
    parser.add_argument(
        "--tokens", type=int, default=14_000_000, help="size of the training text; it is repeated as needed"
    )
    parser.add_argument("--build", type=Path, default=HERE / "build", help="folder for text and checkpoints")
    parser.add_argument("--warm-start", action="store_true", help="go on from the models that are there")
    options = parser.parse_args(arguments)
    options.build.mkdir(parents=True, exist_ok=True)
    if options.warm_start:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(HERE / "kvasir-guide" / name, options.build / name)
    for script, *rest in steps(options.minutes, options.tokens, options.build, options.warm_start):
        command = [sys.executable, str(HERE / script), *rest]
        sys.stdout.write(f"== {' '.join([script, *rest])}\n")
        sys.stdout.flush()
        code = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, check=False).returncode
        if code:
            sys.stderr.write(f"{script} failed. Read its message above, then run make.py again.\n")
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
