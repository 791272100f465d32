"""Make the bundled models from nothing: knowledge, tokenizer, text, training, export, evaluation, heads, cards."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# glibc returns large blocks to the system at every free; keeping them saves a quarter of the training time.
# Threads that wait without spinning train several times faster when other programs use the cores as well.
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "OMP_WAIT_POLICY": "PASSIVE",
}


def steps(minutes: float, tokens: int, build: Path) -> list[list[str]]:
    """The scripts to run, in order, with their arguments."""
    folder = str(build)
    return [
        ["knowledge.py"],
        ["tokenizer.py", "--out", folder],
        ["build_text.py", "--out", folder, "--tokens", str(tokens)],
        ["train.py", "--folder", folder, "--minutes", str(minutes), "--steps", "0"],
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
    options = parser.parse_args(arguments)
    options.build.mkdir(parents=True, exist_ok=True)
    for script, *rest in steps(options.minutes, options.tokens, options.build):
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
